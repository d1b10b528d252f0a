// Group relative policy optimization: runs of trl (tests/golden/make_grpo.py), every strategy equals one device, rollouts of the trained model.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/parallel.hpp>
#include <xtrain/testing/isolated.hpp>
#include "golden.hpp"
#include "parity.hpp"
#include "ranks.hpp"
#include "rollout_answers.hpp"
#include "scratch.hpp"

namespace {

template <class Parallel, class Device = cpu, class Adapter = no_adapter>
struct grpo_recipe : defaults {
  using parallel = Parallel;
  using device = Device;
  using adapter = Adapter;
  using objective = grpo;
};
template <class Parallel, class Device = cpu, class Adapter = no_adapter>
using grpo_model = llama<grpo_recipe<Parallel, Device, Adapter>>;

using three_axes = pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>;

/// Two data-parallel pipelines of two stages, each of two tensor-parallel ranks.
[[nodiscard]] pipeline_ranks all_axes() {
  pipeline_ranks layout;
  layout.tensor_parallel_size = layout.data_parallel_size = 2;
  return layout;
}

// ---- trl ----

constexpr const char* base = "llama_grouped_untied";

template <class T>
[[nodiscard]] std::vector<T> part(const std::vector<double>& all, std::size_t index, std::size_t size) {
  std::vector<T> values;
  for (std::size_t i = index * size; i < (index + 1) * size; ++i) values.push_back(static_cast<T>(all[i]));
  return values;
}

/// The first step's gradients, losses of fifty AdamW steps, and final weights, within the bounds of tests/train/objectives.cpp.
void check_run(const std::string& name, const grpo::config& objective) {
  CAPTURE(name);
  constexpr std::size_t b = 4, t = 12;
  const safetensors_file file(golden::folder("objectives/grpo_runs/" + name) + ".safetensors");
  const auto expected = [&](const std::string& tensor) { return golden::numbers(file, tensor); };
  const auto inputs = expected("inputs"), targets = expected("targets"), lengths = expected("lengths");
  std::vector<host_batch> batches;
  for (std::size_t i = 0; i < inputs.size() / (b * t); ++i) {
    host_batch batch = golden::batch(inputs, targets, i * b * t, b, t);
    for (std::size_t s = 0; s < b; ++s)
      for (std::size_t j = static_cast<std::size_t>(lengths[i * b + s]); j < t; ++j) {  // padding is a separate sample
        batch.starts[s * t + j] = static_cast<token>(lengths[i * b + s]);
        batch.positions[s * t + j] = static_cast<token>(j - static_cast<std::size_t>(lengths[i * b + s]));
      }
    batch.advantages = part<double>(expected("advantages"), i, b);
    if (file.find("old") != nullptr) batch.old_log_probs = part<float>(expected("old"), i, b * t);
    if (file.find("reference") != nullptr) batch.reference_token_log_probs = part<float>(expected("reference"), i, b * t);
    batches.push_back(batch);
  }
  {
    auto model = grpo_model<single>::from_pretrained(golden::folder(base));
    trainer trainer(model, {.max_steps = 1, .micro_batch_size = b, .seq_length = t, .objective = objective, .max_grad_norm = 0.0});
    (void)trainer.step(std::span<const host_batch>(batches.data(), 1), 0.0);
    std::size_t compared = 0;
    for (const auto& entry : model.parameters().entries()) {
      if (file.find("grad." + entry.spec.name) == nullptr) continue;
      parity::require_close(parity::doubles(model.parameters().gradient(entry).host()), expected("grad." + entry.spec.name), parity::fp32_gradients,
                            name + ": gradient of " + entry.spec.name);
      ++compared;
    }
    CHECK(compared == 4);
  }
  auto model = grpo_model<single>::from_pretrained(golden::folder(base));
  trainer trainer(model, {.max_steps = 50,
                          .micro_batch_size = b,
                          .seq_length = t,
                          .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
                          .objective = objective,
                          .max_grad_norm = 1.0});
  const auto losses = expected("losses");
  double error = 0;
  for (std::size_t step = 0; step < 50; ++step)
    error = std::max(error, std::abs(trainer.step(std::span<const host_batch>(&batches[step % batches.size()], 1), 2e-3).loss - losses[step]));
  MESSAGE(name, ": largest difference of a step's loss from trl's: ", error);
  CHECK(error < 1e-4);
  std::size_t compared = 0;
  for (const auto& entry : model.parameters().entries()) {
    if (file.find("final." + entry.spec.name) == nullptr) continue;
    parity::require_close(parity::doubles(model.parameters().value(entry).host()), expected("final." + entry.spec.name),
                          {.absolute = 2e-5, .relative = 1e-4}, name + ": " + entry.spec.name + " after the last step");
    ++compared;
  }
  CHECK(compared == 2);
}

// ---- strategies ----

[[nodiscard]] decoder_config shape() {
  decoder_config c = sizes(false);
  c.attention_dropout = c.residual_dropout = 0.0;
  return c;
}

constexpr std::size_t length = 16;

/// Answers of different lengths with every array of a batch, and padding.
[[nodiscard]] host_batch answers(std::size_t first, std::size_t b) {
  host_batch batch;
  batch.b = b;
  batch.t = length;
  batch.first_sequence = first;
  for (std::size_t i = first; i < first + b; ++i) {
    const std::size_t prompt = 3 + i % 3, answer = 4 + (i * 7) % 6;
    for (std::size_t t = 0; t < length; ++t) {
      const bool is_target = t + 1 >= prompt && t + 1 < prompt + answer, is_padding = t + 1 >= prompt + answer;
      batch.tokens.push_back(is_padding ? 0 : static_cast<token>((i * 31 + t * t * 3) % 97));
      batch.targets.push_back(is_target ? static_cast<token>((i * 31 + (t + 1) * (t + 1) * 3) % 97) : -1);
      batch.positions.push_back(static_cast<token>(is_padding ? t + 1 - prompt - answer : t));
      batch.starts.push_back(static_cast<token>(is_padding ? prompt + answer - 1 : 0));
      batch.old_log_probs.push_back(-4.5F + 0.03F * static_cast<float>((i * 5 + t * 3) % 11));
      batch.reference_token_log_probs.push_back(-4.6F + 0.03F * static_cast<float>((i * 7 + t * 5) % 13));
    }
    batch.advantages.push_back(static_cast<double>(i * 5 % 7) / 3.0 - 1.0);
    batch.target_count += answer;
    batch.token_count += prompt + answer - 1;
  }
  return batch;
}

struct result {
  std::vector<double> losses, norms, statistics;
};

[[nodiscard]] auto settings(std::size_t ranks, const grpo::config& objective) {
  return training_config<adamw, grpo>{
      .max_steps = 4, .micro_batch_size = 4, .gradient_accumulation_steps = 4 / ranks, .seq_length = length, .objective = objective};
}

/// Four steps of 16 answers over all ranks, in micro-batches of four; two steps in flight on an asynchronous device.
template <class Parallel, class Device = cpu>
result train_with(std::size_t ranks, const grpo::config& objective, typename Parallel::config layout = {}) {
  std::vector<result> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    if constexpr (requires { own.ranks = network; }) own.ranks = network;
    grpo_model<Parallel, Device> model(shape(), {}, {.parallel = own});
    const std::size_t shards = model.parallel().data().size(), rank = model.parallel().data().rank();
    trainer trainer(model, settings(shards, objective));
    result& mine = all[network->rank()];
    for (std::size_t step = 0; step < 4; ++step) {
      std::vector<host_batch> batches;
      for (std::size_t m = 0; m < 4 / shards; ++m) batches.push_back(answers(16 * step + 4 * (m * shards + rank), 4));
      trainer.queue_step(std::span<const host_batch>(batches), 1e-2);
      while (trainer.queued_steps() > (std::is_same_v<Device, cpu> || step == 3 ? 0 : 1)) {
        const step_done done = trainer.finish_step();
        mine.losses.push_back(done.loss);
        mine.norms.push_back(done.gradient_norm);
        mine.statistics.insert(mine.statistics.end(), done.statistics.begin(), done.statistics.begin() + 3);
      }
    }
  });
  for (const result& one : all) CHECK(one.losses == all[0].losses);
  return all[0];
}

void agree(const result& a, const result& b) {
  CHECK(difference(a.losses, b.losses) < 2e-5);
  CHECK(difference(a.norms, b.norms) < 2e-4);
  CHECK(difference(a.statistics, b.statistics) < 2e-4);
}

const std::vector<grpo::config> all_kinds{{.kind = grpo_kind::grpo, .beta = 0.1},
                                          {.kind = grpo_kind::dapo, .beta = 0.1, .epsilon_high = 0.28},
                                          {.kind = grpo_kind::dr_grpo, .beta = 0.05, .max_completion_length = 12}};

// ---- rollouts ----

constexpr token stop_token = 5;

struct rollouts_result {
  std::vector<double> rewards, losses;
  std::vector<std::vector<token>> first_answers;
  std::vector<double> lengths;
};

/// The reward is the number of even tokens.
[[nodiscard]] double evenness(const std::vector<token>&, const std::vector<token>& answer) {
  return static_cast<double>(std::count_if(answer.begin(), answer.end(), [](token t) { return t % 2 == 0; }));
}

/// Three rollouts of 8 prompts with 4 answers each: two optimizer steps of 4 prompts, twice.
template <class Parallel, class Device = cpu>
rollouts_result roll_out(std::size_t ranks, typename Parallel::config layout = {}) {
  std::vector<rollouts_result> all(ranks);
  std::vector<std::vector<completion>> first(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    if constexpr (requires { own.ranks = network; }) own.ranks = network;
    grpo_model<Parallel, Device> model(shape(), {}, {.parallel = own});
    trainer trainer(model, settings(model.parallel().data().size(), {.kind = grpo_kind::grpo}));
    rollouts player(trainer, {.num_generations = 4, .max_completion_length = 9, .stop = {stop_token}, .num_iterations = 2, .generation_batch_size = 6});
    CHECK(player.prompts_per_step() == 4);
    rollouts_result& mine = all[network->rank()];
    for (std::size_t i = 0; i < 3; ++i) {
      const rollouts_done done = player.step(prompts_of(8), evenness, 3e-3);
      REQUIRE(done.steps.size() == 4);
      mine.rewards.push_back(done.reward);
      mine.lengths.push_back(done.completion_length);
      for (const step_done& one : done.steps) mine.losses.push_back(one.loss);
      if (i == 0) first[network->rank()].assign(player.completions().begin(), player.completions().end());
    }
  });
  for (const rollouts_result& one : all) {
    CHECK(one.rewards == all[0].rewards);
    CHECK(one.losses == all[0].losses);
  }
  all[0].first_answers = answers_in_order(prompts_of(8), first);
  return all[0];
}

void agree(const rollouts_result& a, const rollouts_result& b) {
  CHECK(a.first_answers == b.first_answers);
  CHECK(a.rewards == b.rewards);
  CHECK(a.lengths == b.lengths);
  CHECK(difference(a.losses, b.losses) < 2e-5);
}

}  // namespace

TEST_CASE("every kind of loss trains as in trl") {
  check_run("grpo", {.kind = grpo_kind::grpo, .beta = 0.3});
  check_run("dapo", {.kind = grpo_kind::dapo, .beta = 0.3, .epsilon_high = 0.28});
  check_run("dr_grpo", {.kind = grpo_kind::dr_grpo, .max_completion_length = 10});
  check_run("on_policy", {.kind = grpo_kind::dapo});
  check_run("sequence_ratio", {.kind = grpo_kind::grpo, .beta = 0.3, .sequence_ratio = true});
}

TEST_CASE("data, tensor, sequence and pipeline parallelism equal one device, and so does a device that works asynchronously") {
  for (const grpo::config& objective : all_kinds) {
    const result here = train_with<single>(1, objective);
    agree(here, train_with<zero<3>>(2, objective));
    agree(here, train_with<parallel<zero<1>, sequence_parallel>>(4, objective, {.tensor_parallel_size = 2}));
    agree(here, train_with<three_axes>(8, objective, all_axes()));
    const result there = train_with<single, testing::isolated<cpu>>(1, objective);
    CHECK(here.losses == there.losses);
    CHECK(here.norms == there.norms);
    CHECK(here.statistics == there.statistics);
  }
}

TEST_CASE("rollouts on data-parallel, tensor-parallel and pipeline-parallel ranks are those of one device") {
  const rollouts_result here = roll_out<single>(1);
  REQUIRE(here.first_answers.size() == 32);
  CHECK(std::any_of(here.first_answers.begin(), here.first_answers.end(), [](const auto& all) { return all.back() == stop_token; }));
  CHECK(std::abs(here.losses[0]) < 1e-6);  // the first step's ratios are 1: its loss is minus the mean of all advantages, 0
  CHECK(std::abs(here.losses[3]) > 1e-4);
  agree(here, roll_out<zero<3>>(2));
  agree(here, roll_out<parallel<zero<1>, sequence_parallel>>(4, {.tensor_parallel_size = 2}));
  agree(here, roll_out<three_axes>(8, all_axes()));
  const rollouts_result there = roll_out<single, testing::isolated<cpu>>(1);
  CHECK(here.first_answers == there.first_answers);
  CHECK(here.losses == there.losses);
}

TEST_CASE("a rollout learns from its answers and nothing else") {
  grpo_model<single> model(shape());
  trainer trainer(model, settings(1, {.kind = grpo_kind::grpo}));
  rollouts player(trainer, {.num_generations = 4, .max_completion_length = 6, .stop = {stop_token}});
  const auto prompts = prompts_of(4);
  const rollouts_done done = player.step(prompts, evenness, 1e-3);
  // the only optimizer step of these answers: all ratios are 1, so the loss is minus the mean of the groups' advantages, 0
  REQUIRE(done.steps.size() == 1);
  CHECK(std::abs(done.steps[0].loss) < 1e-6);
  CHECK(done.steps[0].gradient_norm > 1e-3);
  CHECK(done.steps[0].targets == 16);
  REQUIRE(player.completions().size() == 16);
  double rewards = 0, lengths = 0, cut = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const completion& one = player.completions()[i];
    CHECK(one.prompt == prompts[i / 4]);
    CHECK(one.reward == evenness(one.prompt, one.answer));
    CHECK(std::count(one.answer.begin(), one.answer.end(), stop_token) == 0);
    CHECK((one.stop == stop_token || one.answer.size() == 6));
    rewards += one.reward / 16;
    lengths += static_cast<double>(one.tokens().size() - one.prompt.size()) / 16;
    cut += one.stop < 0 ? 1.0 / 16 : 0.0;
  }
  CHECK(done.reward == doctest::Approx(rewards));
  CHECK(done.completion_length == doctest::Approx(lengths));
  CHECK(done.clipped_ratio == doctest::Approx(cut));
  // a function of a batch; answers without a reward, or with equal ones, have no advantage
  const rollouts_done none = player.step(
      prompts,
      [](std::span<const completion> all) {
        std::vector<double> rewards_of(all.size(), 2.0);
        rewards_of[5] = std::numeric_limits<double>::quiet_NaN();
        return rewards_of;
      },
      1e-3);
  CHECK(none.reward == 2.0);
  CHECK(none.frac_reward_zero_std == 1.0);
  CHECK(none.steps[0].gradient_norm == 0.0);
}

TEST_CASE("a resumed run goes on with the answers that it would have generated") {
  const auto next = [](auto& trainer) {
    rollouts player(trainer, {.num_generations = 4, .max_completion_length = 6, .stop = {stop_token}});
    const rollouts_done done = player.step(prompts_of(4), evenness, 1e-2);
    std::vector<std::vector<token>> all;
    for (const completion& one : player.completions()) all.push_back(one.tokens());
    return std::pair(done.steps[0].loss, all);
  };
  const scratch_folder folder;
  grpo_model<single> first(shape()), second(shape());
  trainer whole(first, settings(1, {}));
  const auto before = next(whole);
  checkpoint_folder(whole, folder.path()).save();
  const auto uninterrupted = next(whole);
  trainer resumed(second, settings(1, {}));
  CHECK(checkpoint_folder(resumed, folder.path()).resume());
  const auto again = next(resumed);
  CHECK(again.first == uninterrupted.first);
  CHECK(again.second == uninterrupted.second);
  CHECK(before.second != again.second);
}

TEST_CASE("the reference of rollouts is a second model, or the model without its adapter") {
  const auto run = [](bool by_adapter) {
    typename grpo_model<single, cpu, lora>::options options;
    options.adapter.rank = 4;
    grpo_model<single, cpu, lora> model(shape(), {}, options);
    llama<defaults> frozen(shape());
    reference_model source(frozen, {.micro_batch_size = 4, .seq_length = length});
    trainer trainer(model, settings(1, {.kind = grpo_kind::grpo, .beta = 0.2}));
    rollouts player(trainer, {.num_generations = 4, .max_completion_length = 6, .num_iterations = 2});
    if (!by_adapter) player.use_reference(source);
    result all;
    for (std::size_t i = 0; i < 3; ++i)
      for (const step_done& done : player.step(prompts_of(4), evenness, 1e-2).steps) {
        all.losses.push_back(done.loss);
        all.statistics.push_back(done.statistics[0]);
      }
    return all;
  };
  const result by_adapter = run(true), by_model = run(false);
  CHECK(by_adapter.losses == by_model.losses);
  CHECK(by_adapter.statistics == by_model.statistics);
  CHECK(by_adapter.statistics.front() == 0.0);
  CHECK(by_adapter.statistics.back() > 0.0);
}

TEST_CASE("rewards rise, and the best of several answers has more than their mean") {
  grpo_model<single> model(shape());
  trainer trainer(model, settings(1, {.kind = grpo_kind::dapo}));
  generator writer(model, 8, length);
  const auto prompts = prompts_of(4);
  const best_of_n_config how{.n = 8, .max_completion_length = 6, .stop = {stop_token}};
  const auto best = best_of_n(writer, prompts, how, evenness);
  REQUIRE(best.size() == 4);
  double mean = 0, of_best = 0;
  for (const completion& one : best) of_best += one.reward / 4;
  auto alone = how;
  alone.n = 1;
  for (const completion& one : best_of_n(writer, prompts, alone, evenness)) mean += one.reward / 4;
  CHECK(of_best > mean);
  CHECK(best_of_n(writer, prompts, how, evenness)[2].answer == best[2].answer);
  auto strict = how;
  strict.min_reward = best[1].reward + 0.5;
  for (const completion& one : best_of_n(writer, prompts, strict, evenness)) CHECK(one.reward > best[1].reward);
  const dataset data = dataset_of(best);
  REQUIRE(data.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(data.length(i) == best[i].tokens().size());
    for (std::size_t t = 0; t < data.length(i); ++t) {
      CHECK(data.at(data.begin(i) + t) == best[i].tokens()[t]);
      CHECK(data.is_target(data.begin(i) + t) == (t >= best[i].prompt.size()));
    }
  }

  rollouts player(trainer, {.num_generations = 4, .max_completion_length = 6, .stop = {stop_token}});
  double first = 0, last = 0;
  for (std::size_t i = 0; i < 60; ++i) {
    const double reward = player.step(prompts, evenness, 1e-2).reward;
    (i < 5 ? first : last) += i < 5 || i >= 55 ? reward / 5 : 0.0;
  }
  MESSAGE("even tokens of 6: ", first, ", then ", last);
  CHECK(last > first + 1.0);
}

// expert balance needs one loss per target: otherwise refused when a trainer is constructed
static_assert(goes_with_balanced_experts<next_token>() && goes_with_balanced_experts<distillation>());
static_assert(!goes_with_balanced_experts<grpo>() && !goes_with_balanced_experts<ppo>() && !goes_with_balanced_experts<ppo_value>());
static_assert(!goes_with_balanced_experts<dpo>() && !goes_with_balanced_experts<kto>() && !goes_with_balanced_experts<reward>());

TEST_CASE("what is missing or does not fit is said") {
  grpo_model<single> model(shape());
  trainer trainer(model, settings(1, {.kind = grpo_kind::grpo, .beta = 0.1}));
  const auto refused = [&](const std::string& words, auto&& change) {
    std::vector<host_batch> batches(4, answers(0, 4));
    change(batches[1]);
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(batches), 1e-2), doctest::Contains(words.c_str()), data_error);
  };
  refused("an advantage for each of its 4 sequences; given 0", [](host_batch& batch) { batch.advantages.clear(); });
  refused("advantages must be finite; sequence 2 has nan", [](host_batch& batch) { batch.advantages[2] = std::nan(""); });
  refused("reference log-probabilities (beta is positive) must be given for every token; given 0",
          [](host_batch& batch) { batch.reference_token_log_probs.clear(); });
  refused("old log-probabilities must be given for every token; given 3", [](host_batch& batch) { batch.old_log_probs.resize(3); });
  refused("must not have weights per token", [](host_batch& batch) { batch.token_weights.assign(64, 1.0F); });
  refused("Do not pack answers", [](host_batch& batch) {
    for (std::size_t i = 3; i < 6; ++i) batch.starts[i] = 3;
  });
  const auto wrong = [&](const std::string& words, const grpo::config& objective) {
    CHECK_THROWS_WITH_AS((xtrain::trainer<grpo_model<single>>(model, settings(1, objective))), doctest::Contains(words.c_str()), config_error);
  };
  wrong("beta must be non-negative", {.beta = -0.1});
  wrong("max_completion_length must be given for the kind dr_grpo", {.kind = grpo_kind::dr_grpo});
  wrong("epsilon_low must be positive", {.epsilon_low = 0.0});

  const auto cannot = [&](const std::string& words, const rollouts_config& how) {
    CHECK_THROWS_WITH_AS(rollouts(trainer, how), doctest::Contains(words.c_str()), config_error);
  };
  cannot("num_generations must be at least 2", {.num_generations = 1});
  cannot("must be a multiple of num_generations, so that a step has whole groups; given 16 sequences and 3", {.num_generations = 3});
  cannot("temperature must be positive", {.sampling = {}});
  rollouts player(trainer, {.num_generations = 4, .max_completion_length = 4});
  CHECK_THROWS_WITH_AS((void)player.step(prompts_of(3), evenness, 1e-3), doctest::Contains("must be a multiple of 4"), config_error);
  CHECK_THROWS_WITH_AS((void)player.step(prompts_of(4), evenness, 1e-3), doctest::Contains("a reference model must be given"), config_error);
  auto long_prompts = prompts_of(4);
  long_prompts[3].assign(length, 1);
  CHECK_THROWS_WITH_AS((void)player.step(long_prompts, evenness, 1e-3), doctest::Contains("prompt 4 has 16"), data_error);
}
