// Predicts how long a step takes on a machine: from what its ranks compute and send, and how they wait for each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  [[nodiscard]] double share_of_peak(double operations, std::size_t devices, double peak) const {
    return operations / (seconds * static_cast<double>(devices) * peak);
  }
};

namespace detail {

/// Matrix products, which run on an accelerator's matrix units.
[[nodiscard]] inline bool is_product(std::string_view kernel) {
  constexpr std::array<std::string_view, 7> products{"matmul",           "linear_cross_entropy", "attention",
                                                     "attention_backward", "attention_block",      "attention_block_backward",
                                                     "cached_attention"};
  return std::find(products.begin(), products.end(), kernel) != products.end();
}
/// Runs once per step, for any number of micro-batches.
[[nodiscard]] inline bool is_update(std::string_view kernel) { return kernel == "adamw" || kernel == "sgd" || kernel == "sum_of_squares"; }

/// Compute overlaps memory access: the longer of the two counts.                      [Williams et al. 2009, "Roofline"]
[[nodiscard]] inline double seconds_of(const kernel_count& kernel, const machine& on, std::string_view number) {
  const double rate = is_product(kernel.name) ? on.peak(number) : on.fp32;
  return static_cast<double>(kernel.runs) * on.launch + std::max(kernel.operations / (rate * on.matmul_share),
                                                                 kernel.bytes / (on.memory_bandwidth * on.bandwidth_share));
}

/// Ranks first, first + stride, ..., some of which are on the same node.
struct rank_line {
  std::size_t count = 1, stride = 1;

  [[nodiscard]] std::size_t on_a_node(const machine& on) const {
    return stride >= on.devices_per_node ? 1 : std::min(count, on.devices_per_node / stride);
  }
};

[[nodiscard]] inline double seconds_of(double bytes, const link_speed& link, const machine& on) {
  if (bytes <= 0) return 0;
  require<config_error>(link.bandwidth > 0, "machine ", on.name, ": must have a link for what ranks send; its bandwidth is 0");
  return bytes / (link.bandwidth * on.link_share);
}

/// The rounds of collectives, one after the other. In each a rank sends to some others, inside and between nodes at the same time, and waits for
/// one latency: `rounds` is the time to fill. The processor posts messages one after the other.
///   directly   every rank sends to all others in one round, however many there are
[[nodiscard]] inline double seconds_of(const traffic& sent, const rank_line& ranks, const machine& on, bool directly = false) {
  if (sent.messages == 0 || ranks.count < 2) return 0;
  const recursive_halving tree(ranks.count);
  const std::vector<halving_round> rounds = directly ? std::vector<halving_round>{{ranks.count, 1}} : tree.rounds();
  const auto share_of = [](const halving_round& round) { return static_cast<double>(round.ranks - 1) / static_cast<double>(round.ranks * round.stride); };
  double shares = 0, seconds = static_cast<double>(sent.messages) * on.message;
  for (const halving_round& round : rounds) shares += share_of(round);
  for (const halving_round& round : rounds) {
    const rank_line line{round.ranks, round.stride * ranks.stride};
    const std::size_t together = line.on_a_node(on);
    const double near = static_cast<double>(together - 1) / static_cast<double>(round.ranks - 1);
    const double bytes = static_cast<double>(sent.bytes) * share_of(round) / shares;
    const double latency = together == round.ranks ? on.inside.latency : on.between.latency;
    seconds += std::max(seconds_of(near * bytes, on.inside, on), seconds_of((1 - near) * bytes, on.between, on)) +
               static_cast<double>(sent.rounds) / static_cast<double>(rounds.size()) * latency;
  }
  return seconds;
}

/// Ring: every rank sends to the next; all are as fast as the slowest link.
[[nodiscard]] inline double seconds_round(const traffic& sent, const rank_line& ranks, const machine& on) {
  if (sent.messages == 0 || ranks.count < 2) return 0;
  const link_speed& link = ranks.on_a_node(on) == ranks.count ? on.inside : on.between;
  return seconds_of(static_cast<double>(sent.bytes), link, on) + static_cast<double>(sent.messages) * (link.latency + on.message);
}

/// What one rank spends in a step.
struct rank_seconds {
  double passes = 0, layers = 0;            // of all micro-batches
  double gradients = 0, weights = 0;        // of a step
  double table = 0, update = 0;             // likewise
  double message = 0, message_latency = 0;  // of what a micro-batch sends to the next stage

  rank_seconds(const rehearsal& one, std::size_t rehearsed, const run_layout& layout, const machine& on, std::string_view number) {
    const auto& [data, tensor, pipeline, context, expert] = layout.mesh;
    const double times = static_cast<double>(layout.micro_batches) / static_cast<double>(rehearsed);
    double attention = 0;  // on blocks of keys, while the next ones are in flight
    for (const kernel_count& kernel : one.record.kernels) {
      const double seconds = seconds_of(kernel, on, number);
      if (is_update(kernel.name)) update += seconds;
      else passes += times * seconds;
      if (kernel.name.starts_with("attention_block")) attention += seconds;
    }
    const rank_line beside{data * context, tensor * expert};  // ranks with the same weights
    const traffic& shared = one.sent.of(traffic_role::places);
    // in all turns of a ring but the last, keys are in flight
    const double turns = static_cast<double>(context - 1) / static_cast<double>(context);
    const double places = layout.ring ? std::max(0.0, seconds_round(shared, {context, tensor}, on) - turns * attention)
                                      : seconds_of(shared, {context, tensor}, on, true);
    layers = times * (seconds_of(one.sent.of(traffic_role::layers), {tensor, 1}, on) + places +
                      seconds_of(one.sent.of(traffic_role::experts), {expert, tensor}, on, true));
    gradients = (layout.zero_stage >= 2 ? times : 1) * (seconds_of(one.sent.of(traffic_role::gradients), beside, on) +
                                                        seconds_of(one.sent.of(traffic_role::parts), expert > 1 ? rank_line{expert, tensor} : rank_line{tensor, 1}, on));
    weights = (layout.zero_stage >= 3 ? times : 1) * seconds_of(one.sent.of(traffic_role::weights), beside, on);
    const bool one_node = layout.mesh.ranks() <= on.devices_per_node;
    const link_speed& link = one_node ? on.inside : on.between;
    table = seconds_of(static_cast<double>(one.sent.of(traffic_role::table).bytes), link, on);
    if (const traffic& stages = one.sent.of(traffic_role::stages); stages.messages > 0) {
      // messages sent together take as long as their bytes in total, and their latencies overlap
      message = seconds_of(static_cast<double>(stages.bytes) / (static_cast<double>(stages.messages) / static_cast<double>(layout.stage_messages)), link, on);
      message_latency = link.latency + on.message;
    }
  }
};

}  // namespace detail

/// A step's time, from dry runs of ranks of one pipeline in the order of stages: of one rank for all, of the first and the last, of the
/// first, a middle one and the last, or of each.
///   rehearsed   micro-batches of the dry run; 0: as many as the layout has. What depends on their number is scaled
///   number      the dtype of products, by name: number_traits<T>::name
///   departs     from the ring of [Patarasuk & Yuan 2009]: groups halve recursively, neighbours first, so that a node reduces before it sends
///               over the network. Additions and copies are assumed to be hidden behind the links
///   throws      config_error when the schedule cannot be made, or the machine lacks this dtype or these links
[[nodiscard]] inline predicted_step predict(std::span<const rehearsal> ranks, const run_layout& layout, const machine& on, std::string_view number,
                                            std::size_t rehearsed = 0) {
  require_machine(on);
  const std::size_t places = layout.mesh.pipeline, m = layout.micro_batches;
  require<config_error>(!ranks.empty() && ranks.size() <= places && m > 0,
                        "predict: rehearsals must be of one rank at least, and at most of the ", places, " of a pipeline; given ", ranks.size());
  std::vector<detail::rank_seconds> spent;
  for (const rehearsal& one : ranks) spent.emplace_back(one, rehearsed == 0 ? m : rehearsed, layout, on, number);
  const auto of_place = [&](std::size_t place) -> const detail::rank_seconds& {
    if (place + 1 == places) return spent.back();
    return spent[std::min(place, spent.size() < 3 ? 0 : spent.size() - 2)];
  };

  // stages of the pipeline, including communication within a stage; gradients are exchanged during the last backward and, where that is
  // too short, after it
  const double share = 1.0 / static_cast<double>(m * layout.chunks);
  pipeline_costs costs;
  for (std::size_t stage = 0; stage < places * layout.chunks; ++stage) {
    const detail::rank_seconds& rank = of_place(stage % places);
    const double work = (rank.passes + rank.layers) * share, backward = work * (1 - layout.forward_share);
    const double reduce = layout.zero_stage >= 2 ? 0.0 : std::max(0.0, rank.gradients / static_cast<double>(layout.chunks) - backward);
    costs.stages.push_back({.forward = {work * layout.forward_share}, .backward_input = {backward / 2}, .backward_weight = {backward / 2}, .reduce = reduce});
    costs.message.per_row = std::max(costs.message.per_row, rank.message);
    costs.message.fixed = std::max(costs.message.fixed, rank.message_latency);
  }
  const pipeline_timeline line = simulate_schedule(layout.schedule(places, layout.chunks, std::vector<std::size_t>(m, 1)), costs);

  predicted_step step;
  const bool steps_apart = layout.zero_stage == 1 || layout.zero_stage == 2;  // weights are gathered after the optimizer step
  double worked = 0, late = 0;  // end of the last backward; delay of the first forwards by late weights
  for (std::size_t place = 0; place < places; ++place)
    for (const timed_action& timed : line.ranks[place]) {
      if (is_work(timed.action.kind)) worked = std::max(worked, timed.end);
      if (steps_apart && timed.action.kind == action_kind::forward)
        late = std::max(late, of_place(place).weights * static_cast<double>(timed.action.chunk + 1) / static_cast<double>(layout.chunks) - timed.end);
    }
  for (const detail::rank_seconds& rank : spent) {
    if (rank.passes + rank.layers > step.passes + step.layers) {
      step.passes = rank.passes;
      step.layers = rank.layers;
    }
    step.update = std::max(step.update, rank.update);
  }
  step.bubble = std::max(0.0, worked - step.passes - step.layers);
  step.exchange = line.step_time() - worked;
  for (const detail::rank_seconds& rank : spent) {
    double more = rank.table;
    if (layout.zero_stage == 2) more += std::max(0.0, rank.gradients - rank.passes * (1 - layout.forward_share));
    if (layout.zero_stage == 3) more += std::max(0.0, rank.gradients + rank.weights - rank.passes);
    step.exchange = std::max(step.exchange, line.step_time() - worked + more);
  }
  step.exchange += late;
  step.seconds = step.passes + step.layers + step.bubble + step.exchange + step.update;
  return step;
}

/// From the dry run of one rank, for all ranks.
[[nodiscard]] inline predicted_step predict(const rehearsal& rank, const run_layout& layout, const machine& on, std::string_view number) {
  return predict(std::span<const rehearsal>(&rank, 1), layout, on, number);
}

/// A prediction as printable text.
[[nodiscard]] inline std::string prediction_text(const predicted_step& step) {
  std::string text = concat("step           ", fixed(step.seconds * 1e3, 1), " ms\n");
  const auto line = [&](std::string name, double seconds) {
    name.resize(13, ' ');
    if (seconds > 1e-6 * step.seconds) text += concat("  ", name, fixed(seconds * 1e3, 1), " ms  ", fixed(100 * seconds / step.seconds, 1), " %\n");
  };
  line("passes", step.passes);
  line("layers", step.layers);
  line("bubble", step.bubble);
  line("exchange", step.exchange);
  line("update", step.update);
  return text;
}

}  // namespace xtrain
