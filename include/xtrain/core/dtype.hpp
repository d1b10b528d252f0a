// Dtypes, their traits, and 16-bit storage types.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>

namespace xtrain {

namespace detail {

/// "Round to odd": the last bit records whether bits were cut off, so that a second rounding to 16 bits equals a direct one. [Boldo & Melquiond 2008]
constexpr float float_rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if ((bits & 0x7fffffffU) == 0x7f800000U) return nearest;  // beyond the float range: infinite
  const double magnitude = value < 0 ? -value : value;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  const std::uint32_t towards_zero = rounded > magnitude ? bits - 1U : bits;
  return std::bit_cast<float>(towards_zero | 1U);
}

}  // namespace detail

/// bfloat16: 8 bits of exponent, 8 of precision; the upper half of a float. Rounds to nearest even; keeps NaN and subnormals.
struct bf16 {
  std::uint16_t bits = 0;

  constexpr bf16() = default;
  constexpr explicit bf16(float value) : bits(rounded(value)) {}
  constexpr explicit bf16(double value) : bf16(detail::float_rounded_to_odd(value)) {}
  constexpr explicit bf16(std::integral auto value) : bf16(static_cast<double>(value)) {}
  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  [[nodiscard]] static constexpr bf16 from_bits(std::uint16_t bits) {
    bf16 value;
    value.bits = bits;
    return value;
  }

 private:
  static constexpr std::uint16_t rounded(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    if (value != value) return static_cast<std::uint16_t>((u >> 16) | 0x40U);  // quiet, sign kept
    return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
};

/// IEEE 754 binary16: 5 bits of exponent, 11 of precision, maximum 65504. Rounds to nearest even; keeps NaN and subnormals; overflow: infinity.
struct fp16 {
  std::uint16_t bits = 0;

  constexpr fp16() = default;
  constexpr explicit fp16(float value) : bits(rounded(value)) {}
  constexpr explicit fp16(double value) : fp16(detail::float_rounded_to_odd(value)) {}
  constexpr explicit fp16(std::integral auto value) : fp16(static_cast<double>(value)) {}
  constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fU;
    const std::uint32_t fraction = bits & 0x3ffU;
    if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (fraction << 13));
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal or zero: exact in float
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }

  [[nodiscard]] static constexpr fp16 from_bits(std::uint16_t bits) {
    fp16 value;
    value.bits = bits;
    return value;
  }

 private:
  static constexpr std::uint16_t rounded(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (u >> 16) & 0x8000U;
    const std::uint32_t magnitude = u & 0x7fffffffU;
    if (magnitude > 0x7f800000U)  // quiet NaN, upper bits of its payload
      return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
    if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and above
    if (magnitude < 0x38800000U) {  // below 2^-14: with 0.5 added the float rounds at 2^-24
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
    }
    const std::uint32_t rebased = magnitude - (112U << 23);
    return static_cast<std::uint16_t>(sign | ((rebased + 0xfffU + ((rebased >> 13) & 1U)) >> 13));
  }
};

/// Rounds up with probability proportional to the distance from the lower neighbor: unbiased. `word`: uniform, lower 16 bits used. Float and wider are not
/// rounded. [Gupta et al. 2015, section 3]
template <class T>
[[nodiscard]] constexpr T rounded_stochastically(float value, std::uint32_t) {
  return static_cast<T>(value);
}
template <>
[[nodiscard]] constexpr bf16 rounded_stochastically<bf16>(float value, std::uint32_t word) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7f800000U) == 0x7f800000U) return bf16(value);
  return bf16::from_bits(static_cast<std::uint16_t>((u + (word & 0xffffU)) >> 16));
}
template <>
[[nodiscard]] constexpr fp16 rounded_stochastically<fp16>(float value, std::uint32_t word) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 16) & 0x8000U;
  const std::uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude >= 0x477fe000U) return fp16(value);  // 65504 and above, infinities, NaN: nothing above
  if (magnitude < 0x38800000U) {                     // subnormal: steps of 2^-24
    const float steps = std::bit_cast<float>(magnitude) * 0x1p24f + static_cast<float>(word & 0xffffU) * 0x1p-16f;
    return fp16::from_bits(static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(steps)));
  }
  return fp16::from_bits(static_cast<std::uint16_t>(sign | ((magnitude - (112U << 23) + (word & 0x1fffU)) >> 13)));
}
template <class T>
[[nodiscard]] constexpr T rounded_stochastically(double value, std::uint32_t word) {
  if constexpr (sizeof(T) < sizeof(float)) return rounded_stochastically<T>(static_cast<float>(value), word);
  else return static_cast<T>(value);
}

/// `accumulate`: dtype of sums; `unit_roundoff`: largest relative error of rounding to nearest.
template <class T>
struct dtype_traits;

template <>
struct dtype_traits<float> {
  using accumulate = float;
  static constexpr std::string_view name = "fp32";
  static constexpr double unit_roundoff = 0x1p-24;
  static constexpr double largest = 0x1.fffffep127;
  static constexpr int exponent_bits = 8;
};
template <>
struct dtype_traits<double> {
  using accumulate = double;
  static constexpr std::string_view name = "fp64";
  static constexpr double unit_roundoff = 0x1p-53;
  static constexpr double largest = std::numeric_limits<double>::max();
  static constexpr int exponent_bits = 11;
};
template <>
struct dtype_traits<bf16> {
  using accumulate = float;
  static constexpr std::string_view name = "bf16";
  static constexpr double unit_roundoff = 0x1p-8;
  static constexpr double largest = 0x1.fep127;
  static constexpr int exponent_bits = 8;
};
template <>
struct dtype_traits<fp16> {
  using accumulate = float;
  static constexpr std::string_view name = "fp16";
  static constexpr double unit_roundoff = 0x1p-11;
  static constexpr double largest = 65504.0;
  static constexpr int exponent_bits = 5;
};
template <>
struct dtype_traits<std::int32_t> {
  static constexpr std::string_view name = "int32";
};

/// Floating-point dtypes of tensors.
template <class T>
concept dtype = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bf16> || std::same_as<T, fp16>;

/// Dtype of sums of T.
template <class T>
using accumulate_t = typename dtype_traits<T>::accumulate;

/// A token id; negative: padding, or no label.
using token = std::int32_t;
/// Target of padding, which belongs to no sample. Other missing targets are other negative values.
inline constexpr token padding_target = -2;

}  // namespace xtrain
