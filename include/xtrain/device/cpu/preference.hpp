// Objectives over sequences: a few values each; a sequence or pair per part where tokens are looped over.
#pragma once

#include <algorithm>
#include <cmath>

#include <xtrain/device/cpu/embedding.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/preference.hpp>

namespace xtrain {

namespace cpu_kernels {

/// A loss and its derivative.
struct loss_and_slope {
  double loss = 0.0, slope = 0.0;
};

/// −log σ(h)
[[nodiscard]] inline loss_and_slope logistic_loss(double h) {
  // from the exponential that does not overflow
  const double small = std::exp(-std::abs(h));
  return {std::max(-h, 0.0) + std::log1p(small), -(h < 0.0 ? 1.0 : small) / (1.0 + small)};
}

/// Log-odds of a log-probability, with derivative.
[[nodiscard]] inline loss_and_slope log_odds(double log_p) {
  const double x = std::min(log_p, -1e-10), others = -std::expm1(x);
  return {x - std::log(others), 1.0 / others};
}

/// As a function of Δ; not for odds_ratio.
[[nodiscard]] inline loss_and_slope pair_loss(const kernel::preference_loss<host_memory>& k, double delta) {
  using kind = kernel::preference_kind;
  if (k.kind == kind::ipo) {
    const double error = delta - 0.5 / k.beta;
    return {error * error, 2.0 * error};
  }
  const double h = k.beta * delta - k.margin;
  if (k.kind == kind::hinge) return h < 1.0 ? loss_and_slope{1.0 - h, -k.beta} : loss_and_slope{};
  const bool is_robust = k.kind == kind::robust;
  const double right = (1.0 - k.label_smoothing) / (is_robust ? 1.0 - 2.0 * k.label_smoothing : 1.0);
  const double wrong = is_robust ? 1.0 - right : k.label_smoothing;
  const loss_and_slope as_labeled = logistic_loss(h), flipped = logistic_loss(-h);
  return {right * as_labeled.loss + wrong * flipped.loss, k.beta * (right * as_labeled.slope - wrong * flipped.slope)};
}

}  // namespace cpu_kernels

template <class A>
void run_native(cpu_stream& stream, const kernel::sequence_sums<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  stream.parallel_ranges(k.b, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const A* loss = k.loss_n.raw() + i * k.t;
      const token* target = k.target_n.raw() + i * k.t;
      double logp = 0.0;
      std::size_t count = 0;
      for (std::size_t j = 0; j < k.t; ++j) {
        if (!cpu_kernels::in_table(target[j], k.v)) continue;
        logp -= static_cast<double>(loss[j]);
        ++count;
      }
      k.logp_b.raw()[i] = logp;
      k.count_b.raw()[i] = static_cast<double>(count);
    }
  });
}

inline void run_native(cpu_stream&, const kernel::preference_loss<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  for (std::size_t i = 0; i < k.pairs; ++i) {
    const double *logp = k.logp_b.raw() + 2 * i, *count = k.count_b.raw() + 2 * i;
    double* const statistics = k.statistics_4p.empty() ? nullptr : k.statistics_4p.raw() + i;
    if (count[0] == 0.0 && count[1] == 0.0) {
      k.loss_p.raw()[i] = k.dlogp_b.raw()[2 * i] = k.dlogp_b.raw()[2 * i + 1] = 0.0;
      for (std::size_t s = 0; s < 4 && statistics != nullptr; ++s) statistics[s * k.pairs] = 0.0;
      continue;
    }
    const double chosen = logp[0] - (k.reference_b.empty() ? 0.0 : k.reference_b.raw()[2 * i]);
    const double rejected = logp[1] - (k.reference_b.empty() ? 0.0 : k.reference_b.raw()[2 * i + 1]);
    const double chosen_length = k.average_log_probs ? std::max(count[0], 1.0) : 1.0;
    const double rejected_length = k.average_log_probs ? std::max(count[1], 1.0) : 1.0;
    double* const dlogp = k.dlogp_b.raw() + 2 * i;
    if (k.kind == kernel::preference_kind::odds_ratio) {
      const cpu_kernels::loss_and_slope of_chosen = cpu_kernels::log_odds(chosen / chosen_length);
      const cpu_kernels::loss_and_slope of_rejected = cpu_kernels::log_odds(rejected / rejected_length);
      const auto [loss, slope] = cpu_kernels::logistic_loss(of_chosen.loss - of_rejected.loss);
      k.loss_p.raw()[i] = k.beta * loss;
      dlogp[0] = k.beta * slope * of_chosen.slope / chosen_length;
      dlogp[1] = -k.beta * slope * of_rejected.slope / rejected_length;
    } else {
      const auto [loss, slope] = cpu_kernels::pair_loss(k, chosen / chosen_length - rejected / rejected_length);
      k.loss_p.raw()[i] = loss;
      dlogp[0] = slope / chosen_length;
      dlogp[1] = -slope / rejected_length;
    }
    if (k.nll_weight != 0.0) {
      const double targets = std::max(count[0], 1.0);
      k.loss_p.raw()[i] -= k.nll_weight * logp[0] / targets;
      dlogp[0] -= k.nll_weight / targets;
    }
    if (k.center != 0.0) {
      const double both = chosen + rejected;
      k.loss_p.raw()[i] += k.center * both * both;
      dlogp[0] += 2.0 * k.center * both;
      dlogp[1] += 2.0 * k.center * both;
    }
    if (statistics == nullptr) continue;
    const double chosen_reward = k.beta * (k.average_rewards ? chosen / std::max(count[0], 1.0) : chosen);
    const double rejected_reward = k.beta * (k.average_rewards ? rejected / std::max(count[1], 1.0) : rejected);
    statistics[0] = chosen_reward;
    statistics[k.pairs] = rejected_reward;
    statistics[2 * k.pairs] = chosen_reward - rejected_reward;
    statistics[3 * k.pairs] = chosen_reward > rejected_reward ? 1.0 : 0.0;
  }
}

inline void run_native(cpu_stream&, const kernel::kto_loss<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  const double *logp = k.logp_b.raw(), *count = k.count_b.raw(), *reference = k.reference_b.empty() ? nullptr : k.reference_b.raw();
  const auto log_ratio = [&](std::size_t j) { return logp[j] - (reference == nullptr ? 0.0 : reference[j]); };
  double z = 0.0;
  if (k.estimates_kl) {
    std::size_t others = 0;
    for (std::size_t j = 1; j < 2 * k.answers; j += 2) {
      if (count[j] == 0.0) continue;
      z += log_ratio(j);
      ++others;
    }
    z = others > 0 ? std::max(0.0, z / static_cast<double>(others)) : 0.0;
  }
  for (std::size_t i = 0; i < k.answers; ++i) {
    double* const statistics = k.statistics_4e.empty() ? nullptr : k.statistics_4e.raw() + i;
    double* const dlogp = k.dlogp_b.raw() + 2 * i;
    k.loss_e.raw()[i] = dlogp[0] = dlogp[1] = 0.0;
    for (std::size_t s = 0; s < 4 && statistics != nullptr; ++s) statistics[s * k.answers] = 0.0;
    if (count[2 * i] == 0.0) continue;
    const bool is_desirable = k.label_b.raw()[2 * i] > 0;
    const double r = log_ratio(2 * i), weight = is_desirable ? k.desirable_weight : k.undesirable_weight;
    const double u = k.beta * (is_desirable ? r - z : z - r);
    // from the exponential that does not overflow
    const double small = std::exp(-std::abs(u)), slope = weight * k.beta * small / ((1.0 + small) * (1.0 + small));
    k.loss_e.raw()[i] = weight * (u < 0.0 ? 1.0 : small) / (1.0 + small);
    dlogp[0] = is_desirable ? -slope : slope;
    if (statistics == nullptr) continue;
    statistics[is_desirable ? 0 : k.answers] = k.beta * r;
    statistics[2 * k.answers] = z;
    statistics[3 * k.answers] = is_desirable ? 1.0 : 0.0;
  }
}

template <class A>
void run_native(cpu_stream& stream, const kernel::sequence_weights<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  stream.parallel_ranges(k.b, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (!k.token_weight_n.empty()) {
        const token* target = k.target_n.raw() + i * k.t;
        const A weight = static_cast<A>(-k.dlogp_b.raw()[i]);
        A* const weights = k.token_weight_n.raw() + i * k.t;
        for (std::size_t j = 0; j < k.t; ++j) weights[j] = cpu_kernels::in_table(target[j], k.v) ? weight : A{0};
      }
      if (k.loss_n.empty()) continue;
      std::fill_n(k.loss_n.raw() + i * k.t, k.t, A{0});
      if (k.loss_g.empty() || k.t == 0) continue;
      const std::size_t group = k.b / k.losses;
      if (i % group == 0) k.loss_n.raw()[i * k.t] = static_cast<A>(k.loss_g.raw()[i / group]);
    }
  });
}

template <class T>
void run_native(cpu_stream&, const kernel::score_gradients<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  const double scale = kernel::gradient_scale_of(k);
  for (std::size_t i = 0; i < k.b; ++i) k.dlogit_b.raw()[i] = static_cast<T>(k.dscore_b.raw()[i] * scale);
}

}  // namespace xtrain
