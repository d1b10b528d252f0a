// Online reinforcement learning (PPO): a model answers prompts, a C++ function rewards the answers, a value function learns to predict rewards token by
// token, and the model learns to do better than predicted. A tiny model from random weights, on bytes; it is pulled to the model that it was.
//
//   ppo [--steps N] [--kl-coef B]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/text.hpp>

struct policy_run : xtrain::defaults {
  using objective = xtrain::ppo;
};
struct value_run : xtrain::defaults {
  using objective = xtrain::ppo_value;
};

/// An answer's reward: the share of vowels among its characters.
double reward_of(const std::string& answer) {
  const auto vowels = std::count_if(answer.begin(), answer.end(), [](char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; });
  return answer.empty() ? 0.0 : static_cast<double>(vowels) / static_cast<double>(answer.size());
}

void train(int steps, double kl_coef) {
  const xtrain::decoder_config tiny{.vocab_size = 257, .hidden_size = 32, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 32};
  const auto tokenizer = xtrain::byte_tokenizer();
  // the policy, its initial weights, and the value function. A model could also give the reward (reward_scorer)
  xtrain::llama<policy_run> model(tiny), frozen(tiny);
  xtrain::llama<value_run> value(tiny);
  xtrain::trainer policy_trainer(model, {.micro_batch_size = 32, .seq_length = 32});
  xtrain::trainer value_trainer(value, {.micro_batch_size = 32, .seq_length = 32});
  xtrain::reference_model reference(frozen, {.micro_batch_size = 32, .seq_length = 32});
  xtrain::ppo_rollouts rollouts(policy_trainer, value_trainer,
                                {.num_generations = 8, .max_completion_length = 16, .stop = model.config().eos, .num_ppo_epochs = 2, .kl_coef = kl_coef});
  rollouts.use_reference(reference);
  std::vector<std::vector<xtrain::token>> prompts;
  for (const char* text : {"Once upon a time", "One day", "There was", "The dog"}) prompts.push_back(tokenizer.encode_prompt(text));

  const auto reward = [&](const std::vector<xtrain::token>&, const std::vector<xtrain::token>& answer) { return reward_of(tokenizer.decode(answer)); };
  double first = 0, last = 0;
  for (int step = 1; step <= steps; ++step) {
    const xtrain::ppo_rollouts_done done = rollouts.step(prompts, reward, 1e-2, 1e-2);
    if (step == 1) first = done.reward;
    last = done.reward;
    if (step == 1 || step % 10 == 0)
      std::printf("step %3d   reward %.3f   error of values %.4f   length %.1f   kl %.3f\n", step, done.reward, done.value_steps.front().loss,
                  done.completion_length, done.kl);
  }
  std::printf("reward: %.3f before, %.3f after %d steps\n", first, last, steps);
}

int main(int count, char** words) {
  int steps = 60;
  double kl_coef = 0.01;
  bool is_wrong = false, asks = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--steps" && i + 1 < count) steps = std::atoi(words[++i]);
    else if (word == "--kl-coef" && i + 1 < count) kl_coef = std::atof(words[++i]);
    else if (word == "--help" || word == "-h") asks = true;
    else is_wrong = true;
  }
  if (asks || is_wrong || steps <= 0) {
    std::fprintf(asks ? stdout : stderr, "usage: ppo [--steps N] [--kl-coef B]\nTrains a model to write vowels, by reinforcement learning.\n");
    return asks ? 0 : 2;
  }
  try {
    train(steps, kl_coef);
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "ppo: %s\n", problem.what());
    return 1;
  }
}
