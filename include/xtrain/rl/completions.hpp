// Several answers per prompt, and rewards.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/generate/generator.hpp>

namespace xtrain {

/// An answer of the model.
struct completion {
  std::vector<token> prompt{};
  std::vector<token> answer{};  ///< without the end token
  token stop = -1;              ///< end token; negative: cut off at maximum length
  double reward = 0;
  double advantage = 0;

  /// Prompt, answer, end token.
  [[nodiscard]] std::vector<token> tokens() const {
    std::vector<token> all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    if (stop >= 0) all.push_back(stop);
    return all;
  }
};

namespace detail {

/// A reward takes a prompt and an answer, or a batch of answers.
template <class Reward>
inline constexpr bool rewards_batches = std::is_invocable_r_v<std::vector<double>, Reward&, std::span<const completion>>;
template <class Reward>
inline constexpr bool is_reward =
    rewards_batches<Reward> || std::is_invocable_r_v<double, Reward&, const std::vector<token>&, const std::vector<token>&>;

/// throws data_error when a batch function returns another number of rewards
template <class Reward>
[[nodiscard]] std::vector<double> rewards_of(Reward& reward, std::span<const completion> all) {
  static_assert(is_reward<Reward>, "xtrain reward: it must be a function of (prompt, answer), vectors of tokens, that returns a double, or of a "
                "std::span<const completion> that returns a std::vector<double>; see rl/README.md");
  std::vector<double> rewards;
  if constexpr (rewards_batches<Reward>) {
    rewards = reward(all);
    require<data_error>(rewards.size() == all.size(), "reward: there must be one for each of the ", all.size(), " answers; given ", rewards.size());
  } else {
    for (const completion& one : all) rewards.push_back(reward(one.prompt, one.answer));
  }
  return rewards;
}

/// `answers` answers per prompt, in order. Random numbers are a function of seed, `step` and the answer's index over all prompts, not of the rank.
///   settings       `stop`: the token is generated and stored in completion::stop
///   first_prompt   index of the first prompt
///   throws         data_error for a prompt that the model cannot continue
template <class Model>
[[nodiscard]] std::vector<completion> completions_of(generator<Model>& from, std::span<const std::vector<token>> prompts, std::size_t answers,
                                                     generate_config settings, std::uint32_t step, std::size_t first_prompt) {
  const auto words = random_quad({.seed = settings.sampling.seed, .step = step, .site = site_of_name("completions")}, 0);
  settings.sampling.seed = std::uint64_t{words[0]} << 32 | words[1];
  settings.first_sequence = first_prompt * answers;
  const std::vector<token> stop = std::exchange(settings.stop, {});
  const auto is_stop = [&](token t) { return std::find(stop.begin(), stop.end(), t) != stop.end(); };
  settings.on_token = [&](std::size_t, token t) { return !is_stop(t); };
  std::vector<std::vector<token>> repeated;
  for (const auto& prompt : prompts) repeated.insert(repeated.end(), answers, prompt);
  std::vector<completion> all;
  for (std::vector<token>& tokens : from.generate(std::span<const std::vector<token>>(repeated), settings)) {
    completion one{.prompt = std::move(repeated[all.size()]), .answer = std::move(tokens)};
    if (!one.answer.empty() && is_stop(one.answer.back())) {
      one.stop = one.answer.back();
      one.answer.pop_back();
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace detail

}  // namespace xtrain
