// Lower bounds of a layout's memory and time before it is planned, from dry runs of one layer and of two.
//
// Layers are alike: a layer's kernels, messages and bytes per micro-batch are counted once for all layouts with equal micro-batch and equal tensor-, context-
// and expert-parallel ranks. Bounds:
//   memory   the first stage holds min(stages, micro-batches) micro-batches of 1F1B, the last stage one and the head. n ranks that share take at least 1/n
//            each: shards are rounded up, windows come on top
//   time     kernels and tensor-, context- and expert-parallel communication of all micro-batches, summed before timing, as in a prediction. Work once per
//            step is left out: a prediction from few micro-batches counts some of it several times. Sharding over ranks with equal weights only adds kernels.
//            For p stages
//              every rank: t >= m w                                       with w = f + b, forward and backward, of each of m micro-batches
//              1F1B:  rank r begins after a forward of each earlier rank; a backward of each follows its last backward. With k = p - 1 - r later ranks it
//                     waits D = sum over q > r of (w_q + 2 s), s per message, for a gradient: after its first forward, with only k forwards left, and after
//                     its last forward, with k backwards left. For m >= k + 2 these waits are distinct:
//                     t >= sum over q < r of (w_q + 2 s) + m w_r + max(0, D - k f_r) + max(0, D - k b_r)
#pragma once

#include <cstddef>
#include <string_view>

#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

/// Lower bounds of a step, on the rank that needs most.
struct layout_bound {
  double seconds = 0;
  std::size_t bytes = 0;  ///< device memory
};

namespace detail {

/// Micro-batches without sharding over ranks with equal weights: memory, counts per micro-batch, the optimizer's part.
struct layer_samples {
  dry_run whole{}, whole_two{};  // a model with one layer, with two
  dry_run first{}, first_two{};  // a pipeline's first stage with one layer, with two
  dry_run last{};                // the last stage with one layer
};

/// A micro-batch's counts, from dry runs of one and two; memory and the optimizer's part of `one`.
[[nodiscard]] dry_run micro_batch_of(dry_run one, const dry_run& two);

/// Adds `more` layers, each the difference of `two` and `one`.
[[nodiscard]] dry_run with_more_layers(dry_run base, const dry_run& one, const dry_run& two, std::size_t more);

/// The dry run of `layers` layers extrapolates one and two.
[[nodiscard]] bool layers_are_alike(const dry_run& one, const dry_run& two, const dry_run& all, std::size_t layers);

/// throws  config_error when there are fewer layers than stages
[[nodiscard]] layout_bound bound_of(const layer_samples& samples, const run_layout& layout, std::size_t layers, const machine& on, std::string_view dtype);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/layout_bounds_impl.hpp>
#endif
