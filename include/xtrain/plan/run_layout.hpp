// A run's distribution over ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/comm/mesh.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/schedule/schedule.hpp>

namespace xtrain {

/// Innermost to outermost, as strategies assign ranks: tensor-, context-, expert- (with other sequences), data-, pipeline-parallel.
struct run_layout {
  mesh_sizes mesh{};
  bool has_sequence_parallel = false;  ///< regions between layers are sharded
  bool ring = false;                   ///< ring attention
  std::size_t chunks = 1;              ///< stages per rank
  std::size_t micro_batches = 1;       ///< per step
  std::size_t zero_stage = 0;
  std::size_t stage_messages = 1;  ///< sent together to the next stage: 2 with the load of balanced experts
  double forward_share = 1.0 / 3;  ///< of forward + backward; 1/4 with full recomputation
  pipeline_schedule (*schedule)(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) = one_forward_one_backward::make;
};

namespace detail {

template <class Strategy>
struct schedule_of {
  static constexpr auto make = one_forward_one_backward::make;
};
template <class Schedule, class Beside>
struct schedule_of<pipeline<Schedule, Beside>> {
  static constexpr auto make = Schedule::make;
};
template <class Strategy>
inline constexpr std::size_t zero_stage_of = 0;
template <class Strategy>
requires requires { Strategy::stage; }
inline constexpr std::size_t zero_stage_of<Strategy> = static_cast<std::size_t>(Strategy::stage);
template <class Schedule, class Beside>
inline constexpr std::size_t zero_stage_of<pipeline<Schedule, Beside>> = zero_stage_of<Beside>;
template <class Strategy>
[[nodiscard]] constexpr bool has_sequence_parallel() {
  return has_sequence_parallel_of<Strategy>;
}

/// Communicators of a rank of this pipeline stage, where groups of the same ranks share one: of each axis, and of data- with context-parallel ranks, which have
/// the same weights; two for each neighbor, since messages of a pair have one for each direction; and of the two ends, which share a tied table.
[[nodiscard]] constexpr std::size_t communicators_of(const mesh_sizes& mesh, std::size_t stage, bool has_tied_table = false) {
  std::size_t count = 0;
  for (std::size_t each = 0; each < mesh_axes; ++each) count += mesh.of(static_cast<axis>(each)) > 1 ? 1 : 0;
  if (mesh.data_parallel_size > 1 && mesh.context_parallel_size > 1) ++count;
  const std::size_t stages = mesh.pipeline_parallel_size;
  const bool is_first = stage == 0, is_last = stage + 1 == stages;
  count += 2 * ((is_first ? 0 : 1) + (is_last ? 0 : 1));
  if (has_tied_table && stages > 2 && (is_first || is_last)) ++count;
  return count;
}

}  // namespace detail

/// For a recipe.
///   throws  config_error when ranks are not a multiple of the axis sizes
template <class Recipe>
[[nodiscard]] run_layout layout_of(const typename Recipe::parallel::config& config, std::size_t micro_batches) {
  using strategy = typename Recipe::parallel;
  run_layout layout{.has_sequence_parallel = detail::has_sequence_parallel<strategy>(),
                    .ring = has_ring_attention<Recipe>,
                    .micro_batches = micro_batches,
                    .zero_stage = detail::zero_stage_of<strategy>,
                    .forward_share = Recipe::recompute::drops_blocks ? 1.0 / 4 : 1.0 / 3,
                    .schedule = detail::schedule_of<strategy>::make};
  if constexpr (has_hook<strategy, hook::ranks>) {
    const std::size_t ranks = config.ranks ? config.ranks->size() : 1;
    auto& [data, tensor, stages, context, expert] = layout.mesh;
    tensor = config.tensor_parallel_size;
    context = config.context_parallel_size;
    expert = config.expert_parallel_size;
    const std::size_t together = tensor * context * expert;
    if (config.shards == 1) layout.zero_stage = 0;  // no sharding
    // `data` counts all ranks with other sequences, whatever their experts
    if constexpr (std::is_same_v<typename strategy::config, pipeline_ranks>) {
      const std::size_t beside = config.data_parallel_size * tensor * context;
      require<config_error>(together > 0 && beside > 0 && ranks % beside == 0 && config.data_parallel_size % expert == 0,
                            "layout: ranks must be a multiple of data x tensor x context, and data of expert; given ", ranks, ", ",
                            config.data_parallel_size, ", ", tensor, ", ", context, " and ", expert);
      data = config.data_parallel_size / expert;
      stages = ranks / beside;
      layout.chunks = stages == 1 ? 1 : config.chunks;
    } else {
      require<config_error>(together > 0 && ranks % together == 0, "layout: ranks must be a multiple of tensor x context x expert; given ",
                            ranks, ", ", tensor, ", ", context, " and ", expert);
      data = ranks / together;
    }
  }
  return layout;
}

}  // namespace xtrain
