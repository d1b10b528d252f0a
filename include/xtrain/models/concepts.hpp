// What other folders require of a model.
#pragma once

#include <concepts>
#include <cstddef>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/precision/concepts.hpp>

namespace xtrain {

/// The device has a matmul kernel for this dtype, the kernel that everything needs.
template <class Device, class T>
concept device_computes = runs_kernel<Device, kernel::matmul<typename Device::memory, T, T>>;

/// Tag for the model type that load_pretrained constructs.
template <class Model>
struct pretrained_tag {};

/// What passes are given of a model's parallel strategy.
template <class Model>
[[nodiscard]] auto& layer_parallel_of(Model& model) {
  if constexpr (requires { model.layer_parallel(); }) return model.layer_parallel();
  else return model.parallel();
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

/// Its config names the family at run time, as decoders' do.
template <class M>
concept model_has_a_family = requires(const M& model) { model.config().family->positions; };

/// require_batch(batch): throws for values that the model does not have.
template <class M>
concept model_checks_batches = requires(const M& model, const batch_view& batch) { model.require_batch(batch); };

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
