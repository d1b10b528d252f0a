// What layers, blocks and models compute with: the axes of a recipe that decide it. Recipes that differ in their name, optimizer or objective alone
// share the instantiations of all layers.
#pragma once

namespace xtrain {

/// The axes of a recipe that a layer may read.
///   ScoresSequences   the head gives a score to each sequence, in place of logits: the objective wants that
template <class Device, class Precision, class Parallel, class Recompute, class Offload, class Adapter, bool ScoresSequences = false>
struct computation {
  using device = Device;
  using precision = Precision;
  using parallel = Parallel;
  using recompute = Recompute;
  using offload = Offload;
  using adapter = Adapter;
  static constexpr bool scores_sequences = ScoresSequences;
};

/// Models of this recipe, or computation, have a score head in place of logits.
template <class Recipe>
concept scores_sequences = requires { requires Recipe::scores_sequences; } || requires { requires Recipe::objective::scores_sequences; };

namespace clause {

template <class R>
concept recipe_names_what_is_computed = requires {
  typename R::device;
  typename R::precision;
  typename R::parallel;
  typename R::recompute;
  typename R::offload;
  typename R::adapter;
};

}  // namespace clause

namespace detail {

template <class Recipe>
struct computation_of_recipe {
  static_assert(clause::recipe_names_what_is_computed<Recipe>,
                "xtrain recipe: must name every axis (device, precision, parallel, optimizer, objective, recompute, offload, adapter); inherit "
                "xtrain::defaults; see train/README.md");
  using type = computation<typename Recipe::device, typename Recipe::precision, typename Recipe::parallel, typename Recipe::recompute,
                           typename Recipe::offload, typename Recipe::adapter, scores_sequences<Recipe>>;
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

template <class Recipe>
using computation_of = typename detail::computation_of_recipe<Recipe>::type;

/// What the passes of a model are made for: pass<model_computation<Model>>.
template <class Model>
using model_computation = typename detail::computation_of_model<Model>::type;

}  // namespace xtrain
