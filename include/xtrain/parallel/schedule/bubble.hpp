// Published formulas for pipeline bubbles: the fraction of a step in which a rank is idle, when all stages and micro-batches take equally
// long and messages take no time. simulate.hpp can check these formulas.
#pragma once

#include <cstddef>

namespace xtrain {

/// gpipe and one_forward_one_backward.                            [Narayanan et al. 2021, section 2.2.1]
[[nodiscard]] constexpr double one_forward_one_backward_bubble(std::size_t ranks, std::size_t micro_batches) {
  return static_cast<double>(ranks - 1) / static_cast<double>(micro_batches + ranks - 1);
}

/// interleaved and fifo; all_in_all_out with at least as many micro-batches as ranks.   [Narayanan et al. 2021, section 2.2.2]
[[nodiscard]] constexpr double interleaved_bubble(std::size_t ranks, std::size_t chunks, std::size_t micro_batches) {
  return static_cast<double>(ranks - 1) / static_cast<double>(chunks * micro_batches + ranks - 1);
}

/// zero_bubble with at least as many micro-batches as ranks, where a stage takes `forward`, `input` and `weight` for the parts of a
/// micro-batch.                                                      [Qi et al. 2023, table 2: forward + input - weight]
///   departs   a weight part (W) fills no gap that is shorter than itself: gaps are as long as forward and as input
[[nodiscard]] constexpr double zero_bubble_bubble(std::size_t ranks, std::size_t micro_batches, double forward, double input,
                                                  double weight) {
  const double shorter = forward < input ? forward : input;
  const double idle = static_cast<double>(ranks - 1) * (forward + input - (weight < shorter ? weight : shorter));
  return idle / (static_cast<double>(micro_batches) * (forward + input + weight) + idle);
}

}  // namespace xtrain
