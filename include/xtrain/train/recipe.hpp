// A recipe names a policy for every axis. Write a struct that inherits `defaults` and override what differs.
#pragma once

#include <string>
#include <string_view>

#include <xtrain/adapt/none.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/offload.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/precision/precision.hpp>

namespace xtrain {

/// struct my_run : xtrain::defaults { using precision = xtrain::bf16_mixed; };
struct defaults {
  using device = cpu;
  using precision = fp32;
  using parallel = single;
  using optimizer = adamw;
  using objective = next_token;
  using recompute = recompute_none;
  using offload = no_offload;
  using adapter = no_adapter;
};

namespace clause {

template <class R>
concept recipe_names_every_axis = requires {
  typename R::device;
  typename R::precision;
  typename R::parallel;
  typename R::optimizer;
  typename R::objective;
  typename R::recompute;
  typename R::offload;
  typename R::adapter;
};

/// Names that are often meant for an axis: the members of a recipe have an effect only under the axis's own name.
template <class R>
concept recipe_has_no_other_name_for_device =
    !(requires { typename R::devices; } || requires { typename R::backend; } || requires { typename R::accelerator; } ||
      requires { typename R::hardware; });
template <class R>
concept recipe_has_no_other_name_for_precision =
    !(requires { typename R::precisions; } || requires { typename R::dtype; } || requires { typename R::data_type; } ||
      requires { typename R::torch_dtype; } || requires { typename R::mixed_precision; });
template <class R>
concept recipe_has_no_other_name_for_parallel =
    !(requires { typename R::parallelism; } || requires { typename R::parallelization; } || requires { typename R::strategy; } ||
      requires { typename R::parallel_strategy; } || requires { typename R::distributed; } || requires { typename R::sharding; });
template <class R>
concept recipe_has_no_other_name_for_optimizer =
    !(requires { typename R::optimiser; } || requires { typename R::optimizers; } || requires { typename R::optim; } ||
      requires { typename R::optimization; });
template <class R>
concept recipe_has_no_other_name_for_objective =
    !(requires { typename R::objectives; } || requires { typename R::loss; } || requires { typename R::loss_function; } ||
      requires { typename R::loss_fn; } || requires { typename R::criterion; });
template <class R>
concept recipe_has_no_other_name_for_recompute =
    !(requires { typename R::recomputation; } || requires { typename R::recomputing; } || requires { typename R::checkpointing; } ||
      requires { typename R::activation_checkpointing; } || requires { typename R::gradient_checkpointing; } || requires { typename R::remat; });
template <class R>
concept recipe_has_no_other_name_for_offload =
    !(requires { typename R::offloading; } || requires { typename R::offloads; } || requires { typename R::cpu_offload; } ||
      requires { typename R::offload_policy; });
template <class R>
concept recipe_has_no_other_name_for_adapter =
    !(requires { typename R::adaptor; } || requires { typename R::adapters; } || requires { typename R::peft; } ||
      requires { typename R::peft_config; });
template <class R>
concept recipe_has_no_settings =
    !(requires { typename R::lr; } || requires { typename R::learning_rate; } || requires { typename R::lr_schedule; } ||
      requires { typename R::lr_scheduler; } || requires { typename R::scheduler; } || requires { typename R::schedule; } ||
      requires { typename R::config; } || requires { typename R::settings; });

}  // namespace clause

namespace detail {

/// Members of a recipe that would have no effect do not compile. Instantiated once per recipe.
template <class R>
struct recipe_members {
  static_assert(clause::recipe_has_no_other_name_for_device<R>,
                "xtrain recipe: 'device' is the name of the axis; a member with another name has no effect "
                "(devices, backend, accelerator, hardware); see train/README.md");
  static_assert(clause::recipe_has_no_other_name_for_precision<R>,
                "xtrain recipe: 'precision' is the name of the axis; a member with another name has no effect "
                "(precisions, dtype, data_type, torch_dtype, mixed_precision); see train/README.md");
  static_assert(clause::recipe_has_no_other_name_for_parallel<R>,
                "xtrain recipe: 'parallel' is the name of the axis; a member with another name has no effect "
                "(parallelism, parallelization, strategy, parallel_strategy, distributed, sharding); see train/README.md");
  static_assert(clause::recipe_has_no_other_name_for_optimizer<R>,
                "xtrain recipe: 'optimizer' is the name of the axis; a member with another name has no effect "
                "(optimiser, optimizers, optim, optimization); see train/README.md");
  static_assert(clause::recipe_has_no_other_name_for_objective<R>,
                "xtrain recipe: 'objective' is the name of the axis; a member with another name has no effect "
                "(objectives, loss, loss_function, loss_fn, criterion); see train/README.md");
  static_assert(clause::recipe_has_no_other_name_for_recompute<R>,
                "xtrain recipe: 'recompute' is the name of the axis; a member with another name has no effect "
                "(recomputation, recomputing, checkpointing, activation_checkpointing, gradient_checkpointing, remat); see train/README.md");
  static_assert(clause::recipe_has_no_other_name_for_offload<R>,
                "xtrain recipe: 'offload' is the name of the axis; a member with another name has no effect "
                "(offloading, offloads, cpu_offload, offload_policy); see train/README.md");
  static_assert(clause::recipe_has_no_other_name_for_adapter<R>,
                "xtrain recipe: 'adapter' is the name of the axis; a member with another name has no effect "
                "(adaptor, adapters, peft, peft_config); see train/README.md");
  static_assert(clause::recipe_has_no_settings<R>,
                "xtrain recipe: must name policies; settings have no effect in it and are given to the trainer, as training_config "
                "(lr, learning_rate, lr_schedule, lr_scheduler, scheduler, schedule, config, settings); see train/README.md");
  static constexpr bool are_axes = true;
};

}  // namespace detail

/// One line per axis, for display or logs.
template <class Recipe>
[[nodiscard]] std::string describe() {
  static_assert(
      clause::recipe_names_every_axis<Recipe>,
      "xtrain recipe: must name every axis (device, precision, parallel, optimizer, objective, recompute, offload, adapter); inherit xtrain::defaults; see "
      "train/README.md");
  static_assert(detail::recipe_members<Recipe>::are_axes);
  using p = typename Recipe::precision;
  std::string device(Recipe::device::name);
  if constexpr (requires { Recipe::device::instructions(); }) device += concat(" (", Recipe::device::instructions(), ")");
  return concat("device     ", device, "\n",                                                                                  //
                "precision  ", p::name, " (parameter ", dtype_traits<typename p::parameter>::name, ", gradient ",            //
                dtype_traits<typename p::gradient>::name, ", master ", dtype_traits<typename p::master>::name, ", state ",  //
                dtype_traits<typename p::state>::name, ", updates rounded ",
                p::update == rounding::nearest ? "to nearest" : "stochastically",  //
                p::scales_loss ? ", loss scaled)\n" : ")\n",                       //
                "parallel   ", Recipe::parallel::name, "\n",                       //
                "optimizer  ", Recipe::optimizer::name, "\n",                      //
                "objective  ", Recipe::objective::name, "\n",                      //
                "recompute  ", Recipe::recompute::name, "\n",                      //
                "offload    ", Recipe::offload::name, "\n",                        //
                "adapter    ", Recipe::adapter::name, "\n");
}

}  // namespace xtrain
