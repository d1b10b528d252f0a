// GRPO's loss, a sequence per part.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <xtrain/device/cpu/embedding.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/grpo.hpp>

namespace xtrain {

namespace cpu_kernels {

template <class A>
void grpo_sequence(const kernel::grpo_loss<host_memory, A>& k, std::size_t i) {
  using kind = kernel::grpo_kind;
  const std::size_t first = i * k.t;
  const A *const cross_entropy = k.loss_n.raw() + first, *const old = k.old_n.empty() ? nullptr : k.old_n.raw() + first;
  const A* const reference = k.beta == 0.0 ? nullptr : k.reference_n.raw() + first;
  const token* const target = k.target_n.raw() + first;
  A* const weight = k.weight_n.empty() ? nullptr : k.weight_n.raw() + first;
  const double advantage = k.advantage_b.raw()[i];
  std::size_t count = 0;
  double log_ratios = 0.0;
  for (std::size_t j = 0; j < k.t; ++j) {
    if (!in_table(target[j], k.v)) continue;
    ++count;
    if (old != nullptr) log_ratios -= static_cast<double>(cross_entropy[j]) + static_cast<double>(old[j]);
  }
  const double targets = static_cast<double>(std::max<std::size_t>(count, 1));
  const double w = k.kind == kind::dapo ? 1.0 : 1.0 / (k.kind == kind::grpo ? targets : k.max_completion_length);
  const double low = 1.0 - k.epsilon_low, high = 1.0 + k.epsilon_high, of_sequence = k.sequence_ratio ? std::exp(log_ratios / targets) : 1.0;
  double policy = 0.0, divergence = 0.0;
  std::size_t below = 0, above = 0;
  for (std::size_t j = 0; j < k.t; ++j) {
    if (!in_table(target[j], k.v)) {
      if (weight != nullptr) weight[j] = A{0};
      continue;
    }
    const double loss = static_cast<double>(cross_entropy[j]);
    const double ratio = k.sequence_ratio || old == nullptr ? of_sequence : std::exp(-loss - static_cast<double>(old[j]));
    // outside these bounds the minimum is clipped and has no gradient
    const bool is_above = advantage > 0.0 && ratio > high, is_below = advantage < 0.0 && ratio < low;
    above += is_above ? 1 : 0;
    below += is_below ? 1 : 0;
    double minus_dlogp = 0.0;
    if (advantage != 0.0) {
      policy -= advantage * (is_above ? high : is_below ? low : ratio);
      minus_dlogp = is_above || is_below ? 0.0 : advantage * ratio;
    }
    if (reference != nullptr) {
      const double difference = static_cast<double>(reference[j]) + loss, grown = std::exp(difference);
      divergence += grown - difference - 1.0;
      minus_dlogp += k.beta * (grown - 1.0);
    }
    if (weight != nullptr) weight[j] = static_cast<A>(w * minus_dlogp);
  }
  k.loss_b.raw()[i] = w * (policy + k.beta * divergence);
  const double each = k.kind == kind::dapo ? 1.0 : 1.0 / targets;
  k.statistics_3b.raw()[i] = each * divergence;
  k.statistics_3b.raw()[k.b + i] = each * static_cast<double>(below);
  k.statistics_3b.raw()[2 * k.b + i] = each * static_cast<double>(above);
}

}  // namespace cpu_kernels

template <class A>
void run_native(cpu_stream& stream, const kernel::grpo_loss<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  stream.parallel_ranges(k.b, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) cpu_kernels::grpo_sequence(k, i);
  });
}

}  // namespace xtrain
