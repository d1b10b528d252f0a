#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <xtrain/device/kernel/distillation.hpp>
#include <xtrain/device/reference/embedding.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

/// factor · difference; 0 for a factor of 0.
template <class A>
[[nodiscard]] A weighted(A factor, A difference) {
  return factor == A{0} ? A{0} : factor * difference;
}

/// Factor of a row's loss and gradient; 0: ignored.
template <class A, class Kernel>
[[nodiscard]] A distillation_weight(const Kernel& k, std::size_t i) {
  if (!inside(k.target_n.data()[i], k.vocab_size)) return A{0};
  return static_cast<A>(k.factor) * (k.token_weight_n.empty() ? A{1} : k.token_weight_n.data()[i]);
}

/// Writes or adds, rounded once.
template <class T, class A>
void put(bool accumulate, T& to, A value) {
  to = static_cast<T>(accumulate ? static_cast<A>(to) + value : value);
}

}  // namespace detail

template <class A>
void run_kernel(reference_stream&, const kernel::distillation_part<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  const bool is_forward = k.kind == kernel::divergence_kind::forward;
  const A scale = static_cast<A>(1.0 / k.temperature);
  for (std::size_t i = 0; i < k.n; ++i) {
    const A* const student = k.student_nv.raw() + i * k.v;
    const A* const teacher = k.teacher_nv.raw() + i * k.v;
    const A l_largest = *std::max_element(student, student + k.v) * scale, m_largest = *std::max_element(teacher, teacher + k.v) * scale;
    A l_sum{0}, m_sum{0}, difference{0};
    for (std::size_t j = 0; j < k.v; ++j) {
      const A l = student[j] * scale - l_largest, m = teacher[j] * scale - m_largest;
      l_sum += std::exp(l);
      m_sum += std::exp(m);
      difference += is_forward ? detail::weighted(std::exp(m), m - l) : detail::weighted(std::exp(l), l - m);
    }
    A* const parts = k.parts_5n.raw() + i;
    parts[0] = l_largest;
    parts[k.n] = l_sum;
    parts[2 * k.n] = m_largest;
    parts[3 * k.n] = m_sum;
    parts[4 * k.n] = difference;
  }
}

template <class A, class T>
void run_kernel(reference_stream&, const kernel::distillation_of_parts<host_memory, A, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  const bool is_forward = k.kind == kernel::divergence_kind::forward;
  const A scale = static_cast<A>(1.0 / k.temperature);
  for (std::size_t i = 0; i < k.n; ++i) {
    const auto part = [&](std::size_t rank, std::size_t what) { return k.parts_r5n.raw()[(rank * 5 + what) * k.n + i]; };
    A l_largest = part(0, 0), m_largest = part(0, 2), l_sum{0}, m_sum{0}, difference{0};
    for (std::size_t r = 1; r < k.ranks; ++r) {
      l_largest = std::max(l_largest, part(r, 0));
      m_largest = std::max(m_largest, part(r, 2));
    }
    for (std::size_t r = 0; r < k.ranks; ++r) {
      const A l_shift = part(r, 0) - l_largest, m_shift = part(r, 2) - m_largest;
      l_sum += part(r, 1) * std::exp(l_shift);
      m_sum += part(r, 3) * std::exp(m_shift);
      // terms are relative to their rank's largest logits
      if (is_forward) difference += detail::weighted(std::exp(m_shift), part(r, 4) + part(r, 3) * (m_shift - l_shift));
      else difference += detail::weighted(std::exp(l_shift), part(r, 4) + part(r, 1) * (l_shift - m_shift));
    }
    const A l_log = std::log(l_sum), m_log = std::log(m_sum);
    const A divergence = is_forward ? difference / m_sum + l_log - m_log : difference / l_sum + m_log - l_log;
    const A weight = detail::distillation_weight<A>(k, i);
    detail::put(k.accumulate, k.loss_n.raw()[i], weight == A{0} ? A{0} : weight * divergence);
    if (k.dstudent_nv.empty()) continue;
    const A gradient = static_cast<A>(kernel::gradient_scale_of(k)) * weight * scale;
    for (std::size_t j = 0; j < k.v; ++j) {
      const A log_q = k.student_nv.raw()[i * k.v + j] * scale - l_largest - l_log;
      const A log_p = k.teacher_nv.raw()[i * k.v + j] * scale - m_largest - m_log;
      const A q = std::exp(log_q), p = std::exp(log_p);
      const A slope = is_forward ? q - p : detail::weighted(q, log_q - log_p - divergence);
      detail::put(k.accumulate, k.dstudent_nv.raw()[i * k.v + j], weight == A{0} ? A{0} : gradient * slope);
    }
  }
}

template <class A>
void run_kernel(reference_stream&, const kernel::topk_distillation_part<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  const A scale = static_cast<A>(1.0 / k.temperature);
  for (std::size_t i = 0; i < k.n; ++i) {
    const A* const student = k.student_nv.raw() + i * k.v;
    const A largest = *std::max_element(student, student + k.v) * scale;
    A sum{0}, stored{0};
    for (std::size_t j = 0; j < k.v; ++j) sum += std::exp(student[j] * scale - largest);
    for (std::size_t e = i * k.top; e < (i + 1) * k.top; ++e) {
      const token id = k.id_nk.raw()[e] - k.first;
      if (detail::inside(id, k.v)) stored += detail::weighted(std::exp(k.teacher_nk.raw()[e]), student[id] * scale);
    }
    k.parts_3n.raw()[i] = largest;
    k.parts_3n.raw()[k.n + i] = sum;
    k.parts_3n.raw()[2 * k.n + i] = stored;
  }
}

template <class A, class T>
void run_kernel(reference_stream&, const kernel::topk_distillation_of_parts<host_memory, A, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<20>(k);
  const A scale = static_cast<A>(1.0 / k.temperature);
  std::vector<A> p_v(k.v);
  for (std::size_t i = 0; i < k.n; ++i) {
    const auto part = [&](std::size_t rank, std::size_t what) { return k.parts_r3n.raw()[(rank * 3 + what) * k.n + i]; };
    A largest = part(0, 0), sum{0}, stored{0};
    for (std::size_t r = 1; r < k.ranks; ++r) largest = std::max(largest, part(r, 0));
    for (std::size_t r = 0; r < k.ranks; ++r) {
      sum += part(r, 1) * std::exp(part(r, 0) - largest);
      stored += part(r, 2);
    }
    const A lse = largest + std::log(sum);
    A mass{0}, entropy{0};  // Σ p, Σ p log p
    std::fill(p_v.begin(), p_v.end(), A{0});
    for (std::size_t e = i * k.top; e < (i + 1) * k.top; ++e) {
      const token id = k.id_nk.raw()[e];
      if (!detail::inside(id, k.vocab_size)) continue;
      const A log_p = k.teacher_nk.raw()[e], p = std::exp(log_p);
      mass += p;
      entropy += detail::weighted(p, log_p);
      if (detail::inside(id - k.first, k.v)) p_v[static_cast<std::size_t>(id - k.first)] += p;
    }
    // renormalize: p / mass, log p − log mass
    const bool renormalize = k.renormalize && mass > A{0};
    const A share = renormalize ? A{1} / mass : A{1}, whole = renormalize ? A{1} : mass;
    const A divergence = share * (entropy - stored) + whole * lse - (renormalize ? std::log(mass) : A{0});
    const A weight = detail::distillation_weight<A>(k, i);
    detail::put(k.accumulate, k.loss_n.raw()[i], weight == A{0} ? A{0} : weight * divergence);
    if (k.dstudent_nv.empty()) continue;
    const A gradient = static_cast<A>(kernel::gradient_scale_of(k)) * weight * scale;
    for (std::size_t j = 0; j < k.v; ++j) {
      const A slope = whole * std::exp(k.student_nv.raw()[i * k.v + j] * scale - lse) - share * p_v[j];
      detail::put(k.accumulate, k.dstudent_nv.raw()[i * k.v + j], weight == A{0} ? A{0} : gradient * slope);
    }
  }
}

}  // namespace xtrain
