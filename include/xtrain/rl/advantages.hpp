// Advantages: rewards compared within a group of answers, or with predicted values per token.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// Mean and standard deviation (n − 1) of a group's rewards, without NaN (no reward).
struct reward_statistics {
  double mean = 0, deviation = 0;
  std::size_t answers = 0;  ///< with a reward

  explicit reward_statistics(std::span<const double> rewards) {
    for (const double reward : rewards) {
      if (std::isnan(reward)) continue;
      mean += reward;
      ++answers;
    }
    if (answers > 0) mean /= static_cast<double>(answers);
    double squares = 0;
    for (const double reward : rewards)
      if (!std::isnan(reward)) squares += (reward - mean) * (reward - mean);
    if (answers > 1) deviation = std::sqrt(squares / static_cast<double>(answers - 1));
  }
};

/// advantage = (reward − group mean) / (group standard deviation + 1e-4), or without the division.
///                                                       [Shao et al. 2024, "DeepSeekMath", section 4.1.2; without: Liu et al. 2025, "Dr. GRPO"]
/// As trl's GRPOTrainer with scale_rewards 'group' or 'none'. NaN (no reward): advantage 0.
///   group    consecutive rewards that are compared
///   throws   config_error when `group` does not divide the number of rewards, data_error when a reward is infinite
[[nodiscard]] inline std::vector<double> group_advantages(std::span<const double> rewards, std::size_t group, bool scale_rewards = true) {
  require<config_error>(group > 0 && rewards.size() % group == 0, "group_advantages: rewards must be whole groups of ", group, "; given ",
                        rewards.size());
  for (std::size_t i = 0; i < rewards.size(); ++i)
    require<data_error>(!std::isinf(rewards[i]), "group_advantages: a reward must be finite, or NaN for none; reward ", i, " is ", rewards[i]);
  std::vector<double> advantages;
  for (std::size_t first = 0; first < rewards.size(); first += group) {
    const auto of_group = rewards.subspan(first, group);
    const reward_statistics found(of_group);
    for (const double reward : of_group) {
      const double difference = std::isnan(reward) ? 0.0 : reward - found.mean;
      advantages.push_back(scale_rewards ? difference / (found.deviation + 1e-4) : difference);
    }
  }
  return advantages;
}

/// Token rewards of an answer: −kl_coef · (log p − reference log p); the last token adds the answer's reward.
///                                                                [Ziegler et al. 2019, "Fine-Tuning Language Models from Human Preferences", eq. 2]
///   log_probs, reference_log_probs   per token; the second empty: no reference
[[nodiscard]] inline std::vector<double> token_rewards(double reward, std::span<const float> log_probs, std::span<const float> reference_log_probs,
                                                       double kl_coef) {
  require<config_error>(!log_probs.empty() && (reference_log_probs.empty() || reference_log_probs.size() == log_probs.size()),
                        "token_rewards: an answer must have a token, and log-probabilities by the reference as many as by the model; given ", log_probs.size(),
                        " and ", reference_log_probs.size());
  std::vector<double> rewards(log_probs.size(), 0.0);
  for (std::size_t i = 0; i < reference_log_probs.size(); ++i)
    rewards[i] = -kl_coef * (static_cast<double>(log_probs[i]) - static_cast<double>(reference_log_probs[i]));
  rewards.back() += reward;
  return rewards;
}

/// Per token of an answer.
struct token_advantages {
  std::vector<double> advantages{}, returns{};  // returns: advantage + value, the value's target
};

/// Generalized advantage estimation over an answer's tokens; the value after the last token is 0:
///   delta_i = reward_i + gamma · value_i+1 − value_i,   advantage_i = delta_i + gamma · lambda · advantage_i+1     [Schulman et al. 2016, eq. 16]
[[nodiscard]] inline token_advantages generalized_advantages(std::span<const double> rewards, std::span<const float> values, double gamma, double lambda) {
  require<config_error>(rewards.size() == values.size(), "generalized_advantages: every token must have a reward and a value; given ", rewards.size(), " and ",
                        values.size());
  token_advantages all{.advantages = std::vector<double>(rewards.size()), .returns = std::vector<double>(rewards.size())};
  double advantage = 0.0, next = 0.0;
  for (std::size_t i = rewards.size(); i-- > 0;) {
    const double value = static_cast<double>(values[i]);
    advantage = rewards[i] + gamma * next - value + gamma * lambda * advantage;
    all.advantages[i] = advantage;
    all.returns[i] = advantage + value;
    next = value;
  }
  return all;
}

/// (x − mean) / sqrt(variance + 1e-8) in place, variance over n − 1; a single value becomes 0.             [trl's masked_whiten; torchtune's whiten]
///   all_sum      sums over ranks
///   keeps_mean   adds the mean again (torchtune's estimate_advantages)
template <class AllSum>
void whiten(std::span<double> values, AllSum&& all_sum, bool keeps_mean = false) {
  std::array<double, 2> sums{static_cast<double>(values.size()), 0.0};
  for (const double x : values) sums[1] += x;
  all_sum(std::span<double>(sums));
  const double n = sums[0], mean = n > 0 ? sums[1] / n : 0.0;
  std::array<double, 1> squares{};
  for (const double x : values) squares[0] += (x - mean) * (x - mean);
  all_sum(std::span<double>(squares));
  const double deviation = std::sqrt(squares[0] / std::max(n - 1.0, 1.0) + 1e-8);
  for (double& x : values) x = (x - mean) / deviation + (keeps_mean ? mean : 0.0);
}

}  // namespace xtrain
