// LLaMA.                                       [Touvron et al. 2023, "LLaMA: Open and efficient foundation language models"]
#pragma once

#include <xtrain/models/decoder.hpp>

namespace xtrain {

/// RMSNorm before each branch, rotary positions, SwiGLU, no biases; key/value heads may be shared, the head may be tied.
struct llama_family {
  static constexpr const char* name = "llama";
  static constexpr const char* architecture = "LlamaForCausalLM";

  template <class Recipe>
  using norm = rms_norm<Recipe>;
  template <class Recipe>
  using positions = rotary_positions<Recipe>;
  using activation = swiglu_activation;
  static constexpr bool attention_bias = false;
  static constexpr bool output_bias = false;
  static constexpr bool feed_forward_bias = false;
  static constexpr bool transposed_in_files = false;

  /// The inner size is 2/3 · 4 · width, rounded up to a multiple of 64 (the paper's 256 is for its own, larger widths).
  static void complete(decoder_config& c) {
    if (c.feed_forward == 0) c.feed_forward = (8 * c.width / 3 + 63) / 64 * 64;
    const std::size_t d = c.head_dim != 0 ? c.head_dim : c.heads != 0 ? c.width / c.heads : 0;
    require<config_error>(d % 2 == 0, name, ": the head dim must be even to be rotated; it is ", d);
  }
  static initial_values residual_initial(const decoder_config& c) { return initial_values::normal(c.initial_deviation); }
  static decoder_names names() {
    return {.embedding = "model.embed_tokens",
            .positions = {},
            .blocks = "model.layers.",
            .attention_norm = "input_layernorm",
            .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
            .attention_output = "self_attn.o_proj",
            .feed_forward_norm = "post_attention_layernorm",
            .up = {"mlp.gate_proj", "mlp.up_proj"},
            .down = "mlp.down_proj",
            .final_norm = "model.norm",
            .head = "lm_head"};
  }
};

template <class Recipe>
using llama = decoder<Recipe, llama_family>;

}  // namespace xtrain
