// The parallel strategy concept: process groups, sharding of weights, gradients and optimizer state, and hooks around every block.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/hooks.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/optim/whole_matrices.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

namespace clause {

template <class P>
concept strategy_has_a_name = requires {
  { P::name } -> std::convertible_to<std::string_view>;
};

/// Sizes are given at run time; the default config works on one rank.
template <class P>
concept strategy_is_sized_at_run_time = std::default_initializable<typename P::config>;

template <class P, class Device>
using strategy_state = typename P::template state<Device>;

template <class P, class Device>
concept strategy_opens = requires(const typename P::config& sizes) {
  strategy_state<P, Device>(sizes);
};

template <class C, class Device, class Number>
concept communicator_on =
    communicator<C> && communicator_moves_device_memory<C, typename Device::stream, device_span<Number, typename Device::memory>,
                                                        device_span<const Number, typename Device::memory>>;

/// data(): data-parallel ranks: the same weights, different sequences. tensor(): tensor-parallel ranks: shards of the same layers, whose partial outputs are
/// summed. world(): all ranks of the run.
template <class P, class Device, class Number>
concept strategy_has_communicators = requires(strategy_state<P, Device>& state) {
  requires communicator_on<std::remove_cvref_t<decltype(state.data())>, Device, double>;
  requires communicator<std::remove_cvref_t<decltype(state.world())>>;
  requires communicator_on<std::remove_cvref_t<decltype(state.tensor())>, Device, Number>;
};

/// Asked before the store allocates.
template <class P, class Device>
concept strategy_divides_the_store = requires(const strategy_state<P, Device>& state) {
  { state.sharding() } -> std::same_as<shard_spec>;
};

struct any_squares {
  template <class Spans, class Sum>
  void operator()(Spans, Sum) const {}
};

/// In the order of a step, all queued on the stream: block_begins and block_ends around every block of every pass (weights must be available in between),
/// gradients_ready after a block's backward of every micro-batch, finish_gradients once per step, reduce_losses (over all ranks with losses),
/// gradient_squares (of all ranks' gradients, into device memory), weights_changed after the optimizer step.
template <class P, class Device, class Store>
concept strategy_hooks_into_a_step = requires(strategy_state<P, Device>& state, typename Device::stream& stream, Store& store,
                                              std::size_t block, any_squares squares,
                                              device_span<double, typename Device::memory> sum) {
  state.block_begins(stream, store, block, block_visit::forward);
  state.block_ends(stream, store, block, block_visit::backward);
  state.gradients_ready(stream, store, block, true);
  state.finish_gradients(stream, store);
  state.reduce_losses(stream, sum);
  state.gradient_squares(stream, store, squares, sum);
  state.weights_changed(stream, store);
};

/// collect(stream, store, entry, array, whole): gathers a parameter's values on the first rank of data(), from an array sharded like the weights or the
/// optimizer state. All ranks call it, in the same order.
template <class P, class Device, class Store>
concept strategy_collects_parameters =
    requires(strategy_state<P, Device>& state, typename Device::stream& stream, const Store& store, const typename Store::entry& entry,
             device_span<const typename Store::parameter_type, typename Device::memory> array, std::span<typename Store::parameter_type> whole) {
  state.collect(stream, store, entry, array, whole);
};

/// For optimizers that need whole matrices (muon, adafactor): sums and gathers over the ranks with parts of a matrix.
template <class P, class Device, class Store>
concept strategy_combines_matrices = combines_matrices<strategy_state<P, Device>, Device, Store>;

/// add_up(sums): sums over pipeline stages; only the last has losses, the others 0.
template <class State>
concept strategy_has_stages = requires(State& state, std::span<double> sums) {
  state.add_up(sums);
};

template <class Config>
concept strategy_config_has_ranks = requires(const Config& config) {
  config.ranks->size();
  { config.ranks == nullptr } -> std::convertible_to<bool>;
};

/// steps_are_queued(count): steps queued by the trainer.
template <class State>
concept strategy_counts_queued_steps = requires(State& state, std::size_t count) { state.steps_are_queued(count); };

/// collect with the index `at` of the parameter in the array.
template <class P, class Device, class Store>
concept strategy_collects_at =
    requires(strategy_state<P, Device>& state, typename Device::stream& stream, const Store& store, const typename Store::entry& entry,
             device_span<const typename Store::parameter_type, typename Device::memory> array, std::span<typename Store::parameter_type> whole,
             std::optional<std::size_t> at) {
  state.collect(stream, store, entry, array, whole, at);
};
/// collect for an array of any shape.
template <class P, class Device, class Store>
concept strategy_collects_state =
    requires(strategy_state<P, Device>& state, typename Device::stream& stream, const Store& store, const typename Store::entry& entry, std::size_t first,
             device_span<const typename Store::parameter_type, typename Device::memory> own, std::span<typename Store::parameter_type> whole) {
  state.collect_state(stream, store, entry, first, own, whole);
};

template <class P>
concept strategy_lists_its_hooks = policy_lists_its_hooks<P>;

/// runner<Model> replaces whole_model_runner: it orders a step's micro-batches.
template <class P, class Model>
concept strategy_runs_steps = requires {
  typename P::template runner<Model>;
};

}  // namespace clause

namespace detail {

/// Shares the last stage's numbers. Collective.
template <class Model>
void add_up_stages([[maybe_unused]] Model& model, [[maybe_unused]] std::span<double> sums) {
  if constexpr (has_hook<typename Model::recipe::parallel, hook::add_up>) model.parallel().add_up(sums);
}

/// Names of hooks, and names close to them.
struct strategy_names {
  int runner, ranks, add_up, steps_are_queued, collect_state, gather_pieces, sum_pieces, sum_tensor_shards;
  int adds_up, step_is_queued, steps_queued, collects_state, collect_states, gather_piece, sum_piece, sum_tensor_shard;
};

/// Optional members must be listed, and listed hooks must be members. A function: clang++ reports only the first error in a class.
template <class P, class Device, class Store, class Model>
consteval bool strategy_hooks_are_members() {
  using state = clause::strategy_state<P, Device>;
  using config = typename P::config;
  using names = strategy_names;
  static_assert(P::hooks::template all_among<hook::runner, hook::ranks, hook::add_up, hook::steps_are_queued, hook::collects_with_index, hook::collect_state,
                                             hook::combines_matrices>,
                "xtrain recipe: the strategy's hooks must be tags of strategies; see parallel/README.md");
  static_assert(is_as_listed(has_hook<P, hook::runner>, clause::strategy_runs_steps<P, Model>, XTRAIN_HAS_NAME(P, names, runner)),
                "xtrain recipe: 'runner<Model>' must be both a member of the strategy and in its hooks, or neither; see parallel/README.md");
  static_assert(is_as_listed(has_hook<P, hook::ranks>, clause::strategy_config_has_ranks<config>, XTRAIN_HAS_NAME(config, names, ranks)),
                "xtrain recipe: 'ranks' must be both a member of the strategy's config and in the strategy's hooks, or neither; see parallel/README.md");
  static_assert(is_as_listed(has_hook<P, hook::add_up>, clause::strategy_has_stages<state>, XTRAIN_HAS_NAME(state, names, add_up)),
                "xtrain recipe: 'add_up(sums)' must be both a member of the strategy's state and in the strategy's hooks, or neither; see parallel/README.md");
  static_assert(is_as_listed(has_hook<P, hook::steps_are_queued>, clause::strategy_counts_queued_steps<state>, XTRAIN_HAS_NAME(state, names, steps_are_queued)),
                "xtrain recipe: 'steps_are_queued(count)' must be both a member of the strategy's state and in the strategy's hooks, or neither; see "
                "parallel/README.md");
  static_assert(has_hook<P, hook::collects_with_index> == clause::strategy_collects_at<P, Device, Store>,
                "xtrain recipe: collect() of the strategy's state must take an index 'at', and the strategy's hooks list collects_with_index, or neither; see "
                "parallel/README.md");
  static_assert(is_as_listed(has_hook<P, hook::collect_state>, clause::strategy_collects_state<P, Device, Store>, XTRAIN_HAS_NAME(state, names, collect_state)),
                "xtrain recipe: 'collect_state(stream, store, entry, first, own, whole)' must be both a member of the strategy's state and in the strategy's "
                "hooks, or neither; see parallel/README.md");
  static_assert(is_as_listed(has_hook<P, hook::combines_matrices>, clause::strategy_combines_matrices<P, Device, Store>,
                             XTRAIN_HAS_NAME(state, names, gather_pieces) || XTRAIN_HAS_NAME(state, names, sum_pieces) ||
                                 XTRAIN_HAS_NAME(state, names, sum_tensor_shards)),
                "xtrain recipe: 'gather_pieces', 'sum_pieces' and 'sum_tensor_shards' must be members of the strategy's state, and combines_matrices in the "
                "strategy's hooks, or neither; see parallel/README.md");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, adds_up, add_up, "add_up");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, step_is_queued, steps_are_queued, "steps_are_queued");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, steps_queued, steps_are_queued, "steps_are_queued");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, collects_state, collect_state, "collect_state");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, collect_states, collect_state, "collect_state");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, gather_piece, combines_matrices, "combines_matrices', with the member 'gather_pieces");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, sum_piece, combines_matrices, "combines_matrices', with the member 'sum_pieces");
  XTRAIN_REFUSE_NAME("strategy's state", P, state, names, sum_tensor_shard, combines_matrices, "combines_matrices', with the member 'sum_tensor_shards");
  return true;
}

}  // namespace detail

/// Device-independent requirements; `parallel_strategy_for` checks device and store.
template <class P>
concept parallel_strategy = clause::strategy_has_a_name<P> && clause::strategy_is_sized_at_run_time<P> && clause::strategy_lists_its_hooks<P>;

/// A strategy whose state works with this device and parameter store.
template <class P, class Device, class Store>
concept parallel_strategy_for = parallel_strategy<P> && clause::strategy_opens<P, Device> &&
    clause::strategy_has_communicators<P, Device, typename Store::precision::compute> &&
    clause::strategy_divides_the_store<P, Device> &&
    clause::strategy_hooks_into_a_step<P, Device, Store> && clause::strategy_collects_parameters<P, Device, Store>;

}  // namespace xtrain
