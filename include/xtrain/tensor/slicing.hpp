// How the array of a model's parameters is visited, stepped and divided.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xtrain {

/// A range of the flat array of trained parameters that weight decay applies to, or does not.
struct decay_run {
  std::size_t begin = 0, end = 0;
  bool decays = false;
  std::size_t kept = 0;     // where the range begins in an array of what this rank steps
  std::size_t element = 0;  // and in the array that one rank with all blocks has: what random numbers are drawn by

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

/// What a block is visited for. The forward of an evaluation has no backward. A backward may be in two parts: the first reads weights, the second
/// adds to gradients in windows (to others both do).
enum class block_visit : std::uint8_t { forward, backward, evaluation, backward_input, backward_weight };

/// Whether the block before is visited next, with its weights.
[[nodiscard]] constexpr bool goes_back(block_visit visit) { return visit == block_visit::backward || visit == block_visit::backward_input; }

/// Consecutive blocks of a model: first, first + 1, … last − 1.
struct block_range {
  std::size_t first = 0, last = 0;

  [[nodiscard]] constexpr bool has(std::size_t block) const { return first <= block && block < last; }
  friend constexpr bool operator==(const block_range&, const block_range&) = default;
};

/// How ranks divide a model's parameters.                      [Rajbhandari et al. 2020, "ZeRO", section 5: stages 1, 2, 3]
struct slicing {
  std::size_t parts = 1;   ///< of every block; this rank steps one of them
  std::size_t part = 0;    ///< which
  bool gradients = false;  ///< it keeps gradients of its part only
  bool values = false;     ///< it keeps weights of its part only
};

/// What a rank keeps of a parameter in an array: elements `first` … `first` + `count` - 1, from the array's element `at` on. Of the ranks that keep
/// the same ones, this is number `copy`.
struct kept_numbers {
  std::size_t first = 0, at = 0, count = 0;
  std::size_t copies = 1, copy = 0;
};

}  // namespace xtrain
