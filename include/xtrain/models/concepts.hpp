// What other rooms require of a model.
#pragma once

#include <concepts>
#include <cstddef>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/precision/concepts.hpp>
#include <xtrain/tensor/parameter.hpp>

namespace xtrain {

/// The device has a matmul kernel for this dtype.
template <class Device, class T>
concept device_computes = runs_kernel<Device, kernel::matmul<typename Device::memory, T, T>>;

/// Tag for the model type that load_pretrained constructs.
template <class Model>
struct pretrained_tag {};

/// The parallel strategy as passes see it.
template <class Model>
[[nodiscard]] auto& layer_parallel_of(Model& model) {
  return model.parallel();
}
template <class Model>
requires requires(Model& model) { model.layer_parallel(); }
[[nodiscard]] auto& layer_parallel_of(Model& model) {
  return model.layer_parallel();
}

namespace clause {

template <class M>
concept model_has_a_recipe = requires {
  typename M::recipe;
  typename M::recipe::device;
  typename M::recipe::precision;
};

template <class M>
concept model_has_a_flat_store = requires(M& model) {
  model.parameters().trained_values();
  model.parameters().gradients();
  model.parameters().entries();
};

/// The strategy says which blocks a rank has: assign_blocks(layers, tied table).
template <class State>
concept strategy_divides_blocks = requires(State& state) { state.assign_blocks(std::size_t{}, parameter{}); };

/// Its config names the family at run time, as decoders' do.
template <class M>
concept model_has_a_family = requires(const M& model) { model.config().family->positions; };

/// require_batch(batch): throws for values that the model does not have.
template <class M>
concept model_checks_batches = requires(const M& model, const batch_view& batch) { model.require_batch(batch); };

/// Its config may bound logits, or have experts.
template <class C>
concept config_bounds_logits = requires(const C& sizes) { sizes.final_logit_softcapping; };
template <class C>
concept config_counts_experts = requires(const C& sizes) { sizes.num_experts; };

/// family_info(): how its config.json is written.
template <class M>
concept model_has_family_info = requires(const M& model) { model.family_info().model_type; };

/// balances_load(): whether a load-balancing loss of experts is added.
template <class M>
concept model_may_balance_load = requires(const M& model) {
  { model.balances_load() } -> std::convertible_to<bool>;
};

/// The default, unless a model declares otherwise.
template <class M>
concept model_predicts_what_follows = !requires {
  requires !M::predicts_what_follows;
};

}  // namespace clause

namespace detail {

/// The bound of a model's logits; 0: none.
template <class Config>
[[nodiscard]] double logit_bound_of([[maybe_unused]] const Config& sizes) {
  if constexpr (clause::config_bounds_logits<Config>) return sizes.final_logit_softcapping;
  else return 0.0;
}
/// 0: no mixture of experts.
template <class Config>
[[nodiscard]] std::size_t num_experts_of([[maybe_unused]] const Config& sizes) {
  if constexpr (clause::config_counts_experts<Config>) return sizes.num_experts;
  else return 0;
}
/// Whether training adds a load-balancing loss of experts.
template <class M>
[[nodiscard]] bool balances_load([[maybe_unused]] const M& model) {
  if constexpr (clause::model_may_balance_load<M>) return model.balances_load();
  else return false;
}

}  // namespace detail

/// A model that predicts the next token.
template <class M>
concept causal_model = clause::model_has_a_recipe<M> && clause::model_has_a_flat_store<M> && clause::model_predicts_what_follows<M>;

}  // namespace xtrain
