// PPO steps equal those of torchtune's recipe ppo_full_finetune_single_device, recorded in tests/golden/ppo_recipe (make_ppo_recipe.py); settings for its
// arithmetic: temperature of log-probabilities, weight of the value loss.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/models/mistral.hpp>
#include <xtrain/train/reward_scorer.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

struct policy_recipe : defaults {
  using objective = ppo;
  using optimizer = sgd;
};
struct value_recipe : defaults {
  using objective = ppo_value;
  using optimizer = sgd;
};
using policy_model = mistral<policy_recipe>;
using value_model = mistral<value_recipe>;

constexpr std::size_t length = 16, longest_answer = 8;
constexpr double penalty = -3.0, kl_coef = 0.2, value_coefficient = 0.3;

// of make_ppo_recipe.py
const std::vector<std::vector<token>> prompts{{1, 17, 5}, {1, 33, 20, 9, 41}, {1, 8}, {1, 50, 51, 12, 30}, {1, 22, 22, 40}, {1, 9, 10, 11, 12, 13},
                                              {1, 44}, {1, 3, 60, 6}};
const std::vector<token> stop{2, 7, 19, 28, 35, 52};

template <class Objective>
[[nodiscard]] training_config<sgd, Objective> settings(const typename Objective::config& objective, std::size_t micro_batch_size = 4) {
  return {.micro_batch_size = micro_batch_size, .gradient_accumulation_steps = 4 / micro_batch_size, .seq_length = length,
          .optimizer = {.momentum = 0.5}, .objective = objective, .max_grad_norm = 0.0};
}

/// A micro-batch with fixed answers.
[[nodiscard]] host_batch batch_of(std::size_t b, std::size_t t) {
  host_batch batch;
  batch.b = b;
  batch.t = t;
  for (std::size_t i = 0; i < b * t; ++i) {
    batch.tokens.push_back(static_cast<token>((i * 37 + 11) % 61));
    batch.positions.push_back(static_cast<token>(i % t));
    batch.starts.push_back(0);
    const bool is_answer = i % t >= 2 + i / t;
    batch.targets.push_back(is_answer ? static_cast<token>((i * 23 + 5) % 61) : -1);
    batch.target_count += is_answer ? 1 : 0;
    batch.advantages.push_back(std::sin(static_cast<double>(i)));
    batch.old_log_probs.push_back(-4.0F);
    batch.old_values.push_back(static_cast<float>(std::cos(static_cast<double>(i))));
    batch.returns.push_back(0.5F);
  }
  batch.token_count = b * t;
  return batch;
}

struct bf16_recipe : policy_recipe {
  using precision = bf16_mixed;
};
struct adapted_recipe : policy_recipe {
  using adapter = lora;
};

/// A model's log-probabilities at a temperature follow from its logits, and the loss falls along its gradient at the expected rate. rounding: of a
/// log-probability; slope: tolerated shortfall of the fall
template <class Recipe>
void check_temperature(const typename mistral<Recipe>::options& options, double rounding, double slope) {
  const host_batch batch = batch_of(2, 9);
  constexpr double temperature = 0.6;
  auto model = mistral<Recipe>::from_pretrained(golden::folder("ppo_recipe") + "/policy", {}, options);
  training_config<sgd, ppo> how = settings<ppo>({.temperature = temperature});
  how.optimizer.momentum = 0.0;
  trainer warm(model, how);
  host_batch near = batch;  // ratios near 1, where the loss is smooth
  const auto values = warm.token_log_probs(batch);
  near.old_log_probs.assign(values.begin(), values.end());
  const auto step = [&](double learning_rate) { return warm.step(std::span<const host_batch>(&near, 1), learning_rate); };
  if constexpr (Recipe::adapter::freezes_weights)
    for (int i = 0; i < 3; ++i) (void)step(0.1);  // an adapter starts without effect
  const std::vector<float> log_probs = warm.token_log_probs(batch);
  const auto all = logits(model, batch);
  for (std::size_t i = 0; i < 18; ++i) {
    const token target = batch.targets[i];
    if (target < 0) continue;
    double sum = 0;
    for (std::size_t k = 0; k < all.shape(2); ++k) sum += std::exp(static_cast<double>(all(i / 9, i % 9, k)) / temperature);
    const double exact = static_cast<double>(all(i / 9, i % 9, static_cast<std::size_t>(target))) / temperature - std::log(sum);
    CHECK(std::abs(static_cast<double>(log_probs[i]) - exact) < rounding);
  }
  constexpr double rate = 1e-3;
  const step_done before = step(rate), after = step(0.0);
  CHECK(before.gradient_norm > 0.1);
  CHECK(before.loss - after.loss == doctest::Approx(rate * before.gradient_norm * before.gradient_norm).epsilon(slope));
}

/// Steps of both models on all prompts, in turn, against the recipe's. prefix: of the fixture's names; batch_size: prompts of a recipe step; PPO batches have
/// four
void compare_with_recipe(const std::string& prefix, std::size_t steps, std::size_t batch_size, std::size_t accumulation, bool shuffle) {
  const std::string folder = golden::folder("ppo_recipe");
  auto model = policy_model::from_pretrained(folder + "/policy"), frozen = policy_model::from_pretrained(folder + "/policy");
  auto critic = value_model::from_pretrained(folder + "/reward"), judge = value_model::from_pretrained(folder + "/reward");
  const auto average = [&](auto of) {
    if (accumulation > 1) of.average_loss = loss_average::micro_batch;
    return of;
  };
  trainer policy(model, average(settings<ppo>({.epsilon_low = 0.15, .epsilon_high = 0.15, .temperature = 0.7}, 4 / accumulation)));
  trainer value(critic, average(settings<ppo_value>({.clip_range = 0.25, .coefficient = value_coefficient}, 4 / accumulation)));
  reference_model reference(frozen, {.micro_batch_size = 4 / accumulation, .seq_length = length, .temperature = 0.7});
  reward_scorer scorer(judge, {.micro_batch_size = 2, .seq_length = length});
  ppo_rollouts player(policy, value,
                      {.max_completion_length = longest_answer,
                       .sampling = {.temperature = 0.7, .top_k = 1},
                       .stop = stop,
                       .num_ppo_epochs = 2,
                       .kl_coef = kl_coef,
                       .gamma = 0.9,
                       .lambda = 0.95,
                       .whitening_keeps_mean = true,
                       .reward_behind_end = true,
                       .shuffle = shuffle,
                       .generation_batch_size = 2});
  player.use_reference(reference);
  const auto reward = [&](std::span<const completion> answers) {
    std::vector<std::vector<token>> texts;
    for (const completion& one : answers) texts.push_back(one.tokens());
    std::vector<double> scores = scorer(texts);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const std::size_t tokens = answers[i].answer.size() + (answers[i].stop >= 0 ? 1 : 0);
      if (tokens == longest_answer || tokens < 3) scores[i] = penalty;  // penalise_no_eos; min_response_length 2: the minimum of the last index
    }
    return scores;
  };

  const safetensors_file file(folder + "/steps.safetensors");
  const auto expected = [&](const char* name) { return golden::numbers(file, prefix + name); };
  const auto answers = expected("answers");
  REQUIRE(answers.size() == steps * batch_size * longest_answer);
  double most = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    const auto done = player.step(std::span(prompts).subspan(step * batch_size % prompts.size(), batch_size), reward, 2e-2, 2e-2);
    REQUIRE(done.policy_steps.size() == 2 * batch_size / 4);
    for (std::size_t i = 0; i < batch_size; ++i) {
      std::vector<token> answer = player.completions()[i].answer;
      if (player.completions()[i].stop >= 0) answer.push_back(player.completions()[i].stop);
      answer.resize(longest_answer, 0);
      for (std::size_t t = 0; t < longest_answer; ++t) CHECK(answer[t] == static_cast<token>(answers[(batch_size * step + i) * longest_answer + t]));
    }
    const auto mean = [](const std::vector<step_done>& all, auto&& of) {
      double sum = 0;
      for (const step_done& one : all) sum += of(one);
      return sum / static_cast<double>(all.size());
    };
    const auto loss = [](const step_done& one) { return one.loss; };
    const auto near = [&](double found, const char* name) {
      most = std::max(most, std::abs(found - expected(name)[step]));
      // fp32 sums in another order, enlarged by sixteen large steps: 3.6e-5 measured
      CHECK_MESSAGE(std::abs(found - expected(name)[step]) < 2e-4, name, " of step ", step);
    };
    near(done.reward, "scores");
    near(done.kl, "kl");
    near(mean(done.policy_steps, loss), "policy_loss");
    near(mean(done.value_steps, loss), "value_loss");
    near(mean(done.policy_steps, loss) + value_coefficient * mean(done.value_steps, loss), "loss");
    // mean over a step's tokens here, over micro-batches in torchtune
    if (accumulation == 1) near(mean(done.policy_steps, [](const step_done& one) { return one.statistics[0] + one.statistics[1]; }), "clipfrac");
    near(done.completion_length - 1.0, "response_lengths");
  }
  MESSAGE("largest difference: ", most);
}

}  // namespace

TEST_CASE("sixteen steps of policy and value model are those of torchtune's recipe") { compare_with_recipe("", 8, 4, 1, true); }

TEST_CASE("so are sixteen steps of two micro-batches each, two in an epoch") { compare_with_recipe("accumulated.", 4, 8, 2, false); }

TEST_CASE("log-probabilities have the temperature of the objective, of the reference that of its settings") {
  const host_batch batch = batch_of(2, 9);
  constexpr double temperature = 0.6;
  auto model = policy_model::from_pretrained(golden::folder("ppo_recipe") + "/policy");
  trainer warm(model, settings<ppo>({.temperature = temperature}));
  reference_model reference(model, {.micro_batch_size = 2, .seq_length = length, .temperature = temperature});
  const std::vector<float> log_probs = warm.token_log_probs(batch), by_reference = reference.token_log_probs(batch);
  CHECK(log_probs == by_reference);
  const auto all = logits(model, batch);
  const std::size_t v = all.shape(2);
  for (std::size_t s = 0; s < 2; ++s)
    for (std::size_t i = 0; i < 9; ++i) {
      const token target = batch.targets[9 * s + i];
      if (target < 0) continue;
      double sum = 0;
      for (std::size_t k = 0; k < v; ++k) sum += std::exp(static_cast<double>(all(s, i, k)) / temperature);
      const double exact = static_cast<double>(all(s, i, static_cast<std::size_t>(target))) / temperature - std::log(sum);
      CHECK(std::abs(static_cast<double>(log_probs[9 * s + i]) - exact) < 1e-5);
    }
}

TEST_CASE("so they do, and gradients with them, in bf16 and with an adapter") {
  check_temperature<policy_recipe>({}, 1e-5, 0.03);
  check_temperature<adapted_recipe>({.adapter = {.rank = 4, .alpha = 8, .targets = {"q_proj", "v_proj", "down_proj"}}}, 1e-5, 0.03);
  // logits below 8 are rounded to 8 bits twice: 2 · 8 · 2^-9 / 0.6
  check_temperature<bf16_recipe>({}, 0.06, 0.3);
}

TEST_CASE("values of coefficient 0 are not trained, and their loss is that of any other coefficient") {
  const host_batch batch = batch_of(2, 9);
  const auto step = [&](double coefficient) {
    auto critic = value_model::from_pretrained(golden::folder("ppo_recipe") + "/reward");
    trainer value(critic, settings<ppo_value>({.coefficient = coefficient}));
    const auto weights = critic.parameters().trained_values().host();
    const std::vector<float> before(weights.begin(), weights.end());
    const step_done done = value.step(std::span<const host_batch>(&batch, 1), 0.1);
    return std::pair(done, std::equal(before.begin(), before.end(), weights.begin(), weights.end()));
  };
  const auto none = step(0.0), all = step(1.0);
  CHECK(none.first.loss == all.first.loss);
  CHECK(none.first.loss > 0.0);
  CHECK(none.first.gradient_norm == 0.0);
  CHECK(none.second);
  CHECK(all.first.gradient_norm > 0.0);
  CHECK_FALSE(all.second);
}

TEST_CASE("the loss may be the mean of the means of micro-batches, which have answers of different lengths") {
  const std::string folder = golden::folder("ppo_recipe");
  auto model = policy_model::from_pretrained(folder + "/policy");
  auto critic = value_model::from_pretrained(folder + "/reward");
  const host_batch both = batch_of(2, 9);
  const auto part = [&](std::size_t s) {
    host_batch one = both;
    one.b = 1;
    const auto keep = [&](auto& values) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(9 * s);
      values = {begin, begin + 9};
    };
    keep(one.tokens), keep(one.targets), keep(one.positions), keep(one.starts), keep(one.advantages), keep(one.old_log_probs), keep(one.old_values);
    keep(one.returns);
    one.first_sequence = s;
    one.token_count = 9;
    one.target_count = static_cast<std::size_t>(std::count_if(one.targets.begin(), one.targets.end(), [](token t) { return t >= 0; }));
    return one;
  };
  const std::vector<host_batch> parts{part(0), part(1)};
  REQUIRE(parts[0].target_count != parts[1].target_count);
  const auto losses_of = [&](auto& of, auto config) {
    config.micro_batch_size = 1;
    config.gradient_accumulation_steps = 1;
    trainer alone(of, config);
    double mean = 0;
    for (const host_batch& one : parts) mean += alone.step(std::span<const host_batch>(&one, 1), 0.0).loss / 2;
    config.gradient_accumulation_steps = 2;
    config.average_loss = loss_average::micro_batch;
    trainer together(of, config);
    CHECK(together.step(std::span<const host_batch>(parts), 0.0).loss == doctest::Approx(mean).epsilon(1e-6));
    config.average_loss = loss_average::step;
    trainer by_tokens(of, config);
    CHECK(by_tokens.step(std::span<const host_batch>(parts), 0.0).loss != doctest::Approx(mean).epsilon(1e-4));
  };
  losses_of(model, settings<ppo>({}));
  losses_of(critic, settings<ppo_value>({}));
}

TEST_CASE("settings that torchtune's recipe has are checked") {
  CHECK_THROWS_WITH_AS(ppo::require_config({.temperature = 0.0}), doctest::Contains("ppo: temperature must be positive; given 0"), config_error);
  CHECK_THROWS_WITH_AS(ppo_value::require_config({.coefficient = -1.0}), doctest::Contains("coefficient must be non-negative; given -1"), config_error);
  const std::string folder = golden::folder("ppo_recipe");
  auto model = policy_model::from_pretrained(folder + "/policy");
  auto critic = value_model::from_pretrained(folder + "/reward");
  trainer policy(model, settings<ppo>({}));
  trainer value(critic, settings<ppo_value>({}));
  CHECK_THROWS_WITH_AS((void)ppo_rollouts(policy, value, {.whiten_advantages = false, .whitening_keeps_mean = true}),
                       doctest::Contains("whitening_keeps_mean needs whiten_advantages"), config_error);
  CHECK_THROWS_WITH_AS((void)reference_model(model, {.temperature = -1.0}), doctest::Contains("temperature must be positive; given -1"), config_error);
  CHECK_THROWS_WITH_AS((void)reward_scorer(critic, {.temperature = 0.5}), doctest::Contains("a model with a score head has no temperature; given 0.5"),
                       config_error);
}
