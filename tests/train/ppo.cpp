// Proximal policy optimization: policy and value function on any ranks equal one rank, and both learn. Losses and gradients per token: unit/ops/grpo.cpp;
// advantages: unit/rl/advantages.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <xtrain/parallel.hpp>
#include "capped_llama.hpp"
#include "planned.hpp"
#include "ranks.hpp"
#include "rollout_answers.hpp"

namespace {

// on one rank it is a single device
using three_axes = pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>;

template <class Objective>
struct ppo_recipe : defaults {
  using parallel = three_axes;
  using objective = Objective;
};
using policy_model = llama<ppo_recipe<ppo>>;
using value_model = llama<ppo_recipe<ppo_value>>;

constexpr std::size_t length = 16;
constexpr token stop_token = 5;

[[nodiscard]] decoder_config shape() {
  decoder_config c = sizes(false);
  c.attention_dropout = c.residual_dropout = 0.0;
  return c;
}
/// The fraction of even tokens.
[[nodiscard]] double evenness(const std::vector<token>&, const std::vector<token>& answer) {
  const auto even = std::count_if(answer.begin(), answer.end(), [](token t) { return t % 2 == 0; });
  return answer.empty() ? 0.0 : static_cast<double>(even) / static_cast<double>(answer.size());
}

template <class Objective>
[[nodiscard]] training_config<adamw, Objective> settings(std::size_t data_ranks, std::size_t micro_batches = 4) {
  return {.max_steps = 100, .micro_batch_size = 4, .gradient_accumulation_steps = micro_batches / data_ranks, .seq_length = length};
}

/// Policy, reference and value function on a network's ranks.
struct players {
  explicit players(const std::shared_ptr<transport>& network, pipeline_ranks layout = {}, std::size_t micro_batches = 4, double temperature = 1.0)
      : model(shape(), opened, {.parallel = on(layout, network)}), frozen(shape(), opened, {.parallel = on(layout, separate_channels(network))}),
        critic(shape(), opened, {.parallel = on(layout, separate_channels(network, 2))}),
        policy(model, at(temperature, settings<ppo>(data_ranks(), micro_batches))), value(critic, settings<ppo_value>(data_ranks(), micro_batches)),
        reference(frozen, {.micro_batch_size = 4, .seq_length = length, .temperature = temperature}) {}

  static training_config<adamw, ppo> at(double temperature, training_config<adamw, ppo> of) {
    of.objective.temperature = temperature;
    return of;
  }
  static pipeline_ranks on(pipeline_ranks layout, const std::shared_ptr<transport>& network) {
    layout.ranks = network;
    return layout;
  }
  [[nodiscard]] std::size_t data_ranks() { return model.parallel().data().size(); }

  cpu::context opened{};
  policy_model model, frozen;
  value_model critic;
  trainer<policy_model> policy;
  trainer<value_model> value;
  reference_model<policy_model> reference;
};

struct result {
  std::vector<double> rewards, divergences, losses, value_losses, values, norms;
  std::vector<std::vector<token>> answers;
};

/// Three steps of 16 prompts, in two optimizer steps of 8, twice. as_torchtune: with the further features of torchtune's recipe
result play(std::size_t ranks, const pipeline_ranks& layout = {}, bool as_torchtune = false) {
  std::vector<result> all(ranks);
  std::vector<std::vector<completion>> first(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    players on(network, layout, 4, as_torchtune ? 0.8 : 1.0);
    ppo_rollouts player(on.policy, on.value,
                        {.num_generations = 2, .max_completion_length = 9, .stop = {stop_token}, .num_ppo_epochs = 2, .kl_coef = 0.1, .gamma = 0.99,
                         .whitening_keeps_mean = as_torchtune, .reward_behind_end = as_torchtune, .generation_batch_size = 6});
    player.use_reference(on.reference);
    CHECK(player.prompts_per_step() == 8);
    result& mine = all[network->rank()];
    for (std::size_t i = 0; i < 3; ++i) {
      const ppo_rollouts_done done = player.step(prompts_of(16), evenness, 3e-3, 5e-3);
      REQUIRE(done.policy_steps.size() == 4);
      REQUIRE(done.value_steps.size() == 4);
      mine.rewards.push_back(done.reward);
      mine.divergences.push_back(done.kl);
      for (const step_done& one : done.policy_steps) {
        mine.losses.push_back(one.loss);
        mine.norms.push_back(one.gradient_norm);
      }
      for (const step_done& one : done.value_steps) {
        mine.value_losses.push_back(one.loss);
        mine.norms.push_back(one.gradient_norm);
        mine.values.push_back(one.statistics[1]);
      }
      if (i == 0) first[network->rank()].assign(player.completions().begin(), player.completions().end());
    }
    check_planned(player.plan(), on.opened.memory());
  });
  for (const result& one : all) {
    CHECK(one.rewards == all[0].rewards);
    CHECK(one.losses == all[0].losses);
    CHECK(one.value_losses == all[0].value_losses);
  }
  all[0].answers = answers_in_order(prompts_of(16), first);
  return all[0];
}

}  // namespace

TEST_CASE("a policy and its value function on data-, tensor- and pipeline-parallel ranks are those of one device") {
  const result here = play(1);
  REQUIRE(here.answers.size() == 32);
  pipeline_ranks layout;
  layout.tensor_parallel_size = layout.data_parallel_size = 2;
  const result there = play(8, layout);
  CHECK(here.answers == there.answers);
  CHECK(difference(here.rewards, there.rewards) < 1e-12);
  // fp32 sums in another order, over twelve steps: 2e-7 measured, norms 1e-6; AdamW enlarges differences of small gradients
  CHECK(difference(here.divergences, there.divergences) < 1e-5);
  CHECK(difference(here.losses, there.losses) < 1e-5);
  CHECK(difference(here.value_losses, there.value_losses) < 1e-5);
  CHECK(difference(here.values, there.values) < 1e-5);
  CHECK(difference(here.norms, there.norms) < 5e-5);
  CHECK(std::abs(here.divergences[0]) < 1e-5);  // nothing learned yet
  CHECK(std::abs(here.divergences[2]) > 1e-3);
}

TEST_CASE("so are those with the temperature, the whitening and the rewards behind answers of torchtune's recipe") {
  const result plain = play(1), here = play(1, {}, true);
  pipeline_ranks layout;
  layout.tensor_parallel_size = layout.data_parallel_size = 2;
  const result there = play(8, layout, true);
  CHECK(here.answers == there.answers);
  CHECK(difference(here.divergences, there.divergences) < 1e-5);
  CHECK(difference(here.losses, there.losses) < 1e-5);
  CHECK(difference(here.value_losses, there.value_losses) < 1e-5);
  CHECK(difference(here.values, there.values) < 1e-5);
  CHECK(difference(here.norms, there.norms) < 5e-5);
  CHECK(difference(here.losses, plain.losses) > 1e-3);
  CHECK(difference(here.value_losses, plain.value_losses) > 1e-3);
}

TEST_CASE("an answer's first step has ratios of 1 and unclipped values") {
  run_ranks(1, [&](const std::shared_ptr<transport>& network) {
    players on(network);
    ppo_rollouts player(on.policy, on.value, {.max_completion_length = 6, .stop = {stop_token}, .num_ppo_epochs = 1, .kl_coef = 0.0});
    const ppo_rollouts_done done = player.step(prompts_of(16), evenness, 1e-3, 1e-3);
    REQUIRE(done.policy_steps.size() == 1);
    // minus the mean of whitened advantages, ratios 1
    CHECK(std::abs(done.policy_steps[0].loss) < 1e-5);
    CHECK(done.policy_steps[0].gradient_norm > 1e-3);
    CHECK(done.policy_steps[0].statistics[0] == 0.0);
    CHECK(done.value_steps[0].statistics[0] == 0.0);
    CHECK(done.kl == 0.0);
    REQUIRE(player.completions().size() == 16);
    double tokens = 0, rewards = 0;
    for (const completion& one : player.completions()) {
      tokens += static_cast<double>(one.tokens().size() - one.prompt.size());
      rewards += one.reward;
    }
    CHECK(done.policy_steps[0].targets == static_cast<std::size_t>(tokens));
    CHECK(done.reward == doctest::Approx(rewards / 16));
    CHECK(done.completion_length == doctest::Approx(tokens / 16));
  });
}

TEST_CASE("the divergence from the reference, rewards of tokens and returns are those of their formulas") {
  run_ranks(1, [&](const std::shared_ptr<transport>& network) {
    players on(network, {}, 1);
    ppo_rollouts player(on.policy, on.value,
                        {.max_completion_length = 6, .stop = {stop_token}, .num_ppo_epochs = 1, .kl_coef = 0.5, .gamma = 0.9, .lambda = 0.5});
    player.use_reference(on.reference);
    (void)player.step(prompts_of(4), evenness, 3e-3, 5e-3);
    const ppo_rollouts_done done = player.step(prompts_of(4), evenness, 0.0, 0.0);  // neither model changes
    host_batch batch;
    batch.b = 4;
    batch.t = length;
    batch.tokens.assign(batch.b * length, 0);
    batch.targets.assign(batch.b * length, -1);
    for (std::size_t s = 0; s < batch.b; ++s) {
      const completion& one = player.completions()[s];
      const std::vector<token> tokens = one.tokens();
      for (std::size_t i = 0; i < length; ++i) {
        batch.positions.push_back(static_cast<token>(i));
        batch.starts.push_back(0);
        if (i + 1 >= tokens.size()) continue;
        batch.tokens[s * length + i] = tokens[i];
        if (i + 1 >= one.prompt.size()) batch.targets[s * length + i] = tokens[i + 1];
      }
    }
    const auto log_probs = on.policy.token_log_probs(batch), by_reference = on.reference.token_log_probs(batch), values = on.value.token_values(batch);
    double divergence = 0, loss = 0, targets = 0;
    for (std::size_t s = 0; s < batch.b; ++s) {
      const completion& one = player.completions()[s];
      double advantage = 0, next = 0, at_end = one.reward;
      for (std::size_t i = (s + 1) * length; i-- > s * length;) {
        if (batch.targets[i] < 0) continue;
        const double difference = static_cast<double>(log_probs[i]) - static_cast<double>(by_reference[i]), value = static_cast<double>(values[i]);
        advantage = at_end - 0.5 * difference + 0.9 * next - value + 0.9 * 0.5 * advantage;
        divergence += difference;
        loss += 0.5 * advantage * advantage;  // advantage: return - value
        next = value;
        at_end = 0;
        ++targets;
      }
    }
    CHECK(std::abs(divergence) > 1e-2);
    // the rollouts' batch has other padding: a few fp32 roundings
    CHECK(done.kl == doctest::Approx(divergence / 4).epsilon(1e-4));
    CHECK(done.value_steps[0].loss == doctest::Approx(loss / targets).epsilon(1e-4));
  });
}

TEST_CASE("the reward rises, and values come to predict it") {
  run_ranks(1, [&](const std::shared_ptr<transport>& network) {
    players on(network, {}, 8);
    ppo_rollouts player(on.policy, on.value, {.num_generations = 4, .max_completion_length = 8, .num_ppo_epochs = 2, .kl_coef = 0.01});
    player.use_reference(on.reference);
    std::vector<double> rewards, errors;
    std::string curve;
    for (std::size_t step = 0; step < 20; ++step) {
      const ppo_rollouts_done done = player.step(prompts_of(8), evenness, 5e-3, 5e-3);
      rewards.push_back(done.reward);
      errors.push_back(done.value_steps[0].loss);
      curve += concat(fixed(done.reward, 2), " ");
    }
    MESSAGE("reward: ", curve, " error of values: ", errors.front(), " -> ", errors.back());
    const auto mean = [](const std::vector<double>& values, std::size_t first) {
      return (values[first] + values[first + 1] + values[first + 2]) / 3;
    };
    CHECK(mean(rewards, 0) < 0.65);  // half of the tokens are even
    CHECK(mean(rewards, 17) > 0.8);
    CHECK(mean(errors, 17) < 0.5 * mean(errors, 0));
  });
}

TEST_CASE("shuffled epochs have every answer once, each in another order") {
  run_ranks(1, [&](const std::shared_ptr<transport>& network) {
    const auto epochs_of = [&](bool shuffle) {
      players on(network);
      // without end tokens all answers are equally long; with constant weights an answer's loss is equal in every epoch
      ppo_rollouts player(on.policy, on.value,
                          {.num_generations = 2, .max_completion_length = 6, .num_ppo_epochs = 4, .kl_coef = 0.0, .shuffle = shuffle});
      const ppo_rollouts_done done = player.step(prompts_of(24), evenness, 0.0, 0.0);
      REQUIRE(done.value_steps.size() == 4 * 3);  // steps of 8 prompts
      std::vector<double> losses;
      for (const step_done& one : done.value_steps) {
        CHECK(one.targets == 16 * 6);
        losses.push_back(one.loss);
      }
      return losses;
    };
    const std::vector<double> in_order = epochs_of(false), shuffled = epochs_of(true);
    CHECK(epochs_of(true) == shuffled);
    const double sum = in_order[0] + in_order[1] + in_order[2];
    for (std::size_t e = 0; e < 4; ++e) {
      for (std::size_t i = 0; i < 3; ++i) CHECK(in_order[3 * e + i] == in_order[i]);
      CHECK(shuffled[3 * e] + shuffled[3 * e + 1] + shuffled[3 * e + 2] == doctest::Approx(sum).epsilon(1e-6));  // fp32 sums in another order
      for (std::size_t other = 0; other < e; ++other) CHECK(std::abs(shuffled[3 * e] - shuffled[3 * other]) > 1e-5);
      CHECK(std::abs(shuffled[3 * e] - in_order[0]) > 1e-5);
    }
  });
}

TEST_CASE("a temperature beside bounded logits is refused on every stage of a pipeline") {
  decoder_config bounded = shape();
  bounded.final_logit_softcapping = 20.0;
  std::vector<std::string> policies(2), references(2);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    using model_type = capped_llama<ppo_recipe<ppo>>;
    const cpu::context opened;
    model_type model(bounded, opened, {.parallel = players::on({}, network)});
    REQUIRE(model.parallel().data().size() == 1);  // two stages
    const auto said = [&](auto&& make) -> std::string {
      try {
        make();
      } catch (const config_error& problem) {
        return problem.what();
      }
      return "nothing";
    };
    policies[network->rank()] = said([&] { trainer<model_type>(model, players::at(0.7, settings<ppo>(1))); });
    references[network->rank()] =
        said([&] { (void)reference_model(model, {.micro_batch_size = 4, .seq_length = length, .temperature = 0.7}); });
    CHECK_NOTHROW(trainer<model_type>(model, settings<ppo>(1)));
  });
  for (const std::string& one : policies)
    CHECK(one == "ppo: temperature: must be 1 for a model whose logits are bounded (final_logit_softcapping 20); given 0.7");
  for (const std::string& one : references) CHECK(one.find("must be 1 where logits are bounded (final_logit_softcapping 20); given 0.7") != std::string::npos);
}

TEST_CASE("a second model that sends on the channels of the first is refused") {
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    players on(network);
    const pipeline_ranks same = players::on({}, network);
    policy_model frozen(shape(), on.opened, {.parallel = same});
    value_model critic(shape(), on.opened, {.parallel = same});
    reference_model<policy_model> reference(frozen, {.micro_batch_size = 4, .seq_length = length});
    trainer<value_model> value(critic, on.value.settings());
    auto player = ppo_rollouts(on.policy, on.value, {.max_completion_length = 4});
    const char* why = " must send on channels of its own: give its model parallel = {.ranks = separate_channels(ranks)}";
    CHECK_THROWS_WITH_AS(player.use_reference(reference), doctest::Contains(why), config_error);
    CHECK_THROWS_WITH_AS(on.policy.use_reference(reference), doctest::Contains(why), config_error);
    CHECK_THROWS_WITH_AS((void)ppo_rollouts(on.policy, value, {.max_completion_length = 4}), doctest::Contains(why), config_error);

    // another transport, same channels: the policy's and the value model's
    policy_model renamed(shape(), on.opened, {.parallel = players::on({}, separate_channels(network, 0))});
    reference_model<policy_model> of_policy(renamed, {.micro_batch_size = 4, .seq_length = length});
    CHECK_THROWS_WITH_AS(player.use_reference(of_policy), doctest::Contains("given are the channels of the trained model"), config_error);
    policy_model third(shape(), on.opened, {.parallel = players::on({}, separate_channels(separate_channels(network)))});
    reference_model<policy_model> of_value(third, {.micro_batch_size = 4, .seq_length = length});
    CHECK_THROWS_WITH_AS(player.use_reference(of_value), doctest::Contains("given are the channels of the value model"), config_error);
    player.use_reference(on.reference);
  });
}

TEST_CASE("what does not fit is said") {
  run_ranks(1, [&](const std::shared_ptr<transport>& network) {
    players on(network);
    const auto player_with = [&](const ppo_rollouts_config& how) { return ppo_rollouts(on.policy, on.value, how); };
    CHECK_THROWS_WITH_AS((void)player_with({.num_ppo_epochs = 0}), doctest::Contains("num_ppo_epochs must be positive"), config_error);
    CHECK_THROWS_WITH_AS((void)player_with({.kl_coef = -1.0}), doctest::Contains("kl_coef must not be negative"), config_error);
    CHECK_THROWS_WITH_AS((void)player_with({.gamma = 1.5}), doctest::Contains("from 0 to 1; given 1.5"), config_error);
    CHECK_THROWS_WITH_AS((void)player_with({.num_generations = 3}), doctest::Contains("16 sequences and 3 generations"), config_error);
    trainer<value_model> other(on.critic, settings<ppo_value>(2));
    CHECK_THROWS_WITH_AS((void)ppo_rollouts(on.policy, other), doctest::Contains("both trainers must have the same micro_batch_size"), config_error);

    auto player = player_with({.max_completion_length = 4});
    CHECK_THROWS_WITH_AS((void)player.step(prompts_of(16), evenness, 1e-3, 1e-3), doctest::Contains("a reference model must be given"), config_error);
    player.use_reference(on.reference);
    CHECK_THROWS_WITH_AS((void)player.step(prompts_of(3), evenness, 1e-3, 1e-3), doctest::Contains("must be a multiple of 16"), config_error);
    const auto none = [](const std::vector<token>&, const std::vector<token>&) { return std::numeric_limits<double>::quiet_NaN(); };
    CHECK_THROWS_WITH_AS((void)player.step(prompts_of(16), none, 1e-3, 1e-3), doctest::Contains("a reward must be finite; reward 0 is"), data_error);

    auto short_lived = std::make_unique<trainer<value_model>>(on.critic, on.value.settings());
    auto without = ppo_rollouts(on.policy, *short_lived, {.max_completion_length = 4});
    short_lived.reset();
    CHECK_THROWS_WITH_AS((void)without.step(prompts_of(16), evenness, 1e-3, 1e-3),
                         doctest::Contains("ppo_rollouts: the value model's trainer must live as long as it is used; it has been destroyed"), config_error);

    // batches not made by rollouts
    host_batch plain;
    plain.b = 1;
    plain.t = 4;
    plain.tokens = {1, 2, 3, 4};
    plain.targets = {-1, 3, 4, 5};
    plain.positions = {0, 1, 2, 3};
    plain.starts = {0, 0, 0, 0};
    plain.target_count = 3;
    const std::vector<host_batch> batches(4, plain);
    CHECK_THROWS_WITH_AS((void)on.policy.step(std::span<const host_batch>(batches), 1e-3),
                         doctest::Contains("ppo: advantages must be given for every token; given 0 for 4"), data_error);
    CHECK_THROWS_WITH_AS((void)on.value.step(std::span<const host_batch>(batches), 1e-3),
                         doctest::Contains("ppo_value: old values must be given for every token; given 0 for 4"), data_error);
  });
  CHECK_THROWS_WITH_AS(ppo::require_config({.epsilon_low = 0.0}), doctest::Contains("ppo: epsilon_low must be positive; given 0"), config_error);
  CHECK_THROWS_WITH_AS(ppo_value::require_config({.clip_range = 0.0}), doctest::Contains("clip_range must be positive; given 0"), config_error);
}
