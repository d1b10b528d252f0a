// Optimizer updates: one pass over flat parameters. They read `scalars_1` from device memory; if `applies` is 0, weights and state keep their bits.
// `learning_rate` in formulas: the scalars' times `learning_rate_factor`, in double.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain::kernel {

/// Bias corrections of Adam's moments: 1/(1 − beta1^update), 1/(1 − beta2^update), in double, once per step.      [Kingma & Ba 2015, section 3]
///   scalars_1      read      update
///   correction_2   written
template <class Memory>
struct adam_corrections {
  static constexpr std::string_view name = "adam_corrections";
  template <class To>
  using on = adam_corrections<To>;

  double beta1 = 0, beta2 = 0;
  read<step_scalars, Memory> scalars_1{};
  written<double, Memory> correction_2{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.beta1, s.beta2, s.scalars_1, s.correction_2);
  }
  [[nodiscard]] constexpr double operations() const { return 0.0; }

  /// For devices that run it on one thread.
  constexpr void compute(const step_scalars& scalars, double* correction) const {
    correction[0] = 1.0 / (1.0 - std::pow(beta1, scalars.update));
    correction[1] = 1.0 / (1.0 - std::pow(beta2, scalars.update));
  }
};

/// Adam with decoupled weight decay, as PyTorch's AdamW.              [Loshchilov & Hutter 2019, algorithm 2]
///   g = gradient · gradient_scale
///   m = beta1·m + (1−beta1)·g,   v = beta2·v + (1−beta2)·g²
///   w = w − learning_rate·weight_decay·w − learning_rate · (m·correction1) / (sqrt(v·correction2) + epsilon)
///   scalars_1     read      learning_rate, gradient_scale, applies
///   correction_2  read      of adam_corrections
///   gradient_n    read
///   master_n      updated   master weights in M; empty without master copy
///   parameter_n   updated   w rounded once; if `stochastic`, stochastically by `random`, per element
///   m_n, v_n      updated   in S, rounded as parameters
template <class Memory, class P, class G, class M, class S>
struct adamw {
  static constexpr std::string_view name = "adamw";
  template <class To>
  using on = adamw<To, P, G, M, S>;

  std::size_t n = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double learning_rate_factor = 1;
  bool stochastic = false;
  random_site random{};
  read<step_scalars, Memory> scalars_1{};
  read<double, Memory> correction_2{};
  read<G, Memory> gradient_n{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};
  updated<S, Memory> m_n{}, v_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.beta1, s.beta2, s.epsilon, s.weight_decay, s.learning_rate_factor, s.stochastic, s.random, s.scalars_1, s.correction_2,
             s.gradient_n, s.master_n, s.parameter_n, s.m_n, s.v_n);
  }
  [[nodiscard]] constexpr double operations() const { return 14.0 * static_cast<double>(n); }
};

/// Stochastic gradient descent with momentum and decoupled weight decay.
///   g = gradient · gradient_scale,   velocity = momentum·velocity + g
///   w = w − learning_rate·weight_decay·w − learning_rate·velocity
///   scalars_1     read      learning_rate, gradient_scale, applies
///   gradient_n    read
///   master_n      updated   empty without master copy
///   parameter_n   updated   rounded as in adamw
///   velocity_n    updated   empty when momentum is 0
///   departs from  PyTorch's SGD, which adds weight decay to the gradient
template <class Memory, class P, class G, class M, class S>
struct sgd {
  static constexpr std::string_view name = "sgd";
  template <class To>
  using on = sgd<To, P, G, M, S>;

  std::size_t n = 0;
  double momentum = 0, weight_decay = 0;
  double learning_rate_factor = 1;
  bool stochastic = false;
  random_site random{};
  read<step_scalars, Memory> scalars_1{};
  read<G, Memory> gradient_n{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};
  updated<S, Memory> velocity_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.momentum, s.weight_decay, s.learning_rate_factor, s.stochastic, s.random, s.scalars_1, s.gradient_n, s.master_n, s.parameter_n,
             s.velocity_n);
  }
  [[nodiscard]] constexpr double operations() const { return 6.0 * static_cast<double>(n); }
};

/// Sign of an interpolated momentum, with decoupled weight decay.                                   [Chen et al. 2023, algorithm 2]
///   g = gradient · gradient_scale,   u = sign(beta1·m + (1−beta1)·g),   m = beta2·m + (1−beta2)·g
///   w = w − learning_rate·weight_decay·w − learning_rate·u
///   scalars_1     read      learning_rate, gradient_scale, applies
///   gradient_n    read
///   master_n      updated   empty without master copy
///   parameter_n   updated   rounded as in adamw
///   m_n           updated   in S, rounded as parameters
template <class Memory, class P, class G, class M, class S>
struct lion {
  static constexpr std::string_view name = "lion";
  template <class To>
  using on = lion<To, P, G, M, S>;

  std::size_t n = 0;
  double beta1 = 0, beta2 = 0, weight_decay = 0;
  double learning_rate_factor = 1;
  bool stochastic = false;
  random_site random{};
  read<step_scalars, Memory> scalars_1{};
  read<G, Memory> gradient_n{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};
  updated<S, Memory> m_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.beta1, s.beta2, s.weight_decay, s.learning_rate_factor, s.stochastic, s.random, s.scalars_1, s.gradient_n, s.master_n, s.parameter_n,
             s.m_n);
  }
  [[nodiscard]] constexpr double operations() const { return 12.0 * static_cast<double>(n); }
};

/// adamw with eight-bit moments: codes relative to the largest magnitude of a block of 256. A step decodes moments, updates as adamw, and encodes moments.
///                                                                 [Dettmers et al. 2022, "8-bit optimizers", section 2 and algorithm 1]
///   scalars_1     read      learning_rate, gradient_scale, applies
///   correction_2  read      of adam_corrections
///   gradient_n    read
///   master_n      updated   empty without master copy
///   parameter_n   updated   rounded as in adamw; uses new moments before encoding
///   m_code_n      updated   nearest indices in dynamic_code::signed_levels
///   v_code_n      updated   nearest indices in dynamic_code::unsigned_levels
///   m_scale_k, v_scale_k    updated   largest magnitudes, dynamic_code::blocks(n); blocks begin with the first element
///   departs from  bitsandbytes' CUDA kernel, which decays weights after the update, skips elements with a non-finite gradient, and gives a
///                 negative m nearest to zero the largest negative fraction (its CPU kernel does not)
template <class Memory, class P, class G, class M>
struct adamw_8bit {
  static constexpr std::string_view name = "adamw_8bit";
  template <class To>
  using on = adamw_8bit<To, P, G, M>;

  std::size_t n = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double learning_rate_factor = 1;
  bool stochastic = false;
  random_site random{};
  read<step_scalars, Memory> scalars_1{};
  read<double, Memory> correction_2{};
  read<G, Memory> gradient_n{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};
  updated<std::uint8_t, Memory> m_code_n{}, v_code_n{};
  updated<float, Memory> m_scale_k{}, v_scale_k{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.beta1, s.beta2, s.epsilon, s.weight_decay, s.learning_rate_factor, s.stochastic, s.random, s.scalars_1, s.correction_2,
             s.gradient_n, s.master_n, s.parameter_n, s.m_code_n, s.v_code_n, s.m_scale_k, s.v_scale_k);
  }
  [[nodiscard]] constexpr double operations() const { return 20.0 * static_cast<double>(n); }
};

}  // namespace xtrain::kernel
