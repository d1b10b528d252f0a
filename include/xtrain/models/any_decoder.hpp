// A decoder with layers chosen at run time: a program for every family compiles one model.
#pragma once

#include <string>
#include <utility>

#include <xtrain/layers/computation.hpp>
#include <xtrain/models/any_block.hpp>
#include <xtrain/models/compiled_models.hpp>
#include <xtrain/models/decoder.hpp>
#include <xtrain/models/recipe_members.hpp>

namespace xtrain {

#ifdef XTRAIN_LIBRARY
inline namespace with_library {  // see decoder
#endif

/// A decoder of the family in decoder_config::family, one of `Families`.
template <class Recipe, class Families>
class any_decoder_of : public recipe_decoder<detail::compiled_recipe<Recipe>, any_block<computation_of<Recipe>>> {
  using base = recipe_decoder<detail::compiled_recipe<Recipe>, any_block<computation_of<Recipe>>>;
  static_assert(detail::members_are_axes<Recipe>());  // the trainer's model knows the axes only

 public:
  using shared_model = base;
  using typename base::config_type;
  using typename base::context_type;
  using typename base::options;
  using typename base::uninitialised_t;
  template <class Other>
  using with_recipe = any_decoder_of<Other, Families>;

  /// throws  config_error when the config has no family, or one with custom layers
  explicit any_decoder_of(config_type sizes, const context_type& on = context_type{}, const options& settings = options{})
      : base(checked(std::move(sizes)), on, settings) {}
  any_decoder_of(uninitialised_t tag, config_type sizes, const context_type& on, const options& settings)
      : base(tag, checked(std::move(sizes)), on, settings) {}

  ///   throws  config_error unless it is in `Families`
  [[nodiscard]] static const decoder_family_info& family_of(const named_settings& settings) { return Families::of(settings); }

  ///   throws  file_error, config_error when config.json and weights contradict each other or the family, memory_error
  template <class Self = any_decoder_of>
  [[nodiscard]] static Self from_pretrained(const std::string& folder, const context_type& on = context_type{}, const options& settings = options{}) {
    static_assert(
        requires { load_pretrained(pretrained_tag<Self>{}, folder, on, settings); },
        "xtrain from_pretrained: the 'io' component must be included; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
    return load_pretrained(pretrained_tag<Self>{}, folder, on, settings);
  }

 private:
  static config_type checked(config_type sizes) {
    require<config_error>(sizes.family == nullptr || sizes.family->has_known_layers(), sizes.family == nullptr ? "" : sizes.family->name,
                          ": a family with layers of its own must be compiled as decoder<Recipe, Family>");
    return sizes;
  }
};

#ifdef XTRAIN_LIBRARY
}  // namespace with_library
#endif

}  // namespace xtrain
