// Definitions of bloom.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/decoder.hpp>

namespace xtrain {

XTRAIN_INLINE void bloom_family::complete(decoder_config& c) {
  if (c.feed_forward == 0) c.feed_forward = 4 * c.width;
  c.attention_bias = c.output_bias = c.feed_forward_bias = true;
  require<config_error>(c.kv_heads == 0 || c.kv_heads == c.heads, name, ": kv_heads must equal heads (", c.heads, "); given ", c.kv_heads);
  require<config_error>(c.feed_forward == 4 * c.width, name, ": feed_forward must be 4 times the width (", c.width, "); given ",
                        c.feed_forward);
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
  const auto bos = s.tokens({"bos_token_id"});
  return {.vocabulary = s.size({"vocab_size"}),
          .width = s.size({"hidden_size", "n_embed"}),
          .layers = s.size({"n_layer", "num_hidden_layers"}),
          .heads = s.size({"n_head", "num_attention_heads"}),
          .context = s.size_or(2048, {"seq_length"}),
          .norm_epsilon = s.number_or(1e-5, {"layer_norm_epsilon"}),
          .tied_head = s.flag_or(true, {"tie_word_embeddings"}),
          .attention_dropout = s.number_or(0.0, {"attention_dropout"}),
          .residual_dropout = s.number_or(0.0, {"hidden_dropout"}),
          .initial_deviation = s.number_or(0.02, {"initializer_range"}),
          .bos = bos.empty() ? -1 : bos.front(),
          .eos = s.tokens({"eos_token_id"}),
          .padding = s.token_or({}, "pad_token_id")};
}

XTRAIN_INLINE void bloom_family::write(const decoder_config& c, named_settings& s) {
  s.set("vocab_size", c.vocabulary);
  s.set("hidden_size", c.width);
  s.set("n_layer", c.layers);
  s.set("n_head", c.heads);
  s.set("seq_length", c.context);
  s.set("layer_norm_epsilon", c.norm_epsilon);
  s.set("attention_dropout", c.attention_dropout);
  s.set("hidden_dropout", c.residual_dropout);
  s.set("initializer_range", c.initial_deviation);
  s.set("apply_residual_connection_post_layernorm", false);
  s.set("tie_word_embeddings", c.tied_head);
  if (c.bos >= 0) s.set("bos_token_id", c.bos);
  s.set_tokens("eos_token_id", c.eos);
  s.set_token("pad_token_id", c.padding);
}

XTRAIN_INLINE std::vector<std::string> bloom_family::other_names(const std::string& parameter) {
  constexpr std::string_view prefix = "transformer.";
  if (parameter.starts_with(prefix)) return {parameter.substr(prefix.size())};
  return {};
}

}  // namespace xtrain
