// The parallel strategy concept: the process groups of a run, how weights, gradients and optimizer state are sharded, and the hooks
// around every block. Models and trainers call these hooks and know nothing else of parallelism.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/optim/whole_matrices.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

namespace clause {

template <class P>
concept strategy_has_a_name = requires {
  { P::name } -> std::convertible_to<std::string_view>;
};

/// Sizes are given at run time; the default config must work on one rank.
template <class P>
concept strategy_is_sized_at_run_time = std::default_initializable<typename P::config>;

template <class P, class Device>
using strategy_state = typename P::template state<Device>;

template <class P, class Device>
concept strategy_opens = requires(const typename P::config& sizes) {
  strategy_state<P, Device>(sizes);
};

/// Layer outputs are reduced in device memory, in the compute dtype.
template <class C, class Device, class Number>
concept communicator_on =
    communicator<C> && communicator_moves_device_memory<C, typename Device::stream, device_span<Number, typename Device::memory>,
                                                        device_span<const Number, typename Device::memory>>;

/// data(): data-parallel ranks, which train the same weights on other sequences. tensor(): tensor-parallel ranks, which hold shards of
/// the same layers and sum their partial outputs. everyone(): all ranks of the run.
template <class P, class Device, class Number>
concept strategy_has_communicators = requires(strategy_state<P, Device>& state) {
  requires communicator_on<std::remove_cvref_t<decltype(state.data())>, Device, double>;
  requires communicator<std::remove_cvref_t<decltype(state.everyone())>>;
  requires communicator_on<std::remove_cvref_t<decltype(state.tensor())>, Device, Number>;
};

/// How the parameter store is sharded; asked before it allocates anything.
template <class P, class Device>
concept strategy_divides_the_store = requires(const strategy_state<P, Device>& state) {
  { state.sharding() } -> std::same_as<shard_spec>;
};

struct any_squares {
  template <class Spans, class Sum>
  void operator()(Spans, Sum) const {}
};

/// In the order of a step: block_begins and block_ends around every block of every forward and backward pass (the weights must be
/// available in between), gradients_ready after a block's backward of every micro-batch, finish_gradients once all gradients of the step
/// are ready, reduce_losses (over all ranks that have some of a step's losses), gradient_squares (of the gradients of all ranks, into device
/// memory), weights_changed after the optimizer step. All of it is queued on the stream.
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

/// collect(stream, store, entry, array, whole): gathers the whole values of one parameter on the first rank of data(), from an array that
/// is sharded like the store's weights or like the optimizer state. All ranks call it, for the same parameters.
template <class P, class Device, class Store>
concept strategy_collects_parameters =
    requires(strategy_state<P, Device>& state, typename Device::stream& stream, const Store& store, const typename Store::entry& entry,
             device_span<const typename Store::parameter_type, typename Device::memory> array, std::span<typename Store::parameter_type> whole) {
  state.collect(stream, store, entry, array, whole);
};

/// Where an optimizer sees whole matrices (muon, adafactor): sums and gathers over the ranks that have parts of one. Others need none of it.
template <class P, class Device, class Store>
concept strategy_combines_matrices = combines_matrices<strategy_state<P, Device>, Device, Store>;

/// add_up(sums): sums numbers of the stages of a pipeline, of which only the last has losses; the others have 0.
template <class State>
concept strategy_has_stages = requires(State& state, std::span<double> sums) {
  state.add_up(sums);
};

/// Its config has the transport of several ranks.
template <class Config>
concept strategy_config_has_ranks = requires(const Config& config) {
  config.ranks->size();
  { config.ranks == nullptr } -> std::convertible_to<bool>;
};

/// steps_are_queued(count): how many steps the trainer has queued.
template <class State>
concept strategy_counts_queued_steps = requires(State& state, std::size_t count) { state.steps_are_queued(count); };

/// collect(stream, store, entry, array, whole, at): the same for a parameter that begins at `at` of the array.
template <class State, class Model, class Entry, class Span, class Value>
concept strategy_collects_at = requires(State& state, Model& model, const Entry& entry, Span span, std::span<Value> whole, std::optional<std::size_t> at) {
  state.collect(model.stream(), model.parameters(), entry, span, whole, at);
};
/// collect_state(stream, store, entry, first, own, whole): the same for an array of any shape.
template <class State, class Model, class Entry, class Span, class Value>
concept strategy_collects_state = requires(State& state, Model& model, const Entry& entry, Span own, std::span<Value> whole, std::size_t first) {
  state.collect_state(model.stream(), model.parameters(), entry, first, own, whole);
};

/// A strategy may run the micro-batches of a step itself, in its own order: then its runner<Model> replaces whole_model_runner.
template <class P, class Model>
concept strategy_runs_steps = requires {
  typename P::template runner<Model>;
};

}  // namespace clause

namespace detail {

/// Numbers that the last stage of a pipeline has computed, on all of its stages. Collective.
template <class State>
void add_up_stages([[maybe_unused]] State& strategy, [[maybe_unused]] std::span<double> sums) {
  if constexpr (clause::strategy_has_stages<State>) strategy.add_up(sums);
}

}  // namespace detail

/// Device-independent requirements. Whether a strategy works on a device is checked where both are known: `parallel_strategy_for`.
template <class P>
concept parallel_strategy = clause::strategy_has_a_name<P> && clause::strategy_is_sized_at_run_time<P>;

/// A strategy whose state works with this device and parameter store.
template <class P, class Device, class Store>
concept parallel_strategy_for = parallel_strategy<P> && clause::strategy_opens<P, Device> &&
    clause::strategy_has_communicators<P, Device, typename Store::precision::compute> &&
    clause::strategy_divides_the_store<P, Device> &&
    clause::strategy_hooks_into_a_step<P, Device, Store> && clause::strategy_collects_parameters<P, Device, Store>;

}  // namespace xtrain
