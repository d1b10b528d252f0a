// Definitions of predict.hpp.
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
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/predict.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

XTRAIN_INLINE double predicted_step::share_of_peak(double operations, std::size_t devices, double peak) const {
  return operations / (seconds * static_cast<double>(devices) * peak);
}

namespace detail {

XTRAIN_INLINE bool is_product(std::string_view kernel) {
  constexpr std::array<std::string_view, 8> products{"matmul",          "grouped_matmul",           "linear_cross_entropy", "attention", "attention_backward",
                                                     "attention_block", "attention_block_backward", "cached_attention"};
  return std::find(products.begin(), products.end(), kernel) != products.end();
}

XTRAIN_INLINE double seconds_of(const kernel_count& kernel, const machine& on, std::string_view dtype) {
  const double rate = is_product(kernel.name) ? on.peak(dtype) : on.fp32;
  return static_cast<double>(kernel.runs) * on.launch +
         std::max(kernel.operations / (rate * on.matmul_share), kernel.bytes / (on.memory_bandwidth * on.bandwidth_share));
}

XTRAIN_INLINE std::size_t rank_line::on_a_node(const machine& on) const {
  return stride >= on.devices_per_node ? 1 : std::min(count, on.devices_per_node / stride);
}

XTRAIN_INLINE double seconds_of(double bytes, const link_speed& link, const machine& on) {
  if (bytes <= 0) return 0;
  require<config_error>(link.bandwidth > 0, "machine ", on.name, ": must have a link for what ranks send; its bandwidth is 0");
  return bytes / (link.bandwidth * on.link_share);
}

XTRAIN_INLINE double seconds_of(const traffic& sent, const rank_line& ranks, const machine& on, bool directly) {
  if (sent.messages == 0 || ranks.count < 2) return 0;
  const recursive_halving tree(ranks.count);
  const std::vector<halving_round> rounds = directly ? std::vector<halving_round>{{ranks.count, 1}} : tree.rounds();
  const auto shard_of = [](const halving_round& round) {
    return static_cast<double>(round.ranks - 1) / static_cast<double>(round.ranks * round.stride);
  };
  double shares = 0, seconds = static_cast<double>(sent.messages) * on.message;
  for (const halving_round& round : rounds) shares += shard_of(round);
  for (const halving_round& round : rounds) {
    const rank_line line{round.ranks, round.stride * ranks.stride};
    const std::size_t together = line.on_a_node(on);
    const double near = static_cast<double>(together - 1) / static_cast<double>(round.ranks - 1);
    const double bytes = static_cast<double>(sent.bytes) * shard_of(round) / shares;
    const double latency = together == round.ranks ? on.inside.latency : on.between.latency;
    seconds += std::max(seconds_of(near * bytes, on.inside, on), seconds_of((1 - near) * bytes, on.between, on)) +
               static_cast<double>(sent.rounds) / static_cast<double>(rounds.size()) * latency;
  }
  return seconds;
}

XTRAIN_INLINE double seconds_round(const traffic& sent, const rank_line& ranks, const machine& on) {
  if (sent.messages == 0 || ranks.count < 2) return 0;
  const link_speed& link = ranks.on_a_node(on) == ranks.count ? on.inside : on.between;
  return seconds_of(static_cast<double>(sent.bytes), link, on) + static_cast<double>(sent.messages) * (link.latency + on.message);
}

XTRAIN_INLINE rank_seconds::rank_seconds(const dry_run& one, std::size_t dry_micro_batches, const run_layout& layout, const machine& on,
                                         std::string_view dtype) {
  const auto& [data, tensor, pipeline, context, expert] = layout.mesh;
  const double times = static_cast<double>(layout.micro_batches) / static_cast<double>(dry_micro_batches);
  double attention = 0;  // on blocks of keys, while others are in flight
  for (const kernel_count& kernel : one.update.kernels) update += seconds_of(kernel, on, dtype);
  for (const kernel_count& kernel : one.record.since(one.update).kernels) {
    const double seconds = seconds_of(kernel, on, dtype);
    if (is_update(kernel.name)) update += seconds;
    else passes += times * seconds;
    if (kernel.name.starts_with("attention_block")) attention += seconds;
  }
  const rank_line beside{data * context, tensor * expert};  // ranks with equal weights
  const traffic& shared = one.sent.of(traffic_role::context_parallel);
  // keys are in flight in all turns but the last
  const double turns = static_cast<double>(context - 1) / static_cast<double>(context);
  const double context_parallel = layout.ring ? std::max(0.0, seconds_round(shared, {context, tensor}, on) - turns * attention)
                                              : seconds_of(shared, {context, tensor}, on, true);
  layers = times * (seconds_of(one.sent.of(traffic_role::tensor_parallel), {tensor, 1}, on) + context_parallel +
                    seconds_of(one.sent.of(traffic_role::expert_parallel), {expert, tensor}, on, true));
  gradients = (layout.zero_stage >= 2 ? times : 1) *
              (seconds_of(one.sent.of(traffic_role::gradients), beside, on) +
               seconds_of(one.sent.of(traffic_role::partial_sums), expert > 1 ? rank_line{expert, tensor} : rank_line{tensor, 1}, on));
  update += seconds_of(one.sent.of(traffic_role::optimizer), beside, on);
  weights = (layout.zero_stage >= 3 ? times : 1) * seconds_of(one.sent.of(traffic_role::weights), beside, on);
  const bool one_node = layout.mesh.ranks() <= on.devices_per_node;
  const link_speed& link = one_node ? on.inside : on.between;
  table = seconds_of(static_cast<double>(one.sent.of(traffic_role::tied_table).bytes), link, on);
  if (const traffic& stages = one.sent.of(traffic_role::pipeline_parallel); stages.messages > 0) {
    // messages sent together: bytes add, latencies overlap
    message = seconds_of(
        static_cast<double>(stages.bytes) / (static_cast<double>(stages.messages) / static_cast<double>(layout.stage_messages)), link, on);
    message_latency = link.latency + on.message;
  }
}

}  // namespace detail

XTRAIN_INLINE predicted_step predict(std::span<const dry_run> ranks, const run_layout& layout, const machine& on, std::string_view dtype,
                                     std::size_t dry_micro_batches) {
  require_machine(on);
  const std::size_t pipeline_ranks = layout.mesh.pipeline_parallel_size, m = layout.micro_batches;
  require<config_error>(!ranks.empty() && ranks.size() <= pipeline_ranks && m > 0,
                        "predict: dry runs must be of at least one rank, and at most of the ", pipeline_ranks,
                        " ranks of a pipeline; given ", ranks.size());
  std::vector<detail::rank_seconds> spent;
  for (const dry_run& one : ranks) spent.emplace_back(one, dry_micro_batches == 0 ? m : dry_micro_batches, layout, on, dtype);
  const auto seconds_of_rank = [&](std::size_t pipeline_rank) -> const detail::rank_seconds& {
    if (pipeline_rank + 1 == pipeline_ranks) return spent.back();
    return spent[std::min(pipeline_rank, spent.size() < 3 ? 0 : spent.size() - 2)];
  };

  // stages with communication inside; gradients are exchanged during and, if that is too short, after the last backward
  const double share = 1.0 / static_cast<double>(m * layout.chunks);
  pipeline_costs costs;
  for (std::size_t stage = 0; stage < pipeline_ranks * layout.chunks; ++stage) {
    const detail::rank_seconds& rank = seconds_of_rank(stage % pipeline_ranks);
    const double work = (rank.passes + rank.layers) * share, backward = work * (1 - layout.forward_share);
    const double reduce = layout.zero_stage >= 2 ? 0.0 : std::max(0.0, rank.gradients / static_cast<double>(layout.chunks) - backward);
    costs.stages.push_back(
        {.forward = {work * layout.forward_share}, .backward_input = {backward / 2}, .backward_weight = {backward / 2}, .reduce = reduce});
    costs.message.per_row = std::max(costs.message.per_row, rank.message);
    costs.message.fixed = std::max(costs.message.fixed, rank.message_latency);
  }
  const pipeline_timeline line = simulate_schedule(layout.schedule(pipeline_ranks, layout.chunks, std::vector<std::size_t>(m, 1)), costs);

  predicted_step step;
  const bool steps_apart = layout.zero_stage == 1 || layout.zero_stage == 2;  // weights are gathered after the optimizer step
  double worked = 0, late = 0;  // end of the last backward; delay of first forwards by late weights
  for (std::size_t pipeline_rank = 0; pipeline_rank < pipeline_ranks; ++pipeline_rank)
    for (const timed_action& timed : line.ranks[pipeline_rank]) {
      if (is_work(timed.action.kind)) worked = std::max(worked, timed.end);
      if (steps_apart && timed.action.kind == action_kind::forward)
        late = std::max(late, seconds_of_rank(pipeline_rank).weights * static_cast<double>(timed.action.chunk + 1) /
                                      static_cast<double>(layout.chunks) -
                                  timed.end);
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

XTRAIN_INLINE predicted_step predict(const dry_run& rank, const run_layout& layout, const machine& on, std::string_view dtype) {
  return predict(std::span<const dry_run>(&rank, 1), layout, on, dtype);
}

XTRAIN_INLINE std::string prediction_text(const predicted_step& step) {
  std::string text = concat("step           ", fixed(step.seconds * 1e3, 1), " ms\n");
  const auto line = [&](std::string name, double seconds) {
    name.resize(13, ' ');
    if (seconds > 1e-6 * step.seconds)
      text += concat("  ", name, fixed(seconds * 1e3, 1), " ms  ", fixed(100 * seconds / step.seconds, 1), " %\n");
  };
  line("passes", step.passes);
  line("layers", step.layers);
  line("bubble", step.bubble);
  line("exchange", step.exchange);
  line("update", step.update);
  return text;
}

}  // namespace xtrain
