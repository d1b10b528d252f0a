// Recipes that differ in name, optimizer or objective share layers and models; recipes whose strategies shard no layer share layers.
#pragma once

#include <string_view>

#include <xtrain/comm/self.hpp>
#include <xtrain/core/hooks.hpp>

namespace xtrain {

/// The strategy of layers that are not sharded.
struct unsharded {
  static constexpr std::string_view name = "unsharded";

  template <class Device>
  class state {
   public:
    [[nodiscard]] self& tensor() { return self_; }

   private:
    self self_;
  };
};

/// What a layer computes with.
///   Parallel          a strategy that shards layers, or unsharded
///   ScoresSequences   the head scores sequences, as the objective requires
template <class Device, class Precision, class Parallel, class Recompute, class Adapter, bool ScoresSequences = false>
struct computation {
  using device = Device;
  using precision = Precision;
  using parallel = Parallel;
  using recompute = Recompute;
  using adapter = Adapter;
  static constexpr bool scores_sequences = ScoresSequences;
};

/// The recipe without name, optimizer and objective.
template <class Device, class Precision, class Parallel, class Recompute, class Offload, class Adapter, bool ScoresSequences = false>
struct model_axes {
  using device = Device;
  using precision = Precision;
  using parallel = Parallel;
  using recompute = Recompute;
  using offload = Offload;
  using adapter = Adapter;
  static constexpr bool scores_sequences = ScoresSequences;
};

/// The head gives scores in place of logits, as the objective requires.
template <class Recipe>
concept scores_sequences = requires { requires Recipe::scores_sequences; } || has_hook<typename Recipe::objective, hook::scores_sequences>;

namespace detail {

/// A strategy's state says which layers it shards; a strategy may split every backward.
template <class Recipe>
concept shards_layers = requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.layers(); } ||
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.sequence_shard(); } ||
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.expert_shard(); } ||
    requires { requires bool{Recipe::parallel::splits_backwards}; };

template <class Recipe>
struct layer_strategy {
  using type = unsharded;
};
template <shards_layers Recipe>
struct layer_strategy<Recipe> {
  using type = typename Recipe::parallel;
};

template <class Model>
struct computation_of_model {
  using type = typename Model::recipe;
};
template <class Model>
requires requires { typename Model::computation; }
struct computation_of_model<Model> {
  using type = typename Model::computation;
};

}  // namespace detail

/// A recipe's layer computation, without its strategy unless it shards layers.
template <class Recipe>
using computation_of = computation<typename Recipe::device, typename Recipe::precision, typename detail::layer_strategy<Recipe>::type,
                                   typename Recipe::recompute, typename Recipe::adapter, scores_sequences<Recipe>>;
/// A recipe's model axes.
template <class Recipe>
using model_axes_of = model_axes<typename Recipe::device, typename Recipe::precision, typename Recipe::parallel, typename Recipe::recompute,
                                 typename Recipe::offload, typename Recipe::adapter, scores_sequences<Recipe>>;

/// What a model's passes are made for: pass<model_computation<Model>>.
template <class Model>
using model_computation = typename detail::computation_of_model<Model>::type;

}  // namespace xtrain
