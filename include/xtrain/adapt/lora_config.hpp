// Settings of LoRA.
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

/// Parameters that LoRA adds to a module.
namespace lora_names {
/// Of an adapted linear layer.
inline constexpr std::string_view a = ".lora_A.weight", b = ".lora_B.weight";
inline constexpr std::string_view table_a = ".lora_embedding_A", table_b = ".lora_embedding_B";
inline constexpr std::string_view magnitude = ".lora_magnitude_vector";

/// The adapter parameter's module; empty: a base parameter.
[[nodiscard]] constexpr std::string_view module_beside(std::string_view parameter) {
  for (const std::string_view own : {a, b, table_a, table_b, magnitude})
    if (parameter.ends_with(own)) return parameter.substr(0, parameter.size() - own.size());
  return {};
}
}  // namespace lora_names

/// Trained biases of the base model: none, all, or of adapted modules.
enum class trained_biases : std::uint8_t { none, all, adapted };

/// Modules are chosen by names or a pattern; excluded or trained modules and other layers get no adapter.
struct lora_config {
  std::size_t rank = 8;
  double alpha = 16.0;                                                 ///< scale: alpha / rank
  double dropout = 0.0;                                                ///< of the adapter's input
  std::vector<std::string> targets = {};                               ///< module names, e.g. "q_proj"; empty: the family's default
  std::vector<std::string> modules_to_save = {};                       ///< base modules to train
  std::string target_pattern = {};                                     ///< replaces targets: matches full names; or "all-linear"
  std::vector<std::string> exclude = {};                               ///< module names
  std::string exclude_pattern = {};                                    ///< matches full names
  std::vector<std::size_t> layers = {};                                ///< empty: all. Full names in targets are exempt
  std::vector<std::string> layers_pattern = {};                        ///< name of the layer list, e.g. "h"; empty: any numbered name
  std::vector<std::pair<std::string, std::size_t>> rank_pattern = {};  ///< other ranks by suffix; the first match counts
  std::vector<std::pair<std::string, double>> alpha_pattern = {};      ///< other alphas by suffix
  std::vector<std::string> target_parameters = {};                     ///< of a saved adapter: adapted tensors (experts); only for merge_adapter
  /// Parts of fused modules with an adapter of this rank each, in place of the module's: {"qkv_proj", {"q_proj", "v_proj"}}. Other parts have none.
  std::map<std::string, std::vector<std::string>> parts = {};
  bool rank_stabilised = false;                                        ///< scale: alpha / √rank      [Kalajdzievski 2023]
  bool dora = false;                                                   ///< trained magnitudes of rows      [Liu et al. 2024]
  bool frozen_b = false;                                               ///< B is not trained (MiCA); needs load_adapter, as B starts at zero
  trained_biases bias = trained_biases::none;

  /// Only dropout is not in adapter files.
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

  /// Null: not in parts.
  [[nodiscard]] const std::vector<std::string>* parts_of(const std::string& module) const;
  /// A module with parts: of all together.
  [[nodiscard]] std::size_t rank_of(const std::string& module) const;
  [[nodiscard]] double scale_of(const std::string& module) const;

  /// As in PEFT: a name in modules_to_save is a suffix (dots ignored) of the module's name or of an enclosing module's.
  [[nodiscard]] bool trains(const std::string& module) const;
  [[nodiscard]] bool trains_bias(const std::string& module, bool is_linear) const;
  [[nodiscard]] bool adapts(const std::string& module) const { return is_target(module) && !leaves_out(module); }
  /// The parameter's tensor is a target: full name, or suffix after a dot.
  [[nodiscard]] bool adapts_parameter(const std::string& parameter) const { return named_by(target_parameters, parameter); }
  /// An embedding is not a linear module.
  [[nodiscard]] bool adapts_table(const std::string& module) const { return !all_linear() && adapts(module); }

  void choose_targets(const std::vector<std::string>& of_family);

  /// throws config_error when settings contradict each other, a value is out of range, or a name matches no module
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
  /// PEFT saves 'classifier' and 'score' for sequence classification; a model has one of them.
  template <class IsThere>
  [[nodiscard]] bool is_other_name_of_classifier(std::string_view saved, const IsThere& is_there) const {
    const std::string_view other = saved == "score" ? "classifier" : saved == "classifier" ? "score" : "";
    return std::find(modules_to_save.begin(), modules_to_save.end(), other) != modules_to_save.end() && is_there(other);
  }
  /// Matches a suffix after a dot.
  [[nodiscard]] static pattern ending(const std::string& expression, std::string who);
  /// Value of the first pattern that matches a suffix after a dot.
  template <class Value>
  [[nodiscard]] static Value chosen_by(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& module,
                                       Value otherwise, const char* what) {
    for (const auto& one : patterns) {
      const bool is_name = one.first.find_first_of("\\[](){}*+?|^$.") == std::string::npos;  // usually true: no pattern to compile
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
