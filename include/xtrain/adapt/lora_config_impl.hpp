// Definitions of lora_config.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/adapt/module_names.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/pattern.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain {

XTRAIN_INLINE const std::vector<std::string>* lora_config::parts_of(const std::string& module) const {
  for (const auto& [fused, names] : parts)
    if (named_by(fused, module)) return &names;
  return nullptr;
}

XTRAIN_INLINE std::size_t lora_config::rank_of(const std::string& module) const {
  const std::vector<std::string>* names = parts_of(module);
  return chosen_by(rank_pattern, module, rank, "rank_pattern") * (names == nullptr ? 1 : names->size());
}

XTRAIN_INLINE double lora_config::scale_of(const std::string& module) const {
  const auto r = static_cast<double>(chosen_by(rank_pattern, module, rank, "rank_pattern"));  // of a part, if any
  return chosen_by(alpha_pattern, module, alpha, "alpha_pattern") / (rank_stabilised ? std::sqrt(r) : r);
}

XTRAIN_INLINE bool lora_config::trains(const std::string& module) const {
  return lies_in(module, [&](std::string_view name) {
    return std::any_of(modules_to_save.begin(), modules_to_save.end(), [&](const std::string& choice) { return name.ends_with(choice); });
  });
}

XTRAIN_INLINE bool lora_config::trains_bias(const std::string& module, bool is_linear) const {
  return bias == trained_biases::all || (bias == trained_biases::adapted && is_linear && adapts(module));
}

XTRAIN_INLINE void lora_config::choose_targets(const std::vector<std::string>& of_family) {
  if (targets.empty() && target_pattern.empty()) targets = of_family;
}

XTRAIN_INLINE bool lora_config::all_linear() const {
  constexpr std::string_view word = "all-linear";
  return std::equal(target_pattern.begin(), target_pattern.end(), word.begin(), word.end(),
                    [](char given, char w) { return given == w || (given >= 'A' && given <= 'Z' && given + ('a' - 'A') == w); });
}

XTRAIN_INLINE bool lora_config::is_target(const std::string& module) const {
  if (target_pattern.empty()) return named_by(targets, module);
  return all_linear() || pattern(target_pattern, "lora: the pattern of targets").matches(module);
}

XTRAIN_INLINE bool lora_config::leaves_out(const std::string& module) const {
  if (trains(module) || named_by(exclude, module)) return true;
  if (!exclude_pattern.empty() && pattern(exclude_pattern, "lora: the pattern of exclusions").matches(module)) return true;
  if (layers.empty() || std::find(targets.begin(), targets.end(), module) != targets.end()) return false;
  const auto layer = layer_of(module, layer_patterns());
  return !layer || std::find(layers.begin(), layers.end(), *layer) == layers.end();
}

XTRAIN_INLINE std::vector<pattern> lora_config::layer_patterns() const {
  std::vector<pattern> all;
  for (const std::string& name : layers_pattern) all.push_back(ending(name, "lora: the pattern of layers"));
  return all;
}

XTRAIN_INLINE pattern lora_config::ending(const std::string& expression, std::string who) {
  return {concat("(.*\\.)?(", expression, ")"), std::move(who)};
}

XTRAIN_INLINE void lora_config::require_range() const {
  const std::string first = target_parameters.empty() ? std::string() : target_parameters.front();
  require<config_error>(target_parameters.empty(), "lora: an adapter of parameters (target_parameters: '", first,
                        "') must be merged into the model, with merge_adapter or convert --adapter; it is not trained");
  require_ranges("lora", *this);
  for (const auto& [name, r] : rank_pattern) require<config_error>(r > 0, "lora: the rank of '", name, "' must be positive; given ", r);
  for (const auto& [name, a] : alpha_pattern) require<config_error>(a > 0.0, "lora: the alpha of '", name, "' must be positive; given ", a);
  for (const auto* names : {&targets, &modules_to_save, &exclude, &layers_pattern})
    require<config_error>(std::find(names->begin(), names->end(), "") == names->end(), "lora: names of modules must not be empty");
  for (const auto& [fused, names] : parts) {
    require<config_error>(!names.empty(), "lora: parts of '", fused, "' must be named; none is given");
    require<config_error>(!dora, "lora: parts of '", fused, "' must not be decomposed (DoRA): they have LoRA alone");
    require<config_error>(rank_pattern.empty() && alpha_pattern.empty(), "lora: rank and alpha must be the same for all modules where parts of '", fused,
                          "' have adapters; a pattern is given");
  }
  require<config_error>(targets.empty() || target_pattern.empty(), "lora: targets must be names or a pattern; both are given");
  require<config_error>(exclude.empty() || exclude_pattern.empty(), "lora: exclusions must be names or a pattern; both are given");
  require<config_error>(layers.empty() || target_pattern.empty(),
                        "lora: layers must be chosen by the pattern where targets are one; layers are given as well");
  require<config_error>(layers_pattern.empty() || !layers.empty(), "lora: layers must be given where the pattern of their names is");
}

}  // namespace xtrain
