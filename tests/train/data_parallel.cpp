// Data parallelism and the ZeRO stages equal one device with the same global batch; with LoRA and recomputation: equality/.
#include <doctest/doctest.h>

#include <mutex>

#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/testing/slow_transport.hpp>
#include "ranks.hpp"

namespace {

template <class Parallel>
struct walled_recipe : recipe<Parallel> {
  using device = testing::isolated<cpu>;
};

/// Ten steps of 8 sequences, with any data parallelism and gradient accumulation, equal one device.
template <template <class> class Recipe, template <class> class Family>
void equals_single(bool tied, double bound) {
  const dataset data = sentences();
  const auto settings = [](std::size_t batch, std::size_t accumulate) {
    return run_config{.max_steps = 10, .micro_batch_size = batch, .gradient_accumulation_steps = accumulate, .learning_rate = 1e-3};
  };
  const outcome one = train<Family<Recipe<single>>>(data, sizes(tied), settings(2, 4), {});
  const auto agrees = [&](const outcome& other) {
    CHECK(difference(one.losses, other.losses) < bound);
    CHECK(difference(one.weights, other.weights) < bound);
    CHECK(std::abs(one.held_out - other.held_out) < bound);
  };
  for (const std::size_t ranks : {2U, 4U}) {
    const auto cut = settings(2, 4 / ranks);
    const outcome data_ranks = train_on_ranks<Family<Recipe<data_parallel>>>(ranks, data, sizes(tied), cut);
    agrees(data_ranks);
    const outcome stage1 = train_on_ranks<Family<Recipe<zero<1>>>>(ranks, data, sizes(tied), cut);
    agrees(stage1);
    CHECK(stage1.losses[0] == data_ranks.losses[0]);
    const outcome stage2 = train_on_ranks<Family<Recipe<zero<2>>>>(ranks, data, sizes(tied), cut);
    agrees(stage2);
    const outcome stage3 = train_on_ranks<Family<Recipe<zero<3>>>>(ranks, data, sizes(tied), cut);
    agrees(stage3);
    // equal sums in equal order: sharding weights changes nothing
    CHECK(stage2.losses == stage3.losses);
    CHECK(stage2.weights == stage3.weights);
  }
}

}  // namespace

TEST_CASE("llama and gpt2 with dropout, on two and four ranks") {
  equals_single<recipe, llama>(false, 2e-5);
  equals_single<recipe, gpt2>(true, 2e-5);
}

TEST_CASE("means of micro-batches of every rank, weight decay of all parameters, and gradients that are kept") {
  const dataset data = sentences();
  run_config settings{.max_steps = 6,
                      .micro_batch_size = 2,
                      .gradient_accumulation_steps = 4,
                      .learning_rate = 1e-3,
                      .optimizer = {.epsilon = 1e-5, .weight_decay = 0.1},
                      .weight_decay_of = decayed_parameters::all,
                      .average_loss = loss_average::micro_batch};
  const auto check = [&](const outcome& one, const outcome& other) {
    CHECK(difference(one.losses, other.losses) < 2e-6);
    CHECK(difference(one.weights, other.weights) < 2e-6);
  };
  const outcome means = train<llama<recipe<single>>>(data, sizes(false), settings, {});
  run_config plain = settings;
  plain.average_loss = loss_average::step;
  const outcome totals = train<llama<recipe<single>>>(data, sizes(false), plain, {});
  CHECK(difference(means.losses, totals.losses) > 1e-4);
  settings.gradient_accumulation_steps = 2;
  check(means, train_on_ranks<llama<recipe<data_parallel>>>(2, data, sizes(false), settings));
  check(means, train_on_ranks<llama<recipe<zero<2>>>>(2, data, sizes(false), settings));
  check(means, train_on_ranks<llama<recipe<zero<3>>>>(2, data, sizes(false), settings));
  plain.keep_gradients = true;
  plain.max_grad_norm = 0.5;
  const outcome kept = train<llama<recipe<single>>>(data, sizes(false), plain, {});
  CHECK(difference(kept.losses, totals.losses) > 1e-4);
  plain.gradient_accumulation_steps = 2;
  check(kept, train_on_ranks<llama<recipe<data_parallel>>>(2, data, sizes(false), plain));
  CHECK_THROWS_WITH_AS(train_on_ranks<llama<recipe<zero<1>>>>(2, data, sizes(false), plain),
                       doctest::Contains("keep_gradients: the strategy must be single or data_parallel; it is zero-1"), config_error);
}

TEST_CASE("in bf16, and on a device whose memory is elsewhere and whose stream is late") {
  const dataset data = sentences();
  const run_config settings{.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-3};
  const auto on_two = [&]<class Parallel>(Parallel) {
    return train_on_ranks<llama<bf16_recipe<Parallel>>>(2, data, sizes(false), settings).weights;
  };
  const std::vector<double> bf16 =
      train<llama<bf16_recipe<single>>>(
          data, sizes(false), run_config{.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4, .learning_rate = 1e-3},
          {})
          .weights;
  CHECK(difference(bf16, on_two(data_parallel{})) < 2e-2);
  CHECK(difference(bf16, on_two(zero<3>{})) < 2e-2);
  const outcome here = train_on_ranks<llama<recipe<zero<3>>>>(2, data, sizes(false), settings);
  const outcome there = train_on_ranks<llama<walled_recipe<zero<3>>>>(2, data, sizes(false), settings);
  CHECK(here.losses == there.losses);
  CHECK(here.weights == there.weights);
}

TEST_CASE("bit for bit: who keeps what changes nothing, neither does a copy of the model per two ranks") {
  const dataset data = sentences();
  const run_config settings{.max_steps = 5, .micro_batch_size = 2, .learning_rate = 1e-3, .max_grad_norm = 0};
  const outcome all = train_on_ranks<gpt2<recipe<data_parallel>>>(4, data, sizes(true), settings);
  for (const std::size_t shards : {4U, 1U}) {
    CHECK(all.weights == train_on_ranks<gpt2<recipe<zero<1>>>>(4, data, sizes(true), settings, shards).weights);
    CHECK(all.weights == train_on_ranks<gpt2<recipe<zero<2>>>>(4, data, sizes(true), settings, shards).weights);
    CHECK(all.weights == train_on_ranks<gpt2<recipe<zero<3>>>>(4, data, sizes(true), settings, shards).weights);
  }
  // two replicas of two shards sum gradients in another order
  CHECK(difference(all.weights, train_on_ranks<gpt2<recipe<zero<3>>>>(4, data, sizes(true), settings, 2).weights) < 2e-5);
  CHECK_THROWS_AS(train_on_ranks<gpt2<recipe<zero<3>>>>(4, data, sizes(true), settings, 3), config_error);
}

TEST_CASE("weights that come back late are there for whoever reads them, and a model may go before all are") {
  const dataset data = sentences();
  const run_config settings{.max_steps = 2, .micro_batch_size = 2, .learning_rate = 1e-3, .max_grad_norm = 0};
  const testing::slow_network late{.latency = std::chrono::milliseconds(2), .jitter = std::chrono::milliseconds(4)};
  // the store is read directly after a step
  const auto read_after_steps = [&]<class Parallel>(Parallel, bool reads) {
    std::vector<float> weights;
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      gpt2<recipe<Parallel>> model(sizes(true), {}, {.parallel = {.ranks = std::make_shared<testing::slow_transport>(network, late)}});
      trainer trainer(model, settings);
      loader rows(data, trainer.loader_settings());
      for (int step = 0; step < 2; ++step) {
        (void)trainer.step(rows.next(), 1e-3);
        if (!reads) continue;
        std::vector<float> host;
        for (const auto& entry : model.parameters().entries()) {
          const auto value = model.parameters().value(entry);
          host.insert(host.end(), value.raw(), value.raw() + value.size());
        }
        if (network->rank() == 0) weights.insert(weights.end(), host.begin(), host.end());
      }
    });
    return weights;
  };
  const std::vector<float> all = read_after_steps(data_parallel{}, true);
  CHECK(all == read_after_steps(zero<1>{}, true));
  CHECK(all == read_after_steps(zero<2>{}, true));
  CHECK(read_after_steps(zero<1>{}, false).empty());
}

TEST_CASE("a model in run_ranks that is not given the ranks is refused, unless it shall be alone") {
  std::string said;
  const auto train_alone = [](const std::shared_ptr<transport>& given) {
    llama<recipe<zero<2>>> model(sizes(false), {}, {.parallel = {.ranks = given}});
    (void)trainer(model, run_config{.max_steps = 1, .micro_batch_size = 2});
  };
  try {
    run_ranks(2, [&](const std::shared_ptr<transport>&) { train_alone(nullptr); });
  } catch (const config_error& problem) {
    said = problem.what();
  }
  CHECK(said ==
        "trainer: a model that is made in run_ranks must be given the ranks, {.parallel = {.ranks = ranks}}: without, each of the 2 ranks would train alone. "
        "If it shall, give it one_rank()");
  CHECK_NOTHROW(run_ranks(2, [&](const std::shared_ptr<transport>&) { train_alone(one_rank()); }));
  CHECK_NOTHROW(run_ranks(1, [&](const std::shared_ptr<transport>&) { train_alone(nullptr); }));
  CHECK_NOTHROW(train_alone(nullptr));  // run_ranks has ended
}

TEST_CASE("what was sent is not known while steps are queued") {
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    llama<recipe<zero<1>>> model(sizes(false), {}, {.parallel = {.ranks = network}});
    trainer trainer(model, run_config{.max_steps = 2, .micro_batch_size = 2, .learning_rate = 1e-3});
    const dataset data = sentences();
    loader rows(data, trainer.loader_settings());
    CHECK(traffic_of(model.parallel()).total().messages == 0);
    trainer.queue_step(rows.next(), 1e-3);
    CHECK_THROWS_WITH_AS((void)traffic_of(model.parallel()),
                         "visit_traffic: must not be called while steps are queued; call finish_step() for each; queued are 1", config_error);
    (void)trainer.finish_step();
    CHECK(traffic_of(model.parallel()).total().messages > 0);
  });
}

TEST_CASE("the balance of experts counts by targets, or whole for each micro-batch of each rank, or not at all") {
  const dataset data = sentences();
  decoder_config shape = sizes(false);
  shape.num_experts = 4;
  shape.num_experts_per_token = 2;
  shape.balances_experts = true;
  shape.router_aux_loss_coef = 0.02;
  // the first step's loss, and weights after a step of plain SGD, linear in the gradient
  const auto step = [&](balance_average average, std::size_t batch, std::size_t accumulate, double coefficient = 0.02) {
    decoder_config with = shape;
    with.router_aux_loss_coef = coefficient;
    return train<mixtral<recipe<single>>>(data, with,
                                          run_config{.max_steps = 1,
                                                     .micro_batch_size = batch,
                                                     .gradient_accumulation_steps = accumulate,
                                                     .learning_rate = 1e-3,
                                                     .average_balance = average,
                                                     .max_grad_norm = 0},
                                          {});
  };
  using enum balance_average;
  const double without = step(none, 2, 4).losses[0];
  CHECK(step(targets, 2, 4, 0.0).losses[0] == doctest::Approx(without).epsilon(1e-6));
  // one micro-batch: both equal the term
  CHECK(step(micro_batches, 8, 1).losses[0] == doctest::Approx(step(targets, 8, 1).losses[0]).epsilon(1e-6));
  const double mean = step(targets, 2, 4).losses[0] - without, sum = step(micro_batches, 2, 4).losses[0] - without;
  CHECK(mean > 0.02);  // at balance the term is the coefficient times the number of choices
  CHECK(sum > 3.8 * mean);
  CHECK(sum < 4.2 * mean);
  CHECK(difference(step(targets, 2, 4).weights, step(micro_batches, 2, 4).weights) > 1e-6);
  // four ranks of one micro-batch equal one rank of four
  const run_config one{.max_steps = 3, .micro_batch_size = 2, .gradient_accumulation_steps = 4, .learning_rate = 1e-3, .average_balance = micro_batches};
  run_config each = one;
  each.gradient_accumulation_steps = 2;
  const outcome alone = train<mixtral<recipe<single>>>(data, shape, one, {}), ranks = train_on_ranks<mixtral<recipe<data_parallel>>>(2, data, shape, each);
  CHECK(difference(alone.losses, ranks.losses) < 2e-5);
  CHECK(difference(alone.weights, ranks.weights) < 2e-5);
}

TEST_CASE("experts and their balance") {
  const dataset data = sentences();
  decoder_config shape = sizes(false);
  shape.num_experts = 4;
  shape.num_experts_per_token = 2;
  shape.balances_experts = true;
  shape.router_aux_loss_coef = 0.02;
  for (const loss_average average : {loss_average::step, loss_average::micro_batch}) {
    const outcome one = train<mixtral<recipe<single>>>(
        data, shape,
        run_config{.max_steps = 5, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-3, .average_loss = average}, {});
    const run_config settings{.max_steps = 5, .micro_batch_size = 2, .learning_rate = 1e-3, .average_loss = average};
    for (const outcome& other : {train_on_ranks<mixtral<recipe<data_parallel>>>(2, data, shape, settings),
                                 train_on_ranks<mixtral<recipe<zero<3>>>>(2, data, shape, settings)}) {
      CHECK(difference(one.losses, other.losses) < 2e-5);
      CHECK(difference(one.weights, other.weights) < 2e-5);
    }
  }
}

namespace {

/// A rank's memory, its plan, and its traffic in two steps of one micro-batch.
template <class Parallel>
struct cost {
  memory_count kept;
  dry_run plan;
  traffic gradients, weights;

  explicit cost(std::size_t ranks) {
    const dataset data = sentences();
    std::mutex mutex;
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      const cpu::context on;
      decoder_config shape = sizes(false);
      shape.vocab_size = 128;
      shape.hidden_size = 64;
      shape.intermediate_size = 128;
      shape.num_layers = 8;
      llama<recipe<Parallel>> model(shape, on, {.parallel = {.ranks = network}});
      trainer trainer(model, run_config{.max_steps = 2, .micro_batch_size = 1, .learning_rate = 1e-3});
      trainer.fit(data);
      const std::lock_guard lock(mutex);
      kept = on.memory();
      plan = trainer.plan();
      gradients = traffic_of(model.parallel()).of(traffic_role::gradients);
      weights = traffic_of(model.parallel()).of(traffic_role::weights);
    });
  }
  [[nodiscard]] double of(memory_role role) const { return static_cast<double>(kept.of(role)); }
};

}  // namespace

TEST_CASE("memory and messages are what the papers say, and what was planned") {
  constexpr std::size_t n = 4;
  const cost<data_parallel> all(n);
  const cost<zero<1>> first(n);
  const cost<zero<2>> second(n);
  const cost<zero<3>> third(n);
  const double w = all.of(memory_role::weights), g = all.of(memory_role::gradients), o = all.of(memory_role::optimizer);
  const auto near = [](double a, double b) { return std::abs(a - b) <= 0.02 * b; };
  CHECK(near(first.of(memory_role::weights), w));
  CHECK(near(first.of(memory_role::gradients), g));
  CHECK(near(first.of(memory_role::optimizer), o / n));
  CHECK(near(second.of(memory_role::optimizer), o / n));
  CHECK(near(third.of(memory_role::optimizer), o / n));
  // besides shards, a rank has windows: first block, last block, two layers
  const llama<recipe<single>> like({.vocab_size = 128,
                                    .hidden_size = 64,
                                    .num_layers = 8,
                                    .num_heads = 2,
                                    .intermediate_size = 128,
                                    .max_position_embeddings = 24,
                                    .tie_word_embeddings = false});
  const auto& blocks = like.parameters();
  const double windows = static_cast<double>(blocks.block(0).size() + blocks.block(9).size() + 2 * blocks.block(1).size()) * sizeof(float);
  CHECK(near(second.of(memory_role::gradients), g / n + windows));
  CHECK(near(third.of(memory_role::gradients), g / n + windows));
  CHECK(near(third.of(memory_role::weights), w / n + windows));
  const auto as_planned = [](const auto& found) {
    for (const memory_role role : {memory_role::weights, memory_role::gradients, memory_role::optimizer})
      CHECK(found.kept.of(role) == found.plan.of(role));
  };
  as_planned(all);
  as_planned(first);
  as_planned(second);
  as_planned(third);

  // two steps of ψ values: an all-reduce sends 2 ψ (n − 1) / n, a reduce-scatter or all-gather half
  const double half = 2.0 * w * (n - 1) / n;
  CHECK(near(static_cast<double>(all.gradients.bytes), 2 * half));
  CHECK(all.weights.bytes == 0);
  for (const auto* one : {&first.gradients, &second.gradients, &third.gradients}) CHECK(near(static_cast<double>(one->bytes), half));
  CHECK(near(static_cast<double>(first.weights.bytes), half));
  CHECK(near(static_cast<double>(second.weights.bytes), half));
  // forward and backward; three windows still hold the forward's gather
  CHECK(static_cast<double>(third.weights.bytes) <= 2 * half);
  CHECK(static_cast<double>(third.weights.bytes) > 1.5 * half);
}
