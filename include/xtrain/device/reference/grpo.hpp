#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <xtrain/device/kernel/grpo.hpp>
#include <xtrain/device/reference/embedding.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class A>
void run_kernel(reference_stream&, const kernel::grpo_loss<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  using kind = kernel::grpo_kind;
  for (std::size_t i = 0; i < k.b; ++i) {
    const double advantage = k.advantage_b.data()[i];
    const auto is_target = [&](std::size_t j) { return detail::inside(k.target_n.data()[j], k.v); };
    const auto log_ratio = [&](std::size_t j) {
      return k.old_n.empty() ? 0.0 : -static_cast<double>(k.loss_n.data()[j]) - static_cast<double>(k.old_n.data()[j]);
    };
    double count = 0.0, mean_log_ratio = 0.0;
    for (std::size_t j = i * k.t; j < (i + 1) * k.t; ++j)
      if (is_target(j)) {
        count += 1.0;
        mean_log_ratio += log_ratio(j);
      }
    if (count > 0.0) mean_log_ratio /= count;
    double loss = 0.0, statistics[3] = {0.0, 0.0, 0.0};
    for (std::size_t j = i * k.t; j < (i + 1) * k.t; ++j) {
      if (!k.weight_n.empty()) k.weight_n.data()[j] = A{0};
      if (!is_target(j)) continue;
      const double w = k.kind == kind::grpo ? 1.0 / count : k.kind == kind::dapo ? 1.0 : 1.0 / k.max_completion_length;
      const double ratio = std::exp(k.sequence_ratio ? mean_log_ratio : log_ratio(j));
      const double clipped = std::min(std::max(ratio, 1.0 - k.epsilon_low), 1.0 + k.epsilon_high);
      double of_token = 0.0, dlogp = 0.0;
      if (advantage != 0.0) {
        of_token = -std::min(ratio * advantage, clipped * advantage);
        // forward: ratio = exp(log p − old); with sequence_ratio each of count losses depends on count log p, by 1 / count each
        dlogp = ratio * advantage <= clipped * advantage ? -ratio * advantage : 0.0;
      }
      if (k.beta != 0.0) {
        const double difference = static_cast<double>(k.reference_n.data()[j]) + static_cast<double>(k.loss_n.data()[j]);
        const double kl = std::exp(difference) - difference - 1.0;
        of_token += k.beta * kl;
        dlogp += k.beta * (1.0 - std::exp(difference));
        statistics[0] += kl;
      }
      loss += w * of_token;
      if (!k.weight_n.empty()) k.weight_n.data()[j] = static_cast<A>(-w * dlogp);
      statistics[1] += ratio < 1.0 - k.epsilon_low && advantage < 0.0 ? 1.0 : 0.0;
      statistics[2] += ratio > 1.0 + k.epsilon_high && advantage > 0.0 ? 1.0 : 0.0;
    }
    k.loss_b.data()[i] = loss;
    for (std::size_t s = 0; s < 3; ++s)
      k.statistics_3b.data()[s * k.b + i] = k.kind == kind::dapo || count == 0.0 ? statistics[s] : statistics[s] / count;
  }
}

}  // namespace xtrain
