// GPT-2.                                       [Radford et al. 2019, "Language models are unsupervised multitask learners"]
#pragma once

#include <cmath>

#include <xtrain/models/decoder.hpp>

namespace xtrain {

/// Learned positions, LayerNorm before each branch, GELU (tanh), biases everywhere, the head tied to the embedding.
struct gpt2_family {
  static constexpr const char* name = "gpt2";
  static constexpr const char* architecture = "GPT2LMHeadModel";

  template <class Recipe>
  using norm = layer_norm<Recipe>;
  template <class Recipe>
  using positions = no_positions<Recipe>;
  using activation = gelu_activation;
  static constexpr bool attention_bias = true;
  static constexpr bool output_bias = true;
  static constexpr bool feed_forward_bias = true;
  static constexpr bool transposed_in_files = true;  // its files hold [in, out] (Conv1D)

  static void complete(decoder_config& c) {
    if (c.feed_forward == 0) c.feed_forward = 4 * c.width;
    require<config_error>(c.kv_heads == 0 || c.kv_heads == c.heads, name, ": kv_heads must equal heads (", c.heads, "); given ", c.kv_heads);
  }
  /// "We scale the weights of residual layers at initialization by a factor of 1/sqrt(N), N the number of residual layers."
  static initial_values residual_initial(const decoder_config& c) {
    return initial_values::normal(c.initial_deviation / std::sqrt(2.0 * static_cast<double>(c.layers)));
  }
  static decoder_names names() {
    return {.embedding = "transformer.wte",
            .positions = "transformer.wpe",
            .blocks = "transformer.h.",
            .attention_norm = "ln_1",
            .qkv = {"attn.c_attn"},
            .attention_output = "attn.c_proj",
            .feed_forward_norm = "ln_2",
            .up = {"mlp.c_fc"},
            .down = "mlp.c_proj",
            .final_norm = "transformer.ln_f",
            .head = "lm_head"};
  }
};

template <class Recipe>
using gpt2 = decoder<Recipe, gpt2_family>;

}  // namespace xtrain
