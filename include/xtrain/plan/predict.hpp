// Predicts a step's time on a machine from its ranks' work, traffic and waits.
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

/// Seconds; the parts sum to `seconds`.
struct predicted_step {
  double seconds = 0;
  double passes = 0;    ///< forwards and backwards of the rank with most
  double layers = 0;    ///< its waits for tensor-, context- or expert-parallel ranks
  double bubble = 0;    ///< its waits for stages
  double exchange = 0;  ///< gradients and weights, not overlapped
  double update = 0;    ///< optimizer

  ///   operations   that the model needs, on all ranks, without recomputation
  [[nodiscard]] double share_of_peak(double operations, std::size_t devices, double peak) const;
};

namespace detail {

/// Products run on matrix units.
[[nodiscard]] bool is_product(std::string_view kernel);
/// Runs once per step.
[[nodiscard]] inline bool is_update(std::string_view kernel) {
  return kernel == "adamw" || kernel == "adamw_8bit" || kernel == "lion" || kernel == "sgd" || kernel == "sum_of_squares" ||
         kernel.starts_with("muon") || kernel.starts_with("adafactor");
}

/// The longer of compute and memory access.                      [Williams et al. 2009, "Roofline"]
[[nodiscard]] double seconds_of(const kernel_count& kernel, const machine& on, std::string_view dtype);

/// Ranks first, first + stride, ..., some on one node.
struct rank_line {
  std::size_t count = 1, stride = 1;

  [[nodiscard]] std::size_t on_a_node(const machine& on) const;
};

[[nodiscard]] double seconds_of(double bytes, const link_speed& link, const machine& on);

/// Collectives in successive rounds. Per round a rank sends inside and between nodes at once and waits one latency: `rounds` is the time to fill.
/// Messages are posted one after the other.
///   directly   one round to all ranks, whatever their number
[[nodiscard]] double seconds_of(const traffic& sent, const rank_line& ranks, const machine& on, bool directly = false);

/// Ring: each sends to the next; the slowest link decides.
[[nodiscard]] double seconds_round(const traffic& sent, const rank_line& ranks, const machine& on);

/// A rank's seconds per step.
struct rank_seconds {
  double passes = 0, layers = 0;            // all micro-batches
  double gradients = 0, weights = 0;        // per step
  double table = 0, update = 0;             // per step
  double message = 0, message_latency = 0;  // a micro-batch's message to the next stage

  rank_seconds(const dry_run& one, std::size_t dry_micro_batches, const run_layout& layout, const machine& on, std::string_view dtype);
};

}  // namespace detail

/// A step's time, from dry runs of one pipeline's ranks by stage: one for all; first and last; first, middle and last; or each.
///   dtype               of products: dtype_traits<T>::name
///   dry_micro_batches   in the dry run; 0: as in the layout; otherwise counts are scaled
///   departs             from the ring of [Patarasuk & Yuan 2009]: groups halve recursively, neighbors first, so that a node reduces before it uses the
///                       network. Links hide additions and copies
///   throws              config_error when the schedule is impossible, or the machine lacks this dtype or these links
[[nodiscard]] predicted_step predict(std::span<const dry_run> ranks, const run_layout& layout, const machine& on, std::string_view dtype,
                                     std::size_t dry_micro_batches = 0);

/// From one rank's dry run, for all.
[[nodiscard]] predicted_step predict(const dry_run& rank, const run_layout& layout, const machine& on, std::string_view dtype);

/// As text.
[[nodiscard]] std::string prediction_text(const predicted_step& step);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/predict_impl.hpp>
#endif
