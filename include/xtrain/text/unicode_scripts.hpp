// Scripts, for UnicodeScripts. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/text/script_table.hpp>

namespace xtrain::detail {

/// Script number; 0 for a negative code.
[[nodiscard]] inline std::int32_t script_of(std::int32_t code) {
  static const std::vector<std::pair<std::int32_t, std::int32_t>> begins = [] {  // first character and script of runs
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::vector<std::pair<std::int32_t, std::int32_t>> all;
    std::size_t at = 0;
    const auto number = [&] {
      std::int32_t value = 0;
      for (int shift = 0;; shift += 5) {
        const auto digit = static_cast<std::int32_t>(digits.find(script_runs[at++]));
        value |= (digit & 31) << shift;
        if (digit < 32) return value;
      }
    };
    for (std::int32_t first = 0; at < script_runs.size();) {
      all.emplace_back(first, number());
      first += number();
    }
    return all;
  }();
  if (code < 0) return 0;
  const auto behind = std::upper_bound(begins.begin(), begins.end(), code, [](std::int32_t c, const auto& run) { return c < run.first; });
  return (behind - 1)->second;
}

}  // namespace xtrain::detail
