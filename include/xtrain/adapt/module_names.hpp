// Module names by PEFT's rules.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/pattern.hpp>

namespace xtrain {

/// "model.norm" of "model.norm.weight".
[[nodiscard]] inline std::string module_of(std::string_view parameter) { return std::string(parameter.substr(0, parameter.rfind('.'))); }

/// Full name, or suffix after a dot: "q_proj" matches every "model.layers.<i>.self_attn.q_proj".
[[nodiscard]] inline bool named_by(const std::string& choice, std::string_view module) {
  return module == choice ||
         (module.size() > choice.size() && module.ends_with(choice) && module[module.size() - choice.size() - 1] == '.');
}
[[nodiscard]] inline bool named_by(const std::vector<std::string>& choices, std::string_view module) {
  return std::any_of(choices.begin(), choices.end(), [&](const std::string& choice) { return named_by(choice, module); });
}

/// belongs(name) holds for the module or an enclosing one: "model.layers.0.mlp.up_proj", then "model.layers.0.mlp", and so on.
template <class Belongs>
[[nodiscard]] bool lies_in(std::string_view name, Belongs&& belongs) {
  while (true) {
    if (belongs(name)) return true;
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return false;
    name = name.substr(0, dot);
  }
}

/// The layer index: the first integer between dots after a name that matches `patterns` (none: any name but the outermost).
[[nodiscard]] inline std::optional<std::size_t> layer_of(std::string_view module, const std::vector<pattern>& patterns) {
  for (std::size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1)) {
    const std::string_view before = module.substr(0, dot), behind = module.substr(dot + 1);
    std::size_t index = 0;
    const auto [end, problem] = std::from_chars(behind.data(), behind.data() + behind.size(), index);
    if (problem != std::errc{} || end == behind.data() + behind.size() || *end != '.') continue;
    const bool counts = patterns.empty()
                            ? before.find('.') != std::string_view::npos
                            : std::any_of(patterns.begin(), patterns.end(), [&](const pattern& p) { return p.matches(before); });
    if (counts) return index;
  }
  return {};
}

}  // namespace xtrain
