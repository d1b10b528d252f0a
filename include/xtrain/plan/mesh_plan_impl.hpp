// Definitions of mesh_plan.hpp.
#pragma once

#include <cstddef>
#include <string>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/parallel/pipeline/schedule_cache.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/mesh_plan.hpp>
#include <xtrain/plan/plan.hpp>
#include <xtrain/plan/predict.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE step_traffic sent_in_step(const dry_run& one, std::size_t dry_micro_batches, const run_layout& layout) {
  step_traffic all = one.sent;
  const auto for_each_micro_batch = [&](traffic_role role) {
    traffic& sent = all.of(role);
    sent = {sent.messages / dry_micro_batches * layout.micro_batches, sent.bytes / dry_micro_batches * layout.micro_batches,
            sent.rounds / dry_micro_batches * layout.micro_batches, sent.collectives / dry_micro_batches * layout.micro_batches, sent.scratch};
  };
  for_each_micro_batch(traffic_role::tensor_parallel);
  for_each_micro_batch(traffic_role::context_parallel);
  for_each_micro_batch(traffic_role::expert_parallel);
  for_each_micro_batch(traffic_role::pipeline_parallel);
  if (layout.zero_stage >= 2) {
    for_each_micro_batch(traffic_role::gradients);
    for_each_micro_batch(traffic_role::partial_sums);
  }
  if (layout.zero_stage >= 3) for_each_micro_batch(traffic_role::weights);
  return all;
}

XTRAIN_INLINE void require_mesh(const mesh_settings& s, const machine& on) {
  const auto& [data, tensor, pipeline, context, expert] = s.mesh;
  require<config_error>(data > 0 && tensor > 0 && pipeline > 0 && s.chunks > 0 && s.micro_batch_size > 0 && s.global_batch_size > 0,
                        "mesh: data, tensor, stages, chunks, micro_batch_size and global_batch_size must be at least 1; given ", data, ", ", tensor, ", ",
                        pipeline, ", ", s.chunks, ", ", s.micro_batch_size, " and ", s.global_batch_size);
  require<config_error>(context > 0 && expert > 0, "mesh: context and expert must be at least 1; given ", context, " and ", expert);
  for (std::size_t axis = 0, ranks = 1; axis < mesh_axes; ++axis) {
    const std::size_t size = s.mesh.of(static_cast<xtrain::axis>(axis));
    require<config_error>(size <= max_devices / ranks, "mesh: must have at most ", max_devices, " devices; given data ", data,
                          ", tensor ", tensor, ", context ", context, ", expert ", expert, " and ", pipeline, " stages");
    ranks *= size;
  }
  const std::size_t others = data * expert;  // ranks with other sequences
  require<config_error>(s.global_batch_size % others == 0 && s.global_batch_size / others % s.micro_batch_size == 0,
                        "mesh: global_batch_size must be a multiple of data x ", expert > 1 ? "expert x " : "", "micro_batch_size; given ",
                        s.global_batch_size, ", ", others, " and ", s.micro_batch_size);
  require<config_error>(s.global_batch_size / others / s.micro_batch_size <= max_stage_batches / pipeline, "mesh: stages x micro-batches must be at most ",
                        max_stage_batches, "; given ", pipeline, " and ", s.global_batch_size / others / s.micro_batch_size);
  require<config_error>(
      s.mesh.ranks() == 1 || on.between.bandwidth > 0 || (s.mesh.ranks() <= on.devices_per_node && on.inside.bandwidth > 0), "machine ",
      on.name, ": must have links for ", s.mesh.ranks(), " devices, 'inside' a node of ", on.devices_per_node, " and 'between' nodes");
}

}  // namespace detail

XTRAIN_INLINE std::string mesh_text(const found_plan& plan) {
  const auto line = [](std::string name, const std::string& text) {
    name.resize(15, ' ');
    return concat(name, text, "\n");
  };
  const run_layout& at = plan.layout;
  const auto axis = [](const char* name, std::size_t size) { return size > 1 ? concat(" x ", name, " ", size) : std::string(); };
  std::string text = line("mesh", concat("data ", at.mesh.data_parallel_size, " x tensor ", at.mesh.tensor_parallel_size,
                                         at.has_sequence_parallel ? " and sequence" : "", axis("context", at.mesh.context_parallel_size),
                                         at.ring ? " in a ring" : "", axis("expert", at.mesh.expert_parallel_size), " x stages ",
                                         at.mesh.pipeline_parallel_size, ", zero ", at.zero_stage));
  text += line("a step", concat(at.mesh.data_parallel_size * at.mesh.expert_parallel_size, " x ", at.micro_batches, " micro-batches of ", plan.micro_batch_size,
                                plan.micro_batch_size == 1 ? " sequence" : " sequences", ", recompute ", plan.recompute));
  text += line("memory", concat(bytes_text(plan.bytes),
                                at.mesh.pipeline_parallel_size > 1 ? concat(" on a rank of stage ", plan.stage + 1, ", which needs most") : ""));
  for (std::size_t r = 0; r < memory_roles; ++r)
    if (plan.memory[r] > 0) text += line(concat("  ", name_of(static_cast<memory_role>(r))), bytes_text(plan.memory[r]));
  if (plan.communicators > 0) text += line("  collectives", bytes_text(plan.communicators));
  if (const traffic all = plan.sent.total(); all.messages > 0) {
    text += line("sent", concat(bytes_text(all.bytes), " in ", all.messages, " messages of a step"));
    for (std::size_t r = 0; r < traffic_roles; ++r)
      if (const traffic& one = plan.sent.sent[r]; one.messages > 0)
        text += line(concat("  ", name_of(static_cast<traffic_role>(r))), concat(bytes_text(one.bytes), " in ", one.messages));
  }
  return text + prediction_text(plan.time) +
         line("tokens/s",
              concat(fixed(plan.tokens_per_second, 0), " of each device, ", fixed(100 * plan.share_of_peak, 1), " % of its peak"));
}

}  // namespace xtrain
