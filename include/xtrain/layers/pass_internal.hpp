// The part of a pass that only the library's own layers, models and strategies use.
#pragma once

#include <cstddef>

#include <xtrain/layers/deferred_gradients.hpp>
#include <xtrain/layers/expert_load.hpp>
#include <xtrain/layers/kv_cache.hpp>

namespace xtrain {

/// A tensor-parallel strategy may also have sequence parallelism: its state declares it.
template <class State>
inline constexpr bool has_sequence_parallel_of = [] {
  if constexpr (requires { State::has_sequence_parallel; }) return State::has_sequence_parallel;
  else return false;
}();

/// The number of ranks that shard the sequence-parallel region.
template <class State>
[[nodiscard]] std::size_t sequence_parallel_ranks([[maybe_unused]] State& state) {
  if constexpr (has_sequence_parallel_of<State>) return state.tensor().size();
  else return 1;
}

template <class Recipe>
struct pass_internal {
  using device = typename Recipe::device;
  using compute = typename Recipe::precision::compute;
  using parallel_state = typename Recipe::parallel::template state<device>;

  parallel_state& parallel;
  /// In the sequence-parallel region, between tensor-parallel layers, each tensor-parallel rank has a shard of the tokens.
  bool has_sequence_parallel = false;
  bool rows_are_sequences = false;  ///< while a layer works on one row per sequence
  std::size_t number = 0;           ///< index among the in-flight passes
  const cache_view<device, compute>* cache = nullptr;
  expert_load<device, compute> load{};  ///< if there is a load-balancing loss
  /// Takes the deferred products of a backward in two parts.
  deferred_gradients<device, compute, typename Recipe::precision::gradient>* deferred = nullptr;
  dispatched_rows origin{};  ///< while an expert works on rows dispatched by other ranks
};

}  // namespace xtrain
