// Settings of LoRA: which modules it adapts, with which rank and scale, and what else is trained.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/module_names.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/pattern.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain {

/// Names of the parameters that LoRA adds to a module.
namespace lora_names {
/// Matrices of an adapted linear layer.
inline constexpr std::string_view a = ".lora_A.weight", b = ".lora_B.weight";
inline constexpr std::string_view table_a = ".lora_embedding_A", table_b = ".lora_embedding_B";
inline constexpr std::string_view magnitude = ".lora_magnitude_vector";

/// The module that an adapter parameter belongs to; empty for a parameter of the base model.
[[nodiscard]] constexpr std::string_view module_beside(std::string_view parameter) {
  for (const std::string_view own : {a, b, table_a, table_b, magnitude})
    if (parameter.ends_with(own)) return parameter.substr(0, parameter.size() - own.size());
  return {};
}
}  // namespace lora_names

/// Which biases of the base model are trained: none, all, or those of adapted modules.
enum class trained_biases : std::uint8_t { none, all, adapted };

/// Settings of `lora`. Modules are chosen by names or by a pattern; a module that is excluded, outside the chosen layers, or trained
/// itself gets no adapter.
struct lora_config {
  std::size_t rank = 8;
  double alpha = 16.0;                                                 ///< the update is scaled by alpha / rank
  double dropout = 0.0;                                                ///< on the adapter's input
  std::vector<std::string> targets = {};                               ///< module names, e.g. "q_proj"; empty: the model family's default
  std::vector<std::string> modules_to_save = {};                       ///< modules of the base model that are trained as well
  std::string target_pattern = {};                                     ///< instead of targets: matches full names; or "all-linear"
  std::vector<std::string> exclude = {};                               ///< excluded module names
  std::string exclude_pattern = {};                                    ///< the same as a pattern; matches full names
  std::vector<std::size_t> layers = {};                                ///< only these; empty: all. Full names in targets are exempt
  std::vector<std::string> layers_pattern = {};                        ///< name of the layer list, e.g. "h"; empty: any numbered name
  std::vector<std::pair<std::string, std::size_t>> rank_pattern = {};  ///< a different rank where a name's suffix matches; the first match counts
  std::vector<std::pair<std::string, double>> alpha_pattern = {};      ///< a different alpha, likewise
  std::vector<std::string> target_parameters = {};                     ///< of a saved adapter: adapted tensors, as of experts; only merge_adapter takes it
  /// Parts of fused modules with an adapter each, of this rank, in place of one for the module: {"qkv_proj", {"q_proj", "v_proj"}}, as models have whose
  /// modules are not fused. Parts that are left out have none.
  std::map<std::string, std::vector<std::string>> parts = {};
  bool rank_stabilised = false;                                        ///< scale by alpha / √rank instead      [Kalajdzievski 2023]
  bool dora = false;                                                   ///< trained magnitudes of weight rows      [Liu et al. 2024]
  bool frozen_b = false;                                               ///< B is not trained (MiCA): load_adapter must follow, as B starts at zero
  trained_biases bias = trained_biases::none;

  /// All but the dropout are in an adapter's own files.
  template <class Self, class Visit>
  static constexpr void members(Self& c, Visit&& visit) {
    visit({.name = "rank", .range = setting_range::positive, .help = "rank of the update", .compared = false}, c.rank);
    visit({.name = "alpha", .range = setting_range::positive, .help = "the update is scaled by alpha / rank", .compared = false}, c.alpha);
    visit({.name = "dropout", .full_name = "lora_dropout", .range = setting_range::share_below_one, .help = "on the input of the adapter"}, c.dropout);
    visit({.name = "targets", .help = "module names; empty: those of the family", .compared = false}, c.targets);
    visit({.name = "modules_to_save", .help = "modules of the base model that are trained as well", .compared = false}, c.modules_to_save);
    visit({.name = "target_pattern", .help = "instead of targets: matches full names", .compared = false}, c.target_pattern);
    visit({.name = "exclude", .help = "excluded module names", .compared = false}, c.exclude);
    visit({.name = "exclude_pattern", .help = "the same as a pattern", .compared = false}, c.exclude_pattern);
    visit({.name = "layers", .help = "only these; empty: all", .compared = false}, c.layers);
    visit({.name = "layers_pattern", .help = "name of the layer list", .compared = false}, c.layers_pattern);
    visit({.name = "rank_pattern", .help = "another rank where a name matches", .compared = false}, c.rank_pattern);
    visit({.name = "alpha_pattern", .help = "another alpha where a name matches", .compared = false}, c.alpha_pattern);
    visit({.name = "target_parameters", .help = "of a saved adapter: adapted tensors", .compared = false}, c.target_parameters);
    visit({.name = "parts", .help = "parts of fused modules with an adapter each", .compared = false}, c.parts);
    visit({.name = "rank_stabilised", .help = "scale by alpha / sqrt(rank)", .compared = false}, c.rank_stabilised);
    visit({.name = "dora", .help = "trained magnitudes of weight rows", .compared = false}, c.dora);
    visit({.name = "frozen_b", .help = "B is not trained", .compared = false}, c.frozen_b);
    visit({.name = "bias", .help = "which biases are trained", .compared = false}, c.bias);
  }

  friend bool operator==(const lora_config&, const lora_config&) = default;

  /// The parts of a fused module with an adapter each; null: the module has one.
  [[nodiscard]] const std::vector<std::string>* parts_of(const std::string& module) const;
  /// Of a module whose parts have adapters: that of all together.
  [[nodiscard]] std::size_t rank_of(const std::string& module) const;
  [[nodiscard]] double scale_of(const std::string& module) const;

  /// Whether a name in modules_to_save is a suffix of the module's name (dots are not considered) or of a module containing it, as in PEFT.
  [[nodiscard]] bool trains(const std::string& module) const;
  [[nodiscard]] bool trains_bias(const std::string& module, bool is_linear) const;
  [[nodiscard]] bool adapts(const std::string& module) const { return is_target(module) && !leaves_out(module); }
  /// Whether a parameter's tensor is a target itself: full names, or suffixes after a dot.
  [[nodiscard]] bool adapts_parameter(const std::string& parameter) const { return named_by(target_parameters, parameter); }
  /// The same for an embedding table, which is not a linear module.
  [[nodiscard]] bool adapts_table(const std::string& module) const { return !all_linear() && adapts(module); }

  void choose_targets(const std::vector<std::string>& of_family);

  /// throws config_error when settings contradict each other, a number is out of range, or a name matches no module of the model
  template <class Store>
  void finish(const Store& store) const {
    require_range();
    std::vector<std::string> adapted, modules, last_names;
    for (const auto& entry : store.entries()) {
      const std::string& full = entry.spec.name;
      if (const std::string_view module = lora_names::module_beside(full); !module.empty()) {
        adapted.emplace_back(module);
        continue;
      }
      modules.push_back(module_of(full));
      last_names.push_back(modules.back().substr(modules.back().rfind('.') + 1));
    }
    const auto must_be = [&](const std::string& given, const char* what, const auto& known, auto&& means) {
      if (std::any_of(known.begin(), known.end(), means)) return;
      const std::string near = nearest_name(given, last_names);
      fail<config_error>("lora: '", given, "' must name ", what,
                         near.empty() || near == given ? "" : concat("; did you mean '", near, "'?"));
    };
    for (const std::string& target : targets) {
      const auto named = [&](const std::string& module) { return named_by(target, module); };
      const bool left_out = std::any_of(modules.begin(), modules.end(), [&](const std::string& m) { return named(m) && leaves_out(m); });
      if (!left_out) must_be(target, "a linear module or an embedding of the model", adapted, named);
    }
    const auto holds = [&](std::string_view saved) {
      return [saved](const std::string& module) { return lies_in(module, [&](std::string_view name) { return name.ends_with(saved); }); };
    };
    const auto is_there = [&](std::string_view saved) { return std::any_of(modules.begin(), modules.end(), holds(saved)); };
    for (const std::string& saved : modules_to_save)
      if (!is_other_name_of_classifier(saved, is_there)) must_be(saved, "a module of the model", modules, holds(saved));
    for (const auto& [fused, names] : parts) {
      const std::string& name = fused;  // clang 14 captures no structured bindings
      must_be(name, "a module with an adapter", adapted, [&](const std::string& module) { return named_by(name, module); });
    }
    for (const std::size_t layer : layers)
      require<config_error>(
          std::any_of(modules.begin(), modules.end(), [&](const std::string& m) { return layer_of(m, layer_patterns()) == layer; }),
          "lora: layers must be layers of the model; it has no layer ", layer);
    for (const auto& entry : store.entries()) {  // the head is a matrix too
      const std::string module = module_of(entry.spec.name);
      const bool is_left = entry.spec.shape.size() != 2 || all_linear() || !lora_names::module_beside(entry.spec.name).empty() ||
                           !adapts(module) || std::find(adapted.begin(), adapted.end(), module) != adapted.end();
      require<config_error>(is_left, "lora: targets must be linear modules or embeddings; '", module, "' is neither; exclude it");
    }
    require<config_error>(!adapted.empty(), "lora: at least one module must get an adapter; ",
                          target_pattern.empty() ? std::string("layers and exclusions leave none")
                                                 : concat("'", target_pattern, "' matches none that is not left out"));
  }

 private:
  [[nodiscard]] bool all_linear() const;
  [[nodiscard]] bool is_target(const std::string& module) const;
  [[nodiscard]] bool leaves_out(const std::string& module) const;
  [[nodiscard]] std::vector<pattern> layer_patterns() const;
  /// For sequence classification PEFT saves the modules 'classifier' and 'score': models have one of them.
  template <class IsThere>
  [[nodiscard]] bool is_other_name_of_classifier(std::string_view saved, const IsThere& is_there) const {
    const std::string_view other = saved == "score" ? "classifier" : saved == "classifier" ? "score" : "";
    return std::find(modules_to_save.begin(), modules_to_save.end(), other) != modules_to_save.end() && is_there(other);
  }
  /// Matches names with such a suffix, starting after a dot.
  [[nodiscard]] static pattern ending(const std::string& expression, std::string who);
  /// The value of the first pattern that matches a suffix of the module's name that starts after a dot.
  template <class Value>
  [[nodiscard]] static Value chosen_by(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& module,
                                       Value otherwise, const char* what) {
    for (const auto& one : patterns) {
      const bool is_name = one.first.find_first_of("\\[](){}*+?|^$.") == std::string::npos;  // most are: no need to compile a pattern
      if (is_name ? named_by(one.first, module) : ending(one.first, concat("lora: ", what)).matches(module)) return one.second;
    }
    return otherwise;
  }

  void require_range() const;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/lora_config_impl.hpp>
#endif
