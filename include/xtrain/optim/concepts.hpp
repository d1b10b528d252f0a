// What an optimizer is: a policy, its config, and its state.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/device/concepts.hpp>
#include <xtrain/precision/concepts.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// The arguments of an optimizer step besides the gradients.
struct optimizer_step {
  double learning_rate = 0;
  double gradient_scale = 1;  ///< multiplies every gradient: gradient clipping and loss scale combined
  std::size_t step = 1;       ///< counted from 1
  std::uint64_t seed = 0;     ///< of stochastic rounding
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
                                         const_store<Device, Precision>& store, const optimizer_step& how) {
  state.step(on, store, how);
};

struct any_visitor {
  template <class Span>
  void operator()(std::string_view, Span) const {}
};

/// visit(f) calls f(name, span) for every array that a checkpoint must contain.
template <class O, class Device, class Precision>
concept optimizer_state_shows_its_arrays = requires(state_of<O, Device, Precision>& state, any_visitor visitor) {
  state.visit(visitor);
};

}  // namespace clause

/// An optimizer policy. Whether it supports a device and a precision is checked by optimizer_for.
template <class O>
concept optimizer = clause::optimizer_has_a_name<O> && clause::optimizer_config_is_default_initializable<O>;

template <class O, class Device, class Precision>
concept optimizer_for = optimizer<O> && clause::optimizer_state_opens_on_a_store<O, Device, Precision> &&
    clause::optimizer_state_steps<O, Device, Precision> && clause::optimizer_state_shows_its_arrays<O, Device, Precision>;

}  // namespace xtrain
