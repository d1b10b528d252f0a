#include <doctest/doctest.h>

#include <xtrain/eval/logits.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/parallel/zero.hpp>
#include "shared_rows.hpp"

namespace {

template <template <class> class Recipe, template <class> class Family, class Divided = sequence_parallel>
void divided_equals_one(const decoder_config& shape, std::size_t ranks, std::size_t tensor, const dataset& data = sentences()) {
  equals_one<Recipe, Family, Divided>(shape, {.ranks = ranks, .tensor_parallel_size = tensor}, data);
}

}  // namespace

TEST_CASE("llama and gpt2, with dropout, on two and four ranks; packed rows") {
  divided_equals_one<recipe, llama>(four_heads(false), 2, 2);
  divided_equals_one<recipe, llama>(four_heads(false), 4, 4);
  divided_equals_one<recipe, llama>(four_heads(false), 2, 2, packed_sentences());
  divided_equals_one<recipe, gpt2>(four_heads(true), 2, 2);
}

TEST_CASE("with recomputation; with LoRA beside data-parallel ranks") {
  divided_equals_one<recomputing_recipe, llama>(four_heads(false), 2, 2);
  divided_equals_one<lora_recipe, llama, parallel<zero<2>, sequence_parallel>>(four_heads(false), 4, 2);
}

TEST_CASE("NEFTune's noise is that of one device") {
  run_config settings{.max_steps = 4, .micro_batch_size = 4, .learning_rate = 1e-3, .optimizer = {.epsilon = 1e-5}, .neftune_noise_alpha = 20};
  const outcome one = train<llama<recipe<single>>>(sentences(), four_heads(false), settings, {});
  const outcome divided = train_shared<llama<recipe<sequence_parallel>>>({.ranks = 2, .tensor_parallel_size = 2}, sentences(), four_heads(false), settings);
  CHECK(difference(one.losses, divided.losses) < 2e-6);
  settings.neftune_noise_alpha = 0;
  CHECK(difference(one.losses, train<llama<recipe<single>>>(sentences(), four_heads(false), settings, {}).losses) > 1e-3);
}

TEST_CASE("memory and messages of a step") {
  constexpr std::size_t n = 4;
  decoder_config shape = four_heads(false);
  shape.vocab_size = 128;
  shape.hidden_size = 64;
  shape.intermediate_size = 128;
  shape.residual_dropout = shape.attention_dropout = 0;
  const training_config<adamw> settings{.max_steps = 1, .micro_batch_size = 2, .seq_length = 24};
  host_batch rows{.b = 2, .t = 24};
  for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(48, 1);
  rows.starts.assign(48, 0);
  rows.target_count = rows.token_count = 48;
  // outputs of the embedding and of every layer
  const std::size_t between = (shape.num_layers + 1) * 48 * shape.hidden_size * sizeof(float);
  run_ranks(n, [&](const std::shared_ptr<transport>& network) {
    const auto kept_by = [&]<class Strategy>(Strategy) {
      llama<recipe<Strategy>> model(shape, {}, {.parallel = {.ranks = network, .tensor_parallel_size = n}});
      trainer trainer(model, settings);
      return trainer.plan().passes;
    };
    llama<recipe<sequence_parallel>> model(shape, {}, {.parallel = {.ranks = network, .tensor_parallel_size = n}});
    trainer trainer(model, settings);
    const pass_sizes sizes = trainer.plan().passes, whole = kept_by(tensor_parallel{});
    CHECK(whole.layer_inputs == between);
    CHECK(sizes.layer_inputs == between / n);
    // of a block's saved activations, two layer inputs and the middle are now sharded
    CHECK(whole.saved - sizes.saved >= shape.num_layers * 3 * 48 * shape.hidden_size * sizeof(float) * (n - 1) / n);
    const step_traffic before = traffic_of(model.parallel());
    (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
    // halves of all-reduces of [tokens, hidden_size]: an all-gather before each half-layer's first matrix, a reduce-scatter after the second; in the backward
    // both again, and the first matrix's input once more; embedding and head, forward and backward. Gradients of norms are all-reduced. For the head, three
    // values per token from every rank to every rank; and the norm.
    const double half = 48.0 * 64 * sizeof(float) * (n - 1) / n, norms = 2.0 * static_cast<double>(shape.num_layers) + 1;
    const double expected = (10.0 * static_cast<double>(shape.num_layers) + 4) * half + 3.0 * 48 * sizeof(float) * (n - 1) + 8.0 * (n - 1);
    const step_traffic sent = traffic_of(model.parallel()).since(before);
    CHECK(static_cast<double>(sent.of(traffic_role::tensor_parallel).bytes) == expected);
    CHECK(static_cast<double>(sent.of(traffic_role::partial_sums).bytes) == norms * 64 * sizeof(float) * (n - 1));
  });
}

TEST_CASE("places that cannot be divided are refused with the numbers; logits need no division") {
  std::string said;
  try {
    run_ranks(4, [&](const std::shared_ptr<transport>& network) {
      llama<recipe<sequence_parallel>> model(four_heads(false), {}, {.parallel = {.ranks = network, .tensor_parallel_size = 4}});
      const trainer trainer(model, training_config<adamw>{.max_steps = 1, .seq_length = 18});
    });
  } catch (const config_error& problem) {
    said = problem.what();
  }
  CHECK(said == "seq_length: must be divisible by the 4 ranks that shard sequences; given 18 tokens");
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const array<token, 2> tokens{{1, 2, 3, 4, 5}};
    const llama<recipe<sequence_parallel>> model(four_heads(false), {}, {.parallel = {.ranks = network, .tensor_parallel_size = 2}});
    const llama<recipe<tensor_parallel>> other(four_heads(false), {}, {.parallel = {.ranks = network, .tensor_parallel_size = 2}});
    CHECK(logits(model, tokens) == logits(other, tokens));
  });
}
