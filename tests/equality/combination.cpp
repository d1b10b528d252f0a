// One strategy: EQUALITY_STRATEGY is its type, with `chosen` as a pipeline's schedule.
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include <xtrain/comm/group.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/zero.hpp>
#include "run.hpp"

namespace equality {

namespace {

std::size_t chosen_schedule = 0;

}  // namespace

/// Used only by programs with pipelines.
struct chosen {
  static constexpr std::string_view name = "chosen";
  static constexpr bool splits_backwards = true;
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    using make_schedule = pipeline_schedule (*)(std::size_t, std::size_t, std::vector<std::size_t>);
    constexpr make_schedule made_by[] = {gpipe::make, one_forward_one_backward::make, interleaved::make, all_in_all_out::make, zero_bubble::make};
    static_assert(std::size(made_by) == std::size(schedules), "run.hpp names the same schedules in the same order");
    return made_by[chosen_schedule](ranks, chunks, std::move(rows));
  }
};

namespace {

template <class Strategy, class State = typename Strategy::template state<cpu>>
constexpr sharded_axes axes_of() {
  return {.tensor = requires(const State& state) { state.layers(); },
          .context = requires(const State& state) { state.sequence_shard(); },
          .expert = requires(const State& state) { state.expert_shard(); },
          .stages = std::is_same_v<typename Strategy::config, pipeline_ranks>,
          .states = requires { requires Strategy::stage != detail::zero_stage::replicated; },  // pipelines: one sharded copy
          .backwards = requires { requires Strategy::splits_backwards; }};
}

template <class Config>
Config layout_of(const drawn_mesh& mesh, const std::shared_ptr<transport>& network) {
  if constexpr (std::is_same_v<Config, pipeline_ranks>)
    return {.ranks = network,
            .data_parallel_size = mesh.data,
            .tensor_parallel_size = mesh.tensor,
            .context_parallel_size = mesh.context,
            .expert_parallel_size = mesh.expert,
            .chunks = mesh.chunks,
            .micro_batch_sizes = mesh.rows};
  else
    return {.ranks = network,
            .tensor_parallel_size = mesh.tensor,
            .context_parallel_size = mesh.context,
            .shards = mesh.shards,
            .expert_parallel_size = mesh.expert};
}

template <class Strategy>
outcome train_here(const drawn_run& run, const std::shared_ptr<transport>& network) {
  const auto on_ranks = [&]<class Model>() {
    typename Model::options options;
    options.parallel = layout_of<typename Strategy::config>(run.mesh, network);
    if constexpr (requires { options.adapter.rank; }) options.adapter = run.adapter;
    return train<Model>(run, run.settings, options);
  };
  group together(network, 1000);
  together.barrier();  // no rank still uses the previous run's schedule
  if (network->rank() == 0 || network->name() != "threads") chosen_schedule = run.mesh.schedule;
  together.barrier();
  constexpr sharded_axes axes = axes_of<Strategy>();
  if constexpr (axes.expert) {
    if (run.what == kind::mixtral_adapted) return on_ranks.template operator()<mixtral<adapted_recipe<Strategy>>>();
    return on_ranks.template operator()<mixtral<plain_recipe<Strategy>>>();
  } else if constexpr (axes.tensor || axes.context) {
    return with_dense_model<Strategy>(run.what, on_ranks);
  } else {
    if (run.what == kind::mixtral) return on_ranks.template operator()<mixtral<plain_recipe<Strategy>>>();
    if (run.what == kind::llama_adapted) return on_ranks.template operator()<llama<adapted_recipe<Strategy>>>();
    return on_ranks.template operator()<gpt2<recomputing_recipe<Strategy>>>();
  }
}

template <class Strategy>
combination combination_of() {
  using enum kind;
  constexpr sharded_axes axes = axes_of<Strategy>();
  std::vector<kind> kinds = {mixtral, llama_adapted, gpt2_recomputing};
  if (axes.expert) kinds = {mixtral, mixtral_adapted};
  else if (axes.tensor || axes.context) kinds = {llama, llama_adapted, gpt2_recomputing};
  return {EQUALITY_NAME, axes, std::move(kinds), train_here<Strategy>};
}

}  // namespace

combination this_combination() { return combination_of<EQUALITY_STRATEGY>(); }

}  // namespace equality
