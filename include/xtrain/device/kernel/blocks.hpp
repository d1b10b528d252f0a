// Dequantization of GGUF's weight blocks.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

/// GGUF's names.
enum class block_format : std::uint8_t { q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4 };

/// Blocks of 32 or 256 numbers along a matrix's rows, which are entire blocks. A block consists of runs: 16 numbers with one scale and offset,
///
///   number = scale · (code + lowest) + offset,   code = low bits of byte j | high bits of byte j' << shift
///
/// The scale is the block's fp16 times an integer of at most 8 bits; codes have at most 8 bits, and with an offset scale · code has at most 22 bits: products
/// are
/// exact in fp32, and a sum is rounded once, fused or not.
namespace block_formats {

/// Name in GGUF, and sizes.
struct description {
  block_format format;
  std::string_view name;
  std::size_t numbers, bytes;  ///< per block
};
/// In the order of block_format.
inline constexpr std::array<description, 12> all{{{block_format::q8_0, "Q8_0", 32, 34},
                                                  {block_format::q4_0, "Q4_0", 32, 18},
                                                  {block_format::q4_1, "Q4_1", 32, 20},
                                                  {block_format::q5_0, "Q5_0", 32, 22},
                                                  {block_format::q5_1, "Q5_1", 32, 24},
                                                  {block_format::q2_k, "Q2_K", 256, 84},
                                                  {block_format::q3_k, "Q3_K", 256, 110},
                                                  {block_format::q4_k, "Q4_K", 256, 144},
                                                  {block_format::q5_k, "Q5_K", 256, 176},
                                                  {block_format::q6_k, "Q6_K", 256, 210},
                                                  {block_format::iq4_nl, "IQ4_NL", 32, 18},
                                                  {block_format::mxfp4, "MXFP4", 32, 17}}};
static_assert([] {
  for (std::size_t i = 0; i < all.size(); ++i)
    if (static_cast<std::size_t>(all[i].format) != i) return false;
  return true;
}());

/// A type by format.
[[nodiscard]] constexpr const description& of(block_format format) { return all[static_cast<std::size_t>(format)]; }
/// None: another type.
[[nodiscard]] constexpr std::optional<block_format> named(std::string_view name) {
  for (const description& one : all)
    if (one.name == name) return one.format;
  return {};
}
/// Of n numbers, entire blocks.
[[nodiscard]] constexpr std::size_t bytes_of(block_format format, std::size_t n) { return n / of(format).numbers * of(format).bytes; }

/// Numbers with one scale.
inline constexpr std::size_t run_numbers = 16;

/// Position of a run's codes in its block.
struct run {
  std::uint32_t low_at = 0, low_shift = 0, low_mask = 15;
  std::uint32_t high_at = 0, high_shift = 0, high_mask = 0, high_left = 0;
  std::int32_t lowest = 0;
  bool high_in_bits = false;  ///< bit j of the two bytes at high_at, instead of bits of byte j
  bool is_signed = false;     ///< two's complement
};

/// Run r of a block.
[[nodiscard]] constexpr run run_of(block_format format, std::uint32_t r) {
  const std::uint32_t half = r / 8 * 32 + r % 2 * 16;  // 32 bytes with two bits of 128 numbers, of even and odd runs
  const std::uint32_t nibble = r / 4 * 32 + r % 2 * 16, nibble_shift = r / 2 % 2 * 4;
  switch (format) {
    case block_format::q8_0:
      return {.low_at = 2 + 16 * r, .low_mask = 255, .is_signed = true};
    case block_format::q4_0:
      return {.low_at = 2, .low_shift = 4 * r, .lowest = -8};
    case block_format::q4_1:
      return {.low_at = 4, .low_shift = 4 * r};
    case block_format::q5_0:
      return {.low_at = 6, .low_shift = 4 * r, .high_at = 2 + 2 * r, .high_mask = 1, .high_left = 4, .lowest = -16, .high_in_bits = true};
    case block_format::q5_1:
      return {.low_at = 8, .low_shift = 4 * r, .high_at = 4 + 2 * r, .high_mask = 1, .high_left = 4, .high_in_bits = true};
    case block_format::q2_k:
      return {.low_at = 16 + half, .low_shift = r % 8 / 2 * 2, .low_mask = 3};
    case block_format::q3_k:
      return {.low_at = 32 + half,
              .low_shift = r % 8 / 2 * 2,
              .low_mask = 3,
              .high_at = r % 2 * 16,
              .high_shift = r / 2,
              .high_mask = 1,
              .high_left = 2,
              .lowest = -4};
    case block_format::q4_k:
      return {.low_at = 16 + nibble, .low_shift = nibble_shift};
    case block_format::q5_k:
      return {.low_at = 48 + nibble, .low_shift = nibble_shift, .high_at = 16 + r % 2 * 16, .high_shift = r / 2, .high_mask = 1, .high_left = 4};
    case block_format::q6_k:
      return {.low_at = r / 8 * 64 + r % 4 * 16,
              .low_shift = r % 8 / 4 * 4,
              .high_at = 128 + half,
              .high_shift = r % 8 / 2 * 2,
              .high_mask = 3,
              .high_left = 4,
              .lowest = -32};
    case block_format::mxfp4:
      return {.low_at = 1, .low_shift = 4 * r};
    default:  // iq4_nl
      return {.low_at = 2, .low_shift = 4 * r};
  }
}

/// Code j, without `lowest`.
[[nodiscard]] constexpr std::int32_t code_at(const run& of, const std::uint8_t* block, std::uint32_t j) {
  const std::uint32_t low = static_cast<std::uint32_t>(block[of.low_at + j]) >> of.low_shift & of.low_mask;
  if (of.is_signed) return low < 128 ? static_cast<std::int32_t>(low) : static_cast<std::int32_t>(low) - 256;
  if (of.high_mask == 0) return static_cast<std::int32_t>(low);
  const std::uint32_t high = of.high_in_bits ? static_cast<std::uint32_t>(block[of.high_at + j / 8]) >> j % 8
                                             : static_cast<std::uint32_t>(block[of.high_at + j]) >> of.high_shift;
  return static_cast<std::int32_t>(low | (high & of.high_mask) << of.high_left);
}

/// Codes are indices of table_of.
[[nodiscard]] constexpr bool has_table(block_format format) { return format == block_format::iq4_nl || format == block_format::mxfp4; }
/// Numbers by code.
struct table {
  std::int8_t value[16];
};
/// For types with a table.
[[nodiscard]] constexpr table table_of(block_format format) {
  if (format == block_format::mxfp4) return {{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};  // E2M1, doubled
  return {{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};
}

/// -0 changes no number, zeros included.
inline constexpr float no_offset = -0.0f;
/// Factor and summand of codes.
struct scaling {
  float scale = 0, offset = no_offset;
};

/// The block's scale and offset.
[[nodiscard]] constexpr scaling scaling_of_block(block_format format, const std::uint8_t* block) {
  const auto half = [&](std::uint32_t at) {
    return static_cast<float>(fp16::from_bits(static_cast<std::uint16_t>(block[at] | static_cast<std::uint32_t>(block[at + 1]) << 8)));
  };
  switch (format) {
    case block_format::q4_1:
    case block_format::q5_1:
      return {half(0), half(2)};
    case block_format::q2_k:
      return {half(80), half(82)};
    case block_format::q3_k:
      return {half(108)};
    case block_format::q4_k:
    case block_format::q5_k:
      return {half(0), half(2)};
    case block_format::q6_k:
      return {half(208)};
    case block_format::mxfp4: {  // half of 2^(exponent - 127): the table is doubled
      const std::uint32_t exponent = block[0];
      return {std::bit_cast<float>(exponent < 2 ? 0x00200000U << exponent : (exponent - 1) << 23)};
    }
    default:
      return {half(0)};
  }
}

/// Of run r.
///   whole   the block's
[[nodiscard]] constexpr scaling scaling_of(block_format format, const std::uint8_t* block, std::uint32_t r, const scaling& whole) {
  switch (format) {
    case block_format::q2_k:
      return {whole.scale * static_cast<float>(block[r] & 15), -(whole.offset * static_cast<float>(block[r] >> 4))};
    case block_format::q3_k: {
      const std::uint8_t* const scales = block + 96;
      const std::uint32_t low = r < 8 ? scales[r] & 15U : static_cast<std::uint32_t>(scales[r - 8]) >> 4;
      const std::uint32_t top = static_cast<std::uint32_t>(scales[8 + r % 4]) >> (r / 4 * 2) & 3U;
      return {whole.scale * static_cast<float>(static_cast<std::int32_t>(low | top << 4) - 32)};
    }
    case block_format::q4_k:
    case block_format::q5_k: {  // eight scales and offsets of 6 bits in 12 bytes
      const std::uint8_t* const packed = block + 4;
      const std::uint32_t g = r / 2, first = packed[g % 4], second = packed[g % 4 + 4], third = packed[g % 4 + 8];
      const std::uint32_t scale = g < 4 ? first & 63U : (third & 15U) | (first >> 2 & 48U);
      const std::uint32_t less = g < 4 ? second & 63U : third >> 4 | (second >> 2 & 48U);
      return {whole.scale * static_cast<float>(scale), -(whole.offset * static_cast<float>(less))};
    }
    case block_format::q6_k:
      return {whole.scale * static_cast<float>(static_cast<std::int8_t>(block[192 + r]))};
    default:
      return whole;
  }
}

}  // namespace block_formats

namespace kernel {

/// y = numbers of blocks, in fp32, rounded to T.
///   n         a multiple of a block's numbers
///   code      read      block_formats::bytes_of(format, n)
///   y_n       written
template <class Memory, class T>
struct dequantize_blocks {
  static constexpr std::string_view name = "dequantize_blocks";
  template <class M>
  using on = dequantize_blocks<M, T>;

  std::size_t n = 0;
  block_format format = block_format::q8_0;
  read<std::uint8_t, Memory> code{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.format, s.code, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n); }
};

}  // namespace kernel

}  // namespace xtrain
