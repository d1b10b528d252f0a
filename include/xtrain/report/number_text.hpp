// Numbers as text.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <string>

#include <xtrain/core/text.hpp>

namespace xtrain::detail {

/// `digits` significant digits: 0.00015, 2.081, 3e-07.
[[nodiscard]] inline std::string digits_text(double value, int digits = 4) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}
/// From 10,000 on with a decimal unit: 86.79k.
[[nodiscard]] inline std::string unit_text(double value, int digits = 4) {
  constexpr std::array<const char*, 5> units{"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  if (std::abs(value) >= 1e4)
    while (std::abs(value) >= 1000 && unit + 1 < units.size()) {
      value /= 1000;
      ++unit;
    }
  return concat(digits_text(value, digits), units[unit]);
}
/// 12,345.
[[nodiscard]] inline std::string grouped_text(std::size_t count) {
  std::string text = concat(count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}
[[nodiscard]] inline std::string duration_text(double seconds) {
  if (!(seconds < 1e9)) return concat(digits_text(seconds), " s");
  if (seconds < 60) return concat(digits_text(seconds, 3), " s");
  const auto whole = static_cast<std::size_t>(seconds + 0.5);
  const std::size_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  if (days > 0) return concat(days, " d ", hours, " h");
  if (hours > 0) return concat(hours, " h ", minutes, " min");
  return concat(minutes, " min ", whole % 60, " s");
}
[[nodiscard]] inline std::string date_text(std::size_t unix_time) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm date{};
  std::array<char, 40> text{};
  if (::gmtime_r(&seconds, &date) == nullptr || std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &date) == 0) return concat(unix_time);
  return text.data();
}

}  // namespace xtrain::detail
