// Eight-bit codes of numbers, relative to their block's largest magnitude.     [Dettmers et al. 2022, "8-bit optimizers", section 1.3]
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace xtrain::dynamic_code {

inline constexpr std::size_t block = 256;  // elements per scale

[[nodiscard]] constexpr std::size_t blocks(std::size_t n) { return (n + block - 1) / block; }

/// Fractions of the largest magnitude, ascending: 0, 1, and for i = 0 … 6 midpoints of equal intervals of [0.1, 1] times 10^(i − 6): 2^i intervals with signs
/// (1 has no negative counterpart), 2^(i + 1) without. bitsandbytes (create_dynamic_map) computes in fp32: some fractions differ by one or two units in the
/// last
/// place.
[[nodiscard]] constexpr std::array<float, 256> make_levels(bool is_signed) {
  std::array<float, 256> all{};
  std::size_t next = 0;
  double power = 1e-6;
  for (std::size_t i = 0; i < 7; ++i, power *= 10.0) {
    const std::size_t pieces = std::size_t{1} << (is_signed ? i : i + 1);
    for (std::size_t j = 0; j < pieces; ++j) {
      const double middle = 0.1 + 0.9 * (static_cast<double>(j) + 0.5) / static_cast<double>(pieces);
      all[next++] = static_cast<float>(power * middle);
      if (is_signed) all[next++] = static_cast<float>(-power * middle);
    }
  }
  all[next++] = 0.0f;
  all[next] = 1.0f;
  std::sort(all.begin(), all.end());
  return all;
}
inline constexpr std::array<float, 256> signed_levels = make_levels(true), unsigned_levels = make_levels(false);

inline constexpr std::uint8_t signed_zero = 127;  // index of 0 in signed_levels

/// Between fractions i and i + 1: numbers become the nearest fraction; at a midpoint the smaller magnitude.
[[nodiscard]] constexpr float midpoint(const std::array<float, 256>& levels, std::size_t i) { return (levels[i] + levels[i + 1]) * 0.5f; }

}  // namespace xtrain::dynamic_code
