// Nearest of 256 fractions by a table lookup and a comparison, without branches, in 32 bits: vectorizable.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <xtrain/device/kernel/dynamic_code.hpp>

namespace xtrain::cpu_kernels {

/// Cells of [0, 1] by the upper 16 bits of a float: at most one midpoint between fractions each.
class nearest_fraction {
 public:
  /// `zero`: the index of 0 in `levels`.
  constexpr nearest_fraction(const std::array<float, 256>& levels, std::size_t zero) {
    for (std::size_t i = zero; i + 1 < 256; ++i) above_[i - zero] = dynamic_code::midpoint(levels, i);
    for (std::size_t i = 255 - zero; i < 256; ++i) above_[i] = std::numeric_limits<float>::infinity();
    std::size_t below = 0;  // midpoints below
    for (std::int32_t c = 0; c < cells; ++c) {
      while (c != 0 && above_[below] < edge(c)) ++below;
      below_[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(below);
      if (below < 255 && above_[below + 1] < edge(c + 1)) is_exact_ = false;
    }
  }
  [[nodiscard]] constexpr bool is_exact() const { return is_exact_; }

  /// Index, from the index of 0 on, of the fraction nearest to a magnitude of [0, 1]; NaN stays in the table.
  [[nodiscard]] std::int32_t operator()(float magnitude) const {
    const std::int32_t cell = std::min(std::max(std::bit_cast<std::int32_t>(magnitude) >> 16, first_cell), last_cell) - first_cell;
    const std::int32_t below = below_[static_cast<std::size_t>(cell)];
    return below + (magnitude > above_[static_cast<std::size_t>(below)] ? 1 : 0);
  }

 private:
  static constexpr std::int32_t first_cell = std::bit_cast<std::int32_t>(0x1p-23f) >> 16;  // and smaller numbers
  static constexpr std::int32_t last_cell = std::bit_cast<std::int32_t>(1.0f) >> 16;
  static constexpr std::int32_t cells = last_cell - first_cell + 1;

  [[nodiscard]] static constexpr float edge(std::int32_t c) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(first_cell + c) << 16);
  }

  std::array<float, 256> above_{};  // above_[i]: between fractions i and i + 1
  std::array<std::int32_t, static_cast<std::size_t>(cells)> below_{};
  bool is_exact_ = true;
};

inline constexpr nearest_fraction nearest_signed(dynamic_code::signed_levels, dynamic_code::signed_zero);
inline constexpr nearest_fraction nearest_unsigned(dynamic_code::unsigned_levels, 0);
static_assert(nearest_signed.is_exact() && nearest_unsigned.is_exact());

[[nodiscard]] inline std::uint8_t signed_code_of(float fraction) {
  const auto bits = std::bit_cast<std::uint32_t>(fraction);
  const std::int32_t i = nearest_signed(std::bit_cast<float>(bits & 0x7fffffffU)), zero = dynamic_code::signed_zero;
  // the largest fraction, 1, has no negative counterpart
  return static_cast<std::uint8_t>((bits >> 31) != 0 ? zero - std::min(i, zero) : zero + i);
}
[[nodiscard]] inline std::uint8_t unsigned_code_of(float fraction) { return static_cast<std::uint8_t>(nearest_unsigned(fraction)); }

}  // namespace xtrain::cpu_kernels
