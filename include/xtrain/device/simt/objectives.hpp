// Objectives over sequences: sums by a block per sequence, then a thread per pair, answer or token, in double.
#pragma once

#include <cmath>
#include <cstddef>

#include <xtrain/device/kernel/grpo.hpp>
#include <xtrain/device/kernel/preference.hpp>
#include <xtrain/device/kernel/value_loss.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/split_loss.hpp>

namespace xtrain {

namespace simt {

XTRAIN_SIMT_FN double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }
XTRAIN_SIMT_FN double log_sigmoid(double x) { return smaller(x, 0.0) - ::log1p(::exp(-::fabs(x))); }

struct sequence_sums_rows {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<double, threads> parts;
  };
  const float* loss;
  const token* target;
  double *logp, *count;
  std::size_t t, v;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const std::size_t first = static_cast<std::size_t>(block_x()) * t;
    double sum = 0, targets = 0;
    for (auto j = static_cast<std::size_t>(thread()); j < t; j += threads) {
      if (!is_inside(target[first + j], v)) continue;
      sum += static_cast<double>(loss[first + j]);
      targets += 1.0;
    }
    sum = block_sum<threads>(sum, s.parts);
    targets = block_sum<threads>(targets, s.parts);
    if (thread() == 0) logp[block_x()] = -sum, count[block_x()] = targets;
  }
};

template <class M>
struct preference_work {
  kernel::preference_loss<M> k;

  XTRAIN_SIMT_FN double log_ratio(std::size_t j) const {
    return k.logp_b.raw()[j] - (k.reference_b.empty() ? 0.0 : k.reference_b.raw()[j]);
  }
  XTRAIN_SIMT_FN double length(std::size_t j) const { return k.average_log_probs ? larger(k.count_b.raw()[j], 1.0) : 1.0; }
  XTRAIN_SIMT_FN double log_prob(std::size_t j) const { return smaller(log_ratio(j) / length(j), -1e-10); }
  XTRAIN_SIMT_FN double log_odds(std::size_t j) const { return log_prob(j) - ::log(-::expm1(log_prob(j))); }
  XTRAIN_SIMT_FN double reward(std::size_t j) const {
    return k.beta * log_ratio(j) / (k.average_rewards ? larger(k.count_b.raw()[j], 1.0) : 1.0);
  }

  XTRAIN_SIMT_FN void operator()(std::size_t i) const {
    using kind = kernel::preference_kind;
    const double e = k.label_smoothing;
    const std::size_t chosen = 2 * i, rejected = 2 * i + 1;
    double* const statistics = k.statistics_4p.raw();
    if (k.count_b.raw()[chosen] == 0.0 && k.count_b.raw()[rejected] == 0.0) {
      k.loss_p.raw()[i] = k.dlogp_b.raw()[chosen] = k.dlogp_b.raw()[rejected] = 0.0;
      for (std::size_t s = 0; s < 4 && statistics != nullptr; ++s) statistics[s * k.pairs + i] = 0.0;
      return;
    }
    const double delta = log_ratio(chosen) / length(chosen) - log_ratio(rejected) / length(rejected), h = k.beta * delta - k.margin;
    double loss = 0, ddelta = 0, dchosen = 0, drejected = 0;
    if (k.kind == kind::sigmoid) {
      loss = -(1.0 - e) * log_sigmoid(h) - e * log_sigmoid(-h);
      ddelta = k.beta * (-(1.0 - e) * sigmoid(-h) + e * sigmoid(h));
    } else if (k.kind == kind::robust) {
      loss = (-(1.0 - e) * log_sigmoid(h) + e * log_sigmoid(-h)) / (1.0 - 2.0 * e);
      ddelta = k.beta * (-(1.0 - e) * sigmoid(-h) - e * sigmoid(h)) / (1.0 - 2.0 * e);
    } else if (k.kind == kind::hinge) {
      loss = larger(0.0, 1.0 - h);
      ddelta = h < 1.0 ? -k.beta : 0.0;
    } else if (k.kind == kind::odds_ratio) {
      const double ratio = log_odds(chosen) - log_odds(rejected);
      loss = -k.beta * log_sigmoid(ratio);
      // forward: log_odds = x − log(1 − exp(x))
      dchosen = -k.beta * sigmoid(-ratio) / -::expm1(log_prob(chosen));
      drejected = k.beta * sigmoid(-ratio) / -::expm1(log_prob(rejected));
    } else {
      const double error = delta - 1.0 / (2.0 * k.beta);
      loss = error * error;
      ddelta = 2.0 * error;
    }
    const double targets = larger(k.count_b.raw()[chosen], 1.0), both = log_ratio(chosen) + log_ratio(rejected);
    k.loss_p.raw()[i] = loss - k.nll_weight * k.logp_b.raw()[chosen] / targets + k.center * both * both;
    // forward: Δ = r_chosen / length − r_rejected / length
    k.dlogp_b.raw()[chosen] = (ddelta + dchosen) / length(chosen) - k.nll_weight / targets + 2.0 * k.center * both;
    k.dlogp_b.raw()[rejected] = (drejected - ddelta) / length(rejected) + 2.0 * k.center * both;
    if (statistics == nullptr) return;
    const double chosen_reward = reward(chosen), rejected_reward = reward(rejected);
    statistics[i] = chosen_reward;
    statistics[k.pairs + i] = rejected_reward;
    statistics[2 * k.pairs + i] = chosen_reward - rejected_reward;
    statistics[3 * k.pairs + i] = chosen_reward > rejected_reward ? 1.0 : 0.0;
  }
};

/// One block: the divergence is a mean over all answers.
template <class M>
struct kto_block {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<double, threads> parts;
  };
  kernel::kto_loss<M> k;

  XTRAIN_SIMT_FN double log_ratio(std::size_t j) const {
    return k.logp_b.raw()[j] - (k.reference_b.empty() ? 0.0 : k.reference_b.raw()[j]);
  }
  XTRAIN_SIMT_FN void operator()(shared& s) const {
    double sum = 0, count = 0;
    for (auto i = static_cast<std::size_t>(thread()); k.estimates_kl && i < k.answers; i += threads) {
      if (k.count_b.raw()[2 * i + 1] == 0.0) continue;
      sum += log_ratio(2 * i + 1);
      count += 1.0;
    }
    sum = block_sum<threads>(sum, s.parts);
    count = block_sum<threads>(count, s.parts);
    const double z = count > 0.0 ? larger(0.0, sum / count) : 0.0;
    double* const statistics = k.statistics_4e.raw();
    for (auto i = static_cast<std::size_t>(thread()); i < k.answers; i += threads) {
      const bool counts = k.count_b.raw()[2 * i] > 0.0, is_desirable = k.label_b.raw()[2 * i] > 0;
      const double weight = is_desirable ? k.desirable_weight : k.undesirable_weight, sign = is_desirable ? 1.0 : -1.0;
      const double u = sign * k.beta * (log_ratio(2 * i) - z);
      k.loss_e.raw()[i] = counts ? weight * (1.0 - sigmoid(u)) : 0.0;
      k.dlogp_b.raw()[2 * i] = counts ? -weight * sigmoid(u) * sigmoid(-u) * sign * k.beta : 0.0;
      k.dlogp_b.raw()[2 * i + 1] = 0.0;
      if (statistics == nullptr) continue;
      const double reward = k.beta * log_ratio(2 * i);
      statistics[i] = counts && is_desirable ? reward : 0.0;
      statistics[k.answers + i] = counts && !is_desirable ? reward : 0.0;
      statistics[2 * k.answers + i] = counts ? z : 0.0;
      statistics[3 * k.answers + i] = counts && is_desirable ? 1.0 : 0.0;
    }
  }
};

template <class M>
struct sequence_weights_work {
  kernel::sequence_weights<M, float> k;
  XTRAIN_SIMT_FN void operator()(std::size_t j) const {
    const std::size_t sequence = j / k.t;
    if (!k.token_weight_n.empty())
      k.token_weight_n.raw()[j] = is_inside(k.target_n.raw()[j], k.v) ? static_cast<float>(-k.dlogp_b.raw()[sequence]) : 0.0f;
    if (k.loss_n.empty()) return;
    const bool has_loss = !k.loss_g.empty() && j % k.t == 0 && sequence % (k.b / k.losses) == 0;
    k.loss_n.raw()[j] = has_loss ? static_cast<float>(k.loss_g.raw()[sequence / (k.b / k.losses)]) : 0.0f;
  }
};

template <class M, class T>
struct score_gradients_work {
  kernel::score_gradients<M, T> k;
  XTRAIN_SIMT_FN void operator()(std::size_t i) const {
    const double scale = k.gradient_factor_1.empty() ? k.gradient_scale : k.gradient_scale * *k.gradient_factor_1.raw();
    k.dlogit_b.raw()[i] = static_cast<T>(k.dscore_b.raw()[i] * scale);
  }
};

template <class M>
struct value_work {
  kernel::value_loss<M> k;
  XTRAIN_SIMT_FN void operator()(std::size_t i) const {
    const bool exists = k.token_n.raw()[i] >= 0;
    const double value = k.value_n.raw()[i], old = k.old_n.raw()[i], wanted = k.return_n.raw()[i];
    const double clipped = smaller(larger(value, old - k.epsilon), old + k.epsilon);
    const double plain = (value - wanted) * (value - wanted), of_clipped = (clipped - wanted) * (clipped - wanted);
    k.loss_n.raw()[i] = exists ? 0.5 * larger(plain, of_clipped) : 0.0;
    // forward: loss = ½ · max(plain, of_clipped); the second is constant outside its bounds
    k.dvalue_n.raw()[i] = !exists || of_clipped > plain ? 0.0 : value - wanted;
    k.is_clipped_n.raw()[i] = exists && of_clipped > plain ? 1.0 : 0.0;
  }
};

template <class M>
struct grpo_rows {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<double, threads> parts;
  };
  kernel::grpo_loss<M, float> k;

  XTRAIN_SIMT_FN double log_ratio(std::size_t j) const {
    return k.old_n.empty() ? 0.0 : -static_cast<double>(k.loss_n.raw()[j]) - static_cast<double>(k.old_n.raw()[j]);
  }
  XTRAIN_SIMT_FN void operator()(shared& s) const {
    using kind = kernel::grpo_kind;
    const auto i = static_cast<std::size_t>(block_x());
    const std::size_t begin = i * k.t, end = begin + k.t;
    const double advantage = k.advantage_b.raw()[i];
    double count = 0, mean_log_ratio = 0;
    for (std::size_t j = begin + static_cast<std::size_t>(thread()); j < end; j += threads) {
      if (!is_inside(k.target_n.raw()[j], k.v)) continue;
      count += 1.0;
      mean_log_ratio += log_ratio(j);
    }
    count = block_sum<threads>(count, s.parts);
    mean_log_ratio = block_sum<threads>(mean_log_ratio, s.parts);
    if (count > 0.0) mean_log_ratio /= count;
    double loss = 0, sum_kl = 0, below = 0, above = 0;
    for (std::size_t j = begin + static_cast<std::size_t>(thread()); j < end; j += threads) {
      const bool is_target = is_inside(k.target_n.raw()[j], k.v);
      if (!is_target) {
        if (!k.weight_n.empty()) k.weight_n.raw()[j] = 0.0f;
        continue;
      }
      const double w = k.kind == kind::grpo ? 1.0 / count : k.kind == kind::dapo ? 1.0 : 1.0 / k.max_completion_length;
      const double ratio = ::exp(k.sequence_ratio ? mean_log_ratio : log_ratio(j));
      const double clipped = smaller(larger(ratio, 1.0 - k.epsilon_low), 1.0 + k.epsilon_high);
      double of_token = 0, dlogp = 0;
      if (advantage != 0.0) {
        of_token = -smaller(ratio * advantage, clipped * advantage);
        // forward: ratio = exp(log p − old); with sequence_ratio each of count losses depends on count log p, by 1 / count each
        dlogp = ratio * advantage <= clipped * advantage ? -ratio * advantage : 0.0;
      }
      if (k.beta != 0.0) {
        const double difference = static_cast<double>(k.reference_n.raw()[j]) + static_cast<double>(k.loss_n.raw()[j]);
        const double kl = ::exp(difference) - difference - 1.0;
        of_token += k.beta * kl;
        dlogp += k.beta * (1.0 - ::exp(difference));
        sum_kl += kl;
      }
      loss += w * of_token;
      if (!k.weight_n.empty()) k.weight_n.raw()[j] = static_cast<float>(-w * dlogp);
      below += ratio < 1.0 - k.epsilon_low && advantage < 0.0 ? 1.0 : 0.0;
      above += ratio > 1.0 + k.epsilon_high && advantage > 0.0 ? 1.0 : 0.0;
    }
    loss = block_sum<threads>(loss, s.parts);
    sum_kl = block_sum<threads>(sum_kl, s.parts);
    below = block_sum<threads>(below, s.parts);
    above = block_sum<threads>(above, s.parts);
    if (thread() != 0) return;
    const double divisor = k.kind == kind::dapo || count == 0.0 ? 1.0 : count;
    k.loss_b.raw()[i] = loss;
    k.statistics_3b.raw()[i] = sum_kl / divisor;
    k.statistics_3b.raw()[k.b + i] = below / divisor;
    k.statistics_3b.raw()[2 * k.b + i] = above / divisor;
  }
};

}  // namespace simt

template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::sequence_sums<M, float>& k, scratch_span<M>) {
  kernel::check_arity<7>(k);
  simt::launch_rows(stream, simt::sequence_sums_rows{k.loss_n.raw(), k.target_n.raw(), k.logp_b.raw(), k.count_b.raw(), k.t, k.v}, k.b);
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::preference_loss<M>& k, scratch_span<M>) {
  kernel::check_arity<15>(k);
  simt::launch_items(stream, simt::preference_work<M>{k}, k.pairs);
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::kto_loss<M>& k, scratch_span<M>) {
  kernel::check_arity<12>(k);
  if (k.answers > 0) stream.launch(simt::kto_block<M>{k}, {1, 1, 1});
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::sequence_weights<M, float>& k, scratch_span<M>) {
  kernel::check_arity<9>(k);
  simt::launch_items(stream, simt::sequence_weights_work<M>{k}, k.b * k.t);
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::score_gradients<M, T>& k, scratch_span<M>) {
  kernel::check_arity<5>(k);
  simt::launch_items(stream, simt::score_gradients_work<M, T>{k}, k.b);
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::value_loss<M>& k, scratch_span<M>) {
  kernel::check_arity<9>(k);
  simt::launch_items(stream, simt::value_work<M>{k}, k.n);
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::grpo_loss<M, float>& k, scratch_span<M>) {
  kernel::check_arity<17>(k);
  simt::launch_rows(stream, simt::grpo_rows<M>{k}, k.b);
}

}  // namespace xtrain
