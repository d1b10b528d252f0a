// Dequantizes GGUF blocks, 16 numbers at a time: extracts codes in words of eight bytes, then scales vectors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/blocks.hpp>

namespace xtrain {

namespace cpu_kernels {

using run_of_floats = std::array<float, block_formats::run_numbers>;
using run_of_bytes = std::array<std::uint8_t, block_formats::run_numbers>;

/// to |= (bits >> shift & mask) << left for 16 bytes, eight at a time.
XTRAIN_ALWAYS_INLINE void take_bits(const std::uint8_t* from, std::uint32_t shift, std::uint32_t mask, std::uint32_t left, run_of_bytes& to) {
  const std::uint64_t of_each = mask * std::uint64_t{0x0101010101010101};
  for (std::size_t half = 0; half < to.size(); half += 8) {
    std::uint64_t word = 0, made = 0;
    std::memcpy(&word, from + half, 8);
    std::memcpy(&made, to.data() + half, 8);
    made |= (word >> shift & of_each) << left;
    std::memcpy(to.data() + half, &made, 8);
  }
}

/// A run's codes, without `lowest`.
XTRAIN_ALWAYS_INLINE run_of_bytes codes_of(const block_formats::run& of, const std::uint8_t* block) {
  run_of_bytes code{};
  take_bits(block + of.low_at, of.low_shift, of.low_mask, 0, code);
  if (of.high_in_bits) {
    const std::uint32_t bits = block[of.high_at] | static_cast<std::uint32_t>(block[of.high_at + 1]) << 8;
    for (std::uint32_t j = 0; j < code.size(); ++j) code[j] = static_cast<std::uint8_t>(code[j] | (bits >> j & 1U) << of.high_left);
  } else if (of.high_mask != 0) {
    take_bits(block + of.high_at, of.high_shift, of.high_mask, of.high_left, code);
  }
  return code;
}

template <class Arch, class T>
void block_elements(const cpu_stream& stream, const kernel::dequantize_blocks<host_memory, T>& k) {
  const block_formats::description& of = block_formats::of(k.format);
  const std::size_t runs = of.numbers / block_formats::run_numbers;
  std::array<block_formats::run, 16> run{};
  for (std::uint32_t r = 0; r < runs; ++r) run[r] = block_formats::run_of(k.format, r);
  const bool looks_up = block_formats::has_table(k.format);
  std::array<float, 16> value{};
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<float>(block_formats::table_of(k.format).value[i]);
  static_assert(elements_per_part % 256 == 0);  // entire blocks
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    run_of_floats number;
    T* y = k.y_n.raw() + begin;
    const std::uint8_t* block = k.code.raw() + begin / of.numbers * of.bytes;
    for (std::size_t first = begin; first < end; first += of.numbers, block += of.bytes) {
      const block_formats::scaling whole = block_formats::scaling_of_block(k.format, block);
      for (std::uint32_t r = 0; r < runs; ++r, y += block_formats::run_numbers) {
        const block_formats::scaling scaling = block_formats::scaling_of(k.format, block, r, whole);
        const run_of_bytes code = codes_of(run[r], block);
        if (looks_up) {
          for (std::size_t j = 0; j < number.size(); ++j) number[j] = value[code[j]];
        } else if (run[r].is_signed) {
          for (std::size_t j = 0; j < number.size(); ++j) number[j] = static_cast<float>(static_cast<std::int8_t>(code[j]));
        } else {
          const auto lowest = static_cast<float>(run[r].lowest);
          for (std::size_t j = 0; j < number.size(); ++j) number[j] = static_cast<float>(code[j]) + lowest;
        }
        if constexpr (std::is_same_v<accumulate_t<T>, float>) {
          const simd::batch<float, Arch> scale(scaling.scale), offset(scaling.offset);
          simd::for_each_vector<float, Arch>(0, number.size(), [&](std::size_t i, auto size) XTRAIN_LAMBDA_INLINE {
            simd::store(y + i, simd::load<Arch>(number.data() + i, size) * scale + offset, size);
          });
        } else {
          for (std::size_t i = 0; i < number.size(); ++i) y[i] = static_cast<T>(number[i] * scaling.scale + scaling.offset);
        }
      }
    }
  });
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::dequantize_blocks<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::block_elements<simd::native>(stream, k);
}

}  // namespace xtrain
