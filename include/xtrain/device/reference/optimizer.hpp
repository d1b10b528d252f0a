#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/dynamic_code.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

/// Rounds to the stored type. Of an element's random word the parameter uses the lower half; of the next site's, m the lower, v the upper.
template <class S, class A>
[[nodiscard]] S rounded(A value, bool stochastic, std::uint32_t word) {
  return stochastic ? rounded_stochastically<S>(value, word) : static_cast<S>(value);
}

[[nodiscard]] constexpr random_site next_site(random_site at) {
  ++at.site;
  return at;
}

/// Index of the fraction nearest to value / scale.
[[nodiscard]] inline std::uint8_t dynamic_code_of(float value, float scale, bool is_signed) {
  const std::array<float, 256>& levels = is_signed ? dynamic_code::signed_levels : dynamic_code::unsigned_levels;
  const float fraction = scale > 0.0f ? std::abs(value) / scale : 0.0f;
  const bool is_negative = is_signed && value < 0.0f;
  std::size_t i = is_signed ? dynamic_code::signed_zero : 0;  // nearest positive fraction
  // the largest fraction, 1, has no negative counterpart
  while (i < (is_negative ? 254U : 255U) && fraction > dynamic_code::midpoint(levels, i)) ++i;
  return static_cast<std::uint8_t>(is_negative ? 2U * dynamic_code::signed_zero - i : i);
}

}  // namespace detail

inline void run_kernel(reference_stream&, const kernel::adam_corrections<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  k.compute(*k.scalars_1.raw(), k.correction_2.raw());
}

template <class P, class G, class M, class S>
void run_kernel(reference_stream&, const kernel::adamw<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  using acc = accumulate_t<M>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const double correction1 = k.correction_2.raw()[0], correction2 = k.correction_2.raw()[1];
  const random_site random = kernel::random_of(k);
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint32_t word = k.stochastic ? random_word(random, i) : 0;
    const std::uint32_t state_word = k.stochastic ? random_word(detail::next_site(random), i) : 0;
    const acc g = static_cast<acc>(k.gradient_n.data()[i]) * of(scalars.gradient_scale);
    const acc m = of(k.beta1) * static_cast<acc>(k.m_n.data()[i]) + of(1.0 - k.beta1) * g;
    const acc v = of(k.beta2) * static_cast<acc>(k.v_n.data()[i]) + of(1.0 - k.beta2) * g * g;
    acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
    w -= of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay) * w;
    w -= of(scalars.learning_rate * k.learning_rate_factor) * (m * of(correction1)) / (std::sqrt(v * of(correction2)) + of(k.epsilon));
    k.m_n.data()[i] = detail::rounded<S>(m, k.stochastic, state_word);
    k.v_n.data()[i] = detail::rounded<S>(v, k.stochastic, state_word >> 16);
    if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
    k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, word);
  }
}

template <class P, class G, class M, class S>
void run_kernel(reference_stream&, const kernel::sgd<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<11>(k);
  using acc = accumulate_t<M>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const random_site random = kernel::random_of(k);
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint32_t word = k.stochastic ? random_word(random, i) : 0;
    const std::uint32_t state_word = k.stochastic ? random_word(detail::next_site(random), i) : 0;
    acc velocity = static_cast<acc>(k.gradient_n.data()[i]) * of(scalars.gradient_scale);
    if (!k.velocity_n.empty()) {
      velocity += of(k.momentum) * static_cast<acc>(k.velocity_n.data()[i]);
      k.velocity_n.data()[i] = detail::rounded<S>(velocity, k.stochastic, state_word);
    }
    acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
    w -= of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay) * w;
    w -= of(scalars.learning_rate * k.learning_rate_factor) * velocity;
    if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
    k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, word);
  }
}

template <class P, class G, class M, class S>
void run_kernel(reference_stream&, const kernel::lion<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  using acc = accumulate_t<M>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const random_site random = kernel::random_of(k);
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint32_t word = k.stochastic ? random_word(random, i) : 0;
    const std::uint32_t state_word = k.stochastic ? random_word(detail::next_site(random), i) : 0;
    const acc g = static_cast<acc>(k.gradient_n.data()[i]) * of(scalars.gradient_scale), m = static_cast<acc>(k.m_n.data()[i]);
    const acc u = of(k.beta1) * m + of(1.0 - k.beta1) * g;
    acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
    w -= of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay) * w;
    w -= of(scalars.learning_rate * k.learning_rate_factor) * (static_cast<acc>(u > 0) - static_cast<acc>(u < 0));
    k.m_n.data()[i] = detail::rounded<S>(of(k.beta2) * m + of(1.0 - k.beta2) * g, k.stochastic, state_word);
    if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
    k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, word);
  }
}

template <class P, class G, class M>
void run_kernel(reference_stream&, const kernel::adamw_8bit<host_memory, P, G, M>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  using acc = accumulate_t<M>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const double correction1 = k.correction_2.raw()[0], correction2 = k.correction_2.raw()[1];
  const random_site random = kernel::random_of(k);
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t begin = 0, b = 0; begin < k.n; begin += dynamic_code::block, ++b) {
    const std::size_t count = std::min(dynamic_code::block, k.n - begin);
    float &m_scale = k.m_scale_k.raw()[b], &v_scale = k.v_scale_k.raw()[b];
    std::array<acc, dynamic_code::block> m{}, v{};
    for (std::size_t j = 0; j < count; ++j) {
      const std::size_t i = begin + j;
      const acc g = static_cast<acc>(k.gradient_n.data()[i]) * of(scalars.gradient_scale);
      m[j] = static_cast<acc>(dynamic_code::signed_levels[k.m_code_n.data()[i]]) * static_cast<acc>(m_scale);
      v[j] = static_cast<acc>(dynamic_code::unsigned_levels[k.v_code_n.data()[i]]) * static_cast<acc>(v_scale);
      m[j] = of(k.beta1) * m[j] + of(1.0 - k.beta1) * g;
      v[j] = of(k.beta2) * v[j] + of(1.0 - k.beta2) * g * g;
      acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
      w -= of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay) * w;
      w -= of(scalars.learning_rate * k.learning_rate_factor) * (m[j] * of(correction1)) / (std::sqrt(v[j] * of(correction2)) + of(k.epsilon));
      if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
      k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, k.stochastic ? random_word(random, i) : 0);
    }
    m_scale = v_scale = 0.0f;
    for (std::size_t j = 0; j < count; ++j) {
      m_scale = std::max(m_scale, std::abs(static_cast<float>(m[j])));
      v_scale = std::max(v_scale, static_cast<float>(v[j]));
    }
    for (std::size_t j = 0; j < count; ++j) {
      k.m_code_n.data()[begin + j] = detail::dynamic_code_of(static_cast<float>(m[j]), m_scale, true);
      k.v_code_n.data()[begin + j] = detail::dynamic_code_of(static_cast<float>(v[j]), v_scale, false);
    }
  }
}

}  // namespace xtrain
