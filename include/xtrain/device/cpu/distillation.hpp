// Distillation, a row of logits at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include <xtrain/device/cpu/embedding.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/distillation.hpp>

namespace xtrain {

namespace cpu_kernels {

template <class Arch, class A>
[[nodiscard]] A largest_of_row(std::size_t v, const A* row) {
  constexpr std::size_t w = simd::width<A, Arch>;
  const std::size_t whole = v / w * w;
  simd::batch<A, Arch> most(row[0]);
  for (std::size_t j = 0; j < whole; j += w) most = xsimd::max(most, simd::load<Arch>(row + j));
  A largest = simd::largest(most);
  for (std::size_t j = whole; j < v; ++j) largest = std::max(largest, row[j]);
  return largest;
}

/// factor · difference; 0 for a factor of 0.
template <class A>
[[nodiscard]] A term_of(A factor, A difference) {
  return factor == A{0} ? A{0} : factor * difference;
}
template <class A, class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<A, Arch> terms_of(const xsimd::batch<A, Arch>& factor,
                                                                  const xsimd::batch<A, Arch>& difference) {
  const xsimd::batch<A, Arch> zero(A{0});
  return xsimd::select(factor == zero, zero, factor * difference);
}

/// Factor of a row's loss and gradient; 0: ignored.
template <class A, class Kernel>
[[nodiscard]] A distillation_weight_of(const Kernel& k, std::size_t i) {
  if (!in_table(k.target_n.raw()[i], k.vocab_size)) return A{0};
  return static_cast<A>(k.factor) * (k.token_weight_n.empty() ? A{1} : k.token_weight_n.raw()[i]);
}

/// Writes the row's loss, and zero gradients if ignored. True: a gradient remains to be computed.
template <class A, class Kernel>
[[nodiscard]] bool begin_row(const Kernel& k, std::size_t i, A weight, A divergence) {
  const A loss = weight == A{0} ? A{0} : weight * divergence;
  k.loss_n.raw()[i] = k.accumulate ? k.loss_n.raw()[i] + loss : loss;
  if (k.dstudent_nv.empty()) return false;
  if (weight != A{0}) return true;
  auto* const dstudent = k.dstudent_nv.raw() + i * k.v;
  if (!k.accumulate) std::fill_n(dstudent, k.v, std::remove_reference_t<decltype(*dstudent)>{});
  return false;
}

/// Writes or adds a row's gradient: slope(j, count) gives a vector.
template <class Arch, class A, class T, class Slope>
XTRAIN_ALWAYS_INLINE void gradient_of_row(std::size_t v, bool accumulate, T* to, Slope&& slope) {
  simd::for_each_vector<A, Arch>(0, v, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
    auto value = slope(j, count);
    if (accumulate) value = value + simd::load<Arch>(to + j, count);
    simd::store(to + j, value, count);
  });
}

template <class Arch, class A>
void divergence_of_rows(const cpu_stream& stream, const kernel::distillation_part<host_memory, A>& k) {
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t w = simd::width<A, Arch>;
  const bool is_forward = k.kind == kernel::divergence_kind::forward;
  const A scale = static_cast<A>(1.0 / k.temperature);
  const std::size_t whole = k.v / w * w;
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      // p weights the divergence, q is the other distribution; forward: p is the teacher's
      const A* const p_logits = (is_forward ? k.teacher_nv : k.student_nv).raw() + i * k.v;
      const A* const q_logits = (is_forward ? k.student_nv : k.teacher_nv).raw() + i * k.v;
      const A p_largest = largest_of_row<Arch>(k.v, p_logits) * scale, q_largest = largest_of_row<Arch>(k.v, q_logits) * scale;
      batch p_sums(A{0}), q_sums(A{0}), differences(A{0});
      for (std::size_t j = 0; j < whole; j += w) {
        const batch p = simd::multiply_add(simd::load<Arch>(p_logits + j), batch(scale), batch(-p_largest));
        const batch q = simd::multiply_add(simd::load<Arch>(q_logits + j), batch(scale), batch(-q_largest));
        const batch raised = simd::exp(p);
        p_sums = p_sums + raised;
        q_sums = q_sums + simd::exp(q);
        differences = differences + terms_of(raised, p - q);
      }
      A p_sum = simd::sum(p_sums), q_sum = simd::sum(q_sums), difference = simd::sum(differences);
      for (std::size_t j = whole; j < k.v; ++j) {
        const A p = p_logits[j] * scale - p_largest, q = q_logits[j] * scale - q_largest, raised = std::exp(p);
        p_sum += raised;
        q_sum += std::exp(q);
        difference += term_of(raised, p - q);
      }
      A* const parts = k.parts_5n.raw() + i;
      parts[is_forward ? 2 * k.n : 0] = p_largest;
      parts[is_forward ? 3 * k.n : k.n] = p_sum;
      parts[is_forward ? 0 : 2 * k.n] = q_largest;
      parts[is_forward ? k.n : 3 * k.n] = q_sum;
      parts[4 * k.n] = difference;
    }
  });
}

template <class Arch, class A, class T>
void distill_rows(const cpu_stream& stream, const kernel::distillation_of_parts<host_memory, A, T>& k) {
  using batch = simd::batch<A, Arch>;
  const bool is_forward = k.kind == kernel::divergence_kind::forward;
  const A inverse = static_cast<A>(1.0 / k.temperature);
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto part = [&](std::size_t rank, std::size_t what) { return k.parts_r5n.raw()[(rank * 5 + what) * k.n + i]; };
      // p weights the divergence
      const std::size_t p_at = is_forward ? 2 : 0, q_at = is_forward ? 0 : 2;
      A p_largest = part(0, p_at), q_largest = part(0, q_at), p_sum{0}, q_sum{0}, difference{0};
      for (std::size_t r = 1; r < k.ranks; ++r) {
        p_largest = std::max(p_largest, part(r, p_at));
        q_largest = std::max(q_largest, part(r, q_at));
      }
      for (std::size_t r = 0; r < k.ranks; ++r) {
        const A p_shift = part(r, p_at) - p_largest, q_shift = part(r, q_at) - q_largest, factor = std::exp(p_shift);
        p_sum += part(r, p_at + 1) * factor;
        q_sum += part(r, q_at + 1) * std::exp(q_shift);
        difference += term_of(factor, part(r, 4) + part(r, p_at + 1) * (p_shift - q_shift));
      }
      const A divergence = difference / p_sum + std::log(q_sum) - std::log(p_sum);
      const A weight = distillation_weight_of<A>(k, i);
      if (!begin_row(k, i, weight, divergence)) continue;
      const A p_lse = p_largest + std::log(p_sum), q_lse = q_largest + std::log(q_sum);
      const batch scale(inverse), gradient(static_cast<A>(kernel::gradient_scale_of(k)) * weight * inverse);
      const batch student_lse(is_forward ? q_lse : p_lse), teacher_lse(is_forward ? p_lse : q_lse), offset(divergence);
      const A* const student = k.student_nv.raw() + i * k.v;
      const A* const teacher = k.teacher_nv.raw() + i * k.v;
      const auto logs = [&](const A* logits, const batch& lse, std::size_t j, auto count)
                            XTRAIN_LAMBDA_INLINE { return simd::load<Arch>(logits + j, count) * scale - lse; };
      T* const dstudent = k.dstudent_nv.raw() + i * k.v;
      if (is_forward) {
        gradient_of_row<Arch, A>(k.v, k.accumulate, dstudent, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
          return gradient * (simd::exp(logs(student, student_lse, j, count)) - simd::exp(logs(teacher, teacher_lse, j, count)));
        });
      } else {
        gradient_of_row<Arch, A>(k.v, k.accumulate, dstudent, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
          const batch log_q = logs(student, student_lse, j, count);
          return gradient * terms_of(simd::exp(log_q), log_q - logs(teacher, teacher_lse, j, count) - offset);
        });
      }
    }
  });
}

template <class Arch, class A>
void topk_part_of_rows(const cpu_stream& stream, const kernel::topk_distillation_part<host_memory, A>& k) {
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t w = simd::width<A, Arch>;
  const A scale = static_cast<A>(1.0 / k.temperature);
  const std::size_t whole = k.v / w * w;
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const A* const student = k.student_nv.raw() + i * k.v;
      const A largest = largest_of_row<Arch>(k.v, student) * scale;
      batch sums(A{0});
      for (std::size_t j = 0; j < whole; j += w)
        sums = sums + simd::exp(simd::multiply_add(simd::load<Arch>(student + j), batch(scale), batch(-largest)));
      A sum = simd::sum(sums), stored{0};
      for (std::size_t j = whole; j < k.v; ++j) sum += std::exp(student[j] * scale - largest);
      for (std::size_t e = i * k.top; e < (i + 1) * k.top; ++e) {
        const token id = k.id_nk.raw()[e] - k.first;
        if (in_table(id, k.v)) stored += term_of(std::exp(k.teacher_nk.raw()[e]), student[id] * scale);
      }
      A* const parts = k.parts_3n.raw() + i;
      parts[0] = largest;
      parts[k.n] = sum;
      parts[2 * k.n] = stored;
    }
  });
}

inline constexpr std::size_t distilled_rows_per_part = 4;

/// `before_wk`: `top` values per thread.
template <class Arch, class A, class T>
void distill_stored_rows(const cpu_stream& stream, const kernel::topk_distillation_of_parts<host_memory, A, T>& k, A* before_wk) {
  using batch = simd::batch<A, Arch>;
  const A inverse = static_cast<A>(1.0 / k.temperature);
  constexpr std::size_t at_once = distilled_rows_per_part;
  stream.parallel((k.n + at_once - 1) / at_once, [&](std::size_t row_part, std::size_t worker) {
    A* const before = before_wk + worker * k.top;
    for (std::size_t i = row_part * at_once; i < std::min(k.n, (row_part + 1) * at_once); ++i) {
      const auto part = [&](std::size_t rank, std::size_t what) { return k.parts_r3n.raw()[(rank * 3 + what) * k.n + i]; };
      const token* const id = k.id_nk.raw() + i * k.top;
      const A* const log_p = k.teacher_nk.raw() + i * k.top;
      A largest = part(0, 0), sum{0}, stored{0}, mass{0}, entropy{0};
      for (std::size_t r = 1; r < k.ranks; ++r) largest = std::max(largest, part(r, 0));
      for (std::size_t r = 0; r < k.ranks; ++r) {
        sum += part(r, 1) * std::exp(part(r, 0) - largest);
        stored += part(r, 2);
      }
      for (std::size_t e = 0; e < k.top; ++e) {
        if (!in_table(id[e], k.vocab_size)) continue;
        const A p = std::exp(log_p[e]);
        mass += p;
        entropy += term_of(p, log_p[e]);
      }
      const A lse_student = largest + std::log(sum);
      const bool renormalize = k.renormalize && mass > A{0};
      const A share = renormalize ? A{1} / mass : A{1}, whole = renormalize ? A{1} : mass;
      const A divergence = share * (entropy - stored) + whole * lse_student - (renormalize ? std::log(mass) : A{0});
      const A weight = distillation_weight_of<A>(k, i);
      if (!begin_row(k, i, weight, divergence)) continue;
      const A gradient = static_cast<A>(kernel::gradient_scale_of(k)) * weight * inverse;
      const A* const student = k.student_nv.raw() + i * k.v;
      T* const dstudent = k.dstudent_nv.raw() + i * k.v;
      // every gradient is rounded once: first as if nothing were stored, then stored tokens are rewritten
      const auto in_shard = [&](std::size_t e) { return in_table(id[e] - k.first, k.v); };
      const auto at = [&](std::size_t e) { return static_cast<std::size_t>(id[e] - k.first); };
      const batch scale(inverse), lse(lse_student), factor(gradient * whole);
      for (std::size_t e = 0; e < k.top; ++e) before[e] = k.accumulate && in_shard(e) ? static_cast<A>(dstudent[at(e)]) : A{0};
      gradient_of_row<Arch, A>(k.v, k.accumulate, dstudent, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        return factor * simd::exp(simd::load<Arch>(student + j, count) * scale - lse);
      });
      for (std::size_t e = 0; e < k.top; ++e)
        if (in_shard(e)) {
          const A slope = whole * std::exp(student[at(e)] * inverse - lse_student) - share * std::exp(log_p[e]);
          dstudent[at(e)] = static_cast<T>(before[e] + gradient * slope);
        }
    }
  });
}

}  // namespace cpu_kernels

template <class A>
void run_native(cpu_stream& stream, const kernel::distillation_part<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  cpu_kernels::divergence_of_rows<simd::native>(stream, k);
}
template <class A, class T>
void run_native(cpu_stream& stream, const kernel::distillation_of_parts<host_memory, A, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  cpu_kernels::distill_rows<simd::native>(stream, k);
}
template <class A>
void run_native(cpu_stream& stream, const kernel::topk_distillation_part<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::topk_part_of_rows<simd::native>(stream, k);
}
template <class A, class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::topk_distillation_of_parts<host_memory, A, T>& k) {
  return cpu.threads * k.top * sizeof(A);
}
template <class A, class T>
void run_native(cpu_stream& stream, const kernel::topk_distillation_of_parts<host_memory, A, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<20>(k);
  cpu_kernels::distill_stored_rows<simd::native>(stream, k, reinterpret_cast<A*>(scratch.raw()));
}

}  // namespace xtrain
