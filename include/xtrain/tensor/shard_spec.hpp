// How the flat array of parameters is traversed, stepped and sharded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xtrain {

/// A range of trained parameters with one weight decay and one learning-rate factor.
struct parameter_slice {
  std::size_t begin = 0, end = 0;
  bool decays = false;
  std::size_t kept = 0;     // its begin in arrays that this rank steps
  std::size_t element = 0;  // index in an unsharded flat array: the index of random numbers
  double learning_rate_factor = 1;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// Why a block is visited. An evaluation has no backward pass. A backward pass may be split (B and W of zero-bubble): the first part reads weights;
/// gradients in windows are added to in the second part only, others in both.
enum class block_visit : std::uint8_t { forward, backward, evaluation, backward_input, backward_weight };

/// The preceding block is visited next, with its weights.
[[nodiscard]] constexpr bool goes_back(block_visit visit) { return visit == block_visit::backward || visit == block_visit::backward_input; }

/// Blocks first … last − 1 of a model.
struct block_range {
  std::size_t first = 0, last = 0;

  [[nodiscard]] constexpr bool has(std::size_t block) const { return first <= block && block < last; }
  friend constexpr bool operator==(const block_range&, const block_range&) = default;
};

/// Data-parallel shards of parameters.         [Rajbhandari et al. 2020, "ZeRO", section 5: stages 1, 2, 3]
struct shard_spec {
  std::size_t parts = 1;   ///< shards per block; this rank steps one
  std::size_t part = 0;    ///< this rank's shard
  bool gradients = false;  ///< stores only its shard's gradients (stage 2)
  bool values = false;     ///< stores only its shard's weights (stage 3)
  /// Parameters and shards begin at multiples of this and of parameter_layout::alignment, in elements. For optimizer state in blocks of weights: no block
  /// straddles shards; blocks do not depend on the number of shards.
  std::size_t alignment = 1;
};

/// A rank's part of a parameter: elements `first` … `first` + `count` - 1 at index `at` of an array. `copies` ranks store them; this is number `copy`.
struct stored_range {
  std::size_t first = 0, at = 0, count = 0;
  std::size_t copies = 1, copy = 0;
};

}  // namespace xtrain
