#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/block_dtypes.hpp>

namespace xtrain {

namespace detail::blocks {

/// Numbers with a common scale.
using group = std::array<float, 32>;

[[nodiscard]] inline unsigned byte_at(const std::byte* at, std::size_t i) { return std::to_integer<unsigned>(at[i]); }
[[nodiscard]] inline float half_at(const std::byte* at) {
  fp16 value;
  std::memcpy(&value, at, sizeof(value));
  return static_cast<float>(value);
}
[[nodiscard]] inline std::uint32_t word_at(const std::byte* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

/// to = products + offset, each rounded: must not be fused.
inline void add_offset(group& products, float offset, std::size_t count, float* to) {
  asm volatile("" : : "r"(products.data()) : "memory");
  for (std::size_t i = 0; i < count; ++i) to[i] = products[i] + offset;
}

/// Element i of 32 numbers of 4 bits: low halves of 16 bytes, then high halves.
[[nodiscard]] inline unsigned nibble(const std::byte* from, std::size_t i) { return i < 16 ? byte_at(from, i) & 15U : byte_at(from, i - 16) >> 4; }

/// 32 numbers, scale first, with or without a fifth bit; above `lowest`, or with an offset.
template <bool fifth, bool offset>
void decode_plain(const std::byte* block, float* to) {
  const float scale = half_at(block);
  const std::byte* next = block + (offset ? 4 : 2);
  const std::uint32_t high = fifth ? word_at(next) : 0;
  if constexpr (fifth) next += 4;
  constexpr int lowest = offset ? 0 : fifth ? -16 : -8;
  group products;
  for (std::size_t i = 0; i < 32; ++i) {
    const unsigned stored = nibble(next, i) | ((high >> i & 1U) << 4);
    products[i] = scale * static_cast<float>(static_cast<int>(stored) + lowest);
  }
  if constexpr (offset) add_offset(products, half_at(block + 2), 32, to);
  else std::copy(products.begin(), products.end(), to);
}

inline void decode_q8_0(const std::byte* block, float* to) {
  const float scale = half_at(block);
  std::array<std::int8_t, 32> stored;  // copies cannot overlap: vector instructions
  std::memcpy(stored.data(), block + 2, stored.size());
  group numbers;
  for (std::size_t i = 0; i < 32; ++i) numbers[i] = scale * static_cast<float>(stored[i]);
  std::copy(numbers.begin(), numbers.end(), to);
}

inline void put_half(float value, std::byte* to) {
  const fp16 half(value);
  std::memcpy(to, &half, sizeof(half));
}

/// The largest number becomes 127.
inline void encode_q8_0(const float* from, std::byte* block) {
  float largest = 0.0f;
  for (std::size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(from[i]));
  const float scale = largest / 127.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  put_half(scale, block);
  std::fill_n(block + 2, 32, std::byte{0});
  if (std::isinf(inverse)) return;  // a subnormal scale is 0 in fp16
  for (std::size_t i = 0; i < 32; ++i) block[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(from[i] * inverse)));
}

/// The number farthest from zero becomes -8.
inline void encode_q4_0(const float* from, std::byte* block) {
  float farthest = from[0];
  for (std::size_t i = 1; i < 32; ++i)
    if (std::abs(from[i]) > std::abs(farthest)) farthest = from[i];
  const float scale = farthest / -8.0f, inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  put_half(scale, block);
  std::fill_n(block + 2, 16, std::byte{0});
  if (std::isinf(inverse)) return;
  group products, shifted;
  for (std::size_t i = 0; i < 32; ++i) products[i] = from[i] * inverse;
  add_offset(products, 8.5f, 32, shifted.data());
  const auto four_bits = [&](std::size_t i) { return std::min(static_cast<unsigned>(shifted[i]), 15U); };
  for (std::size_t i = 0; i < 16; ++i) block[2 + i] = static_cast<std::byte>(four_bits(i) | four_bits(i + 16) << 4);
}

template <const std::array<std::int8_t, 16>& values>
void decode_values(float scale, const std::byte* from, float* to) {
  for (std::size_t i = 0; i < 32; ++i) to[i] = scale * static_cast<float>(values[nibble(from, i)]);
}

inline constexpr std::array<std::int8_t, 16> iq4_nl_values{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// E2M1, doubled.
inline constexpr std::array<std::int8_t, 16> mxfp4_values{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline void decode_iq4_nl(const std::byte* block, float* to) { decode_values<iq4_nl_values>(half_at(block), block + 2, to); }

inline void decode_mxfp4(const std::byte* block, float* to) {
  const std::uint32_t exponent = byte_at(block, 0);  // half of 2^(exponent - 127): the values are doubled
  const float scale = std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23);
  decode_values<mxfp4_values>(scale, block + 1, to);
}

/// 16 groups of 16: 4 bits of scale, 4 of offset; 2 bits a number; last the scales of scales and offsets.
inline void decode_q2_k(const std::byte* block, float* to) {
  const std::byte* stored = block + 16;
  const float scale = half_at(block + 80), offset = half_at(block + 82);
  for (std::size_t g = 0; g < 16; ++g) {
    const float by = scale * static_cast<float>(byte_at(block, g) & 15U), less = offset * static_cast<float>(byte_at(block, g) >> 4);
    const std::byte* from = stored + g / 8 * 32 + g % 2 * 16;
    const std::size_t shift = g % 8 / 2 * 2;
    group products{};
    for (std::size_t i = 0; i < 16; ++i) products[i] = by * static_cast<float>(byte_at(from, i) >> shift & 3U);
    add_offset(products, -less, 16, to + g * 16);
  }
}

/// 16 groups of 16: a third bit each, 2 bits each, 16 scales of 6 bits in 12 bytes, their scale.
inline void decode_q3_k(const std::byte* block, float* to) {
  const std::byte *high = block, *stored = block + 32, *scales = block + 96;
  const float scale = half_at(block + 108);
  for (std::size_t g = 0; g < 16; ++g) {
    const unsigned low = g < 8 ? byte_at(scales, g) & 15U : byte_at(scales, g - 8) >> 4, top = byte_at(scales, 8 + g % 4) >> (g / 4 * 2) & 3U;
    const float by = scale * static_cast<float>(static_cast<int>(low | top << 4) - 32);
    const std::byte* from = stored + g / 8 * 32 + g % 2 * 16;
    for (std::size_t i = 0; i < 16; ++i) {
      const unsigned two = byte_at(from, i) >> (g % 8 / 2 * 2) & 3U, third = byte_at(high + g % 2 * 16, i) >> (g / 2) & 1U;
      to[g * 16 + i] = by * static_cast<float>(static_cast<int>(two) - (third != 0 ? 0 : 4));
    }
  }
}

/// 8 groups of 32: two scales, 8 scales and 8 offsets of 6 bits in 12 bytes; Q5_K: a fifth bit each; 4 bits each.
template <bool fifth>
void decode_q4_k(const std::byte* block, float* to) {
  const float scale = half_at(block), offset = half_at(block + 2);
  const std::byte *packed = block + 4, *high = block + 16, *stored = fifth ? high + 32 : high;
  for (std::size_t g = 0; g < 8; ++g) {
    unsigned sixth = byte_at(packed, g % 4), less = byte_at(packed, g % 4 + 4);
    if (g < 4) {
      sixth &= 63U;
      less &= 63U;
    } else {
      const unsigned low = byte_at(packed, g + 4);
      sixth = (low & 15U) | (sixth >> 2 & 48U);
      less = low >> 4 | (less >> 2 & 48U);
    }
    const float by = scale * static_cast<float>(sixth), minus = offset * static_cast<float>(less);
    group products;
    for (std::size_t i = 0; i < 32; ++i) {
      unsigned number = byte_at(stored + g / 2 * 32, i) >> (g % 2 * 4) & 15U;
      if constexpr (fifth) number |= (byte_at(high, i) >> g & 1U) << 4;
      products[i] = by * static_cast<float>(number);
    }
    add_offset(products, -minus, 32, to + g * 32);
  }
}

/// 16 groups of 16: 4 bits each, 2 more each, 16 scales of 8 bits, their scale.
inline void decode_q6_k(const std::byte* block, float* to) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float scale = half_at(block + 208);
  for (std::size_t at = 0; at < 256; ++at) {
    const std::size_t half = at / 128, part = at % 128 / 32, i = at % 32;
    const unsigned four = byte_at(low, half * 64 + part % 2 * 32 + i) >> (part / 2 * 4) & 15U;
    const unsigned two = byte_at(high, half * 32 + i) >> (part * 2) & 3U;
    const float by = scale * static_cast<float>(static_cast<std::int8_t>(byte_at(scales, at / 16)));
    to[at] = by * static_cast<float>(static_cast<int>(four | two << 4) - 32);
  }
}

}  // namespace detail::blocks

XTRAIN_INLINE const block_dtype* find_block_dtype(std::string_view name) {
  namespace b = detail::blocks;
  static constexpr std::array<block_dtype, 12> known{{{"Q8_0", 32, 34, b::decode_q8_0, b::encode_q8_0},
                                                      {"Q4_0", 32, 18, b::decode_plain<false, false>, b::encode_q4_0},
                                                      {"Q4_1", 32, 20, b::decode_plain<false, true>},
                                                      {"Q5_0", 32, 22, b::decode_plain<true, false>},
                                                      {"Q5_1", 32, 24, b::decode_plain<true, true>},
                                                      {"Q2_K", 256, 84, b::decode_q2_k},
                                                      {"Q3_K", 256, 110, b::decode_q3_k},
                                                      {"Q4_K", 256, 144, b::decode_q4_k<false>},
                                                      {"Q5_K", 256, 176, b::decode_q4_k<true>},
                                                      {"Q6_K", 256, 210, b::decode_q6_k},
                                                      {"IQ4_NL", 32, 18, b::decode_iq4_nl},
                                                      {"MXFP4", 32, 17, b::decode_mxfp4}}};
  const auto found = std::find_if(known.begin(), known.end(), [&](const block_dtype& one) { return one.name == name; });
  return found == known.end() ? nullptr : &*found;
}

}  // namespace xtrain
