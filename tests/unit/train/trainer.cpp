// What must not change a result: gradient accumulation, number of threads, memory space, interruption.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/testing/isolated.hpp>
#include "host_allocations.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct fp32_recipe : defaults {};
struct walled_recipe : defaults {
  using device = testing::isolated<cpu>;
};
struct bare_with_fallback : defaults {
  using device = with_host_fallback<testing::bare_device>;
};
struct bf16_recipe : defaults {
  using precision = bf16_mixed;
};
struct bf16_gradients_recipe : defaults {
  using precision = bf16_gradients;
};
struct walled_bf16_recipe : bf16_recipe {
  using device = testing::isolated<cpu>;
};

decoder_config sizes() {
  return {.vocab_size = 97,
          .hidden_size = 24,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .intermediate_size = 40,
          .max_position_embeddings = 24,
          .attention_dropout = 0.1,
          .residual_dropout = 0.2};
}

/// Sentences of different lengths: sequence lengths differ and some are packed.
dataset sentences(sequence_layout layout, std::size_t count = 40) {
  dataset all("sentences", layout);
  for (std::size_t s = 0; s < count; ++s) {
    std::vector<token> tokens;
    for (std::size_t i = 0; i < 5 + (s * 7) % 18; ++i) tokens.push_back(static_cast<token>((s * 31 + i * i * 5) % 97));
    all.add(tokens, [&](std::size_t i) { return i > 1; });
  }
  all.finish();
  return all;
}

template <class Device>
typename Device::context with_threads(std::size_t threads) {
  return typename Device::context(typename cpu::context({.threads = threads}));
}
template <>
cpu::context with_threads<cpu>(std::size_t threads) {
  return cpu::context({.threads = threads});
}

class samples_of_run final : public sample_source {
 public:
  [[nodiscard]] std::size_t size() const override { return 40; }
  [[nodiscard]] std::size_t seq_length() const override { return 8; }
  [[nodiscard]] std::size_t vocab_size() const override { return 97; }
  void read(std::size_t sample, std::size_t first, std::span<token> into) const override {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = static_cast<token>((sample * 7 + (first + i) * 5) % 97);
  }
};

struct outcome {
  std::vector<double> losses;
  std::vector<float> weights;
  bool operator==(const outcome&) const = default;
};

template <class Recipe, class Config>
outcome run(const dataset& data, const Config& settings, const typename Recipe::device::context& on = {}) {
  llama<Recipe> model(sizes(), on);
  trainer trainer(model, settings);
  history seen;
  trainer.attach(seen);
  trainer.fit(data);
  outcome result{{seen.losses().begin(), seen.losses().end()}, {}};
  using dtype = typename Recipe::precision::parameter;
  std::vector<dtype> host(model.parameters().trained_values().size());
  copy_to_host(model.stream(), std::span<dtype>(host), model.parameters().trained_values());
  model.stream().synchronize();
  result.weights.assign(host.begin(), host.end());
  return result;
}

using run_config = training_config<adamw>;
const run_config few_steps{.max_steps = 6, .micro_batch_size = 4, .learning_rate = 1e-2};

double largest_difference(const outcome& a, const outcome& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) most = std::max(most, std::abs(a.losses[i] - b.losses[i]));
  for (std::size_t i = 0; i < a.weights.size(); ++i) most = std::max(most, static_cast<double>(std::abs(a.weights[i] - b.weights[i])));
  return most;
}

}  // namespace

TEST_CASE("memory that the host cannot touch and a late stream change nothing, bit for bit") {
  const dataset data = sentences(sequence_layout::separate);
  CHECK(run<fp32_recipe>(data, few_steps) == run<walled_recipe>(data, few_steps));
  CHECK(run<bf16_recipe>(data, few_steps) == run<walled_bf16_recipe>(data, few_steps));
  for (const loss_average average : {loss_average::step, loss_average::micro_batch}) {
    run_config other = few_steps;
    other.gradient_accumulation_steps = 2;
    other.average_loss = average;
    other.weight_decay_of = decayed_parameters::all;
    other.keep_gradients = average == loss_average::step;
    other.max_grad_norm = 0.5;
    CHECK(run<fp32_recipe>(data, other) == run<walled_recipe>(data, other));
  }
}

TEST_CASE("a device without kernels trains on its first day, to the same result") {
  const dataset data = sentences(sequence_layout::separate);
  const with_host_fallback<testing::bare_device>::context on;
  CHECK(run<fp32_recipe>(data, few_steps) == run<bare_with_fallback>(data, few_steps, on));
  CHECK(on.fallbacks().size() > 12);
  CHECK(on.report().find("matmul") != std::string::npos);
}

TEST_CASE("the number of threads changes nothing, bit for bit") {
  const dataset data = sentences(sequence_layout::separate);
  const outcome one = run<fp32_recipe>(data, few_steps, with_threads<cpu>(1));
  CHECK(one == run<fp32_recipe>(data, few_steps, with_threads<cpu>(2)));
  CHECK(one == run<fp32_recipe>(data, few_steps, cpu::context({.executor = std::make_shared<thread_pool>(5)})));
}

TEST_CASE("the same seed gives the same run, another seed another") {
  const dataset data = sentences(sequence_layout::separate);
  const outcome a = run<fp32_recipe>(data, few_steps);
  CHECK(a == run<fp32_recipe>(data, few_steps));
  run_config other = few_steps;
  other.seed = 43;
  CHECK(a.losses != run<fp32_recipe>(data, other).losses);
}

TEST_CASE("a step in micro-batches is the step in one batch, dropout and uneven targets included") {
  const dataset data = sentences(sequence_layout::separate);
  run_config one = few_steps, four = few_steps;
  one.micro_batch_size = 8;
  four.micro_batch_size = 2;
  four.gradient_accumulation_steps = 4;
  // gradients are summed over sequences in another grouping: relative error per step eps · sqrt(sequences · tokens), and AdamW divides by their size: weights
  // differ by at most learning rate · 6 steps · 1e-3 where a gradient is near zero
  CHECK(largest_difference(run<fp32_recipe>(data, one), run<fp32_recipe>(data, four)) < 6e-5);
  // bf16 weights, fp32 gradients: a weight of at most 0.125 occasionally rounds to the adjacent value, 2^-11 away
  CHECK(largest_difference(run<bf16_recipe>(data, one), run<bf16_recipe>(data, four)) <= 0x1p-11);
  // gradients rounded to bf16 after every micro-batch instead of once: relative error 2^-8 · sqrt(4)
  CHECK(largest_difference(run<bf16_gradients_recipe>(data, one), run<bf16_gradients_recipe>(data, four)) < 0.06);
}

TEST_CASE("the mean of the means of micro-batches is the mean of tokens with weights of 1 / targets") {
  for (const sequence_layout layout : {sequence_layout::separate, sequence_layout::packed}) {
    const dataset data = sentences(layout);
    run_config settings{.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 3, .learning_rate = 1e-3, .optimizer = {.epsilon = 1e-5}};
    const auto run_with = [&](bool weighs, bool has_gap) {
      settings.average_loss = weighs ? loss_average::step : loss_average::micro_batch;
      llama<fp32_recipe> model(sizes());
      trainer trainer(model, settings);
      loader rows(data, trainer.loader_settings());
      outcome found;
      for (std::size_t step = 0; step < settings.max_steps; ++step) {
        const auto next = rows.next();
        std::vector<host_batch> batches(next.begin(), next.end());
        if (has_gap) {  // a micro-batch without targets counts with loss 0
          std::fill(batches[1].targets.begin(), batches[1].targets.end(), token{-1});
          batches[1].target_count = 0;
        }
        std::size_t targets = 0;
        for (host_batch& batch : batches) {
          targets += batch.target_count;
          if (weighs && batch.target_count > 0) batch.token_weights.assign(batch.b * batch.t, 1.0F / static_cast<float>(batch.target_count));
          else if (weighs) batch.token_weights.assign(batch.b * batch.t, 1.0F);
        }
        const step_done done = trainer.step(std::span<const host_batch>(batches), 1e-3);
        if (!weighs) CHECK(done.targets == targets);
        // a step without the gap is divided by the sum of weights: the number of micro-batches with targets
        found.losses.push_back(done.loss * (weighs && has_gap ? 2.0 / 3.0 : 1.0));
      }
      if (!has_gap) found.weights.assign(model.parameters().trained_values().host().begin(), model.parameters().trained_values().host().end());
      return found;
    };
    // weights rounded to fp32: losses of about 4.5 are off by a few 2^-24
    CHECK(largest_difference(run_with(false, false), run_with(true, false)) < 5e-6);
    settings.max_steps = 1;
    CHECK(largest_difference(run_with(false, true), run_with(true, true)) < 5e-6);
    // differs from the mean over all targets
    run_config all = settings, each = settings;
    all.average_loss = loss_average::step;
    each.average_loss = loss_average::micro_batch;
    CHECK(largest_difference(run<fp32_recipe>(data, all), run<fp32_recipe>(data, each)) > 1e-4);
  }
}

TEST_CASE("gradients that are kept begin the next step, clipped, and are dropped by a restored run") {
  const dataset data = sentences(sequence_layout::separate);
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.max_steps = 4, .micro_batch_size = 4, .max_grad_norm = 0.5, .keep_gradients = true});
  loader rows(data, trainer.loader_settings());
  const auto gradients = [&] { return std::vector<float>(model.parameters().gradients().host().begin(), model.parameters().gradients().host().end()); };
  const auto first = rows.next();
  const double norm = trainer.step(first, 0.0).gradient_norm;
  const std::vector<float> one = gradients();
  CHECK(norm > 0.5);
  host_batch nothing = first[0];  // adds nothing
  std::fill(nothing.targets.begin(), nothing.targets.end(), token{-1});
  nothing.target_count = 0;
  CHECK(trainer.step(std::span<const host_batch>(&nothing, 1), 0.0).gradient_norm == doctest::Approx(0.5).epsilon(1e-5));
  const std::vector<float> two = gradients();
  double wrong = 0;
  for (std::size_t i = 0; i < one.size(); ++i) wrong = std::max(wrong, std::abs(two[i] - one[i] * 0.5 / (norm + 1e-6)));
  CHECK(wrong < 1e-8);
  trainer.restore(trainer.progress());
  CHECK(trainer.step(std::span<const host_batch>(&nothing, 1), 0.0).gradient_norm == 0.0);
  trainer.queue_step(std::span<const host_batch>(&nothing, 1), 0.0);
  CHECK_THROWS_WITH_AS(trainer.queue_step(std::span<const host_batch>(&nothing, 1), 0.0),
                       "keep_gradients: a step must be finished before the next one is queued; pending are 1", config_error);
  (void)trainer.finish_step();
  xtrain::trainer unclipped(model, {.max_steps = 4, .micro_batch_size = 4, .max_grad_norm = 0.0, .keep_gradients = true});
  (void)unclipped.step(first, 0.0);
  const std::vector<float> before = gradients();
  (void)unclipped.step(std::span<const host_batch>(&nothing, 1), 0.0);
  CHECK(gradients() == before);
}

TEST_CASE("samples packed into rows learn what samples in rows of their own learn") {
  dataset separate = sentences(sequence_layout::separate), packed = sentences(sequence_layout::packed);
  run_config all{.max_steps = 1, .micro_batch_size = 40, .learning_rate = 1e-2, .shuffle = false};
  decoder_config plain = sizes();
  plain.attention_dropout = plain.residual_dropout = 0;  // dropout depends on the position in the sequence, which packing changes
  const auto loss_and_gradient = [&](const dataset& data) {
    llama<fp32_recipe> model(plain);
    trainer trainer(model, all);
    loader rows(data, trainer.loader_settings());
    const step_done done = trainer.step(rows.next(), 0.0);
    const auto gradients = model.parameters().gradients().host();
    return outcome{{done.loss, static_cast<double>(done.targets)}, {gradients.begin(), gradients.end()}};
  };
  const outcome a = loss_and_gradient(separate), b = loss_and_gradient(packed);
  CHECK(a.losses[1] == b.losses[1]);
  CHECK(a.losses[0] == doctest::Approx(b.losses[0]).epsilon(1e-6));
  // sums over 500 tokens in another order
  CHECK(largest_difference(a, b) < 1e-6);
}

TEST_CASE("a step after the first allocates nothing, on the device or on the host") {
  const dataset data = sentences(sequence_layout::separate);
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.max_steps = 100, .micro_batch_size = 4, .average_loss = loss_average::micro_batch, .keep_gradients = true});
  loader rows(data, trainer.loader_settings());
  for (int warm = 0; warm < 3; ++warm) (void)trainer.step(rows.next(), 1e-3);
  const std::size_t device_before = model.context().memory().allocations;
  const std::size_t host_before = host_heap::allocations();
  for (int step = 0; step < 20; ++step) (void)trainer.step(rows.next(), 1e-3);
  CHECK(model.context().memory().allocations == device_before);
  CHECK(host_heap::allocations() == host_before);
}

TEST_CASE("a run that was interrupted in the middle of an epoch and resumed is the uninterrupted run, bit for bit") {
  const auto check = []<class Recipe>(Recipe, const dataset& data, std::size_t cut = 0) {
    CAPTURE(Recipe::precision::name);
    const scratch_folder folder;
    const run_config all{
        .max_steps = 23, .max_steps_per_epoch = cut, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-2};
    const outcome whole = run<Recipe>(data, all);
    std::vector<double> losses;
    std::vector<float> weights;
    for (const std::size_t stop_at : {7UL, 16UL, 23UL}) {        // an epoch has 10 steps
      llama<Recipe> model(sizes(), {}, {.seed = 99 + stop_at});  // other initial values: all must come from the checkpoint
      if (losses.empty()) model.parameters().initialise(model.stream(), 42, [](std::string_view) { return true; });
      trainer trainer(model, all);
      checkpoint_folder files(trainer, folder.path());
      CHECK(files.resume() == !losses.empty());
      std::stop_source stop;
      struct stopper final : observer {
        std::stop_source& source;
        std::size_t at;
        std::vector<double>& losses;
        stopper(std::stop_source& s, std::size_t a, std::vector<double>& l) : source(s), at(a), losses(l) {}
        using observer::on;
        void on(const step_done& done) override {
          losses.push_back(done.loss);
          if (done.step == at) source.request_stop();
        }
      } watcher(stop, stop_at, losses);
      trainer.attach(watcher);
      trainer.attach(files);
      trainer.fit(data, nullptr, stop.get_token());
      const auto values = model.parameters().trained_values().host();
      weights.assign(values.begin(), values.end());
    }
    CHECK(losses == whole.losses);
    CHECK(weights == whole.weights);
  };
  const dataset data = sentences(sequence_layout::separate);
  check(fp32_recipe{}, data);
  check(fp32_recipe{}, data, 4);
  check(bf16_recipe{}, data);
  struct pure : defaults {
    using precision = bf16_pure;
    using optimizer = adamw;
  };
  check(pure{}, data);
}

TEST_CASE("evaluation is the mean over targets, and changes nothing") {
  const dataset data = sentences(sequence_layout::separate);
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.max_steps = 3, .micro_batch_size = 4, .eval_steps = 2});
  const auto before = model.parameters().trained_values().host();
  const std::vector<float> weights(before.begin(), before.end());
  const evaluation a = trainer.evaluate(data);
  CHECK(a.perplexity == doctest::Approx(std::exp(a.loss)));
  CHECK(a.loss == doctest::Approx(std::log(97.0)).epsilon(0.05));
  CHECK(std::equal(weights.begin(), weights.end(), before.begin()));
  const evaluation b = perplexity(model, data, {.micro_batch_size = 7});
  CHECK(b.loss == doctest::Approx(a.loss).epsilon(1e-6));
  CHECK(b.targets == a.targets);
  history seen;
  trainer.attach(seen);
  trainer.fit(data, &data);
  REQUIRE(seen.evaluations().size() == 2);  // after step 2 and at the end
  CHECK(seen.evaluations()[1].step == 3);
}

TEST_CASE("a step without targets has no loss, as in PyTorch, and the run says which samples have none") {
  dataset data("some", sequence_layout::separate);  // samples 1 and 3: a prompt of 12 tokens, the answer is cut off
  for (std::size_t s = 0; s < 4; ++s) {
    std::vector<token> tokens;
    for (std::size_t i = 0; i < 14; ++i) tokens.push_back(static_cast<token>((s * 31 + i * 5) % 97));
    data.add(tokens, [&](std::size_t i) { return i > (s % 2 == 1 ? 12U : 3U); });
  }
  data.add(std::vector<token>{1});
  data.finish();
  data.when_too_long = overlong::truncate;
  struct listener final : observer {
    using observer::on;
    void on(const run_began& began) override { unused = began.unused; }
    void on(const step_done& done) override {
      CHECK(std::isnan(done.loss) == (done.targets == 0));
      CHECK((done.gradient_norm == 0.0) == (done.targets == 0));
      without += done.targets == 0 ? 1 : 0;
    }
    unused_samples unused{};
    std::size_t without = 0;
  } heard;
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.epochs = 2, .micro_batch_size = 1, .seq_length = 12});
  trainer.attach(heard);
  trainer.fit(data, &data);
  CHECK(heard.unused.all == 5);
  CHECK(heard.unused.left_out == 1);
  CHECK(heard.unused.without_targets == 2);
  CHECK(heard.without == 4);
  CHECK(std::isfinite(trainer.evaluate(data).loss));  // the mean over targets
}

TEST_CASE("weights that are not finite are named, steps are skipped and counted, and after a run of them the trainer stops") {
  const dataset data = sentences(sequence_layout::separate);
  struct log final : observer {
    std::vector<std::string> reasons;
    using observer::on;
    void on(const step_skipped& s) override { reasons.push_back(concat(s.step, ": ", s.reason)); }
  };
  const scratch_folder folder;
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.max_steps = 20, .micro_batch_size = 4, .max_bad_steps = 3});
  checkpoint_folder files(trainer, folder.path());
  files.save();
  log seen;
  trainer.attach(seen);
  as_xtensor(model.parameter<2>("model.layers.1.mlp.up_proj.weight"))(3, 5) = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(
      trainer.fit(data),
      doctest::Contains(
          "3 steps in a row were not, the last is step 3: weight model.layers.1.mlp.up_proj.weight holds 1 value that is not finite (block 2)"),
      non_finite_error);
  CHECK(seen.reasons.size() == 3);
  CHECK(seen.reasons[0] == "1: weight model.layers.1.mlp.up_proj.weight holds 1 value that is not finite (block 2)");
  CHECK_THROWS_WITH_AS(files.save(), doctest::Contains("weights must be finite to be saved; model.layers.1.mlp.up_proj.weight is not"),
                       non_finite_error);
  CHECK(files.resume());  // the last good checkpoint is complete
  CHECK_NOTHROW(trainer.fit(data));
}

TEST_CASE("a step whose gradients are not finite changes nothing, and says where it began") {
  const dataset data = sentences(sequence_layout::separate);
  llama<fp32_recipe> model(sizes());
  // finite weights whose products overflow
  for (const char* name : {"model.layers.1.self_attn.o_proj.weight", "model.norm.weight"})
    for (float& x : model.parameters().value(*model.parameters().find(name)).host()) x = 1e37f;
  trainer trainer(model, {.max_steps = 2, .micro_batch_size = 4, .max_bad_steps = 9});
  struct log final : observer {
    std::string reason;
    using observer::on;
    void on(const step_skipped& s) override { reason = s.reason; }
  } seen;
  trainer.attach(seen);
  loader rows(data, trainer.loader_settings());
  const auto values = model.parameters().trained_values().host();
  const std::vector<float> before(values.begin(), values.end());
  (void)trainer.step(rows.next(), 1e-2);
  CHECK(trainer.progress().skipped == 1);
  CHECK(seen.reason.find("gradient of model.") == 0);
  CHECK(std::equal(before.begin(), before.end(), values.begin()));
}

TEST_CASE("fp16 overflows lower the loss scale, and training goes on") {
  struct half_recipe : defaults {
    using precision = fp16_mixed;
  };
  const dataset data = sentences(sequence_layout::separate);
  llama<half_recipe> model(sizes());
  trainer trainer(
      model, {.max_steps = 40, .micro_batch_size = 4, .learning_rate = 1e-2, .loss_scale = {.start = 4294967296.0, .growth_window = 10, .hysteresis = 1}});
  history seen;
  trainer.attach(seen);
  trainer.fit(data);
  CHECK_THROWS_WITH_AS(xtrain::trainer(model, {.keep_gradients = true}), "keep_gradients: the precision must not scale the loss; it is fp16_mixed",
                       config_error);
  CHECK(trainer.progress().skipped > 3);
  CHECK(trainer.progress().skipped < 30);
  CHECK(trainer.progress().loss_scale.scale < 4294967296.0);
  CHECK(seen.losses().size() == 40 - trainer.progress().skipped);
  CHECK(seen.losses().back() < seen.losses().front());
}

TEST_CASE("every precision and optimizer learns, and LoRA trains nothing but its adapter") {
  const dataset data = sentences(sequence_layout::separate, 8);
  const auto falls = [&]<class Recipe>(Recipe, double rate, const typename llama<Recipe>::options& options = {}) {
    decoder_config plain = sizes();
    plain.attention_dropout = plain.residual_dropout = 0;
    llama<Recipe> model(plain, {}, options);
    trainer trainer(model, {.max_steps = 60, .micro_batch_size = 8, .learning_rate = rate});
    history seen;
    trainer.attach(seen);
    trainer.fit(data);
    CAPTURE(Recipe::precision::name);
    CHECK(seen.losses().back() < 0.8 * seen.losses().front());
  };
  falls(fp32_recipe{}, 1e-2);
  falls(bf16_recipe{}, 1e-2);
  struct pure : defaults {
    using precision = bf16_pure;
  };
  falls(pure{}, 1e-2);
  struct plain_sgd : defaults {
    using optimizer = sgd;
  };
  falls(plain_sgd{}, 0.5);
  struct adapted : defaults {
    using adapter = lora;
  };
  falls(adapted{}, 3e-2,
        {.adapter = {.rank = 8,
                     .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
                     .modules_to_save = {"embed_tokens"}}});
}

TEST_CASE("frozen weights have neither gradients nor optimizer state, and do not change") {
  struct adapted : defaults {
    using adapter = lora;
  };
  const dataset data = sentences(sequence_layout::separate, 8);
  llama<adapted> model(sizes(), {}, {.adapter = {.rank = 4}});
  const std::size_t trained = model.parameters().trained_count();
  CHECK(trained == 2 * 4 * ((24 + 24) + (24 + 12)));  // q_proj and v_proj in two layers
  const auto frozen = model.parameter<2>("model.layers.0.mlp.up_proj.weight").span().host();
  const std::vector<float> before(frozen.begin(), frozen.end());
  trainer trainer(model, {.max_steps = 3, .micro_batch_size = 4});
  trainer.fit(data);
  CHECK(std::equal(before.begin(), before.end(), frozen.begin()));
  CHECK(model.context().memory().of(memory_role::gradients) < 2 * trained * sizeof(float));
  CHECK(model.context().memory().of(memory_role::optimizer) < 3 * trained * sizeof(float));
}

TEST_CASE("the plan is what the run takes") {
  const dataset data = sentences(sequence_layout::separate);
  run_config kept = few_steps;
  kept.average_loss = loss_average::micro_batch;
  kept.keep_gradients = true;
  for (const run_config& settings : {few_steps, kept}) {
    llama<fp32_recipe> model(sizes());
    trainer trainer(model, settings);
    trainer.fit(data);
    const memory_count used = model.context().memory();
    CHECK(trainer.plan().total() == used.total_peak);
    for (std::size_t r = 0; r < memory_roles; ++r) CHECK(trainer.plan().bytes[r] == used.peak[r]);
  }
}

TEST_CASE("a run that does not fit is refused before anything is allocated, with the numbers") {
  const cpu::context on({.memory_limit = 200'000});
  llama<fp32_recipe> model(sizes(), on);
  const std::size_t before = on.memory().total_now;
  CHECK_THROWS_WITH_AS(trainer(model, few_steps), doctest::Contains("memory: the run must fit 195.31 KiB; it needs"), memory_error);
  CHECK(on.memory().total_now == before);
}

TEST_CASE("settings that contradict themselves or the model are refused") {
  llama<fp32_recipe> model(sizes());
  CHECK_THROWS_WITH_AS(trainer(model, {.seq_length = 100}), "seq_length: must not be longer than the model's 24 tokens; given 100", config_error);
  CHECK_THROWS_AS(trainer(model, {.micro_batch_size = 0}), config_error);
  CHECK_THROWS_AS(trainer(model, {.learning_rate = -1.0}), config_error);
  CHECK_THROWS_AS(trainer(model, {.warmup_ratio = 2.0}), config_error);
  CHECK_THROWS_WITH_AS(trainer(model, {.learning_rate = 0.5, .min_lr = 1.0}), "min_lr: must be in [0, 0.5], up to the learning_rate; given 1", config_error);
  CHECK_THROWS_AS(trainer(model, {.warmup_steps = 10, .lr_decay_steps = 5}), config_error);
  CHECK_THROWS_WITH_AS(trainer(model, {.keep_gradients = true, .late_metrics = true}),
                       doctest::Contains("keep_gradients: must not be combined with capture_steps or late_metrics"), config_error);
  CHECK_THROWS_WITH_AS(trainer(model, {.average_loss = loss_average::micro_batch, .capture_steps = true}),
                       "average_loss: must be step with capture_steps: means of micro-batches are not in device memory", config_error);
  CHECK_THROWS_WITH_AS((void)detail::complete_config(training_config<adamw, dpo>{.average_loss = loss_average::micro_batch}, 24, 1, 1),
                       "average_loss: must be step for objectives other than next_token, distillation, ppo and ppo_value; the objective is dpo", config_error);
  const dataset data = [] {
    dataset d("wrong", sequence_layout::separate);
    d.add(std::vector<token>{1, 2, 500});
    d.finish();
    return d;
  }();
  trainer trainer(model, few_steps);
  CHECK_THROWS_WITH_AS(trainer.fit(data), doctest::Contains("wrong: tokens must be below the model's vocabulary of 97; token 500 occurs"),
                       data_error);
}

TEST_CASE("xtensor rows go in, and logits, parameters and losses come out") {
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.max_steps = 5, .micro_batch_size = 2, .seq_length = 8});
  history seen;
  const array<token, 2> tokens = xt::arange<token>(16).reshape({2, 8}), targets = tokens + 1;
  const xtensor_batch rows(tokens, targets);
  const double first = trainer.step(std::span(&rows, 1), 1e-2).loss;
  double last = first;
  for (int i = 0; i < 10; ++i) last = trainer.step(std::span(&rows, 1), 1e-2).loss;
  CHECK(last < first);
  {
    array<token, 2> wrong = tokens;
    wrong(1, 3) = 97;
    const xtensor_batch wrong_rows(wrong, targets);
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span(&wrong_rows, 1), 1e-2), doctest::Contains("vocabulary of 97; given 97"), data_error);
  }
  const auto logits_btv = logits(model, tokens);
  CHECK(logits_btv.shape()[0] == 2);
  CHECK(logits_btv.shape()[2] == 97);
  // the loss from the logits equals the loss of a step without an update
  const array<float, 2> log_sum = xt::log(xt::sum(xt::exp(logits_btv), {2}));
  double sum = 0;
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t t = 0; t < 8; ++t)
      sum += static_cast<double>(log_sum(b, t) - logits_btv(b, t, static_cast<std::size_t>(targets(b, t))));
  const auto weight = as_xtensor(model.parameter<2>("model.embed_tokens.weight"));
  CHECK(weight.shape()[0] == 97);
  CHECK(sum / 16 == doctest::Approx(perplexity(model,
                                               [&] {
                                                 dataset d("rows", sequence_layout::separate);
                                                 for (std::size_t b = 0; b < 2; ++b) {
                                                   std::vector<token> row(tokens.data() + 8 * b, tokens.data() + 8 * b + 8);
                                                   row.push_back(targets(b, 7));
                                                   d.add(row);
                                                 }
                                                 d.finish();
                                                 return d;
                                               }())
                                        .loss)
                        .epsilon(1e-5));
}

TEST_CASE("a model with an embedding of positions must be given them, one with ALiBi need not") {
  const decoder_config small{.vocab_size = 97, .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 24};
  gpt2<fp32_recipe> learned(small);
  bloom<fp32_recipe> biased(small);
  const host_batch rows{.b = 1, .t = 4, .tokens = {1, 2, 3, 4}, .targets = {2, 3, 4, 5}, .target_count = 4, .token_count = 4};
  CHECK_THROWS_WITH_AS((void)logits(learned, rows), doctest::Contains("logits: positions must be given"), data_error);
  host_batch placed = rows;
  placed.positions = {0, 1, 2, 3};
  const auto without = logits(biased, rows), with = logits(biased, placed);
  CHECK(std::equal(without.begin(), without.end(), with.begin()));
}

using tokens_of_rows = array<token, 2>;
static_assert(std::is_constructible_v<xtensor_batch, tokens_of_rows&, const tokens_of_rows&>);
static_assert(!std::is_constructible_v<xtensor_batch, tokens_of_rows, tokens_of_rows&>);  // would refer to a destroyed array
static_assert(!std::is_constructible_v<xtensor_batch, tokens_of_rows&, const tokens_of_rows>);
static_assert(!std::is_constructible_v<xtensor_batch, tokens_of_rows, tokens_of_rows>);

TEST_CASE("rows that a kernel would follow out of its memory are refused, and the step did not happen") {
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.max_steps = 5, .micro_batch_size = 2, .seq_length = 8});
  const host_batch good{.b = 2,
                        .t = 4,
                        .tokens = {1, 2, 3, 4, 5, 6, 7, 8},
                        .targets = {2, 3, 4, -1, 6, 7, 8, -1},
                        .positions = {0, 1, 0, 1, 0, 1, 2, 3},
                        .starts = {0, 0, 2, 2, 0, 0, 0, 0},
                        .target_count = 6,
                        .token_count = 8};
  const auto refused = [&](const host_batch& rows, const char* why) {
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span(&rows, 1), 1e-2), doctest::Contains(why), data_error);
    CHECK(trainer.progress().step == 0);
    CHECK_THROWS_WITH_AS((void)logits(model, rows), doctest::Contains(why), data_error);
  };
  host_batch rows = good;
  rows.tokens[5] = -1;
  refused(rows, "tokens must be in the model's vocabulary of 97; given -1 at index 5");
  rows = good;
  rows.positions[3] = 24;
  refused(rows, "positions must be in the model's max_position_embeddings of 24; given 24 at index 3");
  rows.positions[3] = -1;
  refused(rows, "positions must be in the model's max_position_embeddings of 24; given -1 at index 3");
  rows = good;
  rows.positions.clear();
  refused(rows, "positions must be given, one for each of the 8 tokens: its index in its sample, from 0; a batch has none");
  for (const auto& [b, t] : {std::pair<std::size_t, std::size_t>{2, 0}, {0, 8}, {0, 0}}) {
    const host_batch none{.b = b, .t = t};
    const char* why = "trainer: a batch must have at least one sequence of at least one token; given ";
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span(&none, 1), 1e-2), doctest::Contains(why), data_error);
    CHECK_THROWS_WITH_AS((void)trainer.token_log_probs(none), doctest::Contains(why), data_error);
  }
  for (const auto& [place, start] : {std::pair<std::size_t, token>{0, 1}, {1, -1}, {3, 1}, {4, 2}, {6, 3}, {7, 8}, {7, -4}}) {
    rows = good;
    rows.starts[place] = start;
    refused(rows, "batch: a token's start must be that of the token before it in its sequence, or the token itself");
  }
  for (const std::size_t count : {0U, 5U, 8U}) {  // otherwise the mean would be over other losses
    rows = good;
    rows.target_count = count;
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-2),
                         doctest::Contains("target_count must be how many targets are not negative, 6"), data_error);
  }
  (void)trainer.step(std::span(&good, 1), 1e-2);
  CHECK(trainer.progress().step == 1);
}

TEST_CASE("a micro-batch larger than the trainer was made for is refused, and so is a step of no micro-batch") {
  llama<fp32_recipe> model(sizes());
  trainer trainer(model, {.max_steps = 5, .micro_batch_size = 2, .seq_length = 8});
  const auto refused = [&](std::size_t b, std::size_t t, const char* why) {
    host_batch rows{.b = b, .t = t, .tokens = std::vector<token>(b * t, 3), .targets = std::vector<token>(b * t, 4)};
    for (std::size_t i = 0; i < b * t; ++i) rows.positions.push_back(static_cast<token>(i % t));
    rows.target_count = rows.token_count = b * t;
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span(&rows, 1), 1e-2), doctest::Contains(why), shape_error);
    CHECK_THROWS_WITH_AS((void)trainer.token_log_probs(rows), doctest::Contains(why), shape_error);
  };
  refused(1, 9, "sequences must not be longer than the trainer's seq_length of 8 tokens; given 9");
  refused(3, 8, "a micro-batch must have at most micro_batch_size times seq_length tokens, 16; given 3 sequences of 8");
  CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(), 1e-2), "trainer: a step must have at least one micro-batch; given 0", data_error);
  CHECK(trainer.progress().step == 0);
}

TEST_CASE("a second fit draws other dropout than the first") {
  llama<fp32_recipe> model(sizes());
  auto settings = few_steps;
  settings.learning_rate = 0.0;  // constant weights, same batches
  trainer trainer(model, settings);
  history seen;
  trainer.attach(seen);
  trainer.fit(sentences(sequence_layout::separate));
  trainer.fit(sentences(sequence_layout::separate));
  REQUIRE(seen.losses().size() == 12);
  for (std::size_t i = 0; i < 6; ++i) CHECK(seen.losses()[i] != seen.losses()[6 + i]);
}

TEST_CASE("a growing global batch and the data's position belong together") {
  const dataset data("samples", std::make_shared<samples_of_run>());
  llama<fp32_recipe> model(sizes());
  // sequences of the steps: 2, 2, 4, 6, 8
  auto settings = few_steps;
  settings.max_steps = 5;
  settings.micro_batch_size = 2;
  settings.gradient_accumulation_steps = 4;
  settings.seq_length = 8;
  settings.rampup_batch_size = {2, 2, 12};
  trainer run(model, settings);
  struct : observer {
    using observer::on;
    void on(const step_done& done) override { tokens.push_back(done.tokens); }
    std::vector<std::size_t> tokens{};
  } seen;
  run.attach(seen);
  run.fit(data);
  CHECK(seen.tokens == std::vector<std::size_t>{16, 16, 32, 48, 64});

  loader_config other = run.loader_settings();
  other.rampup = {};
  loader equal(data, other);
  CHECK_THROWS_WITH_AS(run.fit(equal), doctest::Contains("rampup_batch_size: the loader must have that of the trainer's settings"), config_error);
  loader used(data, run.loader_settings());
  (void)used.next();
  CHECK_THROWS_WITH_AS(run.fit(used), doctest::Contains("the data must be at the step of the run, 0; its loader is at step 1 of epoch 0"), config_error);
}
