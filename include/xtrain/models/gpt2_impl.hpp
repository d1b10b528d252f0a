// Definitions of gpt2.hpp.
#pragma once

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/models/decoder.hpp>
#include <xtrain/models/gpt2.hpp>

namespace xtrain {

XTRAIN_INLINE void gpt2_family::complete(decoder_config& c) {
  if (c.intermediate_size == 0) c.intermediate_size = 4 * c.hidden_size;
  c.attention_bias = c.output_bias = c.feed_forward_bias = true;
  require<config_error>(c.num_kv_heads == 0 || c.num_kv_heads == c.num_heads, name, ": num_kv_heads must equal num_heads (", c.num_heads,
                        "); given ", c.num_kv_heads);
}

XTRAIN_INLINE initial_values gpt2_family::residual_initial(const decoder_config& c) {
  return initial_values::normal(c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.num_layers)));
}

XTRAIN_INLINE decoder_names gpt2_family::names() {
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

XTRAIN_INLINE decoder_config gpt2_family::read(const named_settings& s) {
  const std::string activation = s.text_or("gelu_new", {"activation_function"});
  require<config_error>(activation == "gelu_new" || activation == "gelu_pytorch_tanh", s.who(),
                        ": activation_function must be gelu_new; given '", activation, "'");
  require<config_error>(s.flag_or(true, {"scale_attn_weights"}) && !s.flag_or(false, {"scale_attn_by_inverse_layer_idx"}), s.who(),
                        ": attention must be scaled by the head dim alone");
  // defaults of transformers' class
  const std::size_t vocab_size = s.size_or(50257, {"vocab_size"});
  constexpr token end = 50256;
  return {.vocab_size = vocab_size,
          .hidden_size = s.size_or(768, {"n_embd", "hidden_size"}),
          .num_layers = s.size_or(12, {"n_layer", "num_hidden_layers"}),
          .num_heads = s.size_or(12, {"n_head", "num_attention_heads"}),
          .intermediate_size = s.size_or(0, {"n_inner", "intermediate_size"}),
          .max_position_embeddings = s.size_or(1024, {"n_positions", "max_position_embeddings"}),
          .norm_epsilon = s.number_or(1e-5, {"layer_norm_epsilon"}),
          .tie_word_embeddings = s.flag_or(true, {"tie_word_embeddings"}),
          .embedding_dropout = s.number_or(0.1, {"embd_pdrop"}),
          .attention_dropout = s.number_or(0.1, {"attn_pdrop"}),
          .residual_dropout = s.number_or(0.1, {"resid_pdrop"}),
          .initializer_range = s.number_or(0.02, {"initializer_range"}),
          .bos = detail::token_or_default(s, end, vocab_size, "bos_token_id"),
          .eos = detail::tokens_or_default(s, end, vocab_size, "eos_token_id"),
          .pad_token_id = s.token_or({}, "pad_token_id")};
}

XTRAIN_INLINE void gpt2_family::write(const decoder_config& c, named_settings& s) {
  s.set("vocab_size", c.vocab_size);
  s.set("n_embd", c.hidden_size);
  s.set("n_layer", c.num_layers);
  s.set("n_head", c.num_heads);
  s.set("n_inner", c.intermediate_size);
  s.set("n_positions", c.max_position_embeddings);
  s.set("n_ctx", c.max_position_embeddings);
  s.set("layer_norm_epsilon", c.norm_epsilon);
  s.set("activation_function", "gelu_new");
  s.set("embd_pdrop", c.embedding_dropout);
  s.set("attn_pdrop", c.attention_dropout);
  s.set("resid_pdrop", c.residual_dropout);
  s.set("initializer_range", c.initializer_range);
  s.set("tie_word_embeddings", c.tie_word_embeddings);
  if (c.bos >= 0) s.set("bos_token_id", c.bos);
  s.set_tokens("eos_token_id", c.eos);
  s.set_token("pad_token_id", c.pad_token_id);
}

XTRAIN_INLINE bool gpt2_family::may_be_ignored(std::string_view tensor, const decoder_config& c) {
  return tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias") || (c.tie_word_embeddings && tensor == "lm_head.weight");
}

}  // namespace xtrain
