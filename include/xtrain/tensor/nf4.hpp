// NF4: four-bit weights, memory layout and quantization.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/hooks.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/device/kernel/nf4.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// The adapter stores frozen linear weights in four bits.
template <class Adapter>
inline constexpr bool quantizes_weights = has_hook<Adapter, hook::quantizes_weights>;

/// Quantized values; arrays: see kernel::dequantize_nf4.
template <class Memory>
struct nf4_view {
  std::size_t n = 0;
  device_span<std::uint8_t, Memory> code_n2{}, scale_k{};
  device_span<float, Memory> outer{};
};

/// Quantized values on the host, with their memory.
struct nf4_array {
  std::vector<std::uint8_t> code_n2{}, scale_k{};
  std::vector<float> outer{};
};

namespace nf4 {

/// Index of the nearest value in the ascending array `rising`; the lower on a tie.
template <std::size_t N>
[[nodiscard]] std::uint8_t nearest(const std::array<float, N>& rising, float x) {
  const auto above = static_cast<std::size_t>(std::lower_bound(rising.begin() + 1, rising.end() - 1, x) - rising.begin());
  return static_cast<std::uint8_t>(x - rising[above - 1] <= rising[above] - x ? above - 1 : above);
}

/// For a block against `levels`. Counts boundaries below each value without branches, so it vectorizes.
[[nodiscard]] inline std::array<std::uint8_t, block> nearest_levels(const std::array<float, block>& x) {
  std::array<std::uint32_t, block> above;
  above.fill(1);
  for (std::size_t s = 1; s + 1 < levels.size(); ++s)
    for (std::size_t i = 0; i < block; ++i) above[i] += levels[s] < x[i] ? 1U : 0U;
  std::array<std::uint8_t, block> code{};
  for (std::size_t i = 0; i < block; ++i)
    code[i] = static_cast<std::uint8_t>(x[i] - levels[above[i] - 1] <= levels[above[i]] - x[i] ? above[i] - 1 : above[i]);
  return code;
}

/// An element becomes the nearest code in `levels`, relative to its block's absolute maximum; a maximum minus the mean of maxima becomes the nearest
/// code in `scale_levels`, relative to the absolute maximum of a group of 256.
///   T   any dtype; magnitudes are computed in fp32
template <class T>
[[nodiscard]] nf4_array quantize(std::span<const T> x) {
  const std::size_t n = x.size(), blocks = scales(n);
  nf4_array made{std::vector<std::uint8_t>(code_bytes(n)), std::vector<std::uint8_t>(blocks), std::vector<float>(outer_scales(n))};
  std::vector<float> largest(blocks);
  const auto pool = thread_pool::shared();
  constexpr std::size_t blocks_per_part = 256;
  const auto quantize_blocks = [&](std::size_t part, std::size_t) {
    for (std::size_t b = part * blocks_per_part; b < std::min(blocks, (part + 1) * blocks_per_part); ++b) {
      const auto in = x.subspan(b * block, std::min(block, n - b * block));
      std::array<float, block> fraction{};
      std::transform(in.begin(), in.end(), fraction.begin(), [](T value) { return static_cast<float>(value); });
      float most = 0;
      for (const float value : fraction) most = std::max(most, std::abs(value));
      for (float& value : fraction) value *= most > 0 ? 1.0f / most : 0.0f;
      largest[b] = most;
      const auto nibble = nearest_levels(fraction);
      std::uint8_t* const code = made.code_n2.data() + b * block / 2;
      for (std::size_t i = 0; i < in.size(); i += 2)
        code[i / 2] = static_cast<std::uint8_t>(nibble[i] << 4 | (i + 1 < in.size() ? nibble[i + 1] : zero));
    }
  };
  pool->run((blocks + blocks_per_part - 1) / blocks_per_part, pool->threads(), quantize_blocks);

  double sum = 0;
  for (const float scale : largest) sum += static_cast<double>(scale);
  made.outer[0] = static_cast<float>(blocks == 0 ? 0.0 : sum / static_cast<double>(blocks));
  for (std::size_t first = 0; first < blocks; first += scales_together) {
    const std::size_t end = std::min(blocks, first + scales_together);
    float& outer = made.outer[1 + first / scales_together];
    for (std::size_t b = first; b < end; ++b) outer = std::max(outer, std::abs(largest[b] - made.outer[0]));
    const float to_fraction = outer > 0 ? 1.0f / outer : 0.0f;
    for (std::size_t b = first; b < end; ++b) made.scale_k[b] = nearest(scale_levels, (largest[b] - made.outer[0]) * to_fraction);
  }
  return made;
}

/// Inverse on the host, as kernel::dequantize_nf4.
template <class T>
void dequantize(const nf4_array& from, std::span<T> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint8_t both = from.code_n2[i / 2];
    x[i] = static_cast<T>(levels[i % 2 == 0 ? both >> 4 : both & 15] * scale_of(i / block, from.scale_k.data(), from.outer.data()));
  }
}

}  // namespace nf4

}  // namespace xtrain
