// Checks at compile time that the policies of a recipe fit each other.
#pragma once

#include <xtrain/device/offload.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/recipe.hpp>

namespace xtrain::detail {

template <class Model>
struct checked_recipe {
  using recipe = typename Model::recipe;
  using device = typename recipe::device;
  using precision = typename recipe::precision;
  using optimizer = typename recipe::optimizer;
  using objective = typename recipe::objective;
  using store = typename Model::store;

  static_assert(
      clause::recipe_names_every_axis<recipe>,
      "xtrain recipe: must name every axis (device, precision, parallel, optimizer, objective, recompute, offload, adapter); inherit xtrain::defaults; see "
      "train/README.md");
  static_assert(members_are_axes<recipe>());
  static_assert(xtrain::optimizer<optimizer>,
                "xtrain recipe: 'optimizer' must be an optimizer policy: a name, a config, hooks (xtrain::hooks<> if it has no optional "
                "members), a state; see optim/README.md");
  static_assert(
      optimizer_for<optimizer, device, precision>,
      "xtrain recipe: the optimizer's state must open on a parameter store of this device and precision, step, and show its arrays; see "
      "optim/README.md");
  static_assert(
      parallel_strategy_for<typename recipe::parallel, device, store>,
      "xtrain recipe: 'parallel' must be a parallel strategy for this device: communicators, hooks (xtrain::hooks<> if it has no optional "
      "members), and members called around blocks; see parallel/README.md");
  static_assert(
      objective_for<objective, model_computation<Model>>,
      "xtrain recipe: 'objective' must be an objective policy for this recipe: a name, a config, hooks (xtrain::hooks<> if it has no optional "
      "members), counts and checks of batches, a state that prepares passes; see objective/README.md");
  static_assert(strategy_hooks_are_members<typename recipe::parallel, device, store, Model>());
  static_assert(optimizer_hooks_are_members<optimizer, device, precision>());
  static_assert(objective_hooks_are_members<objective, model_computation<Model>>() && objective_checks_this_model<objective, Model>());
  static_assert(offload_policy<typename recipe::offload>, "xtrain recipe: 'offload' must be an offload policy; see device/README.md");
};

template <class Model>
using run_config_of = training_config<typename Model::recipe::optimizer, typename Model::recipe::objective>;

/// A pipeline strategy orders a step's micro-batches itself.
template <class Model>
inline constexpr bool strategy_runs = has_hook<typename Model::recipe::parallel, hook::runner>;

}  // namespace xtrain::detail
