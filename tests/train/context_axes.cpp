// Context parallelism: with other axes, on another device; traffic, saved activations, refusals, checkpoints.
#include <doctest/doctest.h>

#include <xtrain/eval/logits.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/testing/isolated.hpp>
#include "scratch.hpp"
#include "shared_rows.hpp"

namespace {

using run = run_config;

template <class Parallel>
struct walled_recipe : recipe<Parallel> {
  using device = testing::isolated<cpu>;
};

}  // namespace

TEST_CASE("beside data-parallel ranks") {  // with tensor parallelism as well: equality/
  equals_one<recipe, llama>(four_heads(false), {4, 2});
  equals_one<recipe, gpt2, parallel<zero<1>, context_parallel>>(four_heads(true), {4, 2});
  CHECK(parallel<zero<2>, tensor_parallel, context_parallel>::name == "zero-2 x tensor x context");
}

TEST_CASE("on a device whose memory is elsewhere and whose stream is late, bit for bit") {
  const run settings{.max_steps = 3, .micro_batch_size = 2, .learning_rate = 1e-3};
  const outcome here = train_shared<llama<recipe<context_parallel>>>({2, 2}, packed_sentences(), four_heads(false), settings);
  const outcome there = train_shared<llama<walled_recipe<context_parallel>>>({2, 2}, packed_sentences(), four_heads(false), settings);
  CHECK(here.losses == there.losses);
  CHECK(here.weights == there.weights);
}

TEST_CASE("rows that separate samples make are padded for any number of ranks") {
  decoder_config shape = four_heads(false);
  shape.num_heads = shape.num_kv_heads = 3;
  shape.attention_dropout = 0;  // its random numbers depend on the sequence length
  shape.residual_dropout = 0;
  equals_one<recipe, llama>(shape, {3, 3});
}

TEST_CASE("what cannot be shared is refused with the numbers") {
  const auto refused = [](auto&& make, std::size_t ranks, std::size_t context) -> std::string {
    std::string said;
    try {
      run_ranks(ranks, [&](const std::shared_ptr<transport>& network) { make(rank_layout{.ranks = network, .context_parallel_size = context}); });
    } catch (const std::exception& problem) {
      said = problem.what();
    }
    return said;
  };
  decoder_config shape = four_heads(false);
  const auto model = [&](const rank_layout& ranks) { const llama<recipe<context_parallel>> made(shape, {}, {.parallel = ranks}); };
  CHECK(refused(model, 3, 3) == "context: heads must be divisible by the 3 context-parallel ranks; given 4");
  CHECK(refused(model, 4, 3) == "parallel: ranks must be a multiple of tensor times context; given 4 ranks, tensor 1 and context 3");
  shape.num_heads = shape.num_kv_heads = 6;
  shape.num_kv_heads = 3;
  CHECK(refused(model, 2, 2) ==
        "context: the 2 context-parallel ranks must be a multiple of the key/value heads, or the key/value heads of the ranks; given "
        "3");
  shape = four_heads(false);
  const auto trained = [&](std::size_t context) {
    return [&, context](const rank_layout& ranks) {
      llama<recipe<context_parallel>> made(shape, {}, {.parallel = ranks});
      trainer trainer(made, run{.max_steps = 1, .micro_batch_size = 2, .seq_length = context});
      host_batch rows{.b = 2, .t = 21};
      for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(42, 1);
      rows.starts.assign(42, 0);
      rows.target_count = rows.token_count = 42;
      (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
    };
  };
  CHECK(refused(trained(23), 2, 2) == "seq_length: must be divisible by the 2 ranks that shard sequences; given 23 tokens");
  CHECK(refused(trained(24), 2, 2) == "context: tokens of a sequence must be divisible by the 2 context-parallel ranks; given 21");
  const auto unshared = [&](const rank_layout& ranks) { const llama<recipe<data_parallel>> made(shape, {}, {.parallel = ranks}); };
  CHECK(refused(unshared, 2, 2) ==
        "parallel: context must be 1, because the strategy has no context parallelism; given 2. Make it parallel<..., context_parallel>");
  const encoder_config sentence_shape{
      .vocab_size = 97, .hidden_size = 24, .num_layers = 1, .num_heads = 2, .intermediate_size = 40, .max_position_embeddings = 24};
  const auto encoder = [&](const rank_layout& ranks) {
    const bert_pretraining<recipe<context_parallel>> made(sentence_shape, {}, {.parallel = ranks});
  };
  CHECK(refused(encoder, 2, 2) ==
        "context: an encoder needs whole sequences, which context-parallel ranks shard; given 2 ranks");
}

TEST_CASE("memory and messages of a step") {
  constexpr std::size_t n = 4;
  decoder_config shape = four_heads(false);
  shape.hidden_size = 64;
  shape.intermediate_size = 128;
  shape.num_kv_heads = 2;
  const run settings{.max_steps = 1, .micro_batch_size = 2, .seq_length = 24};
  host_batch rows{.b = 2, .t = 24};
  for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(48, 1);
  rows.starts.assign(48, 0);
  rows.target_count = rows.token_count = 48;
  const llama<recipe<single>> whole(shape);
  const dry_run alone = trainer<llama<recipe<single>>>::run_dry(shape, {}, settings, whole.context().properties());
  run_ranks(n, [&](const std::shared_ptr<transport>& network) {
    llama<recipe<context_parallel>> model(shape, {}, {.parallel = {.ranks = network, .context_parallel_size = n}});
    trainer trainer(model, settings);
    // saved activations: attention outputs twice, and each key/value head on two ranks
    CHECK(static_cast<double>(trainer.plan().passes.stash()) < 1.2 * static_cast<double>(alone.passes.stash()) / n);
    const std::size_t before = traffic_of(model.parallel()).of(traffic_role::context_parallel).bytes;
    (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
    // per layer, forward and backward, to each other rank: query, key, value and output of one head per own token; and the loss
    const double exchanged = 2.0 * static_cast<double>(shape.num_layers) * (48.0 / n) * (3 + 1) * (64.0 / 4) * sizeof(float) * (n - 1);
    CHECK(static_cast<double>(traffic_of(model.parallel()).of(traffic_role::context_parallel).bytes - before) == exchanged + 8.0 * (n - 1));
  });
}

TEST_CASE("logits of whole rows on every rank, and checkpoints that one rank goes on from") {
  const scratch_folder scratch;
  const dataset data = packed_sentences();
  const decoder_config shape = four_heads(true);
  const auto steps = [&](std::size_t count, std::size_t accumulate) {
    return run{.max_steps = count,
               .micro_batch_size = 2,
               .gradient_accumulation_steps = accumulate,
               .learning_rate = 1e-3,
               .lr_schedule = lr_schedule_kind::constant};
  };
  const outcome uninterrupted = train<gpt2<recipe<single>>>(data, shape, steps(6, 2), {});
  const array<token, 2> tokens{{1, 2, 3, 4, 5}, {9, 8, 7, 6, 5}};
  std::vector<array<float, 3>> found(4);
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    gpt2<recipe<parallel<zero<1>, context_parallel>>> model(shape, {}, {.parallel = {.ranks = network, .context_parallel_size = 2}});
    trainer trainer(model, steps(3, 1));
    checkpoint_folder checkpoints(trainer, scratch / "run", {.save_steps = 3});
    trainer.attach(checkpoints);
    trainer.fit(data);
    found[network->rank()] = logits(model, tokens);
  });
  gpt2<recipe<single>> model(shape);
  trainer trainer(model, steps(6, 2));
  checkpoint_folder checkpoints(trainer, scratch / "run");
  CHECK(checkpoints.resume());
  const auto expected = logits(model, tokens);
  for (const auto& one : found) CHECK(one == expected);
  trainer.fit(data);
  CHECK(difference(uninterrupted.weights, all_weights(model)) < 2e-5);
}
