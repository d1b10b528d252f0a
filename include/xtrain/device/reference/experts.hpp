#pragma once

#include <algorithm>
#include <cmath>

#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/device/reference/embedding.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T>
void run_kernel(reference_stream&, const kernel::expert_routing<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<13>(k);
  using acc = accumulate_t<T>;
  const auto logits_ne = detail::values<acc>(k.logits_ne, k.n, k.experts);
  const array<acc, 1> largest_n = xt::amax(logits_ne, {1});
  const array<acc, 2> raised_ne = xt::exp(logits_ne - xt::view(largest_n, xt::all(), xt::newaxis()));
  const array<acc, 1> sum_n = xt::sum(raised_ne, {1});
  const array<acc, 2> probability_ne = raised_ne / xt::view(sum_n, xt::all(), xt::newaxis());
  detail::store<2>(k.probability_ne, probability_ne);
  for (std::size_t i = 0; i < k.n; ++i) {
    token* choice = k.choice_nk.raw() + i * k.choices;
    acc chosen{0};
    for (std::size_t j = 0; j < k.choices; ++j) {
      const auto taken = [&](std::size_t e) { return std::find(choice, choice + j, static_cast<token>(e)) != choice + j; };
      std::size_t best = 0;
      while (taken(best)) ++best;
      for (std::size_t e = best + 1; e < k.experts; ++e)
        if (logits_ne(i, e) > logits_ne(i, best) && !taken(e)) best = e;
      choice[j] = static_cast<token>(best);
      chosen += probability_ne(i, best);
    }
    for (std::size_t j = 0; j < k.choices; ++j)
      k.weight_nk.raw()[i * k.choices + j] = probability_ne(i, static_cast<std::size_t>(choice[j])) / chosen;
  }
  std::size_t slot = 0;
  for (std::size_t e = 0; e < k.experts; ++e) {
    const std::size_t first = slot;
    for (std::size_t assignment = 0; assignment < k.n * k.choices; ++assignment) {
      if (k.choice_nk.raw()[assignment] != static_cast<token>(e)) continue;
      k.row_s.raw()[slot] = static_cast<token>(assignment / k.choices);
      k.slot_nk.raw()[assignment] = static_cast<token>(slot++);
    }
    k.count_e.raw()[e] = static_cast<token>(slot - first);
  }
  if (k.load_e.empty()) return;
  for (std::size_t e = 0; e < k.experts; ++e) {
    acc load{0};
    token counted = 0;
    for (std::size_t i = 0; i < k.n; ++i) {
      if (!k.counts(i)) continue;
      load += probability_ne(i, e);
      for (std::size_t j = 0; j < k.choices; ++j) counted += k.choice_nk.raw()[i * k.choices + j] == static_cast<token>(e) ? 1 : 0;
    }
    k.load_e.raw()[e] = load;
    k.counted_e.raw()[e] = counted;
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::expert_routing_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  using acc = accumulate_t<T>;
  const auto probability_ne = detail::values<acc>(k.probability_ne, k.n, k.experts);
  array<acc, 2> dprobability_ne(std::array<std::size_t, 2>{k.n, k.experts});
  for (std::size_t i = 0; i < k.n; ++i) {
    for (std::size_t e = 0; e < k.experts; ++e) dprobability_ne(i, e) = k.balances(i) ? k.dprobability_e.raw()[e] : acc{0};
    // forward: w = p / Σ_chosen p
    acc chosen{0}, dw_w{0};
    for (std::size_t assignment = i * k.choices; assignment < (i + 1) * k.choices; ++assignment) {
      chosen += probability_ne(i, static_cast<std::size_t>(k.choice_nk.raw()[assignment]));
      dw_w += k.dweight_nk.raw()[assignment] * k.weight_nk.raw()[assignment];
    }
    for (std::size_t assignment = i * k.choices; assignment < (i + 1) * k.choices; ++assignment)
      dprobability_ne(i, static_cast<std::size_t>(k.choice_nk.raw()[assignment])) += (k.dweight_nk.raw()[assignment] - dw_w) / chosen;
  }
  // forward: p = softmax(logits)
  const array<acc, 1> p_dp_n = xt::sum(probability_ne * dprobability_ne, {1});
  detail::store<2>(k.dlogits_ne, probability_ne * (dprobability_ne - xt::view(p_dp_n, xt::all(), xt::newaxis())));
}

template <class T>
void run_kernel(reference_stream&, const kernel::expert_combine<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<8>(k);
  using acc = accumulate_t<T>;
  for (std::size_t i = 0; i < k.n; ++i) {
    for (std::size_t j = 0; j < k.c; ++j) {
      T& y = k.y_nc.raw()[i * k.c + j];
      acc sum = k.accumulate ? static_cast<acc>(y) : acc{0};
      for (std::size_t assignment = i * k.choices; assignment < (i + 1) * k.choices; ++assignment) {
        const acc weight = k.weight_nk.empty() ? acc{1} : k.weight_nk.raw()[assignment];
        sum += weight * static_cast<acc>(k.x_sc.raw()[static_cast<std::size_t>(k.slot_nk.raw()[assignment]) * k.c + j]);
      }
      y = static_cast<T>(sum);
    }
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::expert_combine_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<T>;
  for (std::size_t assignment = 0; assignment < k.n * k.choices; ++assignment) {
    const std::size_t i = assignment / k.choices, slot = static_cast<std::size_t>(k.slot_nk.raw()[assignment]);
    acc dot{0};
    for (std::size_t j = 0; j < k.c; ++j) {
      const auto dy = static_cast<acc>(k.dy_nc.raw()[i * k.c + j]);
      // forward: y += weight · x
      dot += dy * static_cast<acc>(k.x_sc.raw()[slot * k.c + j]);
      k.dx_sc.raw()[slot * k.c + j] = static_cast<T>(k.weight_nk.raw()[assignment] * dy);
    }
    k.dweight_nk.raw()[assignment] = dot;
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::expert_balance<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<13>(k);
  using acc = accumulate_t<T>;
  const array<acc, 1> count_e = xt::sum(detail::values<acc>(k.count_le, k.layers, k.experts), {0});
  const array<acc, 1> load_e = xt::sum(detail::values<acc>(k.load_le, k.layers, k.experts), {0});
  std::size_t slots = 0;
  for (std::size_t i = 0; i < k.layers * k.experts; ++i) slots += static_cast<std::size_t>(k.count_le.raw()[i]);
  if (slots == 0) return detail::store<1>(k.dprobability_e, xt::zeros<acc>({k.experts}));
  const auto rows = static_cast<acc>(slots / k.choices);
  const acc weight = static_cast<acc>(k.weight) * static_cast<acc>(k.experts);
  const acc balance = xt::sum(count_e / rows * (load_e / rows))();
  std::size_t targets = 0;
  for (std::size_t i = 0; i < k.n; ++i) {
    if (!detail::inside(k.target_n.raw()[i], k.v)) continue;
    k.loss_n.raw()[i] += weight * balance;
    ++targets;
  }
  // forward: loss = Σ over targets of weight · Σ_e count_e / rows · load_e / rows
  const acc scale = static_cast<acc>(kernel::gradient_scale_of(k)) * static_cast<acc>(targets) * weight;
  detail::store<1>(k.dprobability_e, scale * (count_e / rows) / rows);
}

inline void run_kernel(reference_stream&, const kernel::expert_ranges<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  token first = 0;
  for (std::size_t e = 0; e < k.experts; ++e) {
    k.range_e2.data()[2 * e] = first;
    k.range_e2.data()[2 * e + 1] = k.count_e.data()[e];
    first += k.count_e.data()[e];
  }
}

}  // namespace xtrain
