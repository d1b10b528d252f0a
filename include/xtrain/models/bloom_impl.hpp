// Definitions of bloom.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/decoder.hpp>

namespace xtrain {

XTRAIN_INLINE void bloom_family::complete(decoder_config& c) {
  if (c.intermediate_size == 0) c.intermediate_size = 4 * c.hidden_size;
  c.attention_bias = c.output_bias = c.feed_forward_bias = true;
  require<config_error>(c.num_kv_heads == 0 || c.num_kv_heads == c.num_heads, name, ": num_kv_heads must equal num_heads (", c.num_heads,
                        "); given ", c.num_kv_heads);
  require<config_error>(c.intermediate_size == 4 * c.hidden_size, name, ": intermediate_size must be 4 times hidden_size (", c.hidden_size, "); given ",
                        c.intermediate_size);
}

XTRAIN_INLINE decoder_names bloom_family::names() {
  return {.embedding = "transformer.word_embeddings",
          .embedding_norm = "transformer.word_embeddings_layernorm",
          .blocks = "transformer.h.",
          .attention_norm = "input_layernorm",
          .qkv = {"self_attention.query_key_value"},
          .attention_output = "self_attention.dense",
          .feed_forward_norm = "post_attention_layernorm",
          .up = {"mlp.dense_h_to_4h"},
          .down = "mlp.dense_4h_to_h",
          .final_norm = "transformer.ln_f",
          .head = "lm_head"};
}

XTRAIN_INLINE file_order bloom_family::qkv_order(const decoder_config& c) {
  return grouped_order(c, [](char part, std::size_t head) { return 3 * head + (part == 'q' ? 0U : part == 'k' ? 1U : 2U); });
}

XTRAIN_INLINE decoder_config bloom_family::read(const named_settings& s) {
  require<config_error>(!s.flag_or(false, {"apply_residual_connection_post_layernorm"}), s.who(),
                        ": the residual must go around the norms; apply_residual_connection_post_layernorm is true");
  const std::size_t ranks = s.size_or(1, {"pretraining_tp"});
  require<config_error>(!s.flag_or(false, {"slow_but_exact"}) || ranks == 1, s.who(), ": slow_but_exact must be false, because products are not summed in the ",
                        ranks, " parts of pretraining_tp");
  // defaults of transformers' class
  const std::size_t vocab_size = s.size_or(250880, {"vocab_size"});
  return {.vocab_size = vocab_size,
          .hidden_size = s.size_or(64, {"hidden_size", "n_embed"}),
          .num_layers = s.size_or(2, {"n_layer", "num_hidden_layers"}),
          .num_heads = s.size_or(8, {"n_head", "num_attention_heads"}),
          .max_position_embeddings = s.size_or(2048, {"seq_length"}),
          .norm_epsilon = s.number_or(1e-5, {"layer_norm_epsilon"}),
          .tie_word_embeddings = s.flag_or(true, {"tie_word_embeddings"}),
          .attention_dropout = s.number_or(0.0, {"attention_dropout"}),
          .residual_dropout = s.number_or(0.0, {"hidden_dropout"}),
          .initializer_range = s.number_or(0.02, {"initializer_range"}),
          .bos = detail::token_or_default(s, 1, vocab_size, "bos_token_id"),
          .eos = detail::tokens_or_default(s, 2, vocab_size, "eos_token_id"),
          .pad_token_id = s.token_or({}, "pad_token_id")};
}

XTRAIN_INLINE void bloom_family::write(const decoder_config& c, named_settings& s) {
  s.set("vocab_size", c.vocab_size);
  s.set("hidden_size", c.hidden_size);
  s.set("n_layer", c.num_layers);
  s.set("n_head", c.num_heads);
  s.set("seq_length", c.max_position_embeddings);
  s.set("layer_norm_epsilon", c.norm_epsilon);
  s.set("attention_dropout", c.attention_dropout);
  s.set("hidden_dropout", c.residual_dropout);
  s.set("initializer_range", c.initializer_range);
  s.set("apply_residual_connection_post_layernorm", false);
  s.set("tie_word_embeddings", c.tie_word_embeddings);
  if (c.bos >= 0) s.set("bos_token_id", c.bos);
  s.set_tokens("eos_token_id", c.eos);
  s.set_token("pad_token_id", c.pad_token_id);
}

}  // namespace xtrain
