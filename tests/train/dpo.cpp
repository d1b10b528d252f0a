// Preference training: equal references from a disabled adapter, a second model and the data; every strategy equals one device; orpo, simpo and kto train as in
// trl.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/testing/isolated.hpp>
#include "any_preference.hpp"
#include "objective_runs.hpp"
#include "planned.hpp"
#include "ranks.hpp"

namespace {

template <class Parallel, class Adapter = no_adapter, class Device = cpu>
struct dpo_recipe : defaults {
  using parallel = Parallel;
  using adapter = Adapter;
  using device = Device;
  using objective = any_preference;
};
template <class Parallel, class Adapter = no_adapter, class Device = cpu>
using dpo_model = llama<dpo_recipe<Parallel, Adapter, Device>>;

[[nodiscard]] decoder_config shape() {
  decoder_config c = sizes(false);
  c.attention_dropout = c.residual_dropout = 0.0;  // the reference has no dropout
  return c;
}

constexpr std::size_t length = 16;

using policy = any_preference::policy;

/// Pairs of sequences: common prompt, answers of different lengths, padding.
[[nodiscard]] host_batch pairs_of(std::size_t first, std::size_t pairs, bool has_labels = false) {
  host_batch batch;
  batch.b = 2 * pairs;
  batch.t = length;
  batch.first_sequence = 2 * first;
  for (std::size_t i = 2 * first; i < 2 * (first + pairs); ++i) {
    const std::size_t prompt = 4 + i / 2 % 3, answer = 5 + (i * 7) % 6;
    if (has_labels) batch.labels.push_back(i / 2 % 3 == 0 ? 0 : 1);
    for (std::size_t t = 0; t < length; ++t) {
      const bool is_prompt = t < prompt, is_padding = t >= prompt + answer;
      batch.tokens.push_back(is_padding ? 0 : static_cast<token>((is_prompt ? i / 2 * 13 + t * 5 : i * 31 + t * t * 3) % 97));
      batch.targets.push_back(!is_prompt && !is_padding ? static_cast<token>((i * 31 + (t + 1) * (t + 1) * 3) % 97) : -1);
      batch.positions.push_back(static_cast<token>(is_padding ? t - prompt - answer : t));
      batch.starts.push_back(static_cast<token>(is_padding ? prompt + answer : 0));
    }
    batch.target_count += answer;
    batch.token_count += prompt + answer;
  }
  return batch;
}

struct result {
  std::vector<double> losses, norms, margins, weights;
  double held_out = 0;
};

/// Five steps of eight pairs over all ranks, in micro-batches of two.
template <class Trainer>
result take_steps(Trainer& trainer, bool has_labels = false) {
  auto& parallel = trainer.model().parallel();
  const std::size_t ranks = parallel.data().size(), rank = parallel.data().rank();
  result all;
  for (std::size_t step = 0; step < 5; ++step) {
    std::vector<host_batch> batches;
    for (std::size_t m = 0; m < 4 / ranks; ++m) batches.push_back(pairs_of(8 * step + 2 * (m * ranks + rank), 2, has_labels));
    const step_done done = trainer.step(std::span<const host_batch>(batches), 1e-2);
    all.losses.push_back(done.loss);
    all.norms.push_back(done.gradient_norm);
    all.margins.push_back(done.statistics[2]);
    CHECK(done.targets == 8);
  }
  return all;
}
[[nodiscard]] auto settings(std::size_t ranks = 1, policy is = policy::dpo) {
  training_config<adamw, any_preference> c{.max_steps = 5, .micro_batch_size = 4, .gradient_accumulation_steps = 4 / ranks, .seq_length = length};
  c.objective.is = is;
  c.objective.dpo.beta = c.objective.kto.beta = 0.3;
  c.objective.kto.undesirable_weight = 1.3;
  c.objective.simpo.nll_weight = 0.2;
  return c;
}

/// The model's initial weights are the reference.
template <class Parallel, class Device = cpu>
result with_second_model(std::size_t ranks, typename Parallel::config layout = {}, policy is = policy::dpo) {
  std::vector<result> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout, other = layout;
    if constexpr (requires { own.ranks = network; }) {
      own.ranks = network;
      other.ranks = separate_channels(network);
    }
    using model_type = dpo_model<Parallel, no_adapter, Device>;
    const typename Device::context on;
    model_type model(shape(), on, {.parallel = own}), reference(shape(), on, {.parallel = other});
    const std::size_t data_ranks = model.parallel().data().size();
    trainer trainer(model, settings(data_ranks, is));
    const forward_only_config batches{.micro_batch_size = 4, .gradient_accumulation_steps = 4 / data_ranks, .seq_length = length};
    reference_model source(reference, batches);
    trainer.use_reference(source);
    all[network->rank()] = take_steps(trainer, is == policy::kto);
    dry_run planned = plan<xtrain::trainer<model_type>>(shape(), {.parallel = own}, settings(data_ranks, is), on.properties());
    planned.set_beside("reference model", plan<reference_model<model_type>>(shape(), {.parallel = other}, batches, on.properties()));
    check_planned(planned, on.memory());
    check_planned(trainer.plan(), on.memory());
  });
  for (const result& one : all) CHECK(one.losses == all[0].losses);
  return all[0];
}

/// A reference model's log-probabilities of a batch, on the host.
template <class Source, class Model>
std::vector<double> log_probs_of(Source& source, Model& model, const host_batch& batch) {
  const buffer<cpu> values(model.context(), batch.b * sizeof(double), memory_role::other);
  source.compute(model.stream(), batch_view(batch), 0, {values.template as<double>(), {batch.b}});
  const auto host = values.template as<double>().host();
  return {host.begin(), host.end()};
}

void agree(const result& a, const result& b, double bound) {
  CHECK(difference(a.losses, b.losses) < bound);
  CHECK(difference(a.norms, b.norms) < 10 * bound);
  CHECK(difference(a.margins, b.margins) < 10 * bound);
}

}  // namespace

TEST_CASE("the first loss is log 2, and the margin grows") {
  const result one = with_second_model<single>(1);
  CHECK(one.losses.front() == doctest::Approx(std::log(2.0)).epsilon(1e-6));
  CHECK(std::abs(one.margins.front()) < 1e-6);
}

TEST_CASE("a second model, log-probabilities in the data, and an adapter switched off are the same reference") {
  using base = dpo_model<single, lora>;
  const auto adapted = [&] {
    base::options options;
    options.adapter.rank = 4;
    return options;
  }();
  base first(shape(), {}, adapted), second(shape(), {}, adapted), third(shape(), {}, adapted);
  llama<defaults> frozen(shape());
  trainer switched_off(first, settings());
  const result by_adapter = take_steps(switched_off);

  trainer by_model(second, settings());
  reference_model source(frozen, {.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
  by_model.use_reference(source);
  const result by_second = take_steps(by_model);
  CHECK(by_adapter.losses == by_second.losses);
  CHECK(by_adapter.norms == by_second.norms);

  // precomputed and stored in the data
  trainer by_data(third, settings());
  result by_file;
  for (std::size_t step = 0; step < 5; ++step) {
    std::vector<host_batch> batches;
    for (std::size_t m = 0; m < 4; ++m) {
      batches.push_back(pairs_of(8 * step + 2 * m, 2));
      batches.back().reference_log_probs = log_probs_of(source, frozen, batches.back());
    }
    by_file.losses.push_back(by_data.step(std::span<const host_batch>(batches), 1e-2).loss);
  }
  CHECK(by_adapter.losses == by_file.losses);
}

TEST_CASE("data, tensor, sequence, context and pipeline parallelism equal one device") {
  for (const policy is : {policy::dpo, policy::orpo, policy::simpo, policy::kto}) {
    CAPTURE(static_cast<int>(is));
    const result one = with_second_model<single>(1, {}, is);
    agree(one, with_second_model<data_parallel>(2, {}, is), 2e-5);
    agree(one, with_second_model<zero<3>>(2, {}, is), 2e-5);
    agree(one, with_second_model<tensor_parallel>(2, {.tensor_parallel_size = 2}, is), 2e-5);
    agree(one, with_second_model<parallel<zero<1>, sequence_parallel>>(4, {.tensor_parallel_size = 2}, is), 2e-5);
    agree(one, with_second_model<context_parallel>(2, {.context_parallel_size = 2}, is), 2e-5);
    agree(one, with_second_model<pipeline<one_forward_one_backward>>(2, {}, is), 2e-5);
  }
}

TEST_CASE("on a device that works asynchronously, bit for bit") {
  for (const policy is : {policy::dpo, policy::orpo, policy::simpo, policy::kto}) {
    const result here = with_second_model<single>(1, {}, is), there = with_second_model<single, testing::isolated<cpu>>(1, {}, is);
    CHECK(here.losses == there.losses);
    CHECK(here.norms == there.norms);
    CHECK(here.margins == there.margins);
  }
}

TEST_CASE("orpo, simpo and kto train as in trl") {
  namespace runs = objective_runs;
  const auto check = [](const std::string& name, const any_preference::config& how, double bound) {
    runs::check_run<dpo_model<single>>(runs::expected_run(name), how, runs::from_the_batch{}, bound);
  };
  check("orpo", {.is = policy::orpo}, 5e-4);  // PyTorch's fp32 differs from its fp64 by 1.2e-4
  check("simpo", {.is = policy::simpo, .simpo = {.beta = 2.0, .gamma = 0.5, .nll_weight = 0.3}}, 1e-4);
  runs::expected_run kto("kto"), apo_zero("kto_apo_zero");
  for (runs::expected_run* run : {&kto, &apo_zero}) {
    const auto reference = (*run)["reference"];
    for (std::size_t i = 0; i < run->batches.size(); ++i) run->batches[i].reference_log_probs = runs::part(reference, i, runs::b);
  }
  runs::check_run<dpo_model<single>>(kto, {.is = policy::kto, .kto = {.undesirable_weight = 0.8}});
  runs::check_run<dpo_model<single>>(apo_zero, {.is = policy::kto, .kto = {.kind = kto_kind::apo_zero}});
}

TEST_CASE("a reference by an adapter switched off serves kto too") {
  dpo_model<single, lora>::options options;
  options.adapter.rank = 4;
  dpo_model<single, lora> first(shape(), {}, options), second(shape(), {}, options);
  trainer switched_off(first, settings(1, policy::kto));
  const result by_adapter = take_steps(switched_off, true);
  llama<defaults> frozen(shape());
  trainer by_model(second, settings(1, policy::kto));
  reference_model source(frozen, {.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
  by_model.use_reference(source);
  CHECK(by_adapter.losses == take_steps(by_model, true).losses);
}

TEST_CASE("what is missing or does not fit is said") {
  dpo_model<single> model(shape());
  trainer trainer(model, settings());
  const std::vector<host_batch> whole(4, pairs_of(0, 2));
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(whole), 1e-2), doctest::Contains("a reference model must be given"), config_error);
  std::vector<host_batch> odd(4, pairs_of(0, 2));
  for (host_batch& batch : odd) {
    batch.b = 3;
    for (auto* values : {&batch.tokens, &batch.targets, &batch.positions, &batch.starts}) values->resize(3 * length);
  }
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(odd), 1e-2), doctest::Contains("an even number of sequences"), data_error);
  std::vector<host_batch> some(4, pairs_of(0, 2));
  for (host_batch& batch : some) batch.reference_log_probs = {1.0};
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(some), 1e-2), doctest::Contains("for every sequence"), data_error);
  auto uneven = settings();
  uneven.micro_batch_size = 3;
  CHECK_THROWS_WITH_AS((xtrain::trainer<dpo_model<single>>(model, uneven)), doctest::Contains("micro_batch_size must be even"), config_error);
  auto wrong = settings();
  wrong.objective.dpo = {.kind = preference_kind::ipo, .label_smoothing = 0.1};
  CHECK_THROWS_WITH_AS((xtrain::trainer<dpo_model<single>>(model, wrong)), doctest::Contains("sigmoid and robust only"), config_error);
  dpo_model<single> frozen(shape());
  reference_model few(frozen, {.micro_batch_size = 4, .seq_length = length});
  trainer.use_reference(few);
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(whole), 1e-2), doctest::Contains("gradient_accumulation_steps must be at least"),
                       shape_error);
  reference_model itself(model, {.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
  CHECK_THROWS_WITH_AS(trainer.use_reference(itself), doctest::Contains("the reference model must be a second model, which is not trained"), config_error);
  decoder_config larger = shape();
  larger.vocab_size = 101;
  dpo_model<single> stranger(larger);
  reference_model other(stranger, {.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
  CHECK_THROWS_WITH_AS(trainer.use_reference(other), doctest::Contains("its vocabulary must be that of the trained model, 97; it is 101"), config_error);
  auto gone = std::make_unique<dpo_model<single>>(shape());
  auto beside = std::make_unique<reference_model<dpo_model<single>>>(
      *gone, forward_only_config{.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
  trainer.use_reference(*beside);
  gone.reset();
  const auto step = [&] { (void)trainer.step(std::span<const host_batch>(whole), 1e-2); };
  CHECK_THROWS_WITH_AS(step(), doctest::Contains("reference_model: its model must stay where it was when the reference_model was made; the model has been "
                                                 "destroyed"),
                       config_error);
  beside.reset();
  CHECK_THROWS_WITH_AS(step(), doctest::Contains("trainer: the reference model must live as long as it is used; it has been destroyed"), config_error);
  reference_model there(frozen, {.micro_batch_size = 4, .gradient_accumulation_steps = 4, .seq_length = length});
  trainer.use_reference(there);
  CHECK_NOTHROW(step());
  decoder_config balanced = shape();
  balanced.num_experts = 4;
  balanced.num_experts_per_token = 2;
  balanced.balances_experts = true;
  mixtral<dpo_recipe<single>> experts(balanced);
  auto free = settings();
  free.objective.dpo.reference_free = true;
  CHECK_THROWS_WITH_AS((xtrain::trainer(experts, free)), doctest::Contains("set balances_experts to false"), config_error);

  auto bare = settings(1, policy::orpo);
  xtrain::trainer ratios(model, bare);
  std::vector<host_batch> without(4, pairs_of(0, 2));
  std::fill_n(without[1].targets.begin() + length, length, -1);
  CHECK_THROWS_WITH_AS((void)ratios.step(std::span<const host_batch>(without), 1e-2), doctest::Contains("orpo: both sequences of a pair must have targets; "
                                                                                                        "sequence 1 has none"),
                       data_error);
  auto labeled = settings(1, policy::kto);
  xtrain::trainer answers(model, labeled);
  answers.use_reference(few);
  CHECK_THROWS_WITH_AS((void)answers.step(std::span<const host_batch>(whole), 1e-2), doctest::Contains("kto: every sequence must have a label"), data_error);
  std::vector<host_batch> strange(4, pairs_of(0, 2, true));
  strange[0].labels[2] = 7;
  CHECK_THROWS_WITH_AS((void)answers.step(std::span<const host_batch>(strange), 1e-2), doctest::Contains("sequence 2 has 7"), data_error);
  CHECK_THROWS_WITH_AS(orpo::require_config({.beta = 0.0}), doctest::Contains("orpo: beta must be positive; given 0"), config_error);
  CHECK_THROWS_WITH_AS(simpo::require_config({.gamma = -1.0}), doctest::Contains("simpo: gamma must be non-negative; given -1"), config_error);
  CHECK_THROWS_WITH_AS(kto::require_config({.desirable_weight = -1.0}), doctest::Contains("desirable_weight must be non-negative; given -1"), config_error);
  CHECK_THROWS_WITH_AS(dpo::require_config({.kind = preference_kind::odds_ratio}), doctest::Contains("choose orpo"), config_error);
}

TEST_CASE("kto reports rewards as means over answers of each label") {
  // a quarter of the answers is desirable
  const auto reported = kto::reported({0.5, -0.75, 0.1, 0.25});
  CHECK(reported[0] == doctest::Approx(2.0));
  CHECK(reported[1] == doctest::Approx(-1.0));
  CHECK(reported[2] == doctest::Approx(3.0));
  CHECK(reported[3] == doctest::Approx(0.1));
  CHECK(kto::reported({0.5, 0.0, 0.1, 1.0})[2] == 0.0);  // no margin without answers of both labels
  static_assert(objective_for<dpo, defaults> && objective_for<orpo, defaults> && objective_for<simpo, defaults> && objective_for<kto, defaults>);
}

TEST_CASE("fitted on pairs: the chosen answers become more likely than the rejected ones, and pairs stay together") {
  dataset data("pairs", sequence_layout::separate);
  data.group_size = 2;
  for (std::size_t i = 0; i < 48; ++i)
    for (const std::size_t rejected : {0U, 1U}) {
      // chosen answers count up from the prompt, rejected ones down
      std::vector<token> tokens{static_cast<token>(20 + i % 40)};
      for (std::size_t t = 1; t < 6 + i % 3; ++t) tokens.push_back(static_cast<token>(rejected == 1 ? tokens.back() - 1 : tokens.back() + 1));
      data.add(tokens, [](std::size_t t) { return t > 0; });
    }
  data.finish();
  dpo_model<single> model(shape()), frozen(shape());
  training_config<adamw, any_preference> how{.epochs = 8, .micro_batch_size = 4, .gradient_accumulation_steps = 2, .seq_length = length, .learning_rate = 3e-3};
  trainer trainer(model, how);
  reference_model source(frozen, {.micro_batch_size = 4, .gradient_accumulation_steps = 2, .seq_length = length});
  trainer.use_reference(source);
  struct accuracies final : observer {
    std::vector<double> all;
    using observer::on;
    void on(const step_done& done) override {
      CHECK(done.statistic_names[3] == "rewards/accuracies");
      all.push_back(done.statistics[3]);
    }
  } seen;
  trainer.attach(seen);
  const double before = trainer.evaluate(data).loss;
  trainer.fit(data);
  CHECK(before == doctest::Approx(std::log(2.0)).epsilon(1e-5));
  CHECK(trainer.evaluate(data).loss < 0.2);
  CHECK(seen.all.back() == 1.0);
  dataset apart("apart", sequence_layout::separate);
  apart.add(std::vector<token>{1, 2, 3});
  apart.finish();
  CHECK_THROWS_WITH_AS(trainer.fit(apart), doctest::Contains("group_size must be 2"), config_error);
}
