// Reward models: trained as in trl, every strategy equals one device, saved and loaded as transformers' sequence classification models.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xtrain/parallel.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/train/reward_scorer.hpp>
#include "objective_runs.hpp"
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

template <class Parallel, class Device = cpu, class Adapter = no_adapter>
struct reward_recipe : defaults {
  using parallel = Parallel;
  using device = Device;
  using adapter = Adapter;
  using objective = reward;
};
template <class Parallel, class Device = cpu, class Adapter = no_adapter>
using reward_llama = llama<reward_recipe<Parallel, Device, Adapter>>;
using three_axes = pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>;

namespace runs = objective_runs;

[[nodiscard]] decoder_config shape() {
  decoder_config c = sizes(true);  // no head to tie
  c.num_heads = 4;
  return c;
}

template <class Model>
void set_score(Model& model, const std::vector<double>& values) {
  const std::vector<float> host(values.begin(), values.end());
  model.parameters().set(model.stream(), *model.parameters().find("score.weight"), std::span<const float>(host));
}

/// Inputs without padding.
[[nodiscard]] std::vector<std::vector<token>> sequences_of(const host_batch& batch, std::span<const double> lengths) {
  std::vector<std::vector<token>> all;
  for (std::size_t i = 0; i < batch.b; ++i) {
    const auto first = batch.tokens.begin() + static_cast<std::ptrdiff_t>(i * batch.t);
    all.emplace_back(first, first + static_cast<std::ptrdiff_t>(lengths[i]));
  }
  return all;
}

constexpr std::size_t length = 16;

/// Pairs of sequences of different lengths, then padding.
[[nodiscard]] host_batch pairs_of(std::size_t first, std::size_t pairs) {
  host_batch batch;
  batch.b = 2 * pairs;
  batch.t = length;
  batch.first_sequence = 2 * first;
  for (std::size_t i = 2 * first; i < 2 * (first + pairs); ++i) {
    const std::size_t tokens = 6 + (i * 7) % 11;
    for (std::size_t t = 0; t < length; ++t) {
      const bool is_padding = t >= tokens;
      batch.tokens.push_back(is_padding ? 0 : static_cast<token>((i * 31 + t * t * 3) % 97));
      batch.targets.push_back(is_padding || t < 3 ? -1 : 1);
      batch.positions.push_back(static_cast<token>(is_padding ? t - tokens : t));
      batch.starts.push_back(static_cast<token>(is_padding ? tokens : 0));
    }
    batch.token_count += tokens;
  }
  return batch;
}

struct result {
  std::vector<double> losses, norms, margins, scores;
};

/// Five steps of eight pairs over all ranks, in micro-batches of two; final scores.
template <class Parallel, class Device = cpu>
result steps_on(std::size_t ranks, typename Parallel::config layout = {}) {
  std::vector<result> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    if constexpr (requires { own.ranks = network; }) own.ranks = network;
    reward_llama<Parallel, Device> model(shape(), {}, {.parallel = own});
    const std::size_t data_ranks = model.parallel().data().size(), rank = model.parallel().data().rank();
    training_config<adamw, reward> how{.max_steps = 5, .micro_batch_size = 4, .gradient_accumulation_steps = 4 / data_ranks, .seq_length = length};
    how.objective = {.margin = 0.2, .center_rewards_coefficient = 0.01};
    trainer trainer(model, how);
    result& here = all[network->rank()];
    for (std::size_t step = 0; step < 5; ++step) {
      std::vector<host_batch> batches;
      for (std::size_t m = 0; m < 4 / data_ranks; ++m) batches.push_back(pairs_of(8 * step + 2 * (m * data_ranks + rank), 2));
      const step_done done = trainer.step(std::span<const host_batch>(batches), 1e-2);
      here.losses.push_back(done.loss);
      here.norms.push_back(done.gradient_norm);
      here.margins.push_back(done.statistics[2]);
    }
    std::vector<std::vector<token>> texts;
    for (std::size_t i = 0; i < 5; ++i) texts.emplace_back(3 + 2 * i, static_cast<token>(7 + i));
    here.scores = reward_scores(model, texts, {.micro_batch_size = 2, .seq_length = length});
  });
  for (const result& one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.scores == all[0].scores);
  }
  return all[0];
}

}  // namespace

TEST_CASE("a reward model trains as in trl, and scores as in transformers") {
  const runs::expected_run expected("reward");
  const auto score = expected["score"];
  runs::check_run<reward_llama<single>>(expected, {.margin = 0.3, .center_rewards_coefficient = 0.02},
                                        [&](auto& trainer) { set_score(trainer.model(), score); });
  auto model = reward_llama<single>::from_pretrained(golden::folder(runs::base));
  set_score(model, score);
  const auto texts = sequences_of(expected.batches[0], runs::part(expected["lengths"], 0, runs::b));
  // one sequence at a time, and padded to the longest: equal up to rounding
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{3}})
    runs::require_close(reward_scores(model, texts, {.micro_batch_size = at_once, .seq_length = runs::t}), expected["scores"], parity::fp32_logits, "scores");
}

TEST_CASE("data, tensor, sequence and pipeline parallelism equal one device, and so does a device that works asynchronously, bit for bit") {
  const result one = steps_on<single>(1);
  pipeline_ranks layout;
  layout.tensor_parallel_size = layout.data_parallel_size = 2;
  const result eight = steps_on<three_axes>(8, layout);
  CHECK(difference(one.losses, eight.losses) < 2e-5);
  CHECK(difference(one.norms, eight.norms) < 2e-4);
  CHECK(difference(one.margins, eight.margins) < 2e-4);
  CHECK(difference(one.scores, eight.scores) < 2e-4);
  const result later = steps_on<single, testing::isolated<cpu>>(1);
  CHECK(one.losses == later.losses);
  CHECK(one.norms == later.norms);
  CHECK(one.scores == later.scores);
}

TEST_CASE("it is saved as a model for sequence classification, and loaded from one or from a language model") {
  const scratch_folder scratch;
  const auto language = llama<defaults>(shape());
  save_pretrained(language, scratch / "language");
  auto model = reward_llama<single>::from_pretrained(scratch / "language");
  const std::vector<std::vector<token>> texts{{1, 2, 3}, {4, 5}};
  const auto scores = reward_scores(model, texts, {.seq_length = length});
  CHECK(scores[0] != scores[1]);
  save_pretrained(model, scratch / "reward");
  const weight_folder saved(scratch / "reward");
  CHECK(saved.find("score.weight") != nullptr);
  CHECK(saved.find("score.weight")->shape == std::vector<std::size_t>{1, shape().hidden_size});
  CHECK(saved.find("lm_head.weight") == nullptr);
  const std::string config = get_file(scratch / "reward/config.json");
  CHECK(config.find("LlamaForSequenceClassification") != std::string::npos);
  CHECK(config.find("LABEL_0") != std::string::npos);
  auto again = reward_llama<single>::from_pretrained(scratch / "reward");
  CHECK(reward_scores(again, texts, {.seq_length = length}) == scores);
  // a language model has no score
  CHECK_THROWS_WITH_AS((void)llama<defaults>::from_pretrained(scratch / "reward"), doctest::Contains("'score.weight'"), config_error);
}

TEST_CASE("fitted on pairs, scores of chosen answers become higher, also of answers that were not seen") {
  dataset data("pairs", sequence_layout::separate);
  data.group_size = 2;
  std::vector<std::vector<token>> chosen, rejected;
  for (std::size_t i = 0; i < 64; ++i)
    for (const bool is_chosen : {true, false}) {
      // different answers to the same prompt
      std::vector<token> tokens{static_cast<token>(1 + i % 13)};
      for (std::size_t t = 1; t < 6 + (i + (is_chosen ? 0 : 1)) % 3; ++t)
        tokens.push_back(static_cast<token>((is_chosen ? 20 : 60) + (i * 7 + t * t * 5) % 30));
      if (i < 48) data.add(tokens, [](std::size_t t) { return t > 0; });
      else (is_chosen ? chosen : rejected).push_back(tokens);
    }
  data.finish();
  reward_llama<single> model(shape());
  trainer trainer(model, {.epochs = 8, .micro_batch_size = 8, .seq_length = length, .learning_rate = 3e-3});
  const double before = trainer.evaluate(data).loss;
  trainer.fit(data);
  CHECK(before == doctest::Approx(std::log(2.0)).epsilon(0.2));
  CHECK(trainer.evaluate(data).loss < 0.1);
  reward_scorer scorer(model, {.seq_length = length});
  const auto high = scorer(chosen), low = scorer(rejected);
  std::size_t right = 0;
  for (std::size_t i = 0; i < high.size(); ++i) right += high[i] > low[i] ? 1 : 0;
  CHECK(right == 16);
}

TEST_CASE("what does not fit is said") {
  reward_llama<single> model(shape());
  training_config<adamw, reward> how{.max_steps = 5, .micro_batch_size = 4, .seq_length = length};
  trainer trainer(model, how);
  std::vector<host_batch> one(1, pairs_of(0, 2));
  for (std::size_t t = 0; t < length; ++t) one[0].targets[3 * length + t] = -1;
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(one), 1e-2), doctest::Contains("sequence 3 has none"), data_error);
  std::vector<host_batch> packed(1, pairs_of(0, 2));
  packed[0].starts[length - 1] = length - 1;
  packed[0].targets[length - 1] = 1;
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(packed), 1e-2), doctest::Contains("Do not pack samples"), data_error);
  CHECK_THROWS_WITH_AS(reward::require_config({.margin = -1.0}), doctest::Contains("reward: margin must be non-negative; given -1"), config_error);
  CHECK_THROWS_WITH_AS((void)reward_scores(model, std::vector<std::vector<token>>{{1}, {}}), doctest::Contains("sequence 1 is"), data_error);
  CHECK_THROWS_WITH_AS((void)reward_scores(model, std::vector<std::vector<token>>{{1, 200}}), doctest::Contains("given 200"), data_error);

  std::optional<reward_scorer<reward_llama<single>>> late;
  {
    reward_llama<single> short_lived(shape());
    late.emplace(short_lived);
    CHECK((*late)(std::vector<std::vector<token>>{{1}}).size() == 1);
  }
  CHECK_THROWS_WITH_AS((void)(*late)(std::vector<std::vector<token>>{{1}}),
                       doctest::Contains("reward_scorer: its model must stay where it was when the reward_scorer was made; the model has been destroyed"),
                       config_error);

  reward_llama<single, cpu, lora>::options options;
  reward_llama<single, cpu, lora> frozen(shape(), {}, options);
  CHECK_THROWS_WITH_AS(reward::require_model(frozen), doctest::Contains("Add 'score' to its modules_to_save"), config_error);
  options.adapter.modules_to_save = {"score"};
  reward_llama<single, cpu, lora> trained(shape(), {}, options);
  reward::require_model(trained);
  CHECK(sequence_classification_architecture("GPT2LMHeadModel") == "GPT2ForSequenceClassification");
  CHECK(sequence_classification_architecture("ChatGLMModel").empty());
}
