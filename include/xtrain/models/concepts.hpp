// What other rooms require of a model.
#pragma once

#include <concepts>
#include <cstddef>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/precision/concepts.hpp>

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

/// The default, unless a model declares otherwise.
template <class M>
concept model_predicts_what_follows = !requires {
  requires !M::predicts_what_follows;
};

}  // namespace clause

/// A model that predicts the next token.
template <class M>
concept causal_model = clause::model_has_a_recipe<M> && clause::model_has_a_flat_store<M> && clause::model_predicts_what_follows<M>;

}  // namespace xtrain
