// Experts: scalar routing per row, counting sort, vectorized kernels for rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <xtrain/device/cpu/embedding.hpp>
#include <xtrain/device/cpu/norm.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/experts.hpp>

namespace xtrain {

namespace cpu_kernels {

/// The largest remaining logit, `choices` times; choices differ for any logits (NaN).
template <class T>
void choose_experts(std::size_t experts, std::size_t choices, const T* logits, token* choice) {
  using A = accumulate_t<T>;
  for (std::size_t j = 0; j < choices; ++j) {
    const auto taken = [&](std::size_t e) { return std::find(choice, choice + j, static_cast<token>(e)) != choice + j; };
    std::size_t best = 0;
    while (taken(best)) ++best;
    for (std::size_t e = best + 1; e < experts; ++e)
      if (static_cast<A>(logits[e]) > static_cast<A>(logits[best]) && !taken(e)) best = e;
    choice[j] = static_cast<token>(best);
  }
}

template <class T>
void route_row(const kernel::expert_routing<host_memory, T>& k, std::size_t i) {
  using A = accumulate_t<T>;
  const T* logits = k.logits_ne.raw() + i * k.experts;
  A* probability = k.probability_ne.raw() + i * k.experts;
  token* choice = k.choice_nk.raw() + i * k.choices;
  A* weight = k.weight_nk.raw() + i * k.choices;
  choose_experts(k.experts, k.choices, logits, choice);
  const A largest = static_cast<A>(logits[choice[0]]);
  A sum{0}, chosen{0};
  for (std::size_t e = 0; e < k.experts; ++e) sum += probability[e] = std::exp(static_cast<A>(logits[e]) - largest);
  for (std::size_t e = 0; e < k.experts; ++e) probability[e] /= sum;
  for (std::size_t j = 0; j < k.choices; ++j) chosen += weight[j] = probability[choice[j]];
  for (std::size_t j = 0; j < k.choices; ++j) weight[j] /= chosen;
}

/// Slots by expert, then row.
template <class T>
void sort_by_expert(const kernel::expert_routing<host_memory, T>& k) {
  const std::size_t assignments = k.n * k.choices;
  token* next = k.count_e.raw();  // next free slot per expert
  std::fill_n(next, k.experts, token{0});
  for (std::size_t assignment = 0; assignment < assignments; ++assignment) ++next[k.choice_nk.raw()[assignment]];
  token first = 0;
  for (std::size_t e = 0; e < k.experts; ++e) first += std::exchange(next[e], first);
  for (std::size_t assignment = 0; assignment < assignments; ++assignment) {
    const token slot = next[k.choice_nk.raw()[assignment]]++;
    k.slot_nk.raw()[assignment] = slot;
    k.row_s.raw()[slot] = static_cast<token>(assignment / k.choices);
  }
  for (std::size_t e = k.experts; e-- > 1;) next[e] -= next[e - 1];  // until here each expert's end
}

template <class T>
void route_row_backward(const kernel::expert_routing_backward<host_memory, T>& k, std::size_t i, accumulate_t<T>* dprobability) {
  using A = accumulate_t<T>;
  const A* probability = k.probability_ne.raw() + i * k.experts;
  const token* choice = k.choice_nk.raw() + i * k.choices;
  const A* weight = k.weight_nk.raw() + i * k.choices;
  const A* dweight = k.dweight_nk.raw() + i * k.choices;
  const bool balances = k.balances(i);
  for (std::size_t e = 0; e < k.experts; ++e) dprobability[e] = balances ? k.dprobability_e.raw()[e] : A{0};
  // forward: w = p / Σ_chosen p
  A chosen{0}, dw_w{0};
  for (std::size_t j = 0; j < k.choices; ++j) {
    chosen += probability[choice[j]];
    dw_w += dweight[j] * weight[j];
  }
  for (std::size_t j = 0; j < k.choices; ++j) dprobability[choice[j]] += (dweight[j] - dw_w) / chosen;
  // forward: p = softmax(logits)
  A p_dp{0};
  for (std::size_t e = 0; e < k.experts; ++e) p_dp += probability[e] * dprobability[e];
  T* dlogits = k.dlogits_ne.raw() + i * k.experts;
  for (std::size_t e = 0; e < k.experts; ++e) dlogits[e] = static_cast<T>(probability[e] * (dprobability[e] - p_dp));
}

inline constexpr std::size_t routed_rows_per_part = 64;

template <class Arch, class T>
void combine_rows(const cpu_stream& stream, const kernel::expert_combine<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, rows_per_part(k.choices * k.c * sizeof(T)), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const token* slot = k.slot_nk.raw() + i * k.choices;
      T* y = k.y_nc.raw() + i * k.c;
      for (std::size_t j = 0; i + 1 < end && j < k.choices; ++j)
        prefetch_row(k.x_sc.raw(), slot[k.choices + j], k.n * k.choices, k.c, 0, k.c);
      simd::for_each_vector<A, Arch>(0, k.c, [&](std::size_t at, auto count) XTRAIN_LAMBDA_INLINE {
        batch sum = k.accumulate ? simd::load<Arch>(y + at, count) : batch(A{0});
        for (std::size_t j = 0; j < k.choices; ++j) {
          const batch x = simd::load<Arch>(k.x_sc.raw() + static_cast<std::size_t>(slot[j]) * k.c + at, count);
          sum = k.weight_nk.empty() ? sum + x : simd::multiply_add(batch(k.weight_nk.raw()[i * k.choices + j]), x, sum);
        }
        simd::store(y + at, sum, count);
      });
    }
  });
}

template <class Arch, class T>
void combine_backward_rows(const cpu_stream& stream, const kernel::expert_combine_backward<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, rows_per_part(2 * k.choices * k.c * sizeof(T)), [&](std::size_t begin, std::size_t end) {
    for (std::size_t assignment = begin * k.choices; assignment < end * k.choices; ++assignment) {
      const T* dy = k.dy_nc.raw() + assignment / k.choices * k.c;
      const std::size_t slot = static_cast<std::size_t>(k.slot_nk.raw()[assignment]);
      const T* x = k.x_sc.raw() + slot * k.c;
      T* dx = k.dx_sc.raw() + slot * k.c;
      // forward: y += weight · x
      k.dweight_nk.raw()[assignment] = sum_of<Arch, A>(k.c, [&](std::size_t at, auto count) XTRAIN_LAMBDA_INLINE {
        return simd::load<Arch>(dy + at, count) * simd::load<Arch>(x + at, count);
      });
      const batch weight(k.weight_nk.raw()[assignment]);
      simd::for_each_vector<A, Arch>(0, k.c, [&](std::size_t at, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(dx + at, weight * simd::load<Arch>(dy + at, count), count);
      });
    }
  });
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::expert_routing<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<13>(k);
  stream.parallel_ranges(k.n, cpu_kernels::routed_rows_per_part, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) cpu_kernels::route_row(k, i);
  });
  cpu_kernels::sort_by_expert(k);
  if (k.load_e.empty()) return;
  std::fill_n(k.load_e.raw(), k.experts, accumulate_t<T>{0});
  std::fill_n(k.counted_e.raw(), k.experts, token{0});
  for (std::size_t i = 0; i < k.n; ++i) {
    if (!k.counts(i)) continue;
    for (std::size_t e = 0; e < k.experts; ++e) k.load_e.raw()[e] += k.probability_ne.raw()[i * k.experts + e];
    for (std::size_t j = 0; j < k.choices; ++j) ++k.counted_e.raw()[k.choice_nk.raw()[i * k.choices + j]];
  }
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::expert_routing_backward<host_memory, T>& k) {
  return cpu.threads * k.experts * sizeof(accumulate_t<T>);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::expert_routing_backward<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<10>(k);
  constexpr std::size_t at_once = cpu_kernels::routed_rows_per_part;
  stream.parallel((k.n + at_once - 1) / at_once, [&](std::size_t part, std::size_t worker) {
    auto* const dprobability = reinterpret_cast<accumulate_t<T>*>(scratch.raw()) + worker * k.experts;
    for (std::size_t i = part * at_once; i < std::min(k.n, (part + 1) * at_once); ++i) cpu_kernels::route_row_backward(k, i, dprobability);
  });
}

template <class T>
void run_native(cpu_stream& stream, const kernel::expert_combine<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<8>(k);
  cpu_kernels::combine_rows<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::expert_combine_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::combine_backward_rows<simd::native>(stream, k);
}

template <class T>
void run_native(cpu_stream&, const kernel::expert_balance<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<13>(k);
  using A = accumulate_t<T>;
  std::size_t slots = 0;
  for (std::size_t i = 0; i < k.layers * k.experts; ++i) slots += static_cast<std::size_t>(k.count_le.raw()[i]);
  if (slots == 0) {
    std::fill_n(k.dprobability_e.raw(), k.experts, A{0});
    return;
  }
  const auto rows = static_cast<A>(slots / k.choices);
  const A weight = static_cast<A>(k.weight) * static_cast<A>(k.experts);
  A balance{0};
  for (std::size_t e = 0; e < k.experts; ++e) {
    A count{0}, load{0};
    for (std::size_t l = 0; l < k.layers; ++l) {
      count += static_cast<A>(k.count_le.raw()[l * k.experts + e]);
      load += k.load_le.raw()[l * k.experts + e];
    }
    k.dprobability_e.raw()[e] = count / rows;
    balance += count / rows * (load / rows);
  }
  std::size_t targets = 0;
  for (std::size_t i = 0; i < k.n; ++i) {
    if (!cpu_kernels::in_table(k.target_n.raw()[i], k.v)) continue;
    k.loss_n.raw()[i] += weight * balance;
    ++targets;
  }
  // forward: loss = Σ over targets of weight · Σ_e count_e / rows · load_e / rows
  const A scale = static_cast<A>(kernel::gradient_scale_of(k)) * static_cast<A>(targets) * weight;
  for (std::size_t e = 0; e < k.experts; ++e) k.dprobability_e.raw()[e] *= scale / rows;
}

inline void run_native(cpu_stream&, const kernel::expert_ranges<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  token first = 0;
  for (std::size_t e = 0; e < k.experts; ++e) {
    k.range_e2.raw()[2 * e] = first;
    k.range_e2.raw()[2 * e + 1] = k.count_e.raw()[e];
    first += k.count_e.raw()[e];
  }
}

}  // namespace xtrain
