// Definitions of chatglm1.hpp.
#pragma once

#include <string_view>

#include <xtrain/core/library.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/decoder.hpp>
#include <xtrain/models/normalized_residual_block.hpp>

namespace xtrain {

XTRAIN_INLINE void chatglm1_family::complete(decoder_config& c) {
  if (c.intermediate_size == 0) c.intermediate_size = 4 * c.hidden_size;
  c.attention_bias = c.output_bias = c.feed_forward_bias = true;
  require<config_error>(c.num_kv_heads == 0 || c.num_kv_heads == c.num_heads, name, ": num_kv_heads must equal num_heads (", c.num_heads,
                        "); given ", c.num_kv_heads);
  const bool divides = c.num_heads != 0 && c.hidden_size % c.num_heads == 0;  // otherwise refused by complete_decoder
  const std::size_t d = c.head_dim != 0 ? c.head_dim : divides ? c.hidden_size / c.num_heads : 0;
  require<config_error>(d % 4 == 0, name, ": the head dim must be divisible by 4, because each half of it is rotated; it is ", d);
  require<config_error>(c.rotary_dim == 0, name, ": rotary_dim must be 0, which is all of a head; given ", c.rotary_dim);
  require<config_error>(c.residual_dropout == 0.0, name, ": residual_dropout must be 0; given ", c.residual_dropout);
}

XTRAIN_INLINE decoder_names chatglm1_family::names() {
  return {.embedding = "transformer.word_embeddings",
          .blocks = "transformer.layers.",
          .attention_norm = "input_layernorm",
          .qkv = {"attention.query_key_value"},
          .attention_output = "attention.dense",
          .feed_forward_norm = "post_attention_layernorm",
          .up = {"mlp.dense_h_to_4h"},
          .down = "mlp.dense_4h_to_h",
          .final_norm = "transformer.final_layernorm",
          .head = "lm_head"};
}

XTRAIN_INLINE file_order chatglm1_family::qkv_order(const decoder_config& c) {
  return grouped_order(c, [](char part, std::size_t head) { return 3 * head + (part == 'q' ? 0U : part == 'k' ? 1U : 2U); });
}

XTRAIN_INLINE bool chatglm1_family::describes(const named_settings& s) { return s.has({"position_encoding_2d"}) || s.has({"inner_hidden_size"}); }

XTRAIN_INLINE decoder_config chatglm1_family::read(const named_settings& s) {
  require<config_error>(
      describes(s) && s.flag_or(true, {"position_encoding_2d"}), s.who(),
      ": must describe ChatGLM-6B, with position_encoding_2d; multi_query_attention and padded_vocab_size belong to ChatGLM2 "
      "and 3");
  require<config_error>(!s.has({"pre_seq_len"}), s.who(), ": there must be no prefix beside the weights; given a pre_seq_len");
  require<config_error>(s.number_or(0.0, {"quantization_bit"}) == 0.0, s.who(),
                        ": weights must not be quantized; given a quantization_bit");
  const auto one = [&](std::initializer_list<const char*> keys) {
    const auto all = s.tokens(keys);
    return all.empty() ? token{-1} : all.front();
  };
  return {.vocab_size = s.size({"vocab_size"}),
          .hidden_size = s.size({"hidden_size"}),
          .num_layers = s.size({"num_layers", "num_hidden_layers"}),
          .num_heads = s.size({"num_attention_heads"}),
          .intermediate_size = s.size_or(0, {"inner_hidden_size"}),
          .max_position_embeddings = s.size_or(2048, {"max_sequence_length"}),
          .norm_epsilon = s.number_or(1e-5, {"layernorm_epsilon"}),
          .tie_word_embeddings = s.flag_or(true, {"tie_word_embeddings"}),
          .bos = one({"bos_token_id"}),
          .gap = one({"gmask_token_id"}),
          .word_gap = one({"mask_token_id"}),
          .eos = s.tokens({"eos_token_id"}),
          .pad_token_id = s.token_or({}, "pad_token_id")};
}

XTRAIN_INLINE void chatglm1_family::write(const decoder_config& c, named_settings& s) {
  s.set("vocab_size", c.vocab_size);
  s.set("hidden_size", c.hidden_size);
  s.set("num_layers", c.num_layers);
  s.set("num_attention_heads", c.num_heads);
  s.set("inner_hidden_size", c.intermediate_size);
  s.set("max_sequence_length", c.max_position_embeddings);
  s.set("layernorm_epsilon", c.norm_epsilon);
  s.set("position_encoding_2d", true);
  s.set("tie_word_embeddings", c.tie_word_embeddings);
  if (c.bos >= 0) s.set("bos_token_id", c.bos);
  if (c.gap >= 0) s.set("gmask_token_id", c.gap);
  if (c.word_gap >= 0) s.set("mask_token_id", c.word_gap);
  s.set_tokens("eos_token_id", c.eos);
  s.set_token("pad_token_id", c.pad_token_id);
}

XTRAIN_INLINE bool chatglm1_family::may_be_ignored(std::string_view tensor, const decoder_config& c) {
  return tensor.ends_with(".rotary_emb.inv_freq") || decoder_family::may_be_ignored(tensor, c);
}

}  // namespace xtrain
