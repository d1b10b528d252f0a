// Predicts how long a step takes on a machine: from what its ranks compute and send, and how they wait for each other.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <xtrain/comm/recursive_halving.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

/// Seconds. The parts sum to the whole.
struct predicted_step {
  double seconds = 0;
  double passes = 0;    ///< forwards and backwards of the rank that has most of them
  double layers = 0;    ///< that rank waits for its tensor-, context- or expert-parallel ranks
  double bubble = 0;    ///< it waits for other stages
  double exchange = 0;  ///< gradients and weights, as far as not overlapped
  double update = 0;    ///< the optimizer

  /// For a step of the whole run.
  ///   operations   those the model needs, on all ranks, without recomputation
  [[nodiscard]] double share_of_peak(double operations, std::size_t devices, double peak) const;
};

namespace detail {

/// Matrix products, which run on an accelerator's matrix units.
[[nodiscard]] bool is_product(std::string_view kernel);
/// Runs once per step, for any number of micro-batches.
[[nodiscard]] inline bool is_update(std::string_view kernel) {
  return kernel == "adamw" || kernel == "adamw_8bit" || kernel == "lion" || kernel == "sgd" || kernel == "sum_of_squares" ||
         kernel.starts_with("muon") || kernel.starts_with("adafactor");
}

/// Compute overlaps memory access: the longer of the two counts.                      [Williams et al. 2009, "Roofline"]
[[nodiscard]] double seconds_of(const kernel_count& kernel, const machine& on, std::string_view dtype);

/// Ranks first, first + stride, ..., some of which are on the same node.
struct rank_line {
  std::size_t count = 1, stride = 1;

  [[nodiscard]] std::size_t on_a_node(const machine& on) const;
};

[[nodiscard]] double seconds_of(double bytes, const link_speed& link, const machine& on);

/// The rounds of collectives, one after the other. In each a rank sends to some others, inside and between nodes at the same time, and waits for
/// one latency: `rounds` is the time to fill. The processor posts messages one after the other.
///   directly   every rank sends to all others in one round, however many there are
[[nodiscard]] double seconds_of(const traffic& sent, const rank_line& ranks, const machine& on, bool directly = false);

/// Ring: every rank sends to the next; all are as fast as the slowest link.
[[nodiscard]] double seconds_round(const traffic& sent, const rank_line& ranks, const machine& on);

/// What one rank spends in a step.
struct rank_seconds {
  double passes = 0, layers = 0;            // of all micro-batches
  double gradients = 0, weights = 0;        // of a step
  double table = 0, update = 0;             // likewise
  double message = 0, message_latency = 0;  // of what a micro-batch sends to the next stage

  rank_seconds(const dry_run& one, std::size_t dry_micro_batches, const run_layout& layout, const machine& on, std::string_view dtype);
};

}  // namespace detail

/// A step's time, from dry runs of ranks of one pipeline in the order of stages: of one rank for all, of the first and the last, of the
/// first, a middle one and the last, or of each.
///   dtype       of products, by name: dtype_traits<T>::name
///   dry_micro_batches   micro-batches of the dry run; 0: as many as the layout has. What depends on their number is scaled
///   departs     from the ring of [Patarasuk & Yuan 2009]: groups halve recursively, neighbors first, so that a node reduces before it sends
///               over the network. Additions and copies are assumed to be hidden behind the links
///   throws      config_error when the schedule cannot be made, or the machine lacks this dtype or these links
[[nodiscard]] predicted_step predict(std::span<const dry_run> ranks, const run_layout& layout, const machine& on, std::string_view dtype,
                                     std::size_t dry_micro_batches = 0);

/// From the dry run of one rank, for all ranks.
[[nodiscard]] predicted_step predict(const dry_run& rank, const run_layout& layout, const machine& on, std::string_view dtype);

/// A prediction as printable text.
[[nodiscard]] std::string prediction_text(const predicted_step& step);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/predict_impl.hpp>
#endif
