#pragma once

#include <cmath>

#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

/// Rounds a new value to the type it is stored in. The parameter uses the lower half of the element's random word;
/// of the word at the next site, m uses the lower and v the upper half.
template <class S, class A>
[[nodiscard]] S rounded(A value, bool stochastic, std::uint32_t word) {
  return stochastic ? rounded_stochastically<S>(value, word) : static_cast<S>(value);
}

[[nodiscard]] constexpr random_site next_site(random_site at) {
  ++at.site;
  return at;
}

}  // namespace detail

template <class P, class G, class M, class S>
void run_kernel(reference_stream&, const kernel::adamw<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  using acc = accumulate_t<M>;
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint32_t word = k.stochastic ? random_word(k.random, i) : 0;
    const std::uint32_t state_word = k.stochastic ? random_word(detail::next_site(k.random), i) : 0;
    const acc g = static_cast<acc>(k.gradient_n.data()[i]) * of(k.gradient_scale);
    const acc m = of(k.beta1) * static_cast<acc>(k.m_n.data()[i]) + of(1.0 - k.beta1) * g;
    const acc v = of(k.beta2) * static_cast<acc>(k.v_n.data()[i]) + of(1.0 - k.beta2) * g * g;
    acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
    w -= of(k.learning_rate * k.weight_decay) * w;
    w -= of(k.learning_rate) * (m * of(k.correction1)) / (std::sqrt(v * of(k.correction2)) + of(k.epsilon));
    k.m_n.data()[i] = detail::rounded<S>(m, k.stochastic, state_word);
    k.v_n.data()[i] = detail::rounded<S>(v, k.stochastic, state_word >> 16);
    if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
    k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, word);
  }
}

template <class P, class G, class M, class S>
void run_kernel(reference_stream&, const kernel::sgd<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  using acc = accumulate_t<M>;
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint32_t word = k.stochastic ? random_word(k.random, i) : 0;
    const std::uint32_t state_word = k.stochastic ? random_word(detail::next_site(k.random), i) : 0;
    acc velocity = static_cast<acc>(k.gradient_n.data()[i]) * of(k.gradient_scale);
    if (!k.velocity_n.empty()) {
      velocity += of(k.momentum) * static_cast<acc>(k.velocity_n.data()[i]);
      k.velocity_n.data()[i] = detail::rounded<S>(velocity, k.stochastic, state_word);
    }
    acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
    w -= of(k.learning_rate * k.weight_decay) * w;
    w -= of(k.learning_rate) * velocity;
    if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
    k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, word);
  }
}

}  // namespace xtrain
