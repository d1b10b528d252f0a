// Members of a recipe under other names than an axis: they would have no effect, and do not compile.
#pragma once

#include <type_traits>

namespace xtrain {

namespace clause {

/// Names that are often meant for an axis: the members of a recipe have an effect only under the axis's own name.
/// A class has its own name and its bases' as members, too: a recipe may be called `distributed`.
template <class R, class Member>
concept is_member = !std::is_base_of_v<Member, R>;

template <class R>
concept recipe_has_other_name_for_device =
    is_member<R, typename R::devices> || is_member<R, typename R::backend> || is_member<R, typename R::accelerator> ||
    is_member<R, typename R::hardware>;
template <class R>
concept recipe_has_other_name_for_precision =
    is_member<R, typename R::precisions> || is_member<R, typename R::dtype> || is_member<R, typename R::data_type> ||
    is_member<R, typename R::torch_dtype> || is_member<R, typename R::mixed_precision>;
template <class R>
concept recipe_has_other_name_for_parallel =
    is_member<R, typename R::parallelism> || is_member<R, typename R::parallelization> || is_member<R, typename R::strategy> ||
    is_member<R, typename R::parallel_strategy> || is_member<R, typename R::distributed> || is_member<R, typename R::sharding>;
template <class R>
concept recipe_has_other_name_for_optimizer =
    is_member<R, typename R::optimiser> || is_member<R, typename R::optimizers> || is_member<R, typename R::optim> ||
    is_member<R, typename R::optimization>;
template <class R>
concept recipe_has_other_name_for_objective =
    is_member<R, typename R::objectives> || is_member<R, typename R::loss> || is_member<R, typename R::loss_function> ||
    is_member<R, typename R::loss_fn> || is_member<R, typename R::criterion>;
template <class R>
concept recipe_has_other_name_for_recompute =
    is_member<R, typename R::recomputation> || is_member<R, typename R::recomputing> || is_member<R, typename R::checkpointing> ||
    is_member<R, typename R::activation_checkpointing> || is_member<R, typename R::gradient_checkpointing> || is_member<R, typename R::remat>;
template <class R>
concept recipe_has_other_name_for_offload =
    is_member<R, typename R::offloading> || is_member<R, typename R::offloads> || is_member<R, typename R::cpu_offload> ||
    is_member<R, typename R::offload_policy>;
template <class R>
concept recipe_has_other_name_for_adapter =
    is_member<R, typename R::adaptor> || is_member<R, typename R::adapters> || is_member<R, typename R::peft> ||
    is_member<R, typename R::peft_config>;
template <class R>
concept recipe_has_settings =
    is_member<R, typename R::lr> || is_member<R, typename R::learning_rate> || is_member<R, typename R::lr_schedule> ||
    is_member<R, typename R::lr_scheduler> || is_member<R, typename R::scheduler> || is_member<R, typename R::schedule> ||
    is_member<R, typename R::config> || is_member<R, typename R::settings>;

}  // namespace clause

namespace detail {

/// Members of a recipe that would have no effect do not compile. A function, since clang++ stops at the first such member in a class.
template <class R>
consteval bool members_are_axes() {
  static_assert(!clause::recipe_has_other_name_for_device<R>,
                "xtrain recipe: 'device' is the name of the axis; a member with another name has no effect "
                "(devices, backend, accelerator, hardware); see train/README.md");
  static_assert(!clause::recipe_has_other_name_for_precision<R>,
                "xtrain recipe: 'precision' is the name of the axis; a member with another name has no effect "
                "(precisions, dtype, data_type, torch_dtype, mixed_precision); see train/README.md");
  static_assert(!clause::recipe_has_other_name_for_parallel<R>,
                "xtrain recipe: 'parallel' is the name of the axis; a member with another name has no effect "
                "(parallelism, parallelization, strategy, parallel_strategy, distributed, sharding); see train/README.md");
  static_assert(!clause::recipe_has_other_name_for_optimizer<R>,
                "xtrain recipe: 'optimizer' is the name of the axis; a member with another name has no effect "
                "(optimiser, optimizers, optim, optimization); see train/README.md");
  static_assert(!clause::recipe_has_other_name_for_objective<R>,
                "xtrain recipe: 'objective' is the name of the axis; a member with another name has no effect "
                "(objectives, loss, loss_function, loss_fn, criterion); see train/README.md");
  static_assert(!clause::recipe_has_other_name_for_recompute<R>,
                "xtrain recipe: 'recompute' is the name of the axis; a member with another name has no effect "
                "(recomputation, recomputing, checkpointing, activation_checkpointing, gradient_checkpointing, remat); see train/README.md");
  static_assert(!clause::recipe_has_other_name_for_offload<R>,
                "xtrain recipe: 'offload' is the name of the axis; a member with another name has no effect "
                "(offloading, offloads, cpu_offload, offload_policy); see train/README.md");
  static_assert(!clause::recipe_has_other_name_for_adapter<R>,
                "xtrain recipe: 'adapter' is the name of the axis; a member with another name has no effect "
                "(adaptor, adapters, peft, peft_config); see train/README.md");
  static_assert(!clause::recipe_has_settings<R>,
                "xtrain recipe: must name policies; settings have no effect in it and are given to the trainer, as training_config "
                "(lr, learning_rate, lr_schedule, lr_scheduler, scheduler, schedule, config, settings); see train/README.md");
  return true;
}

}  // namespace detail

}  // namespace xtrain
