// One distribution of a run over devices: what its ranks need and send, and how long its step takes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/parallel/pipeline/schedule_shelf.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/plan.hpp>
#include <xtrain/plan/predict.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

/// What is trained in a step, and the mesh. The strategy is a type.
struct mesh_settings {
  mesh_sizes mesh{};
  std::size_t shards = 0;   ///< ranks per sharded copy; 0: all ranks with the same weights; 1: no sharding
  std::size_t chunks = 1;   ///< stages on each rank
  std::size_t rows = 1;     ///< global batch: sequences of a step, on all devices together
  std::size_t batch = 1;    ///< micro-batch size
  std::size_t context = 0;  ///< sequence length; 0: the model's
};

/// The result of planning one mesh.
struct found_plan {
  std::string_view strategy{}, recompute{};
  std::size_t parameters = 0;  ///< of the model
  run_layout layout{};
  std::size_t batch = 0;                           ///< micro-batch size
  std::size_t bytes = 0;                           ///< of device memory, on the rank that needs most
  std::array<std::size_t, memory_roles> memory{};  ///< the same by role
  std::size_t stage = 0;                           ///< the pipeline position of that rank
  step_traffic sent{};                             ///< in a step, by the rank that sends most
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
/// A single device without sharding: its operations are those that the model needs. One type for recipes that differ only in
/// recomputation.
template <class Device, class Precision, class Optimizer, class Offload, class Adapter>
struct recipe_on_one {
  using device = Device;
  using precision = Precision;
  using parallel = single;
  using optimizer = Optimizer;
  using recompute = recompute_none;
  using offload = Offload;
  using adapter = Adapter;
};
template <class Recipe>
using recipe_of_one = recipe_on_one<typename Recipe::device, typename Recipe::precision, typename Recipe::optimizer, typename Recipe::offload,
                                    typename Recipe::adapter>;

template <class Strategy>
inline constexpr bool has_stages = requires(typename Strategy::config config) {
  config.chunks;
};
template <class Strategy>
inline constexpr bool strategy_spreads_experts = requires {
  requires Strategy::spreads_experts;
};
template <class Schedule, class Beside>
inline constexpr bool strategy_spreads_experts<pipeline<Schedule, Beside>> = strategy_spreads_experts<Beside>;

/// For a whole model on one device: operations per token, forward and backward, and the bytes that strategies shard.
struct model_needs {
  std::size_t parameters = 0;
  double operations = 0;
  double weights = 0, gradients = 0, optimizer = 0;
};
template <class Model>
[[nodiscard]] model_needs needs_of(const typename Model::config& sizes, std::size_t context, const typename Model::device::properties& properties) {
  using one = typename Model::template with_recipe<recipe_of_one<typename Model::recipe>>;
  const rehearsal step = plan<trainer<one>>(sizes, {}, {.steps = 1, .batch = 1, .context = context}, properties);
  const auto bytes = [&](memory_role role) { return static_cast<double>(step.of(role)); };
  return {step.parameters, step.record.operations() / static_cast<double>(step.places), bytes(memory_role::weights), bytes(memory_role::gradients),
          bytes(memory_role::optimizer)};
}

/// What a rank sends in a step, from a dry run of `rehearsed` micro-batches.
[[nodiscard]] inline step_traffic sent_in_step(const rehearsal& one, std::size_t rehearsed, const run_layout& layout) {
  step_traffic all = one.sent;
  const auto for_each_micro_batch = [&](traffic_role role) {
    traffic& sent = all.of(role);
    sent = {sent.messages / rehearsed * layout.micro_batches, sent.bytes / rehearsed * layout.micro_batches,
            sent.rounds / rehearsed * layout.micro_batches, sent.collectives / rehearsed * layout.micro_batches, sent.scratch};
  };
  for_each_micro_batch(traffic_role::layers);
  for_each_micro_batch(traffic_role::places);
  for_each_micro_batch(traffic_role::experts);
  for_each_micro_batch(traffic_role::stages);
  if (layout.zero_stage >= 2) {
    for_each_micro_batch(traffic_role::gradients);
    for_each_micro_batch(traffic_role::parts);
  }
  if (layout.zero_stage >= 3) for_each_micro_batch(traffic_role::weights);
  return all;
}

inline constexpr std::size_t most_devices = std::size_t{1} << 20;         // groups list their ranks
inline constexpr std::size_t most_stage_batches = std::size_t{1} << 22;  // schedules list the actions of stages

/// throws config_error when no run can have these numbers
inline void require_mesh(const mesh_settings& s, const machine& on) {
  const auto& [data, tensor, pipeline, context, expert] = s.mesh;
  require<config_error>(data > 0 && tensor > 0 && pipeline > 0 && s.chunks > 0 && s.batch > 0 && s.rows > 0,
                        "mesh: data, tensor, stages, chunks, batch and rows must be at least 1; given ", data, ", ", tensor, ", ", pipeline, ", ", s.chunks, ", ",
                        s.batch, " and ", s.rows);
  require<config_error>(context > 0 && expert > 0, "mesh: context and expert must be at least 1; given ", context, " and ", expert);
  for (std::size_t axis = 0, ranks = 1; axis < mesh_axes; ++axis) {
    const std::size_t size = s.mesh.of(static_cast<xtrain::axis>(axis));
    require<config_error>(size <= most_devices / ranks, "mesh: must have at most ", most_devices, " devices; given data ", data, ", tensor ", tensor,
                          ", context ", context, ", expert ", expert, " and ", pipeline, " stages");
    ranks *= size;
  }
  const std::size_t others = data * expert;  // ranks that see other sequences
  require<config_error>(s.rows % others == 0 && s.rows / others % s.batch == 0, "mesh: rows of a step must be a multiple of data x ",
                        expert > 1 ? "expert x " : "", "batch; given ", s.rows, ", ", others, " and ", s.batch);
  require<config_error>(s.rows / others / s.batch <= most_stage_batches / pipeline, "mesh: stages x micro-batches must be at most ", most_stage_batches,
                        "; given ", pipeline, " and ", s.rows / others / s.batch);
  require<config_error>(s.mesh.ranks() == 1 || on.between.bandwidth > 0 || (s.mesh.ranks() <= on.devices_per_node && on.inside.bandwidth > 0), "machine ",
                        on.name, ": must have links for ", s.mesh.ranks(), " devices, 'inside' a node of ", on.devices_per_node, " and 'between' nodes");
}

/// As plan_mesh. Stops early when it needs more than `limit` bytes: then only memory is filled in.
///   shelf   the cache of checked schedules, reused for the next mesh
template <class Model, class Strategy>
[[nodiscard]] found_plan plan_mesh_within(std::size_t limit, const model_needs& needs, const typename Model::config& sizes, const mesh_settings& s,
                                          const machine& on, const typename Model::device::properties& properties,
                                          const std::shared_ptr<schedule_shelf>& shelf) {
  using model = typename Model::template with_recipe<recipe_with_strategy<typename Model::recipe, Strategy>>;
  require_mesh(s, on);
  const std::size_t stages = s.mesh.pipeline, micro_batches = s.rows / (s.mesh.data * s.mesh.expert) / s.batch;
  require<config_error>(has_stages<Strategy> || (stages == 1 && s.chunks == 1), "mesh: ", Strategy::name, " has no stages; given ", stages, " x ", s.chunks);
  require<config_error>(!divides_between_layers<Strategy>() || s.mesh.tensor > 1, "mesh: ", Strategy::name, " must have tensor ranks; given tensor 1");
  require<config_error>(strategy_spreads_experts<Strategy> || s.mesh.expert == 1, "mesh: ", Strategy::name, " does not spread experts; given expert ", s.mesh.expert);
  // a rank never has more micro-batches in flight than this: more of them take more time, but not more memory
  const std::size_t rehearsed = std::min(micro_batches, (s.chunks == 1 ? 1 : 2) * stages);
  std::vector<std::size_t> places{0};
  if (stages > 2) places.push_back(1);
  if (stages > 1) places.push_back(stages - 1);
  found_plan found{.strategy = Strategy::name, .recompute = Model::recipe::recompute::name, .parameters = needs.parameters, .batch = s.batch};
  std::vector<rehearsal> ranks;
  for (const std::size_t place : places) {
    typename model::options options;
    options.parallel.ranks = std::make_shared<dry_transport>(place * (s.mesh.ranks() / stages), s.mesh.ranks());
    options.parallel.tensor = s.mesh.tensor;
    options.parallel.context = s.mesh.context;
    options.parallel.expert = s.mesh.expert;
    options.parallel.shards = s.shards;
    if constexpr (has_stages<Strategy>) {
      options.parallel.data = s.mesh.data * s.mesh.expert;
      options.parallel.chunks = stages > 1 ? s.chunks : 1;
      options.parallel.shelf = shelf;
    }
    if (ranks.empty()) {
      found.layout = layout_of<typename model::recipe>(options.parallel, micro_batches);
      if (sizes.experts > 0 && sizes.balances_experts) found.layout.stage_messages = 2;
    }
    ranks.push_back(plan<trainer<model>>(sizes, options, {.steps = 1, .batch = s.batch, .accumulate = rehearsed, .context = s.context}, properties));
    if (ranks.back().total() > found.bytes) {
      found.bytes = ranks.back().total();
      found.memory = ranks.back().bytes;
      found.stage = place;
    }
    const step_traffic sent = sent_in_step(ranks.back(), rehearsed, found.layout);
    if (sent.total().bytes >= found.sent.total().bytes) found.sent = sent;
    if (found.bytes > limit) return found;
  }
  const std::string_view number = number_traits<typename Model::recipe::precision::compute>::name;
  found.time = predict(ranks, found.layout, on, number, rehearsed);
  const double tokens = static_cast<double>(s.rows) * static_cast<double>(s.context == 0 ? sizes.context : s.context);
  found.tokens_per_second = tokens / found.time.seconds / static_cast<double>(s.mesh.ranks());
  found.share_of_peak = found.time.share_of_peak(tokens * needs.operations, s.mesh.ranks(), on.peak(number));
  return found;
}

}  // namespace detail

/// Plans one distribution of a model, whether it fits the machine or not. Model sets family, precision, optimizer, recomputation and
/// adapter; Strategy replaces its own.
///   throws  config_error when heads, layers or sequences are not divisible this way
template <class Model, class Strategy>
[[nodiscard]] found_plan plan_mesh(const typename Model::config& sizes, const mesh_settings& settings, const machine& on,
                                   const typename Model::device::properties& properties) {
  require_machine(on);
  detail::require_mesh(settings, on);
  const auto needs = detail::needs_of<Model>(sizes, settings.context, properties);
  return detail::plan_mesh_within<Model, Strategy>(~std::size_t{0}, needs, sizes, settings, on, properties,
                                                 std::make_shared<schedule_shelf>());
}

/// A plan as printable text.
[[nodiscard]] inline std::string mesh_text(const found_plan& plan) {
  const auto line = [](std::string name, const std::string& text) {
    name.resize(15, ' ');
    return concat(name, text, "\n");
  };
  const run_layout& at = plan.layout;
  const auto axis = [](const char* name, std::size_t size) { return size > 1 ? concat(" x ", name, " ", size) : std::string(); };
  std::string text = line("mesh", concat("data ", at.mesh.data, " x tensor ", at.mesh.tensor, at.between_layers ? " and sequence" : "",
                                         axis("context", at.mesh.context), at.ring ? " in a ring" : "", axis("expert", at.mesh.expert), " x stages ", at.mesh.pipeline, ", zero ", at.zero_stage));
  text += line("a step", concat(at.mesh.data * at.mesh.expert, " x ", at.micro_batches, " micro-batches of ", plan.batch, plan.batch == 1 ? " row" : " rows", ", recompute ",
                                plan.recompute));
  text += line("memory", concat(bytes_text(plan.bytes), at.mesh.pipeline > 1 ? concat(" on a rank of stage ", plan.stage + 1, ", which needs most") : ""));
  for (std::size_t r = 0; r < memory_roles; ++r)
    if (plan.memory[r] > 0) text += line(concat("  ", name_of(static_cast<memory_role>(r))), bytes_text(plan.memory[r]));
  if (const traffic all = plan.sent.total(); all.messages > 0) {
    text += line("sent", concat(bytes_text(all.bytes), " in ", all.messages, " messages of a step"));
    for (std::size_t r = 0; r < traffic_roles; ++r)
      if (const traffic& one = plan.sent.sent[r]; one.messages > 0)
        text += line(concat("  ", name_of(static_cast<traffic_role>(r))), concat(bytes_text(one.bytes), " in ", one.messages));
  }
  return text + prediction_text(plan.time) +
         line("tokens/s", concat(fixed(plan.tokens_per_second, 0), " of each device, ", fixed(100 * plan.share_of_peak, 1), " % of its peak"));
}

}  // namespace xtrain
