// Definitions of chatglm.hpp.
#pragma once

#include <string_view>

#include <xtrain/core/library.hpp>
#include <xtrain/models/chatglm.hpp>
#include <xtrain/models/llama.hpp>

namespace xtrain {

XTRAIN_INLINE void chatglm_family::complete(decoder_config& c) {
  llama_family::complete(c);
  const std::size_t d = c.head_dim != 0 ? c.head_dim : c.num_heads != 0 ? c.hidden_size / c.num_heads : 0;
  if (c.rotary_dim == 0) c.rotary_dim = d / 2;
  c.attention_bias = true;
}

XTRAIN_INLINE decoder_names chatglm_family::names() {
  return {.embedding = "transformer.embedding.word_embeddings",
          .blocks = "transformer.encoder.layers.",
          .attention_norm = "input_layernorm",
          .qkv = {"self_attention.query_key_value"},
          .attention_output = "self_attention.dense",
          .feed_forward_norm = "post_attention_layernorm",
          .up = {"mlp.dense_h_to_4h"},
          .down = "mlp.dense_4h_to_h",
          .final_norm = "transformer.encoder.final_layernorm",
          .head = "transformer.output_layer"};
}

XTRAIN_INLINE bool chatglm_family::describes(const named_settings& s) { return s.has({"multi_query_attention"}) || s.has({"padded_vocab_size"}); }

XTRAIN_INLINE decoder_config chatglm_family::read(const named_settings& s) {
  require<config_error>(describes(s), s.who(),
                        ": must describe ChatGLM2 or 3; position_encoding_2d and inner_hidden_size belong to ChatGLM-6B");
  require<config_error>(s.flag_or(true, {"rmsnorm"}) && s.flag_or(true, {"post_layer_norm"}) &&
                            !s.flag_or(false, {"apply_residual_connection_post_layernorm"}) && !s.flag_or(false, {"add_bias_linear"}),
                        s.who(),
                        ": must have rmsnorm and post_layer_norm, and no apply_residual_connection_post_layernorm or add_bias_linear");
  // the vocabulary may be smaller than the embedding
  require<config_error>(s.has({"padded_vocab_size", "vocab_size"}), s.who(), ": 'padded_vocab_size' must be given; it is missing");
  const std::size_t heads = s.size({"num_attention_heads"});
  const auto eos = s.tokens({"eos_token_id"});
  return {.vocab_size = s.has({"padded_vocab_size"}) ? s.size({"padded_vocab_size"}) : s.size({"vocab_size"}),
          .hidden_size = s.size({"hidden_size"}),
          .num_layers = s.size({"num_layers", "num_hidden_layers"}),
          .num_heads = heads,
          .num_kv_heads = s.flag_or(false, {"multi_query_attention"}) ? s.size({"multi_query_group_num"}) : heads,
          .head_dim = s.size_or(0, {"kv_channels"}),
          .intermediate_size = s.size({"ffn_hidden_size"}),
          .max_position_embeddings = s.size_or(2048, {"seq_length"}),
          .norm_epsilon = s.number_or(1e-5, {"layernorm_epsilon"}),
          .rope_theta = 10000.0 * s.number_or(1.0, {"rope_ratio"}),
          .attention_bias = s.flag_or(true, {"add_qkv_bias"}),
          .tie_word_embeddings = s.flag_or(false, {"tie_word_embeddings"}),
          .attention_dropout = s.number_or(0.0, {"attention_dropout"}),
          .residual_dropout = s.number_or(0.0, {"hidden_dropout"}),
          .eos = eos,
          .pad_token_id = s.token_or({}, "pad_token_id")};
}

XTRAIN_INLINE void chatglm_family::write(const decoder_config& c, named_settings& s) {
  s.set("padded_vocab_size", c.vocab_size);
  s.set("vocab_size", c.vocab_size);
  s.set("hidden_size", c.hidden_size);
  s.set("num_layers", c.num_layers);
  s.set("num_attention_heads", c.num_heads);
  s.set("multi_query_attention", c.num_kv_heads != c.num_heads);
  s.set("multi_query_group_num", c.num_kv_heads);
  s.set("kv_channels", c.head_dim);
  s.set("ffn_hidden_size", c.intermediate_size);
  s.set("seq_length", c.max_position_embeddings);
  s.set("layernorm_epsilon", c.norm_epsilon);
  s.set("rope_ratio", c.rope_theta / 10000.0);
  s.set("rmsnorm", true);
  s.set("post_layer_norm", true);
  s.set("original_rope", true);
  s.set("add_qkv_bias", c.attention_bias);
  s.set("add_bias_linear", false);
  s.set("apply_residual_connection_post_layernorm", false);
  s.set("attention_dropout", c.attention_dropout);
  s.set("hidden_dropout", c.residual_dropout);
  s.set("tie_word_embeddings", c.tie_word_embeddings);
  s.set_tokens("eos_token_id", c.eos);
  s.set_token("pad_token_id", c.pad_token_id);
}

XTRAIN_INLINE bool chatglm_family::may_be_ignored(std::string_view tensor, const decoder_config& c) {
  return tensor.ends_with("rotary_pos_emb.inv_freq") || (c.tie_word_embeddings && tensor == "transformer.output_layer.weight");
}

}  // namespace xtrain
