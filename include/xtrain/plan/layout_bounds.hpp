// What a layout cannot go below in memory and in time, before it is planned: from dry runs of one layer and of two.
//
// Layers of a model are alike. What one of them adds to a micro-batch (kernels, messages, bytes) is counted once for all layouts with the same micro-batch and
// the same tensor-, context- and expert-parallel ranks: stages, micro-batches and data-parallel ranks only say how often. A layout is then bounded by what it
// cannot do without:
//   memory   the first stage holds min(stages, micro-batches) micro-batches of 1F1B, the last stage one and the head. What n ranks share takes at least 1/n of
//            it, since shards are rounded up and windows are in addition
//   time     kernels, and communication of tensor-, context- and expert-parallel ranks, of all micro-batches. Counts are added first and timed then, as a
//            prediction does. What is done once per step is left out: gradients and weights are exchanged, and a prediction from few micro-batches counts some
//            of it several times. Sharing over ranks with the same weights adds kernels to a micro-batch, and takes none away. Of p stages
//              every rank: t >= m w                                       with w = f + b, forward and backward, of each of m micro-batches
//              1F1B:  rank r begins after a forward of each rank before it, and a backward of each follows its last one. Of the k = p - 1 - r ranks behind
//                     it, it waits for a gradient: D = sum over q > r of (w_q + 2 s) after its first forward, with s for a message, while it has only k
//                     more forwards to do; and D after its last forward, with k backwards to do. With m >= k + 2 these are two waits:
//                     t >= sum over q < r of (w_q + 2 s) + m w_r + max(0, D - k f_r) + max(0, D - k b_r)
#pragma once

#include <cstddef>
#include <string_view>

#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

/// At least this much: of a step, and on the rank that needs most.
struct layout_bound {
  double seconds = 0;
  std::size_t bytes = 0;  ///< of device memory
};

namespace detail {

/// Micro-batches, with nothing sharded over ranks with the same weights: memory, what is counted in a micro-batch, and the optimizer's part.
struct layer_samples {
  dry_run whole{}, whole_two{};  // of a model with one layer, and with two
  dry_run first{}, first_two{};  // of the first stage of a pipeline with one layer, and with two
  dry_run last{};                // of the last stage with one layer
};

/// What a micro-batch adds: from dry runs of one and of two. Memory and the optimizer's part are those of `one`.
[[nodiscard]] dry_run micro_batch_of(dry_run one, const dry_run& two);

/// The dry run with `more` layers, each of which adds what `two` has more than `one`.
[[nodiscard]] dry_run with_more_layers(dry_run base, const dry_run& one, const dry_run& two, std::size_t more);

/// Whether a model's layers are alike: the dry run of all `layers` is that of one and of two, extrapolated.
[[nodiscard]] bool layers_are_alike(const dry_run& one, const dry_run& two, const dry_run& all, std::size_t layers);

/// throws  config_error when there are fewer layers than stages
[[nodiscard]] layout_bound bound_of(const layer_samples& samples, const run_layout& layout, std::size_t layers, const machine& on, std::string_view dtype);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/layout_bounds_impl.hpp>
#endif
