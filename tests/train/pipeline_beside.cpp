// Pipelines with ZeRO and expert parallelism within a stage equal one device.
#include <doctest/doctest.h>

#include <mutex>

#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel/expert.hpp>
#include "pipelines.hpp"

namespace {

/// Four micro-batches of two sequences per step, divided among `data` pipelines; with clipping.
run_config settings(std::size_t data) {
  return {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4 / data, .learning_rate = 1e-3, .max_grad_norm = 0.5};
}

/// Reducing gradients after every micro-batch changes the order of sums.
void is_near(const piped_outcome& one, const piped_outcome& other) {
  CHECK(difference(one.losses, other.losses) < 2e-5);
  CHECK(difference(one.weights, other.weights) < 2e-5);
  CHECK(std::abs(one.held_out - other.held_out) < 2e-5);
  for (std::size_t i = 0; i < one.norms.size(); ++i) CHECK(one.norms[i] == doctest::Approx(other.norms[i]).epsilon(1e-4));
}

/// Calls work(chunks) with schedules that have one or several micro-batches of the head in flight, on one or two stages per rank.
template <class Work>
void with_schedules(Work&& work) {
  for (const auto& [make, chunks] : {std::pair<make_schedule, std::size_t>{gpipe::make, 1}, {one_forward_one_backward::make, 1},
                                     {interleaved::make, 2}, {all_in_all_out::make, 2}}) {
    chosen_schedule = make;
    const std::size_t stages = chunks;  // per rank
    CAPTURE(stages);
    work(stages);
  }
  chosen_schedule = one_forward_one_backward::make;
}

template <class Beside>
using piped = gpt2<recipe<pipeline<chosen, Beside>>>;

}  // namespace

TEST_CASE("ZeRO's second and third stage, the head tied or not, equal one device and one another") {
  const dataset data = sentences();
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    const piped_outcome one = run_here<gpt2<recipe<single>>>(data, layers(8, tied), settings(1), {});
    CHECK(one.norms[0] > 0.5);
    with_schedules([&](std::size_t chunks) {
      const pipeline_ranks two{.data_parallel_size = 2, .chunks = chunks};
      const piped_outcome gradients = run_pipeline<piped<zero<2>>>(4, data, layers(8, tied), settings(2), {.parallel = two});
      const piped_outcome weights = run_pipeline<piped<zero<3>>>(4, data, layers(8, tied), settings(2), {.parallel = two});
      is_near(one, gradients);
      CHECK(gradients.losses == weights.losses);
      CHECK(gradients.weights == weights.weights);
      CHECK(gradients.held_out == weights.held_out);
    });
    // a single stage, and ZeRO-3 with one rank
    is_near(one, run_pipeline<piped<zero<3>>>(2, data, layers(8, tied), settings(2), {.parallel = {.data_parallel_size = 2}}));
    is_near(one, run_pipeline<piped<zero<3>>>(2, data, layers(8, tied), settings(1)));
  }
}

TEST_CASE("weights that are not trained are divided as well") {
  const dataset data = sentences();
  const lora_config adapter{.rank = 4};
  const piped_outcome one = run_here<gpt2<lora_recipe<single>>>(data, layers(4, true), settings(1), {.adapter = adapter});
  is_near(one, run_pipeline<gpt2<lora_recipe<pipeline<chosen, zero<3>>>>>(4, data, layers(4, true), settings(2),
                                                                          {.adapter = adapter, .parallel = {.data_parallel_size = 2}}));
}

namespace {

/// Memory, traffic and plan of eight ranks in a step: four stages, two ranks each.
template <class Beside>
struct cost {
  std::vector<memory_count> held;
  std::vector<dry_run> plan;
  std::vector<step_traffic> sent;
  std::vector<std::size_t> trained;  // elements of the rank's blocks, with padding

  explicit cost(std::size_t micro_batches) : held(8), plan(8), sent(8), trained(8) {
    const dataset data = sentences();
    std::mutex mutex;
    run_ranks(8, [&](const std::shared_ptr<transport>& network) {
      const cpu::context on;
      piped<Beside> model(layers(8, false), on, {.parallel = {.ranks = network, .data_parallel_size = 2}});
      trainer trainer(model, run_config{.micro_batch_size = 2, .gradient_accumulation_steps = micro_batches, .seq_length = 24});
      host_batch rows{.b = 2, .t = 24};
      for (auto* values : {&rows.tokens, &rows.targets, &rows.positions, &rows.starts}) values->assign(48, 0);
      rows.target_count = rows.token_count = 48;
      const std::vector<host_batch> batches(micro_batches, rows);
      (void)trainer.step(std::span<const host_batch>(batches), 1e-3);
      const step_traffic before = traffic_of(model.parallel());
      (void)trainer.step(std::span<const host_batch>(batches), 1e-3);
      const std::lock_guard lock(mutex);
      held[network->rank()] = on.memory();
      plan[network->rank()] = trainer.plan();
      sent[network->rank()] = traffic_of(model.parallel()).since(before);
      const auto& store = model.parameters();
      for (std::size_t b = 0; b < store.blocks(); ++b) trained[network->rank()] += store.block(b).end - store.block(b).begin;
    });
  }
  [[nodiscard]] std::size_t of(memory_role role, std::size_t rank) const { return held[rank].of(role); }
};

}  // namespace

TEST_CASE("a rank keeps half of its stage and windows for its blocks, as planned, and sends what the formulas say") {
  const std::size_t m = 3;
  const cost<zero<1>> first(m);
  const cost<zero<2>> second(m);
  const cost<zero<3>> third(m);
  const auto as_planned = [](const auto& one) {
    for (std::size_t rank = 0; rank < 8; ++rank)
      for (std::size_t role = 0; role < memory_roles; ++role) {
        CAPTURE(name_of(static_cast<memory_role>(role)));
        CHECK(one.held[rank].now[role] == one.plan[rank].bytes[role]);
      }
    for (std::size_t rank = 0; rank < 8; ++rank)
      for (const traffic_role role : {traffic_role::gradients, traffic_role::weights, traffic_role::pipeline_parallel}) {
        CAPTURE(name_of(role));
        CHECK(one.sent[rank].of(role).bytes == one.plan[rank].sent.of(role).bytes);
      }
  };
  as_planned(first);
  as_planned(second);
  as_planned(third);
  for (std::size_t rank = 0; rank < 8; ++rank) {
    const std::size_t stage = first.trained[rank] * sizeof(float);
    CHECK(first.of(memory_role::gradients, rank) == stage);
    // a half, and windows for two layers, embedding and head: all blocks of the stage
    CHECK(second.of(memory_role::gradients, rank) == stage / 2 + stage);
    CHECK(third.of(memory_role::weights, rank) == stage / 2 + stage);
    CHECK(third.of(memory_role::optimizer, rank) == stage);  // two elements per weight, for half of the weights
    CHECK(first.sent[rank].of(traffic_role::gradients).bytes == stage / 2);
    CHECK(second.sent[rank].of(traffic_role::gradients).bytes == m * stage / 2);
    CHECK(third.sent[rank].of(traffic_role::gradients).bytes == m * stage / 2);
    CHECK(second.sent[rank].of(traffic_role::weights).bytes == stage / 2);
    // windows still hold their blocks when needed again
    CHECK(third.sent[rank].of(traffic_role::weights).bytes == stage / 2);
  }
}

namespace {

decoder_config balanced_experts() {
  decoder_config shape = layers(4, false);
  shape.num_experts = 4;
  shape.num_experts_per_token = 2;
  shape.balances_experts = true;
  shape.router_aux_loss_coef = 0.05;
  return shape;
}

}  // namespace

TEST_CASE("experts over ranks of a stage, balanced over all stages") {
  const dataset data = sentences();
  const piped_outcome one = run_here<mixtral<recipe<single>>>(data, balanced_experts(), settings(1), {});
  const auto beside = [&]<class Beside>(Beside, std::size_t ranks, pipeline_ranks how) {
    const std::size_t data_ranks = how.data_parallel_size;
    return run_pipeline<mixtral<recipe<pipeline<chosen, Beside>>>>(ranks, data, balanced_experts(), settings(data_ranks), {.parallel = std::move(how)});
  };
  with_schedules([&](std::size_t chunks) {
    is_near(one, beside(expert_parallel{}, 4, {.data_parallel_size = 2, .expert_parallel_size = 2, .chunks = chunks}));
  });
  is_near(one, beside(expert_parallel{}, 2, {.data_parallel_size = 2, .expert_parallel_size = 2}));
  is_near(one, beside(expert_parallel{}, 4, {.data_parallel_size = 2, .expert_parallel_size = 1}));
  is_near(one, beside(parallel<zero<3>, expert_parallel>{}, 8, {.data_parallel_size = 4, .expert_parallel_size = 2}));
}

TEST_CASE("how busy experts are travels with every boundary, as planned") {
  using model = mixtral<recipe<pipeline<chosen, expert_parallel>>>;
  const decoder_config shape = balanced_experts();
  const auto sent = [&](std::size_t rank) {
    return trainer<model>::run_dry(shape, {.parallel = {.ranks = std::make_shared<dry_transport>(rank, 2)}},
                                    run_config{.micro_batch_size = 2, .gradient_accumulation_steps = 3, .seq_length = 24}, cpu::context{}.properties())
        .sent.of(traffic_role::pipeline_parallel);
  };
  const std::size_t boundary = 2 * 24 * shape.hidden_size * sizeof(float), layers_before = 2;
  CHECK(sent(0).bytes == 3 * (boundary + 16 * shape.num_experts * layers_before));
  CHECK(sent(1).bytes == 3 * (boundary + 8 * shape.num_experts));
  CHECK(sent(0).messages == 6);
}
