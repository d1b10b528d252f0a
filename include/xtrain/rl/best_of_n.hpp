// Rejection sampling: the best of several answers per prompt, as data for supervised fine-tuning.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/rl/completions.hpp>

namespace xtrain {

/// Settings of best_of_n.
struct best_of_n_config {
  std::size_t n = 8;  ///< answers per prompt
  std::size_t max_completion_length = 256;
  sampling_config sampling = {.temperature = 1.0};
  std::vector<token> stop = {};  ///< each ends an answer and is its last target
  /// Answers with a smaller reward are omitted.
  double min_reward = -std::numeric_limits<double>::infinity();
};

/// The answer with the highest reward per prompt, in order; ties: the first. Omitted: prompts with only NaN rewards, rewards below min_reward, or empty
/// answers.                      [Dong et al. 2023, "RAFT"; Touvron et al. 2023, "Llama 2", 3.2.3]
///   reward   double(prompt, answer), or std::vector<double>(std::span<const completion>)
///   throws   config_error, data_error
template <class Model, class Reward>
[[nodiscard]] std::vector<completion> best_of_n(generator<Model>& from, std::span<const std::vector<token>> prompts, const best_of_n_config& settings,
                                                Reward&& reward) {
  require<config_error>(settings.n > 0 && settings.max_completion_length > 0, "best_of_n: n and max_completion_length must be positive; given ",
                        settings.n, " and ", settings.max_completion_length);
  require<config_error>(settings.n == 1 || settings.sampling.temperature > 0.0, "best_of_n: temperature must be positive: all ", settings.n,
                        " greedy answers would be equal");
  const generate_config how{.max_new_tokens = settings.max_completion_length, .sampling = settings.sampling, .stop = settings.stop};
  constexpr std::size_t prompts_at_once = 64;
  std::vector<completion> best;
  for (std::size_t first = 0; first < prompts.size(); first += prompts_at_once) {
    const auto some = prompts.subspan(first, std::min(prompts_at_once, prompts.size() - first));
    std::vector<completion> all = detail::completions_of(from, some, settings.n, how, 0, first);
    const std::vector<double> rewards = detail::rewards_of(reward, std::span<const completion>(all));
    for (std::size_t group = 0; group < all.size(); group += settings.n) {
      std::size_t chosen = all.size();
      for (std::size_t i = group; i < group + settings.n; ++i) {
        all[i].reward = rewards[i];
        const bool has_targets = !all[i].answer.empty() || all[i].stop >= 0;
        if (has_targets && rewards[i] >= settings.min_reward && (chosen == all.size() || rewards[i] > rewards[chosen])) chosen = i;
      }
      if (chosen < all.size()) best.push_back(std::move(all[chosen]));
    }
  }
  return best;
}

/// Data for supervised fine-tuning: targets are the answers' tokens with their end token.
///   throws  data_error when there are no answers
[[nodiscard]] inline dataset dataset_of(std::span<const completion> answers, sequence_layout layout = sequence_layout::separate) {
  dataset data("completions", layout);
  for (const completion& one : answers) {
    const std::vector<token> tokens = one.tokens();
    data.add(tokens, [&](std::size_t i) { return i >= one.prompt.size(); });
  }
  data.finish();
  return data;
}

}  // namespace xtrain
