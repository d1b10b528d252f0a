#include <doctest/doctest.h>

#include <map>

#include <xtrain/eval/logits.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/testing/isolated.hpp>
#include "pipelines.hpp"
#include "scratch.hpp"

namespace {

template <class Parallel>
struct recomputing_activations_recipe : recipe<Parallel> {
  using recompute = recompute_selective<activation_outputs, norm_outputs>;
};

template <class Parallel>
struct walled_recipe : recipe<Parallel> {
  using device = testing::isolated<cpu>;
};

decoder_config eight_experts() {
  decoder_config shape = sizes(false);
  shape.num_layers = 2;
  shape.num_experts = 8;
  shape.num_experts_per_token = 2;
  shape.balances_experts = true;
  shape.router_aux_loss_coef = 0.05;
  return shape;
}
run_config settings(std::size_t steps, std::size_t accumulate) {
  return {.max_steps = steps,
          .micro_batch_size = 2,
          .gradient_accumulation_steps = accumulate,
          .learning_rate = 1e-3,
          .lr_schedule = lr_schedule_kind::constant};
}

/// Two sequences with a label for every token.
host_batch full_rows() {
  host_batch rows{.b = 2, .t = 24};
  for (std::size_t i = 0; i < 48; ++i) {
    rows.tokens.push_back(static_cast<token>(i * i % 97));
    rows.targets.push_back(static_cast<token>(i % 97));
    rows.positions.push_back(static_cast<token>(i % 24));
    rows.starts.push_back(0);
  }
  rows.target_count = rows.token_count = 48;
  return rows;
}

/// Four micro-batches per step, on one rank and on several.
template <template <class> class Recipe, class Spread = expert_parallel>
void equals_one(std::size_t ranks, rank_layout layout, const typename Recipe<single>::adapter::config& adapter = {},
                loss_average average = loss_average::step) {
  const dataset data = sentences();
  const decoder_config shape = eight_experts();
  const auto averaged = [&](run_config how) {
    how.average_loss = average;
    return how;
  };
  const auto run_one = [&] { return run_here<mixtral<Recipe<single>>>(data, shape, averaged(settings(8, 4)), {.adapter = adapter}); };
  static std::map<loss_average, piped_outcome> known;
  if (known.find(average) == known.end()) known.emplace(average, run_one());
  const piped_outcome& one = known.at(average);
  const piped_outcome spread =
      run_pipeline<mixtral<Recipe<Spread>>>(ranks, data, shape, averaged(settings(8, 4 / ranks)), {.adapter = adapter, .parallel = std::move(layout)});
  CHECK(difference(one.losses, spread.losses) < 2e-5);
  CHECK(difference(one.norms, spread.norms) < 2e-5);
  CHECK(difference(one.weights, spread.weights) < 2e-5);
  CHECK(std::abs(one.held_out - spread.held_out) < 2e-5);
}

}  // namespace

TEST_CASE("mixtral on two and four ranks, all of them neighbours or not") {
  equals_one<recipe>(1, {.expert_parallel_size = 1});
  equals_one<recipe>(2, {.expert_parallel_size = 2});
  equals_one<recipe>(4, {.expert_parallel_size = 4});
  equals_one<recipe>(4, {.expert_parallel_size = 2});
  equals_one<recipe>(4, {.expert_parallel_size = 2}, {}, loss_average::micro_batch);
}

TEST_CASE("with recomputation, with LoRA on experts, where the host does not reach the device, beside ZeRO") {
  equals_one<recomputing_recipe>(2, {.expert_parallel_size = 2});
  equals_one<recomputing_activations_recipe>(4, {.expert_parallel_size = 2});
  equals_one<lora_recipe>(2, {.expert_parallel_size = 2}, {.targets = {"q_proj", "w1", "w2", "w3"}});
  equals_one<walled_recipe>(2, {.expert_parallel_size = 2});
  equals_one<recipe, parallel<zero<1>, expert_parallel>>(4, {.expert_parallel_size = 2});
  equals_one<recipe, parallel<zero<2>, expert_parallel>>(4, {.expert_parallel_size = 2});
  equals_one<recipe, parallel<zero<3>, expert_parallel>>(4, {.expert_parallel_size = 2});
  equals_one<recipe, parallel<zero<1>, expert_parallel>>(4, {.shards = 1, .expert_parallel_size = 2});
}

TEST_CASE("all rows may go to one rank, and what is sent is what the formula says") {
  const decoder_config shape = eight_experts();
  const auto same_routes = [&](auto& model) {  // every token is routed to the first two experts
    const std::vector<float> zeros(8 * shape.hidden_size);
    for (const auto& entry : model.parameters().entries())
      if (entry.spec.name.ends_with("gate.weight")) model.parameters().set(model.stream(), entry, std::span<const float>(zeros));
  };
  const std::vector<host_batch> rows(4, full_rows());
  mixtral<recipe<single>> model(shape);
  same_routes(model);
  trainer trainer_of_one(model, run_config{.max_steps = 1, .micro_batch_size = 2, .gradient_accumulation_steps = 4});
  const step_done one = trainer_of_one.step(std::span<const host_batch>(rows), 1e-3);
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    mixtral<recipe<expert_parallel>> spread(shape, {}, {.parallel = {.ranks = network, .expert_parallel_size = 4}});
    same_routes(spread);
    trainer trainer(spread, run_config{.max_steps = 1, .micro_batch_size = 2});
    const step_done mine = trainer.step(std::span<const host_batch>(&rows[network->rank()], 1), 1e-3);
    CHECK(std::abs(mine.loss - one.loss) < 2e-5);
    CHECK(std::abs(mine.gradient_norm - one.gradient_norm) < 2e-5);
    // per layer two copies of every token go to the first rank, forward and backward; counts of two experts to each other rank
    const std::size_t copies = 2 * 48 * shape.hidden_size * sizeof(float), ranks_answered = network->rank() == 0 ? 3 : 1;
    CHECK(traffic_of(spread.parallel()).of(traffic_role::expert_parallel).bytes ==
          shape.num_layers * (2 * copies * ranks_answered + 3 * 2 * sizeof(std::uint64_t)));
    // the plan assumes balanced experts
    CHECK(trainer.plan().sent.of(traffic_role::expert_parallel).bytes == shape.num_layers * (4 * copies * 3 / 4 + 3 * 2 * sizeof(std::uint64_t)));
  });
}

TEST_CASE("memory of a rank: its experts, and no more after the first step") {
  decoder_config shape = eight_experts();
  shape.attention_dropout = shape.residual_dropout = 0;  // keeps routes constant
  const mixtral<recipe<single>> whole(shape);
  std::size_t all_experts = 0, all_else = 0;
  for (const auto& entry : whole.parameters().entries())
    (entry.spec.name.find(".experts.") != std::string::npos ? all_experts : all_else) += entry.size();
  const host_batch rows = full_rows();
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    mixtral<recipe<expert_parallel>> model(shape, {}, {.parallel = {.ranks = network, .expert_parallel_size = 4}});
    const std::size_t own = all_experts / 4 + all_else, padding = 32 * 64;
    CHECK(model.context().memory().of(memory_role::weights) >= own * sizeof(float));
    CHECK(model.context().memory().of(memory_role::weights) < (own + padding) * sizeof(float));
    trainer trainer(model, run_config{.max_steps = 1, .micro_batch_size = 2, .learning_rate = 0});
    CHECK(trainer.plan().of(memory_role::gradients) == model.context().memory().of(memory_role::gradients));
    (void)trainer.step(std::span<const host_batch>(&rows, 1), 0.0);
    const std::size_t allocations = model.context().memory().allocations;
    for (int step = 0; step < 3; ++step) (void)trainer.step(std::span<const host_batch>(&rows, 1), 0.0);
    CHECK(model.context().memory().allocations == allocations);
  });
}

TEST_CASE("folders and checkpoints know tensors, not ranks") {
  const scratch_folder scratch;
  const dataset data = sentences();
  const decoder_config shape = eight_experts();
  using single_model = mixtral<recipe<single>>;
  using spread_model = mixtral<recipe<parallel<zero<1>, expert_parallel>>>;
  const outcome uninterrupted = train<single_model>(data, shape, settings(9, 4), {});
  const std::string folder = scratch / "run";
  const auto on_four = [&](std::size_t steps, bool resumes, const std::string& out) {
    run_ranks(4, [&](const std::shared_ptr<transport>& network) {
      spread_model model(shape, {}, {.parallel = {.ranks = network, .expert_parallel_size = 2}});
      trainer trainer(model, settings(steps, 1));
      checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
      if (resumes) CHECK(checkpoints.resume());
      trainer.attach(checkpoints);
      trainer.fit(data);
      trainer.save(out);
    });
  };
  on_four(3, false, scratch / "three");
  {
    single_model model(shape);
    trainer trainer(model, settings(6, 4));
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
    CHECK(checkpoints.resume());
    // the four ranks' export equals the checkpoint's weights
    CHECK(all_weights(model) == all_weights(single_model::from_pretrained(scratch / "three")));
    trainer.attach(checkpoints);
    trainer.fit(data);
  }
  on_four(9, true, scratch / "nine");
  const auto nine = single_model::from_pretrained(scratch / "nine");
  CHECK(difference(uninterrupted.weights, all_weights(nine)) < 2e-5);

  // any number of ranks loads a folder: equal logits
  const array<token, 2> tokens{{1, 2, 3, 4, 5}, {9, 8, 7, 6, 5}};
  const auto expected = logits(nine, tokens);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const auto model = mixtral<recipe<expert_parallel>>::from_pretrained(scratch / "nine", {}, {.parallel = {.ranks = network, .expert_parallel_size = 2}});
    const auto found = logits(model, tokens);
    double most = 0;
    for (std::size_t i = 0; i < found.size(); ++i) most = std::max(most, static_cast<double>(std::abs(found.data()[i] - expected.data()[i])));
    CHECK(most < 1e-5);
  });
}

TEST_CASE("what cannot be spread is refused with the numbers") {
  const auto refused = [](decoder_config shape, std::size_t ranks, rank_layout layout, auto like) -> std::string {
    std::string said;
    try {
      run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
        rank_layout own = layout;
        own.ranks = network;
        const mixtral<recipe<decltype(like)>> model(shape, {}, {.parallel = own});
      });
    } catch (const config_error& problem) {
      said = problem.what();
    }
    return said;
  };
  CHECK(refused(eight_experts(), 3, {.expert_parallel_size = 3}, expert_parallel{}) ==
        "expert: ranks must have equal numbers of a layer's experts; 8 experts are not divisible by 3");
  CHECK(refused(eight_experts(), 4, {.expert_parallel_size = 3}, expert_parallel{}) ==
        "parallel: ranks must be a multiple of tensor times expert; given 4 ranks, tensor 1 and expert 3");
  CHECK(refused(eight_experts(), 4, {.tensor_parallel_size = 2, .expert_parallel_size = 2}, expert_parallel{}) ==
        "parallel: tensor must be 1, because the strategy has no tensor parallelism; given 2. Make it parallel<..., tensor_parallel>");
  CHECK(refused(eight_experts(), 2, {.expert_parallel_size = 2}, data_parallel{}) ==
        "parallel: expert must be 1, because the strategy has no expert parallelism; given 2. Make it expert_parallel, or parallel<..., expert_parallel>");
}
