// Optimizer updates: one pass over flat parameters.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// Adam with decoupled weight decay.                                 [Loshchilov & Hutter 2019, algorithm 2]
///   g = gradient · gradient_scale
///   m = beta1·m + (1−beta1)·g,   v = beta2·v + (1−beta2)·g²
///   w = w − learning_rate·weight_decay·w − learning_rate · (m·correction1) / (sqrt(v·correction2) + epsilon)
/// correction1 = 1/(1 − beta1^step), correction2 = 1/(1 − beta2^step): passed in, because they are the same for all elements.
///   gradient_n    read
///   master_n      updated   the master weights in M; empty when the parameters are their own master copy
///   parameter_n   updated   w rounded once; if `stochastic`, with stochastic rounding, by `random`, element by element
///   m_n, v_n      updated   in S, rounded as the parameters are
///   no departure from the paper; PyTorch's AdamW is the same formula
template <class Memory, class P, class G, class M, class S>
struct adamw {
  static constexpr std::string_view name = "adamw";
  template <class To>
  using on = adamw<To, P, G, M, S>;

  std::size_t n = 0;
  double learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double correction1 = 1, correction2 = 1;
  double gradient_scale = 1;
  bool stochastic = false;
  random_site random{};
  read<G, Memory> gradient_n{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};
  updated<S, Memory> m_n{}, v_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.learning_rate, s.beta1, s.beta2, s.epsilon, s.weight_decay, s.correction1, s.correction2, s.gradient_scale,
             s.stochastic, s.random, s.gradient_n, s.master_n, s.parameter_n, s.m_n, s.v_n);
  }
  [[nodiscard]] constexpr double operations() const { return 14.0 * static_cast<double>(n); }
};

/// Stochastic gradient descent with momentum and decoupled weight decay.
///   g = gradient · gradient_scale,   velocity = momentum·velocity + g
///   w = w − learning_rate·weight_decay·w − learning_rate·velocity
///   gradient_n    read
///   master_n      updated   empty when the parameters are their own master copy
///   parameter_n   updated   rounded as in adamw
///   velocity_n    updated   empty when momentum is 0
///   departs from  PyTorch's SGD, which adds weight decay to the gradient; equal to it without weight decay
template <class Memory, class P, class G, class M, class S>
struct sgd {
  static constexpr std::string_view name = "sgd";
  template <class To>
  using on = sgd<To, P, G, M, S>;

  std::size_t n = 0;
  double learning_rate = 0, momentum = 0, weight_decay = 0;
  double gradient_scale = 1;
  bool stochastic = false;
  random_site random{};
  read<G, Memory> gradient_n{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};
  updated<S, Memory> velocity_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.learning_rate, s.momentum, s.weight_decay, s.gradient_scale, s.stochastic, s.random, s.gradient_n, s.master_n,
             s.parameter_n, s.velocity_n);
  }
  [[nodiscard]] constexpr double operations() const { return 6.0 * static_cast<double>(n); }
};

}  // namespace xtrain::kernel
