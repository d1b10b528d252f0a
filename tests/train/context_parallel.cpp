// Context parallelism (Ulysses) equals one device.
#include <doctest/doctest.h>

#include <xtrain/models/bloom.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/gpt2.hpp>
#include "shared_rows.hpp"

namespace {

template <class Parallel>
struct selective_recipe : recipe<Parallel> {
  using recompute = recompute_selective<attention_outputs>;
};

}  // namespace

TEST_CASE("NEFTune's noise is that of one device, on micro-batches of another size") {
  run_config settings{.max_steps = 4, .micro_batch_size = 4, .learning_rate = 1e-3, .optimizer = {.epsilon = 1e-5}, .neftune_noise_alpha = 20};
  decoder_config shape = four_heads(false);
  shape.attention_dropout = shape.residual_dropout = 0;  // its random numbers depend on the padded length
  const outcome one = train<llama<recipe<single>>>(sentences(), shape, settings, {});
  settings.micro_batch_size = settings.gradient_accumulation_steps = 2;
  const outcome divided = train_shared<llama<recipe<context_parallel>>>({2, 2}, sentences(), shape, settings);
  CHECK(difference(one.losses, divided.losses) < 2e-6);
  CHECK(difference(one.weights, divided.weights) < 2e-6);
}

TEST_CASE("means of micro-batches are over all of a sequence's tokens") {
  run_config settings{.max_steps = 4,
                      .micro_batch_size = 2,
                      .gradient_accumulation_steps = 2,
                      .learning_rate = 1e-3,
                      .optimizer = {.epsilon = 1e-5},
                      .average_loss = loss_average::micro_batch};
  const outcome one = train<llama<recipe<single>>>(packed_sentences(), four_heads(false), settings, {});
  const outcome divided = train_shared<llama<recipe<context_parallel>>>({2, 2}, packed_sentences(), four_heads(false), settings);
  CHECK(difference(one.losses, divided.losses) < 2e-6);
  CHECK(difference(one.weights, divided.weights) < 2e-6);
}

TEST_CASE("llama and gpt2, with dropout, on two and four ranks") {
  for (const std::size_t ranks : {2U, 4U}) {
    equals_one<recipe, llama>(four_heads(false), {ranks, ranks});
    equals_one<recipe, gpt2>(four_heads(true), {ranks, ranks});
  }
}

TEST_CASE("several samples in a row, longer than any rank's places") {
  equals_one<recipe, llama>(four_heads(false), {4, 4}, packed_sentences());
  equals_one<recipe, gpt2>(four_heads(true), {2, 2}, packed_sentences());
}

TEST_CASE("fewer key/value heads than ranks, as many as half the heads, linear biases") {
  decoder_config shape = four_heads(false);
  shape.num_kv_heads = 2;
  equals_one<recipe, llama>(shape, {2, 2});
  equals_one<recipe, llama>(shape, {4, 4});
  shape = four_heads(true);
  shape.intermediate_size = 4 * shape.hidden_size;
  equals_one<recipe, bloom>(shape, {2, 2});
}

TEST_CASE("with LoRA and its dropout, with recomputation of everything and of attention") {
  const llama<lora_recipe<single>>::options dropping{.adapter = {.dropout = 0.3}};
  equals_one<lora_recipe, llama>(four_heads(false), {2, 2});
  equals_one<lora_recipe, llama>(four_heads(false), {4, 4}, packed_sentences(), dropping);
  equals_one<recomputing_recipe, llama>(four_heads(false), {2, 2});
  equals_one<selective_recipe, gpt2>(four_heads(true), {2, 2});
}

TEST_CASE("places that see a context on both sides") {
  decoder_config shape = sizes(true);
  shape.bos = 62;  // in a fifth of the samples: a prefix before it that all its tokens see
  shape.gap = 51;
  shape.residual_dropout = 0;
  equals_one<recipe, chatglm1>(shape, {2, 2}, packed_sentences());
}
