// How the flat array of a model's parameters is traversed, stepped and sharded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xtrain {

/// A range of the flat array of trained parameters with or without weight decay, and with one factor of the learning rate.
struct decay_run {
  std::size_t begin = 0, end = 0;
  bool decays = false;
  std::size_t kept = 0;     // where the range begins in the arrays that this rank steps
  std::size_t element = 0;  // index in the flat array of a single rank with all blocks: the index of random numbers
  double learning_rate_factor = 1;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// Why a block is visited. The forward pass of an evaluation has no backward pass. A backward pass may be split in two (B and W of
/// zero-bubble): the first part reads weights; gradients in windows are added to in the second only, other gradients in both.
enum class block_visit : std::uint8_t { forward, backward, evaluation, backward_input, backward_weight };

/// Whether the preceding block is visited next, with its weights.
[[nodiscard]] constexpr bool goes_back(block_visit visit) { return visit == block_visit::backward || visit == block_visit::backward_input; }

/// Consecutive blocks of a model: first, first + 1, … last − 1.
struct block_range {
  std::size_t first = 0, last = 0;

  [[nodiscard]] constexpr bool has(std::size_t block) const { return first <= block && block < last; }
  friend constexpr bool operator==(const block_range&, const block_range&) = default;
};

/// How data-parallel ranks shard a model's parameters.         [Rajbhandari et al. 2020, "ZeRO", section 5: stages 1, 2, 3]
struct shard_spec {
  std::size_t parts = 1;   ///< shards per block; this rank steps one of them
  std::size_t part = 0;    ///< index of this rank's shard
  bool gradients = false;  ///< this rank stores gradients of its shard only (stage 2)
  bool values = false;     ///< this rank stores weights of its shard only (stage 3)
  /// Parameters and shards begin at multiples of this many elements, and of parameter_layout::alignment. For optimizer state of blocks of
  /// weights: no block is in two shards, and blocks are the same for any number of shards.
  std::size_t alignment = 1;
};

/// What a rank stores of a parameter in an array: elements `first` … `first` + `count` - 1, from index `at` of the array on.
/// `copies` ranks store the same elements; this is copy number `copy`.
struct stored_range {
  std::size_t first = 0, at = 0, count = 0;
  std::size_t copies = 1, copy = 0;
};

}  // namespace xtrain
