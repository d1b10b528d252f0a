// Dequantization of 4-bit NF4 weights.                              [Dettmers et al. 2023, "QLoRA", sections 2 and 3]
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/dynamic_code.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

/// n elements of four bits with double quantization: a block of 64 has a scale, its largest magnitude, and an element is one of 16 fractions of it. Scales
/// minus
/// their mean share an outer scale per 256 and are one of 256 fractions of it.
namespace nf4 {

inline constexpr std::size_t block = 64;             // elements per scale
inline constexpr std::size_t scales_together = 256;  // scales per outer scale

/// Of n weights.
[[nodiscard]] constexpr std::size_t code_bytes(std::size_t n) { return (n + 1) / 2; }
/// Of n weights.
[[nodiscard]] constexpr std::size_t scales(std::size_t n) { return (n + block - 1) / block; }
/// The mean of scales, then an outer scale per 256.
[[nodiscard]] constexpr std::size_t outer_scales(std::size_t n) { return 1 + (scales(n) + scales_together - 1) / scales_together; }

/// Quantiles of the normal distribution, eight evenly spaced per half (the negative half's last coincides with zero), between probabilities
/// 1/2 (1/32 + 1/30) and one half.        [appendix E]
inline constexpr std::array<float, 16> levels{-1.0f,
                                              -0.6961928009986877f,
                                              -0.5250730514526367f,
                                              -0.39491748809814453f,
                                              -0.28444138169288635f,
                                              -0.18477343022823334f,
                                              -0.09105003625154495f,
                                              0.0f,
                                              0.07958029955625534f,
                                              0.16093020141124725f,
                                              0.24611230194568634f,
                                              0.33791524171829224f,
                                              0.44070982933044434f,
                                              0.5626170039176941f,
                                              0.7229568362236023f,
                                              1.0f};

inline constexpr std::uint8_t zero = 7;  // index of 0

/// Fractions for the scales.
inline constexpr const std::array<float, 256>& scale_levels = dynamic_code::signed_levels;

/// Of block b.
[[nodiscard]] inline float scale_of(std::size_t b, const std::uint8_t* scale_k, const float* outer) {
  // fma: one rounding for any compiler flags
  return std::fma(scale_levels[scale_k[b]], outer[1 + b / scales_together], outer[0]);
}

}  // namespace nf4

namespace kernel {

/// y_i = element i's fraction · its block's scale; element 2j is in the upper half of byte j, 2j + 1 in the lower.
///   code_n2    read      nf4::code_bytes(n)
///   scale_k    read      nf4::scales(n)
///   outer      read      nf4::outer_scales(n)
///   y_n        written   computed in fp32, rounded once
template <class Memory, class T>
struct dequantize_nf4 {
  static constexpr std::string_view name = "dequantize_nf4";
  template <class M>
  using on = dequantize_nf4<M, T>;

  std::size_t n = 0;
  read<std::uint8_t, Memory> code_n2{}, scale_k{};
  read<float, Memory> outer{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.code_n2, s.scale_k, s.outer, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n); }
};

}  // namespace kernel

}  // namespace xtrain
