#pragma once

#include <algorithm>
#include <cmath>

#include <xtrain/device/kernel/preference.hpp>
#include <xtrain/device/reference/embedding.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class A>
void run_kernel(reference_stream&, const kernel::sequence_sums<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  for (std::size_t i = 0; i < k.b; ++i) {
    double sum = 0.0, count = 0.0;
    for (std::size_t j = i * k.t; j < (i + 1) * k.t; ++j) {
      if (!detail::inside(k.target_n.data()[j], k.v)) continue;
      sum += static_cast<double>(k.loss_n.data()[j]);
      count += 1.0;
    }
    k.logp_b.data()[i] = -sum;
    k.count_b.data()[i] = count;
  }
}

inline void run_kernel(reference_stream&, const kernel::preference_loss<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  using kind = kernel::preference_kind;
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  const auto log_sigmoid = [](double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); };
  const double e = k.label_smoothing;
  for (std::size_t i = 0; i < k.pairs; ++i) {
    const auto log_ratio = [&](std::size_t j) { return k.logp_b.data()[j] - (k.reference_b.empty() ? 0.0 : k.reference_b.data()[j]); };
    const auto length = [&](std::size_t j) { return k.average_log_probs ? std::max(k.count_b.data()[j], 1.0) : 1.0; };
    const std::size_t chosen = 2 * i, rejected = 2 * i + 1;
    if (k.count_b.data()[chosen] == 0.0 && k.count_b.data()[rejected] == 0.0) {
      k.loss_p.data()[i] = k.dlogp_b.data()[chosen] = k.dlogp_b.data()[rejected] = 0.0;
      for (std::size_t s = 0; s < 4 && !k.statistics_4p.empty(); ++s) k.statistics_4p.data()[s * k.pairs + i] = 0.0;
      continue;
    }
    const double delta = log_ratio(chosen) / length(chosen) - log_ratio(rejected) / length(rejected);
    const double h = k.beta * delta - k.margin;
    double loss = 0.0, ddelta = 0.0;  // ddelta = ∂loss / ∂Δ
    double dchosen = 0.0, drejected = 0.0;  // by r_chosen / length and r_rejected / length
    if (k.kind == kind::sigmoid) {
      loss = -(1.0 - e) * log_sigmoid(h) - e * log_sigmoid(-h);
      ddelta = k.beta * (-(1.0 - e) * sigmoid(-h) + e * sigmoid(h));
    } else if (k.kind == kind::robust) {
      loss = (-(1.0 - e) * log_sigmoid(h) + e * log_sigmoid(-h)) / (1.0 - 2.0 * e);
      ddelta = k.beta * (-(1.0 - e) * sigmoid(-h) - e * sigmoid(h)) / (1.0 - 2.0 * e);
    } else if (k.kind == kind::hinge) {
      loss = std::max(0.0, 1.0 - h);
      ddelta = h < 1.0 ? -k.beta : 0.0;
    } else if (k.kind == kind::odds_ratio) {
      const auto log_prob = [&](std::size_t j) { return std::min(log_ratio(j) / length(j), -1e-10); };
      const auto log_odds = [&](std::size_t j) { return log_prob(j) - std::log(-std::expm1(log_prob(j))); };
      const double ratio = log_odds(chosen) - log_odds(rejected);
      loss = -k.beta * log_sigmoid(ratio);
      // forward: log_odds = x − log(1 − exp(x))
      dchosen = -k.beta * sigmoid(-ratio) / -std::expm1(log_prob(chosen));
      drejected = k.beta * sigmoid(-ratio) / -std::expm1(log_prob(rejected));
    } else {
      const double error = delta - 1.0 / (2.0 * k.beta);
      loss = error * error;
      ddelta = 2.0 * error;
    }
    const double targets = std::max(k.count_b.data()[chosen], 1.0), both = log_ratio(chosen) + log_ratio(rejected);
    k.loss_p.data()[i] = loss - k.nll_weight * k.logp_b.data()[chosen] / targets + k.center * both * both;
    // forward: Δ = r_chosen / length − r_rejected / length
    k.dlogp_b.data()[chosen] = (ddelta + dchosen) / length(chosen) - k.nll_weight / targets + 2.0 * k.center * both;
    k.dlogp_b.data()[rejected] = (drejected - ddelta) / length(rejected) + 2.0 * k.center * both;
    if (k.statistics_4p.empty()) continue;
    const auto reward = [&](std::size_t j) { return k.beta * log_ratio(j) / (k.average_rewards ? std::max(k.count_b.data()[j], 1.0) : 1.0); };
    const double chosen_reward = reward(chosen), rejected_reward = reward(rejected);
    k.statistics_4p.data()[i] = chosen_reward;
    k.statistics_4p.data()[k.pairs + i] = rejected_reward;
    k.statistics_4p.data()[2 * k.pairs + i] = chosen_reward - rejected_reward;
    k.statistics_4p.data()[3 * k.pairs + i] = chosen_reward > rejected_reward ? 1.0 : 0.0;
  }
}

inline void run_kernel(reference_stream&, const kernel::kto_loss<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  const auto log_ratio = [&](std::size_t j) { return k.logp_b.data()[j] - (k.reference_b.empty() ? 0.0 : k.reference_b.data()[j]); };
  double sum = 0.0, count = 0.0;
  for (std::size_t i = 0; i < k.answers; ++i) {
    if (!k.estimates_kl || k.count_b.data()[2 * i + 1] == 0.0) continue;
    sum += log_ratio(2 * i + 1);
    count += 1.0;
  }
  const double z = count > 0.0 ? std::max(0.0, sum / count) : 0.0;
  for (std::size_t i = 0; i < k.answers; ++i) {
    const bool counts = k.count_b.data()[2 * i] > 0.0, is_desirable = k.label_b.data()[2 * i] > 0;
    const double weight = is_desirable ? k.desirable_weight : k.undesirable_weight, sign = is_desirable ? 1.0 : -1.0;
    const double u = sign * k.beta * (log_ratio(2 * i) - z);
    k.loss_e.data()[i] = counts ? weight * (1.0 - sigmoid(u)) : 0.0;
    k.dlogp_b.data()[2 * i] = counts ? -weight * sigmoid(u) * sigmoid(-u) * sign * k.beta : 0.0;
    k.dlogp_b.data()[2 * i + 1] = 0.0;
    if (k.statistics_4e.empty()) continue;
    const double reward = k.beta * log_ratio(2 * i);
    k.statistics_4e.data()[i] = counts && is_desirable ? reward : 0.0;
    k.statistics_4e.data()[k.answers + i] = counts && !is_desirable ? reward : 0.0;
    k.statistics_4e.data()[2 * k.answers + i] = counts ? z : 0.0;
    k.statistics_4e.data()[3 * k.answers + i] = counts && is_desirable ? 1.0 : 0.0;
  }
}

template <class A>
void run_kernel(reference_stream&, const kernel::sequence_weights<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  for (std::size_t j = 0; j < k.b * k.t; ++j) {
    const std::size_t sequence = j / k.t;
    if (!k.token_weight_n.empty())
      k.token_weight_n.data()[j] = detail::inside(k.target_n.data()[j], k.v) ? static_cast<A>(-k.dlogp_b.data()[sequence]) : A{0};
    if (k.loss_n.empty()) continue;
    const bool has_loss = !k.loss_g.empty() && j % k.t == 0 && sequence % (k.b / k.losses) == 0;
    k.loss_n.data()[j] = has_loss ? static_cast<A>(k.loss_g.data()[sequence / (k.b / k.losses)]) : A{0};
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::score_gradients<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  for (std::size_t i = 0; i < k.b; ++i) k.dlogit_b.data()[i] = static_cast<T>(k.dscore_b.data()[i] * kernel::gradient_scale_of(k));
}

}  // namespace xtrain
