// What layers and models are named by: the axes of a recipe that decide what is computed. Recipes that differ in name, optimizer or objective share
// all layers and models; recipes whose strategies shard no layer share all layers.
#pragma once

#include <string_view>

#include <xtrain/comm/self.hpp>
#include <xtrain/core/hooks.hpp>

namespace xtrain {

/// The parallel strategy of layers that no strategy shards: what there is of ranks around them is the model's matter.
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
///   ScoresSequences   the head gives each sequence a score, in place of logits: the objective wants that
template <class Device, class Precision, class Parallel, class Recompute, class Adapter, bool ScoresSequences = false>
struct computation {
  using device = Device;
  using precision = Precision;
  using parallel = Parallel;
  using recompute = Recompute;
  using adapter = Adapter;
  static constexpr bool scores_sequences = ScoresSequences;
};

/// What a model is made for: the recipe without name, optimizer and objective.
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

/// The head of these models gives scores in place of logits: the recipe's objective wants that.
template <class Recipe>
concept scores_sequences = requires { requires Recipe::scores_sequences; } || has_hook<typename Recipe::objective, hook::scores_sequences>;

namespace detail {

/// The state of a strategy says which layers it shards; some strategies divide the backward of every layer.
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

/// What the layers of a recipe compute with: its strategy is left out unless it shards layers.
template <class Recipe>
using computation_of = computation<typename Recipe::device, typename Recipe::precision, typename detail::layer_strategy<Recipe>::type,
                                   typename Recipe::recompute, typename Recipe::adapter, scores_sequences<Recipe>>;
/// What the models of a recipe are made for.
template <class Recipe>
using model_axes_of = model_axes<typename Recipe::device, typename Recipe::precision, typename Recipe::parallel, typename Recipe::recompute,
                                 typename Recipe::offload, typename Recipe::adapter, scores_sequences<Recipe>>;

/// What the passes of a model are made for: pass<model_computation<Model>>.
template <class Model>
using model_computation = typename detail::computation_of_model<Model>::type;

}  // namespace xtrain
