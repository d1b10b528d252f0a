// What an optimizer is: a policy, its config, and its state.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
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
                                         const_store<Device, Precision>& store, const optimizer_step<Device>& how) {
  state.step(on, store, how);
};

struct any_visitor {
  template <class Span, class... PartOf>
  void operator()(std::string_view, Span, const PartOf&...) const {}
};

/// visit(f) calls f(name, span) for every array that a checkpoint must contain and that has one element per weight that this rank steps, and
/// f(name, span, part_of) for every other array: see state_part.
template <class O, class Device, class Precision>
concept optimizer_state_shows_its_arrays = requires(state_of<O, Device, Precision>& state, any_visitor visitor) {
  state.visit(visitor);
};

/// Names that are often meant for an optional member, which has an effect only under its own name.
template <class O>
concept optimizer_has_other_name_for_layout_alignment = requires { O::alignment; } || requires { O::layout_align; } || requires { O::layout_alignement; } ||
    requires { O::memory_alignment; };
template <class O>
concept optimizer_has_other_name_for_learning_rate_factors = requires { O::has_learning_rate_factor; } || requires { O::has_lr_factors; } ||
    requires { O::learning_rate_factors; } || requires { O::lr_factors; };

}  // namespace clause

namespace detail {

/// Optional members that would have no effect do not compile. A function, since clang++ stops at the first such member in a class.
template <class O>
consteval bool optimizer_hooks_are_named() {
  static_assert(!clause::optimizer_has_other_name_for_layout_alignment<O>,
                "xtrain recipe: 'layout_alignment' is the name of the optimizer's optional member; a member with another name has no effect "
                "(alignment, layout_align, layout_alignement, memory_alignment); see optim/README.md");
  static_assert(!clause::optimizer_has_other_name_for_learning_rate_factors<O>,
                "xtrain recipe: 'has_learning_rate_factors' is the name of the optimizer's optional member; a member with another name has no effect "
                "(has_learning_rate_factor, has_lr_factors, learning_rate_factors, lr_factors); see optim/README.md");
  return true;
}

}  // namespace detail

/// An optimizer policy. Whether it supports a device and a precision is checked by optimizer_for.
template <class O>
concept optimizer = clause::optimizer_has_a_name<O> && clause::optimizer_config_is_default_initializable<O>;

/// An optimizer that can step the parameters of this device and precision.
template <class O, class Device, class Precision>
concept optimizer_for = optimizer<O> && clause::optimizer_state_opens_on_a_store<O, Device, Precision> &&
    clause::optimizer_state_steps<O, Device, Precision> && clause::optimizer_state_shows_its_arrays<O, Device, Precision>;

}  // namespace xtrain
