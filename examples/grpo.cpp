// Online reinforcement learning (GRPO): a model writes several answers to each prompt, a C++ function rewards them, and the model learns to write what
// is rewarded. Without a folder it trains a tiny model from random weights, on bytes; with one, the model there (of the LLaMA family). With --beta, it
// is pulled to the model that it was.
//
//   grpo [model folder] [--steps N] [--beta B]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/text.hpp>

struct grpo_run : xtrain::defaults {
  using objective = xtrain::grpo;
};

/// An answer's reward: the share of vowels among its characters.
double reward_of(const std::string& answer) {
  const auto vowels = std::count_if(answer.begin(), answer.end(), [](char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; });
  return answer.empty() ? 0.0 : static_cast<double>(vowels) / static_cast<double>(answer.size());
}

struct settings {
  std::string folder;
  int steps = 60;
  double beta = 0, learning_rate = 1e-2;
};

/// make() returns the initial model.
template <class Make>
void train(const Make& make, const xtrain::tokenizer& tokenizer, const settings& how) {
  auto model = make();
  // 4 prompts with 8 answers each are one optimizer step
  xtrain::trainer trainer(model, {.micro_batch_size = 32, .seq_length = 32, .learning_rate = how.learning_rate, .objective = {.beta = how.beta}});
  std::vector<xtrain::token> stop = model.config().eos;  // and the end tokens of generation_config.json, as in text generation
  for (const xtrain::token t : xtrain::generation_stop_tokens(how.folder)) stop.push_back(t);
  xtrain::rollouts rollouts(trainer, {.num_generations = 8, .max_completion_length = 16, .stop = stop});
  auto frozen = make();
  xtrain::reference_model reference(frozen, {.micro_batch_size = 32, .seq_length = 32});
  rollouts.use_reference(reference);
  std::vector<std::vector<xtrain::token>> prompts;
  for (const char* text : {"Once upon a time", "One day", "There was", "The dog"}) prompts.push_back(tokenizer.encode_prompt(text));

  const auto reward = [&](const std::vector<xtrain::token>&, const std::vector<xtrain::token>& answer) { return reward_of(tokenizer.decode(answer)); };
  double first = 0, last = 0;
  for (int step = 1; step <= how.steps; ++step) {
    const xtrain::rollouts_done done = rollouts.step(prompts, reward, how.learning_rate);
    if (step == 1) first = done.reward;
    last = done.reward;
    if (step == 1 || step % 10 == 0)
      std::printf("step %3d   reward %.3f   of a group +- %.3f   length %.1f   kl %.3f\n", step, done.reward, done.reward_std, done.completion_length,
                  done.steps.back().statistics[0]);
  }
  std::printf("reward: %.3f before, %.3f after %d steps\n", first, last, how.steps);

  // rejection sampling: the best of eight answers per prompt, for fine-tuning
  xtrain::generator generator(model, 8, 32);
  const auto best = xtrain::best_of_n(generator, std::span<const std::vector<xtrain::token>>(prompts),
                                      {.n = 8, .max_completion_length = 16, .stop = stop}, reward);
  for (const xtrain::completion& one : best)
    std::printf("%.3f   %s\n", one.reward, tokenizer.decode(one.tokens()).c_str());
}

int main(int count, char** words) {
  settings how;
  bool is_wrong = false, asks = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--steps" && i + 1 < count) how.steps = std::atoi(words[++i]);
    else if (word == "--beta" && i + 1 < count) how.beta = std::atof(words[++i]);
    else if (word == "--help" || word == "-h") asks = true;
    else if (!word.starts_with("-") && how.folder.empty()) how.folder = word;
    else is_wrong = true;
  }
  if (asks || is_wrong || how.steps <= 0) {
    std::fprintf(asks ? stdout : stderr, "usage: grpo [model folder] [--steps N] [--beta B]\nTrains a model to write vowels, by reinforcement learning.\n");
    return asks ? 0 : 2;
  }
  try {
    if (!how.folder.empty()) {
      how.learning_rate = 1e-3;
      train([&] { return xtrain::llama<grpo_run>::from_pretrained(how.folder); }, xtrain::load_tokenizer(how.folder), how);
      return 0;
    }
    const xtrain::decoder_config tiny{.vocab_size = 257, .hidden_size = 32, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 32};
    train([&] { return xtrain::llama<grpo_run>(tiny); }, xtrain::byte_tokenizer(), how);
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "grpo: %s\n", problem.what());
    return 1;
  }
}
