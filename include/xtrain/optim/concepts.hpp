#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/hooks.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/optim/whole_matrices.hpp>
#include <xtrain/precision/concepts.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// The arguments of an optimizer step besides the gradients.
template <class Device>
struct optimizer_step {
  device_span<const kernel::step_scalars, typename Device::memory> scalars{};  ///< one element; the host may not know its values yet
  std::uint32_t number = 0;                                                    ///< of the step, skipped ones included: for random numbers
  std::uint64_t seed = 0;                                                      ///< of stochastic rounding
};

namespace clause {

template <class O>
concept optimizer_has_a_name = requires {
  { O::name } -> std::convertible_to<std::string_view>;
};

template <class O>
concept optimizer_config_is_default_initializable = std::default_initializable<typename O::config>;

template <class O>
concept optimizer_lists_its_hooks = policy_lists_its_hooks<O>;

template <class O, class Device, class Precision>
using state_of = typename O::template state<Device, Precision>;
template <class Device, class Precision>
using const_store = const parameter_store<Device, Precision>;

/// state(config, execution, store): allocates the optimizer state per trained weight.
template <class O, class Device, class Precision>
concept optimizer_state_opens_on_a_store = requires(const typename O::config& settings, execution<Device>& on,
                                                    const_store<Device, Precision>& store) {
  state_of<O, Device, Precision>(settings, on, store);
};

template <class O, class Device, class Precision>
concept optimizer_state_steps = requires(state_of<O, Device, Precision>& state, execution<Device>& on,
                                         const_store<Device, Precision>& store, const optimizer_step<Device>& step) {
  state.step(on, store, step);
};

struct any_visitor {
  template <class Span, class... PartOf>
  void operator()(std::string_view, Span, const PartOf&...) const {}
};

/// visit(f) calls f(name, span) for every checkpoint array with one element per weight that this rank steps, and f(name, span, part_of) for other arrays: see
/// state_part.
template <class O, class Device, class Precision>
concept optimizer_state_shows_its_arrays = requires(state_of<O, Device, Precision>& state, any_visitor visitor) {
  state.visit(visitor);
};

/// step(execution, store, step, strategy): for optimizers that combine pieces of matrices over ranks.
template <class State, class Device, class Store, class Strategy>
concept optimizer_state_steps_with = requires(State& state, execution<Device>& on, const Store& store, const optimizer_step<Device>& step, Strategy& strategy) {
  state.step(on, store, step, strategy);
};
template <class O>
concept optimizer_says_its_alignment = requires {
  { O::layout_alignment } -> std::convertible_to<std::size_t>;
};
template <class O>
concept optimizer_has_flag_as_member = requires { O::has_learning_rate_factors; };

}  // namespace clause

namespace detail {

/// Names of hooks, and names close to them.
struct optimizer_names {
  int layout_alignment, has_learning_rate_factors, steps_with_strategy;
  int layout_alignments, layout_align, has_learning_rate_factor, reads_learning_rate_factors, step_with_strategy;
};

/// Optional members must be listed, and listed hooks must be members. A function: clang++ reports only the first error in a class.
template <class O, class Device, class Precision>
consteval bool optimizer_hooks_are_members() {
  using state = clause::state_of<O, Device, Precision>;
  using names = optimizer_names;
  static_assert(O::hooks::template all_among<hook::layout_alignment, hook::has_learning_rate_factors, hook::steps_with_strategy>,
                "xtrain recipe: the optimizer's hooks must be tags of optimizers; see optim/README.md");
  static_assert(!clause::optimizer_has_flag_as_member<O>,
                "xtrain recipe: 'has_learning_rate_factors' must be a tag in the optimizer's hooks, not a member; see optim/README.md");
  static_assert(is_as_listed(has_hook<O, hook::layout_alignment>, clause::optimizer_says_its_alignment<O>, XTRAIN_HAS_NAME(O, names, layout_alignment)),
                "xtrain recipe: 'layout_alignment' must be both a member of the optimizer and in its hooks, or neither; see optim/README.md");
  static_assert(has_hook<O, hook::steps_with_strategy> ==
                    clause::optimizer_state_steps_with<state, Device, parameter_store<Device, Precision>, whole_matrices>,
                "xtrain recipe: 'step(execution, store, step, strategy)' must be both a member of the optimizer's state and in the optimizer's hooks as "
                "steps_with_strategy, or neither; see optim/README.md");
  static_assert(!XTRAIN_HAS_NAME(state, names, layout_alignment) && !XTRAIN_HAS_NAME(state, names, has_learning_rate_factors),
                "xtrain recipe: 'layout_alignment' must be a member of the optimizer, and 'has_learning_rate_factors' a tag in its hooks, not members of its "
                "state; see optim/README.md");
  XTRAIN_REFUSE_NAME("optimizer", O, O, names, layout_alignments, layout_alignment, "layout_alignment");
  XTRAIN_REFUSE_NAME("optimizer", O, O, names, layout_align, layout_alignment, "layout_alignment");
  XTRAIN_REFUSE_NAME("optimizer", O, O, names, has_learning_rate_factor, has_learning_rate_factors, "has_learning_rate_factors");
  XTRAIN_REFUSE_NAME("optimizer", O, O, names, reads_learning_rate_factors, has_learning_rate_factors, "has_learning_rate_factors");
  XTRAIN_REFUSE_NAME("optimizer", O, O, names, steps_with_strategy, steps_with_strategy, "steps_with_strategy', a tag, for the member 'step");
  XTRAIN_REFUSE_NAME("optimizer's state", O, state, names, steps_with_strategy, steps_with_strategy, "steps_with_strategy', a tag, for the member 'step");
  XTRAIN_REFUSE_NAME("optimizer's state", O, state, names, step_with_strategy, steps_with_strategy, "steps_with_strategy', a tag, for the member 'step");
  return true;
}

}  // namespace detail

/// An optimizer policy; optimizer_for checks device and precision.
template <class O>
concept optimizer = clause::optimizer_has_a_name<O> && clause::optimizer_config_is_default_initializable<O> && clause::optimizer_lists_its_hooks<O>;

/// An optimizer that can step the parameters of this device and precision.
template <class O, class Device, class Precision>
concept optimizer_for = optimizer<O> && clause::optimizer_state_opens_on_a_store<O, Device, Precision> &&
    clause::optimizer_state_steps<O, Device, Precision> && clause::optimizer_state_shows_its_arrays<O, Device, Precision>;

}  // namespace xtrain
