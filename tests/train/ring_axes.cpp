// Ring context parallelism: with other axes and in pipelines, on another device, in 16 bits; compute, traffic, memory; refusals.
#include <doctest/doctest.h>

#include <xtrain/eval/logits.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/testing/isolated.hpp>
#include "shared_rows.hpp"

namespace {

using run = run_config;
using ring = ring_context_parallel;

template <class Parallel>
struct walled_bf16_recipe : bf16_recipe<Parallel> {
  using device = testing::isolated<cpu>;
};

decoder_config two_heads() {
  decoder_config shape = sizes(false);
  shape.hidden_size = 32;
  shape.intermediate_size = 64;
  shape.num_kv_heads = 1;
  return shape;
}

}  // namespace

TEST_CASE("beside data-parallel ranks that shard their state, and tensor-parallel ranks") {
  equals_one<recipe, llama, parallel<zero<3>, ring>>(four_heads(false), {4, 2});
  equals_one<recipe, llama, parallel<zero<2>, tensor_parallel, ring>>(four_heads(false), {4, 2, 2});
  CHECK(parallel<zero<2>, tensor_parallel, ring>::name == "zero-2 x tensor x ring");
}

TEST_CASE("stages of context-parallel ranks") {
  const run settings{.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4, .learning_rate = 1e-3, .optimizer = {.epsilon = 1e-5}};
  const outcome one = train<llama<recipe<single>>>(packed_sentences(), two_heads(), settings, {});
  std::vector<outcome> all(4);
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    using model_type = llama<recipe<pipeline<one_forward_one_backward, parallel<zero<1>, ring>>>>;
    model_type model(two_heads(), {}, {.parallel = {.ranks = network, .context_parallel_size = 2}});
    trainer trainer(model, settings);
    history seen;
    trainer.attach(seen);
    trainer.fit(packed_sentences());
    all[network->rank()].losses = {seen.losses().begin(), seen.losses().end()};
    all[network->rank()].held_out = trainer.evaluate(packed_sentences()).loss;
  });
  for (const outcome& divided : all) {
    CHECK(difference(one.losses, divided.losses) < 2e-6);
    CHECK(std::abs(one.held_out - divided.held_out) < 2e-6);
  }
}

// Sums over blocks accumulate in fp32 and are rounded once, as in the unsplit kernel, but some round to the adjacent value: outputs differ by a unit of bf16,
// 2^-8, at some tokens. Losses are means over some 60 labels, each depending on many outputs: 2^-8 · 2 / sqrt(60) = 1e-3.
TEST_CASE("in 16 bits, on a device whose memory is elsewhere and whose stream is late") {
  const run settings{.max_steps = 3, .micro_batch_size = 2, .learning_rate = 1e-3};
  const outcome one = train<llama<bf16_recipe<single>>>(packed_sentences(), two_heads(), settings, {});
  const outcome here = train_shared<llama<bf16_recipe<ring>>>({4, 4}, packed_sentences(), two_heads(), settings);
  const outcome there = train_shared<llama<walled_bf16_recipe<ring>>>({4, 4}, packed_sentences(), two_heads(), settings);
  CHECK(here.losses == there.losses);
  CHECK(here.weights == there.weights);
  CHECK(difference(one.losses, here.losses) < 1e-3);
}

TEST_CASE("every rank has as much to do, and twice as many blocks and one") {
  decoder_config shape = two_heads();
  shape.max_position_embeddings = 48;
  for (const std::size_t n : {2U, 3U, 8U}) {
    double operations = 0;
    for (std::size_t rank = 0; rank < n; ++rank) {
      const llama<recipe<ring>>::options options{.parallel = {.ranks = std::make_shared<dry_transport>(rank, n), .context_parallel_size = n}};
      const dry_run step = trainer<llama<recipe<ring>>>::run_dry(shape, options, {.max_steps = 1, .micro_batch_size = 1}, cpu::context().properties());
      for (const kernel_count& kernel : step.record.kernels) {
        if (kernel.name != "attention_block" && kernel.name != "attention_block_backward") continue;
        CHECK(kernel.runs == shape.num_layers * (2 * n + 1));
        if (kernel.name != "attention_block") continue;
        if (rank == 0) operations = kernel.operations;
        CHECK(kernel.operations == operations);
        // two products over the sequence's triangle, shared equally by the ranks
        CHECK(kernel.operations * static_cast<double>(n) == static_cast<double>(shape.num_layers) * 4.0 * 32 * (48.0 * 49 / 2));
      }
    }
  }
}

TEST_CASE("memory and messages of a step, and what was planned of them") {
  constexpr std::size_t n = 4;
  decoder_config shape = two_heads();
  shape.hidden_size = 64;
  shape.intermediate_size = 128;
  const run settings{.max_steps = 1, .micro_batch_size = 2, .seq_length = 24};
  host_batch rows{.b = 2, .t = 24};
  for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(48, 1);
  rows.starts.assign(48, 0);
  rows.target_count = rows.token_count = 48;
  const auto step = [&]<class Recipe>(const llama<Recipe>*, std::size_t number) {
    const dry_run alone = trainer<llama<bf16_recipe<single>>>::run_dry(shape, {}, settings, cpu::context().properties());
    run_ranks(n, [&](const std::shared_ptr<transport>& network) {
      llama<Recipe> model(shape, {}, {.parallel = {.ranks = network, .context_parallel_size = n}});
      trainer trainer(model, settings);
      const std::size_t before = traffic_of(model.parallel()).of(traffic_role::context_parallel).bytes;
      (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
      // per layer, n - 1 times to the next rank: keys and values of own tokens in the forward and the backward, and their gradients in fp32. And the loss
      const std::size_t array = 48 / n * 2 * (64 / 2);
      const std::size_t exchanged = shape.num_layers * (n - 1) * array * (2 * number + sizeof(float));
      CHECK(traffic_of(model.parallel()).of(traffic_role::context_parallel).bytes - before == exchanged + 8 * (n - 1));
      CHECK(trainer.plan().sent.of(traffic_role::context_parallel).bytes == exchanged + 8 * (n - 1));
      if (number == sizeof(bf16)) CHECK(static_cast<double>(trainer.plan().passes.stash()) < 1.01 * static_cast<double>(alone.passes.stash()) / n);
    });
  };
  step(static_cast<const llama<recipe<ring>>*>(nullptr), sizeof(float));
  step(static_cast<const llama<bf16_recipe<ring>>*>(nullptr), sizeof(bf16));
}

TEST_CASE("what cannot be shared is refused with the numbers; logits are of whole rows on every rank") {
  const auto refused = [](std::size_t context, std::size_t t) -> std::string {
    std::string said;
    try {
      run_ranks(2, [&](const std::shared_ptr<transport>& network) {
        llama<recipe<ring>> model(two_heads(), {}, {.parallel = {.ranks = network, .context_parallel_size = 2}});
        trainer trainer(model, run{.max_steps = 1, .micro_batch_size = 2, .seq_length = context});
        host_batch rows{.b = 2, .t = t};
        for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(2 * t, 1);
        rows.starts.assign(2 * t, 0);
        rows.target_count = rows.token_count = 2 * t;
        (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
      });
    } catch (const std::exception& problem) {
      said = problem.what();
    }
    return said;
  };
  CHECK(refused(22, 20) == "seq_length: must be divisible by twice the 2 ranks that shard sequences; given 22 tokens");
  CHECK(refused(24, 22) == "context: tokens of a sequence must be divisible by twice the 2 context-parallel ranks; given 22");
  const array<token, 2> tokens{{1, 2, 3, 4, 5}, {9, 8, 7, 6, 5}};
  llama<recipe<single>> alone(two_heads());
  const auto expected = logits(alone, tokens);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    llama<recipe<ring>> model(two_heads(), {}, {.parallel = {.ranks = network, .context_parallel_size = 2}});
    CHECK(logits(model, tokens) == expected);
  });
}
