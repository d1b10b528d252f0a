// Which families a program can load.
#pragma once

#include <string>

#include <xtrain/core/error.hpp>

namespace xtrain {

template <class Family>
struct family_tag {
  using type = Family;
};

/// The families that a program can load. Each is compiled for every recipe it is used with: a program that knows its models lists them.
template <class... Families>
struct family_list {
  /// "gpt2, llama, …"
  [[nodiscard]] static std::string names() {
    std::string all;
    ((all += ", ", all += Families::name), ...);
    return all.substr(2);
  }
  /// Calls use(family_tag<Family>{}) with the family whose config.json has this model_type.
  ///   throws  config_error when it is none of the list; `who` names the file
  template <class Use>
  static void choose(const std::string& model_type, const std::string& who, Use&& use) {
    const bool found = ((model_type == Families::name ? (use(family_tag<Families>{}), true) : false) || ...);
    require<config_error>(found, who, ": its model_type must be one that this program was compiled with (", names(), "); it is '",
                          model_type, "'. Others: FAMILIES of xtrain_add_trainer, or the family_list that load_model is given");
  }
};

}  // namespace xtrain
