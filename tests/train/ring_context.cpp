#include <doctest/doctest.h>

#include <xtrain/models/bloom.hpp>
#include <xtrain/models/mistral.hpp>
#include "capped_llama.hpp"
#include "shared_rows.hpp"

namespace {

template <class Parallel>
struct frugal_recipe : lora_recipe<Parallel> {
  using recompute = recompute_full;
};

}  // namespace

// The bound is Ulysses', 2e-6. One device's sums over the keys are merged in n turns: n more roundings of 2^-24, of values about 1, in three layers, forward
// and backward. Losses of 5: 5 · 2^-24 · sqrt(6n) = 1.5e-6 for n = 4, if independent; means over many labels are below (6e-8 measured). A weight changes by
// 1e-3 · gradient / (|gradient| + 1e-5) per step: if a gradient is only such rounding error (4e-9, a loss's over 60 labels), eight steps change it by 8 · 1e-3
// · 4e-4 = 3e-6 if all have the same sign, else by 1e-6; 3e-7 is measured.
TEST_CASE("llama on two and four ranks, with four heads and with two, of two key/value heads and of one") {
  decoder_config shape = four_heads(false);
  equals_one<recipe, llama, ring_context_parallel>(shape, {2, 2});
  shape.num_kv_heads = 2;
  equals_one<recipe, llama, ring_context_parallel>(shape, {4, 4});
  shape.num_heads = 2;
  shape.num_kv_heads = 1;
  equals_one<recipe, llama, ring_context_parallel>(shape, {4, 4});
  equals_one<recipe, llama, ring_context_parallel>(shape, {4, 2});  // with data parallelism
}

TEST_CASE("several samples in a row, and windows that end within a chunk and leave chunks out") {
  decoder_config shape = sizes(false);
  equals_one<recipe, llama, ring_context_parallel>(shape, {4, 4}, packed_sentences());
  for (const std::size_t window : {2U, 7U}) {
    shape.sliding_window = window;
    equals_one<recipe, mistral, ring_context_parallel>(shape, {4, 4}, packed_sentences());
  }
}

TEST_CASE("a softcap of scores, and a window in one of the layers") {
  decoder_config shape = sizes(false);
  shape.sliding_window = 7;
  shape.windowed_layers.assign(shape.num_layers, false);
  shape.windowed_layers[1] = true;
  shape.attn_logit_softcapping = 0.5;
  shape.final_logit_softcapping = 2.0;
  shape.initializer_range = 0.2;
  equals_one<recipe, capped_llama, ring_context_parallel>(shape, {4, 4}, packed_sentences());
}

TEST_CASE("ranks whose number is no power of two") {
  decoder_config shape = sizes(false);
  shape.attention_dropout = 0;  // its random numbers depend on the sequence length
  shape.residual_dropout = 0;
  equals_one<recipe, llama, ring_context_parallel>(shape, {3, 3});
}

TEST_CASE("bloom, whose scores fall with distance, on more ranks than heads") {
  decoder_config shape = sizes(true);
  shape.intermediate_size = 4 * shape.hidden_size;
  equals_one<recipe, bloom, ring_context_parallel>(shape, {4, 4});
  equals_one<recipe, bloom, ring_context_parallel>(shape, {2, 2}, packed_sentences());
}

TEST_CASE("with LoRA and its dropout, and recomputation of everything") {
  const llama<frugal_recipe<single>>::options dropping{.adapter = {.dropout = 0.3}};
  equals_one<frugal_recipe, llama, ring_context_parallel>(four_heads(false), {4, 4}, packed_sentences(), dropping);
  decoder_config capped = four_heads(false);
  capped.attn_logit_softcapping = 0.5;
  equals_one<frugal_recipe, capped_llama, ring_context_parallel>(capped, {4, 4}, packed_sentences());
}
