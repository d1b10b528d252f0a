// Chart axes: numbers to positions; ticks at round numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/report/number_text.hpp>

namespace xtrain::detail {

struct axis_tick {
  double at = 0;  // 0 to 1
  std::string text{};
};

/// Numbers to 0..1.
struct chart_axis {
  double low = 0, high = 1;
  bool is_log = false;

  [[nodiscard]] double at(double value) const {
    const double part = is_log ? (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low)) : (value - low) / (high - low);
    return std::clamp(part, 0.0, 1.0);
  }

  /// At round numbers, about `wanted`.
  template <class Text>
  [[nodiscard]] std::vector<axis_tick> ticks(double wanted, Text&& text) const {
    std::vector<axis_tick> all;
    const auto add = [&](double value, double step) { all.push_back({at(value), text(value, step)}); };
    if (is_log && high / low >= 8) {
      const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9)) - 1, last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
      const int every = std::max(1, static_cast<int>(static_cast<double>(last - first) / wanted));
      for (int decade = first; decade <= last; decade += every)
        for (const double digit : {1.0, 2.0, 5.0}) {
          const double value = digit * std::pow(10.0, decade);
          if (digit > 1 && last - first > 3) continue;
          if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) add(value, std::pow(10.0, decade));
        }
      if (all.size() >= 2) return all;
      all.clear();
    }
    const double rough = (high - low) / wanted, decade = std::pow(10.0, std::floor(std::log10(rough)));
    double step = 10 * decade;
    for (const double digit : {1.0, 2.0, 5.0})
      if (digit * decade >= rough * 0.999) {
        step = digit * decade;
        break;
      }
    const double first = std::ceil(low / step - 1e-9);
    for (int i = 0; i < 40; ++i) {
      const double value = (first + i) * step;
      if (!(value <= high + step * 1e-9)) break;
      if (!is_log || value > 0) add(value == 0 ? 0.0 : value, step);
    }
    return all;
  }
};

/// With as many decimals as the step needs.
[[nodiscard]] inline std::string tick_text(double value, double step) {
  const double size = std::max(std::abs(value), step);
  if (value == 0) return "0";
  if (size >= 1e15 || size < 1e-3) {
    std::string text = digits_text(value, static_cast<int>(std::clamp(std::ceil(std::log10(size / step) - 1e-9) + 1, 1.0, 6.0)));
    for (const char* zero : {"e-0", "e+0"})
      if (const std::size_t at = text.find(zero); at != std::string::npos) text.erase(at + 2, 1);
    return text;
  }
  double divisor = 1;
  const char* unit = "";
  for (const auto& [each, name] : {std::pair{1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}})
    if (size >= each * 0.9999 && (each > 1e3 || size >= 9999)) {
      divisor = each;
      unit = name;
    }
  const int decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step / divisor) + 1e-9), 0.0, 6.0));
  return concat(fixed(value / divisor, decimals), unit);
}

}  // namespace xtrain::detail
