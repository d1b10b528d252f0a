// Which families a program can load.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/models/decoder_family.hpp>

namespace xtrain {

/// A family as a function argument.
template <class Family>
struct family_tag {
  using type = Family;
};

namespace detail {

/// config.json's model_type is the family's: its name, unless declared.
template <class Family>
[[nodiscard]] bool has_type(const std::string& model_type) {
  return model_type == model_type_of<Family>;
}

}  // namespace detail

/// The families that a program can load.
template <class... Families>
struct family_list {
  /// "gpt2, llama, …"
  [[nodiscard]] static std::string names() {
    std::string all;
    ((all += ", ", all += Families::name), ...);
    return all.substr(2);
  }
  [[nodiscard]] static std::vector<std::string> all_names() { return {Families::name...}; }
  ///   throws  config_error when config.json's family is not in the list
  template <class Info = decoder_family_info>
  [[nodiscard]] static const Info& of(const named_settings& settings) {
    const Info* found = nullptr;
    choose(settings, settings.who(), [&](auto family) { found = &info_of<typename decltype(family)::type>; });
    return *found;
  }
  /// null: not in the list
  template <class Info = decoder_family_info>
  [[nodiscard]] static const Info* named(std::string_view name) {
    const Info* found = nullptr;
    ((name == Families::name ? (void)(found = &info_of<Families>) : (void)0), ...);
    return found;
  }
  /// Calls use(family_tag<Family>{}) for the family of a config.json.
  ///   who     names the file
  ///   throws  config_error when it is not in the list
  template <class Settings, class Use>
  static void choose(const Settings& settings, const std::string& who, Use&& use) {
    const std::string type = settings.text_or("", {"model_type"});
    const auto try_all = [&](bool exactly) {
      return ((detail::has_type<Families>(type) && (!exactly || Families::describes(settings)) ? (use(family_tag<Families>{}), true)
                                                                                                       : false) ||
              ...);
    };
    const bool found = try_all(true) || try_all(false);  // otherwise a family with this model_type gives the error message
    require<config_error>(found, who, ": its model_type must be one that this program was compiled with (", names(), "); it is '", type,
                          "'. Others: FAMILIES of xtrain_add_trainer, or the family_list that load_model is given");
  }
};

}  // namespace xtrain
