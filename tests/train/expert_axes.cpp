// Expert parallelism with tensor, context and pipeline parallelism: equals one device, uses the planned memory, sends what the formulas say.
#include <doctest/doctest.h>

#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel/expert.hpp>
#include "pipelines.hpp"
#include "scratch.hpp"

namespace {

template <class Parallel>
struct adapted_recipe : recomputing_recipe<Parallel> {
  using adapter = lora;
};

using every_axis = pipeline<chosen, parallel<zero<1>, tensor_parallel, context_parallel, expert_parallel>>;
using adapted_axes = parallel<zero<3>, tensor_parallel, ring_context_parallel, expert_parallel>;

decoder_config balanced_experts(std::size_t layers) {
  decoder_config shape = sizes(false);
  shape.num_layers = layers;
  shape.num_heads = 4;
  shape.num_experts = 8;
  shape.num_experts_per_token = 2;
  shape.balances_experts = true;
  shape.router_aux_loss_coef = 0.05;
  return shape;
}

/// Four micro-batches per step, divided among the data-parallel ranks.
run_config settings(std::size_t data) {
  return {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4 / data, .learning_rate = 1e-3, .max_grad_norm = 0.5};
}

void is_near(const piped_outcome& one, const piped_outcome& other) {
  CHECK(difference(one.losses, other.losses) < 2e-5);
  CHECK(difference(one.norms, other.norms) < 2e-5);
  CHECK(difference(one.weights, other.weights) < 2e-5);
  CHECK(std::abs(one.held_out - other.held_out) < 2e-5);
}

template <class Make>
std::string refused(std::size_t ranks, Make&& make) {
  std::string said;
  try {
    run_ranks(ranks, make);
  } catch (const config_error& problem) {
    said = problem.what();
  }
  return said;
}

}  // namespace

TEST_CASE("experts beside divided layers, shared rows and stages: mixtral with its balance, dropout and clipping") {
  const dataset data = sentences();
  const auto on = [&](const piped_outcome& one, std::size_t layers, std::size_t ranks, pipeline_ranks how, loss_average average = loss_average::step) {
    run_config how_long = settings(how.data_parallel_size);
    how_long.average_loss = average;
    is_near(one, run_pipeline<mixtral<recipe<every_axis>>>(ranks, data, balanced_experts(layers), how_long, {.parallel = std::move(how)}));
  };
  const piped_outcome two = run_here<mixtral<recipe<single>>>(data, balanced_experts(2), settings(1), {});
  on(two, 2, 2, {.tensor_parallel_size = 2});  // shards of every expert
  on(two, 2, 4, {.data_parallel_size = 2, .tensor_parallel_size = 2, .expert_parallel_size = 2});
  on(two, 2, 2, {.context_parallel_size = 2});                                                      // every rank routes its own tokens
  // expert-parallel ranks have different tokens of the same sequences
  on(two, 2, 2, {.context_parallel_size = 2, .expert_parallel_size = 2});
  on(two, 2, 4, {.data_parallel_size = 2, .context_parallel_size = 2, .expert_parallel_size = 4});  // and different sequences
  on(two, 2, 8, {.data_parallel_size = 2, .tensor_parallel_size = 2, .context_parallel_size = 2, .expert_parallel_size = 2});
  on(two, 2, 8, {.tensor_parallel_size = 2, .context_parallel_size = 2, .expert_parallel_size = 2});  // two pipeline stages
  run_config of_means = settings(1);
  of_means.average_loss = loss_average::micro_batch;
  const piped_outcome means = run_here<mixtral<recipe<single>>>(data, balanced_experts(2), of_means, {});
  CHECK(difference(means.losses, two.losses) > 1e-4);
  on(means, 2, 4, {.data_parallel_size = 2, .tensor_parallel_size = 2, .expert_parallel_size = 2}, loss_average::micro_batch);
  on(means, 2, 2, {.context_parallel_size = 2, .expert_parallel_size = 2}, loss_average::micro_batch);
  on(means, 2, 8, {.tensor_parallel_size = 2, .context_parallel_size = 2, .expert_parallel_size = 2}, loss_average::micro_batch);
}

TEST_CASE("with LoRA and recomputation, where keys and values go round and everything is divided") {
  const dataset data = sentences();
  const lora_config adapter{.rank = 4, .targets = {"q_proj", "gate", "w1", "w2", "w3"}};
  const piped_outcome one = run_here<mixtral<adapted_recipe<single>>>(data, balanced_experts(2), settings(1), {.adapter = adapter});
  const auto on = [&](std::size_t ranks, rank_layout how) {
    const std::size_t data_ranks = ranks / how.tensor_parallel_size / how.context_parallel_size;
    is_near(one, run_pipeline<mixtral<adapted_recipe<adapted_axes>>>(ranks, data, balanced_experts(2), settings(data_ranks),
                                                                     {.adapter = adapter, .parallel = std::move(how)}));
  };
  on(4, {.tensor_parallel_size = 2, .expert_parallel_size = 2});
  on(4, {.context_parallel_size = 2, .expert_parallel_size = 4});
  on(8, {.tensor_parallel_size = 2, .context_parallel_size = 2, .shards = 1, .expert_parallel_size = 2});
}

TEST_CASE("memory as planned, and bytes as the formulas say, where all routes go to one rank of two") {
  decoder_config shape = balanced_experts(2);
  shape.vocab_size = 128;
  shape.hidden_size = 64;
  shape.intermediate_size = 128;
  shape.residual_dropout = shape.attention_dropout = 0;
  host_batch rows{.b = 2, .t = 24};
  for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(48, 1);
  rows.starts.assign(48, 0);
  rows.target_count = rows.token_count = 48;
  // 2-way tensor, context and expert parallelism
  run_ranks(8, [&](const std::shared_ptr<transport>& network) {
    const cpu::context on;
    mixtral<recipe<every_axis>> model(
        shape, on,
        {.parallel = {
             .ranks = network, .data_parallel_size = 2, .tensor_parallel_size = 2, .context_parallel_size = 2, .expert_parallel_size = 2}});
    const std::vector<float> zeros(shape.num_experts * shape.hidden_size);  // every token is routed to the first two experts
    for (const auto& entry : model.parameters().entries())
      if (entry.spec.name.ends_with("gate.weight")) model.parameters().set(model.stream(), entry, std::span<const float>(zeros));
    trainer trainer(model, run_config{.max_steps = 1, .micro_batch_size = 2, .seq_length = 24});
    for (const memory_role role : {memory_role::weights, memory_role::gradients, memory_role::optimizer, memory_role::batch})
      CHECK(on.memory().of(role) == trainer.plan().of(role));
    (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
    const step_traffic sent = traffic_of(model.parallel());

    const std::size_t l = shape.num_layers, n = 48 / 2, row = shape.hidden_size * sizeof(float), number = sizeof(float);
    // two ranks each send the bytes of the reduced array; experts also reduce gradients of the routing weights
    const std::size_t losses = 3 * n * number, norm = sizeof(double);
    CHECK(sent.of(traffic_role::tensor_parallel).bytes == (4 * l + 2) * n * row + l * n * shape.num_experts_per_token * number + losses + norm);
    // half of queries, keys and values of half the heads, and of their outputs, forward and backward; counts and probabilities of all layers' experts, their
    // gradient; and the loss
    const std::size_t balance = l * shape.num_experts * (sizeof(token) + number) + shape.num_experts * number;
    CHECK(sent.of(traffic_role::context_parallel).bytes == l * 2 * n * (3 + 1) * row / 2 / 2 + balance + sizeof(double));
    // two copies of every token are dispatched and combined, and so are gradients; and a count per expert
    const std::size_t copies = shape.num_experts_per_token * n * row, counts = shape.num_experts / 2 * sizeof(std::uint64_t);
    CHECK(sent.of(traffic_role::expert_parallel).bytes == l * (2 * copies + counts));
    // expert-parallel ranks reduce gradients of non-expert parameters; then half of everything between two ranks
    std::size_t shared = 0, trained = 0;
    const auto& store = model.parameters();
    for (const auto& entry : store.entries())
      if (!entry.spec.owner) shared += entry.size() * number;
    for (std::size_t b = 0; b < store.blocks(); ++b) trained += (store.block(b).end - store.block(b).begin) * number;
    CHECK(sent.of(traffic_role::partial_sums).bytes == shared);
    CHECK(sent.of(traffic_role::gradients).bytes == trained / 2);
    CHECK(sent.of(traffic_role::weights).bytes == trained / 2);
    for (const traffic_role role : {traffic_role::tensor_parallel, traffic_role::context_parallel, traffic_role::expert_parallel,
                                    traffic_role::partial_sums, traffic_role::gradients, traffic_role::weights}) {
      CAPTURE(name_of(role));
      CHECK(trainer.plan().sent.of(role).bytes == sent.of(role).bytes);
    }
  });
}

TEST_CASE("folders hold whole experts, whoever has which part of them") {
  const scratch_folder scratch;
  const decoder_config shape = balanced_experts(2);
  using divided = mixtral<recipe<every_axis>>;
  const auto on = [&](std::size_t ranks, const pipeline_ranks& how, auto&& work) {
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      divided::options options{.parallel = how};
      options.parallel.ranks = network;
      work(options);
    });
  };
  on(8, {.data_parallel_size = 2, .tensor_parallel_size = 2, .context_parallel_size = 2, .expert_parallel_size = 4},
     [&](const divided::options& options) { save_pretrained(divided(shape, {}, options), scratch / "eight"); });
  const std::vector<double> whole = all_weights(mixtral<recipe<single>>(shape));
  CHECK(all_weights(mixtral<recipe<single>>::from_pretrained(scratch / "eight")) == whole);
  on(4, {.tensor_parallel_size = 2, .expert_parallel_size = 1}, [&](const divided::options& options) {  // two pipeline stages
    const std::vector<double> found = collected(divided::from_pretrained(scratch / "eight", {}, options));
    if (options.parallel.ranks->rank() == 0) CHECK(found == whole);
  });
}

TEST_CASE("what cannot be divided is refused with the numbers") {
  decoder_config shape = balanced_experts(2);
  const auto every = [&](pipeline_ranks how) {
    return [&, how](const std::shared_ptr<transport>& network) {
      pipeline_ranks own = how;
      own.ranks = network;
      const mixtral<recipe<every_axis>> model(shape, {}, {.parallel = own});
    };
  };
  CHECK(refused(2, every({.tensor_parallel_size = 2, .expert_parallel_size = 2})) ==
        "parallel: ranks must be a multiple of tensor times expert; given 2 ranks, tensor 2 and expert 2");
  shape.intermediate_size = 41;
  CHECK(refused(2, every({.tensor_parallel_size = 2})) ==
        "tensor: 2 tensor-parallel ranks must have equal shards of a layer; 41 intermediate channels are not divisible "
        "by 2");
  shape.intermediate_size = 40;
  const auto adapted = [&](rank_layout how, lora_config adapter) {
    return refused(2, [&, how](const std::shared_ptr<transport>& network) {
      rank_layout own = how;
      own.ranks = network;
      const mixtral<adapted_recipe<adapted_axes>> model(shape, {}, {.adapter = adapter, .parallel = own});
    });
  };
  const lora_config dropping{.rank = 4, .dropout = 0.1, .targets = {"q_proj", "w2"}};
  CHECK(adapted({.context_parallel_size = 2}, dropping) ==
        "context: dropout of an adapter inside an expert needs whole sequences, which context-parallel ranks shard; "
        "given 2 ranks");
  CHECK(adapted({.context_parallel_size = 2}, {.rank = 4, .dropout = 0.1, .targets = {"q_proj"}}).empty());
  CHECK(adapted({.tensor_parallel_size = 2}, dropping) ==
        "tensor: dropout of an adapter inside an expert cannot be sharded among tensor-parallel ranks; given 2 ranks");
}
