// Dtypes of GGUF files whose elements are stored in blocks with a common scale, and the numbers they stand for.
#pragma once

#include <cstddef>
#include <string_view>

namespace xtrain {

/// A block of `numbers` elements in `bytes` bytes.
struct block_dtype {
  std::string_view name;
  std::size_t numbers, bytes;
  /// Writes the block's numbers, rounded as by llama.cpp's package gguf: after each product and sum.
  void (*decode)(const std::byte* block, float* numbers);
  /// Writes the block of these numbers, as the package gguf does; null: no such block is written. A scale beyond fp16 is infinite.
  void (*encode)(const float* numbers, std::byte* block) = nullptr;
};

/// The largest `numbers`.
inline constexpr std::size_t longest_block = 256;

/// Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, MXFP4; null for another name.
[[nodiscard]] const block_dtype* find_block_dtype(std::string_view name);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/block_dtypes_impl.hpp>
#endif
