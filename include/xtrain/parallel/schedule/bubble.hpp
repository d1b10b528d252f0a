// Published formulas for pipeline bubbles: the idle fraction of a step, for equal stages and micro-batches and free messages. simulate.hpp can check them.
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

/// zero_bubble with at least as many micro-batches as ranks; `forward`, `input`, `weight`: durations of a micro-batch's parts on a stage.
///                                                                      [Qi et al. 2023, table 2: forward + input - weight]
///   departs   a W fills no gap shorter than itself: gaps are as long as forward and as input
[[nodiscard]] constexpr double zero_bubble_bubble(std::size_t ranks, std::size_t micro_batches, double forward, double input,
                                                  double weight) {
  const double shorter = forward < input ? forward : input;
  const double idle = static_cast<double>(ranks - 1) * (forward + input - (weight < shorter ? weight : shorter));
  return idle / (static_cast<double>(micro_batches) * (forward + input + weight) + idle);
}

}  // namespace xtrain
