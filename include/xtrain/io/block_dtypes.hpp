#pragma once

#include <cstddef>
#include <string_view>

namespace xtrain {

/// `numbers` elements in `bytes` bytes.
struct block_dtype {
  std::string_view name;
  std::size_t numbers, bytes;
  /// Numbers of a block, rounded after each product and sum as in llama.cpp's package gguf.
  void (*decode)(const std::byte* block, float* numbers);
  /// The block of these numbers, as the package gguf; null: not written. A scale beyond fp16 is infinite.
  void (*encode)(const float* numbers, std::byte* block) = nullptr;
};

/// Maximum of `numbers`.
inline constexpr std::size_t longest_block = 256;

/// Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, MXFP4; null for others.
[[nodiscard]] const block_dtype* find_block_dtype(std::string_view name);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/block_dtypes_impl.hpp>
#endif
