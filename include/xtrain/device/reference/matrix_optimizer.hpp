#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/matrix_optimizer.hpp>
#include <xtrain/device/reference/optimizer.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class G, class S, class U>
void run_kernel(reference_stream&, const kernel::muon_momentum<host_memory, G, S, U>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<S>;
  const kernel::step_scalars& scalars = k.scalars_1.data()[0];
  const random_site random = kernel::random_of(k);
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t i = 0; i < k.n; ++i) {
    if (scalars.applies == 0) {
      k.update_n.data()[i] = U{0};
      continue;
    }
    const std::uint32_t word = k.stochastic ? random_word(detail::next_site(random), i) : 0;
    const acc g = static_cast<acc>(k.gradient_n.data()[i]) * of(scalars.gradient_scale);
    const acc momentum = of(k.beta) * static_cast<acc>(k.momentum_n.data()[i]) + of(1.0 - k.beta) * g;
    k.momentum_n.data()[i] = detail::rounded<S>(momentum, k.stochastic, word);
    k.update_n.data()[i] = static_cast<U>(k.nesterov ? of(k.beta) * momentum + of(1.0 - k.beta) * g : momentum);
  }
}

template <class U, class T>
void run_kernel(reference_stream&, const kernel::muon_normalise<host_memory, U, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  using acc = accumulate_t<U>;
  const acc factor = static_cast<acc>(1.0 / std::max(std::sqrt(k.squares_1.data()[0]), k.epsilon));
  for (std::size_t i = 0; i < k.n; ++i) k.x_n.data()[i] = static_cast<T>(static_cast<acc>(k.u_n.data()[i]) * factor);
}

template <class P, class M>
void run_kernel(reference_stream&, const kernel::muon<host_memory, P, M>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<M>;
  const kernel::step_scalars& scalars = k.scalars_1.data()[0];
  if (scalars.applies == 0) return;
  const random_site random = kernel::random_of(k);
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint32_t word = k.stochastic ? random_word(random, i) : 0;
    acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
    w -= of(scalars.learning_rate * k.decay) * w;
    w -= of(scalars.learning_rate * k.rate) * static_cast<acc>(k.update_n.data()[i]);
    if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
    k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, word);
  }
}

template <class G>
void run_kernel(reference_stream&, const kernel::adafactor_squares<host_memory, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  for (std::size_t i = 0; i < k.n; ++i) {
    const double g = static_cast<double>(k.gradient_n.data()[i]) * k.scalars_1.data()[0].gradient_scale;
    k.row_sum_r.data()[(k.first + i) / k.columns - k.first / k.columns] += g * g;
    k.column_sum_c.data()[(k.first + i) % k.columns] += g * g;
  }
}

template <class F>
void run_kernel(reference_stream&, const kernel::adafactor_factors<host_memory, F>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  const kernel::step_scalars& scalars = k.scalars_1.data()[0];
  const double added = std::pow(scalars.update, k.decay_rate);  // 1 − beta2
  const auto step = [&](F& factor, double mean) {
    if (scalars.applies != 0) factor = static_cast<F>((1.0 - added) * static_cast<double>(factor) + added * (mean + k.epsilon));
  };
  double sum = 0;
  for (std::size_t i = 0; i < k.rows; ++i) {
    step(k.row_r.data()[i], k.row_sum_r.data()[i] / static_cast<double>(k.columns));
    sum += static_cast<double>(k.row_r.data()[i]);
  }
  for (std::size_t i = 0; i < k.columns; ++i) step(k.column_c.data()[i], k.column_sum_c.data()[i] / static_cast<double>(k.rows));
  k.mean_1.data()[0] = sum / static_cast<double>(k.rows);
}

template <class G, class F>
void run_kernel(reference_stream&, const kernel::adafactor_vector<host_memory, G, F>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  const kernel::step_scalars& scalars = k.scalars_1.data()[0];
  if (scalars.applies == 0) return;
  const double added = std::pow(scalars.update, k.decay_rate);
  double sum = 0;
  for (std::size_t i = 0; i < k.n; ++i) {
    const double g = static_cast<double>(k.gradient_n.data()[i]) * scalars.gradient_scale;
    F& v = k.v_n.data()[i];
    v = static_cast<F>((1.0 - added) * static_cast<double>(v) + added * (g * g + k.epsilon));
    sum += g * g / static_cast<double>(v);
  }
  k.squares_1.data()[0] += sum;
}

template <class G, class F>
void run_kernel(reference_stream&, const kernel::adafactor_update_squares<host_memory, G, F>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  const kernel::step_scalars& scalars = k.scalars_1.data()[0];
  if (scalars.applies == 0) return;
  double sum = 0;
  for (std::size_t i = 0; i < k.n; ++i) {
    const double g = static_cast<double>(k.gradient_n.data()[i]) * scalars.gradient_scale;
    const double row = static_cast<double>(k.row_r.data()[(k.first + i) / k.columns - k.first / k.columns]) / k.mean_1.data()[0];
    sum += g * g / row / static_cast<double>(k.column_c.data()[(k.first + i) % k.columns]);
  }
  k.squares_1.data()[0] += sum;
}

template <class P, class G, class M, class S>
void run_kernel(reference_stream&, const kernel::adafactor<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<19>(k);
  using acc = accumulate_t<M>;
  const kernel::step_scalars& scalars = k.scalars_1.data()[0];
  if (scalars.applies == 0) return;
  const random_site random = kernel::random_of(k);
  const auto of = [](double setting) { return static_cast<acc>(setting); };
  const double rate = k.rate.step(scalars, k.weight_squares_1.empty() ? 0.0 : k.weight_squares_1.data()[0]);
  const double scale = rate / k.rate.clip(k.update_squares_1.data()[0]) * scalars.gradient_scale;
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint32_t word = k.stochastic ? random_word(random, i) : 0;
    const std::uint32_t state_word = k.stochastic ? random_word(detail::next_site(random), i) : 0;
    acc divisor;  // square root of the second moment
    if (k.v_n.empty()) {
      const std::size_t row = (k.first + i) / k.columns - k.first / k.columns, column = (k.first + i) % k.columns;
      divisor = of(std::sqrt(static_cast<double>(k.row_r.data()[row]) / k.mean_1.data()[0])) * std::sqrt(static_cast<acc>(k.column_c.data()[column]));
    } else {
      divisor = std::sqrt(static_cast<acc>(k.v_n.data()[i]));
    }
    acc update = of(scale) * static_cast<acc>(k.gradient_n.data()[i]) / divisor;
    if (!k.m_n.empty()) {
      update = of(k.beta1) * static_cast<acc>(k.m_n.data()[i]) + of(1.0 - k.beta1) * update;
      k.m_n.data()[i] = detail::rounded<S>(update, k.stochastic, state_word);
    }
    acc w = k.master_n.empty() ? static_cast<acc>(k.parameter_n.data()[i]) : static_cast<acc>(k.master_n.data()[i]);
    w -= of(rate * k.weight_decay) * w;
    w -= update;
    if (!k.master_n.empty()) k.master_n.data()[i] = static_cast<M>(w);
    k.parameter_n.data()[i] = detail::rounded<P>(w, k.stochastic, word);
  }
}

}  // namespace xtrain
