// Plans one distribution of a run: memory, traffic and step time of its ranks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/models/compiled_models.hpp>
#include <xtrain/parallel/pipeline/schedule_cache.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/plan.hpp>
#include <xtrain/plan/predict.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

/// Batch and mesh; the strategy is a type.
struct mesh_settings {
  mesh_sizes mesh{};
  std::size_t shards = 0;             ///< ranks per sharded copy; 0: all ranks with equal weights; 1: no sharding
  std::size_t chunks = 1;             ///< stages per rank
  std::size_t global_batch_size = 1;  ///< sequences per step, all devices
  std::size_t micro_batch_size = 1;   ///< sequences per micro-batch and data-parallel rank
  std::size_t seq_length = 0;         ///< in tokens; 0: max_position_embeddings
};

/// Result for one mesh.
struct found_plan {
  std::string_view strategy{}, recompute{};
  std::size_t parameters = 0;
  run_layout layout{};
  std::size_t micro_batch_size = 0;                ///< sequences
  std::size_t bytes = 0;                           ///< device memory of the rank that needs most
  std::array<std::size_t, memory_roles> memory{};  ///< by role
  std::size_t communicators = 0;                   ///< of them: of the vendor's collectives
  std::size_t stage = 0;                           ///< that rank's pipeline position
  step_traffic sent{};                             ///< per step, of the rank that sends most
  predicted_step time{};
  double tokens_per_second = 0;  ///< per device
  double share_of_peak = 0;      ///< of the operations that the model needs
};

namespace detail {

/// The recipe, with another strategy.
template <class Recipe, class Strategy>
struct recipe_with_strategy : Recipe {
  using parallel = Strategy;
};
/// A single device without sharding, for the operations that the model needs; one type for recipes that differ only in recomputation.
template <class Recipe>
using recipe_of_one = recipe_axes<typename Recipe::device, typename Recipe::precision, single, typename Recipe::optimizer, recompute_none,
                                  typename Recipe::offload, typename Recipe::adapter, typename Recipe::objective>;

template <class Strategy>
inline constexpr bool has_stages = requires(typename Strategy::config config) {
  config.chunks;
};
template <class Strategy>
inline constexpr bool strategy_spreads_experts = requires {
  requires Strategy::has_expert_parallel;
};
template <class Schedule, class Beside>
inline constexpr bool strategy_spreads_experts<pipeline<Schedule, Beside>> = strategy_spreads_experts<Beside>;

/// One device: operations per token (forward and backward), bytes that strategies shard.
struct model_needs {
  std::size_t parameters = 0;
  double operations = 0;
  double weights = 0, gradients = 0, optimizer = 0;
};
[[nodiscard]] inline model_needs needs_of(const dry_run& step) {
  const auto bytes = [&](memory_role role) { return static_cast<double>(step.of(role)); };
  return {step.parameters, step.record.operations() / static_cast<double>(step.num_tokens), bytes(memory_role::weights), bytes(memory_role::gradients),
          bytes(memory_role::optimizer)};
}
/// One sequence on one device.
template <class Model>
[[nodiscard]] dry_run run_dry_on_one(const typename Model::config_type& sizes, std::size_t context, const typename Model::device::properties& properties) {
  using one = typename Model::template with_recipe<recipe_of_one<typename Model::recipe>>;
  return plan<trainer<one>>(sizes, {}, {.max_steps = 1, .micro_batch_size = 1, .seq_length = context}, properties);
}

/// A rank's traffic per step, from a dry run of `dry_micro_batches` micro-batches.
[[nodiscard]] step_traffic sent_in_step(const dry_run& one, std::size_t dry_micro_batches, const run_layout& layout);

inline constexpr std::size_t max_devices = std::size_t{1} << 20;        // groups list their ranks
inline constexpr std::size_t max_stage_batches = std::size_t{1} << 22;  // schedules list the stages' actions

/// throws config_error for impossible sizes
void require_mesh(const mesh_settings& s, const machine& on);

template <class Model, class Strategy>
using model_on_mesh = typename Model::template with_recipe<recipe_with_strategy<typename Model::recipe, Strategy>>;
/// For the first rank of a stage.
///   cache   of checked schedules; may be null
template <class Model, class Strategy>
[[nodiscard]] auto options_on_mesh(const mesh_settings& s, std::size_t stage, const std::shared_ptr<schedule_cache>& cache) {
  const std::size_t stages = s.mesh.pipeline_parallel_size;
  typename model_on_mesh<Model, Strategy>::options options;
  options.parallel.ranks = std::make_shared<dry_transport>(stage * (s.mesh.ranks() / stages), s.mesh.ranks());
  options.parallel.tensor_parallel_size = s.mesh.tensor_parallel_size;
  options.parallel.context_parallel_size = s.mesh.context_parallel_size;
  options.parallel.expert_parallel_size = s.mesh.expert_parallel_size;
  options.parallel.shards = s.shards;
  if constexpr (has_stages<Strategy>) {
    options.parallel.data_parallel_size = s.mesh.data_parallel_size * s.mesh.expert_parallel_size;
    options.parallel.chunks = stages > 1 ? s.chunks : 1;
    options.parallel.cache = cache;
  }
  return options;
}
[[nodiscard]] inline std::size_t micro_batches_of(const mesh_settings& s) {
  return s.global_batch_size / (s.mesh.data_parallel_size * s.mesh.expert_parallel_size) / s.micro_batch_size;
}
/// For a mesh that passes require_mesh.
template <class Model, class Strategy>
[[nodiscard]] run_layout layout_on_mesh(const typename Model::config_type& sizes, const mesh_settings& s) {
  run_layout layout = layout_of<typename model_on_mesh<Model, Strategy>::recipe>(options_on_mesh<Model, Strategy>(s, 0, nullptr).parallel, micro_batches_of(s));
  if (sizes.num_experts > 0 && sizes.balances_experts) layout.stage_messages = 2;
  return layout;
}
/// Some micro-batches, on the first rank of a stage.
template <class Model, class Strategy>
[[nodiscard]] dry_run run_dry_on_mesh(const typename Model::config_type& sizes, const mesh_settings& s, std::size_t stage, std::size_t micro_batches,
                                      const typename Model::device::properties& properties, const std::shared_ptr<schedule_cache>& cache) {
  return plan<trainer<model_on_mesh<Model, Strategy>>>(
      sizes, options_on_mesh<Model, Strategy>(s, stage, cache),
      {.max_steps = 1, .micro_batch_size = s.micro_batch_size, .gradient_accumulation_steps = micro_batches, .seq_length = s.seq_length}, properties);
}

/// plan_mesh; above `limit` bytes only memory is filled in.
///   cache   of checked schedules, reused for the next mesh
template <class Model, class Strategy>
[[nodiscard]] found_plan plan_mesh_within(std::size_t limit, const model_needs& needs, const typename Model::config_type& sizes, const mesh_settings& s,
                                          const machine& on, const typename Model::device::properties& properties,
                                          const std::shared_ptr<schedule_cache>& cache) {
  require_mesh(s, on);
  const std::size_t stages = s.mesh.pipeline_parallel_size, micro_batches = micro_batches_of(s);
  require<config_error>(has_stages<Strategy> || (stages == 1 && s.chunks == 1), "mesh: ", Strategy::name, " has no stages; given ", stages, " x ", s.chunks);
  require<config_error>(!has_sequence_parallel<Strategy>() || s.mesh.tensor_parallel_size > 1, "mesh: ", Strategy::name,
                        " must have tensor ranks; given tensor 1");
  require<config_error>(strategy_spreads_experts<Strategy> || s.mesh.expert_parallel_size == 1, "mesh: ", Strategy::name,
                        " has no expert parallelism; given expert ", s.mesh.expert_parallel_size);
  // maximum micro-batches in flight: more take time, not memory
  const std::size_t dry_micro_batches = std::min(micro_batches, (s.chunks == 1 ? 1 : 2) * stages);
  std::vector<std::size_t> measured_stages{0};
  if (stages > 2) measured_stages.push_back(1);
  if (stages > 1) measured_stages.push_back(stages - 1);
  found_plan found{.strategy = Strategy::name,
                   .recompute = Model::recipe::recompute::name,
                   .parameters = needs.parameters,
                   .micro_batch_size = s.micro_batch_size};
  found.layout = layout_on_mesh<Model, Strategy>(sizes, s);
  std::vector<dry_run> ranks;
  for (const std::size_t stage : measured_stages) {
    ranks.push_back(run_dry_on_mesh<Model, Strategy>(sizes, s, stage, dry_micro_batches, properties, cache));
    bool has_tied_table = false;
    if constexpr (requires { sizes.tie_word_embeddings; }) has_tied_table = sizes.tie_word_embeddings;
    const std::size_t communicators = communicators_of(s.mesh, stage, has_tied_table) * on.communicator;
    if (ranks.back().total() + communicators > found.bytes) {
      found.bytes = ranks.back().total() + communicators;
      found.memory = ranks.back().bytes;
      found.communicators = communicators;
      found.stage = stage;
    }
    const step_traffic sent = sent_in_step(ranks.back(), dry_micro_batches, found.layout);
    if (sent.total().bytes >= found.sent.total().bytes) found.sent = sent;
    if (found.bytes > limit) return found;
  }
  const std::string_view dtype = dtype_traits<typename Model::recipe::precision::compute>::name;
  found.time = predict(ranks, found.layout, on, dtype, dry_micro_batches);
  const double tokens = static_cast<double>(s.global_batch_size) * static_cast<double>(s.seq_length == 0 ? sizes.max_position_embeddings : s.seq_length);
  found.tokens_per_second = tokens / found.time.seconds / static_cast<double>(s.mesh.ranks());
  found.share_of_peak = found.time.share_of_peak(tokens * needs.operations, s.mesh.ranks(), on.peak(dtype));
  return found;
}

}  // namespace detail

/// Plans one distribution, whether it fits or not. Model sets family, precision, optimizer, recomputation and adapter; Strategy replaces its strategy.
///   throws  config_error when heads, layers or sequences are not divisible
template <class Model, class Strategy>
[[nodiscard]] found_plan plan_mesh(const typename Model::config_type& sizes, const mesh_settings& settings, const machine& on,
                                   const typename Model::device::properties& properties) {
  require_machine(on);
  detail::require_mesh(settings, on);
  const auto needs = detail::needs_of(detail::run_dry_on_one<Model>(sizes, settings.seq_length, properties));
  return detail::plan_mesh_within<Model, Strategy>(~std::size_t{0}, needs, sizes, settings, on, properties,
                                                 std::make_shared<schedule_cache>());
}

/// As text.
[[nodiscard]] std::string mesh_text(const found_plan& plan);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/mesh_plan_impl.hpp>
#endif
