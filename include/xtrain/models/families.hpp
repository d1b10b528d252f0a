// All families, and a model of whichever one a folder holds.
#pragma once

#include <string>
#include <utility>

#include <xtrain/models/aquila.hpp>
#include <xtrain/models/baichuan.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/chatglm.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/internlm.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/models/mistral.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/models/qwen2.hpp>

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
                          model_type, "'. More families: list them in load_model<Recipe, family_list<...>>");
  }
};

using all_families = family_list<gpt2_family, llama_family, mistral_family, mixtral_family, qwen2_family, bloom_family, baichuan_family, internlm_family,
                                 internlm2_family, aquila_family, chatglm_family>;

/// Makes the model that a folder's config.json describes, whatever its family, and calls visit(model). With <xtrain/io.hpp> included.
///   throws  file_error, config_error, memory_error
template <class Recipe, class Families = all_families, class Visit>
void load_model(const std::string& folder, Visit&& visit, const typename Recipe::device::context& on = {},
                const model_options<typename Recipe::adapter, typename Recipe::parallel>& options = {}) {
  static_assert(
      requires { pretrained_type(pretrained_tag<Recipe>{}, folder); },
      "xtrain load_model: the 'io' component must be included; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
  Families::choose(pretrained_type(pretrained_tag<Recipe>{}, folder), folder, [&](auto family) {
    using model_type = decoder<Recipe, typename decltype(family)::type>;
    auto model = model_type::from_pretrained(folder, on, options);
    visit(model);
  });
}

}  // namespace xtrain
