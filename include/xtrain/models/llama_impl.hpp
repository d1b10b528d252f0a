// Definitions of llama.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/models/decoder.hpp>
#include <xtrain/models/llama.hpp>

namespace xtrain {

XTRAIN_INLINE void llama_family::complete(decoder_config& c) {
  if (c.intermediate_size == 0) c.intermediate_size = (8 * c.hidden_size / 3 + 63) / 64 * 64;
  const bool divides = c.num_heads != 0 && c.hidden_size % c.num_heads == 0;  // otherwise refused by complete_decoder
  const std::size_t d = c.head_dim != 0 ? c.head_dim : divides ? c.hidden_size / c.num_heads : 0;
  require<config_error>(d % 2 == 0, name, ": the head dim must be even to be rotated; it is ", d);
}

XTRAIN_INLINE decoder_names llama_family::names() {
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

XTRAIN_INLINE decoder_config llama_family::read(const named_settings& s, const config_defaults& otherwise) {
  const std::string activation = s.text_or("silu", {"hidden_act"});
  require<config_error>(activation == "silu", s.who(), ": hidden_act must be silu; given '", activation, "'");
  return read_sizes(s, otherwise);
}

XTRAIN_INLINE decoder_config llama_family::read_sizes(const named_settings& s, const config_defaults& otherwise) {
  const auto rope = s.object_at({"rope_parameters", "rope_scaling"});
  const double attention_dropout = s.number_or(0.0, {"attention_dropout"});
  const std::size_t vocab_size = detail::size_or_default(s, otherwise.vocab_size, {"vocab_size"});
  return {.vocab_size = vocab_size,
          .hidden_size = detail::size_or_default(s, otherwise.hidden_size, {"hidden_size"}),
          .num_layers = detail::size_or_default(s, otherwise.num_layers, {"num_hidden_layers"}),
          .num_heads = detail::size_or_default(s, otherwise.num_heads, {"num_attention_heads"}),
          .num_kv_heads = s.size_or(s.is_null("num_key_value_heads") ? 0 : otherwise.num_kv_heads, {"num_key_value_heads"}),
          .head_dim = s.size_or(otherwise.head_dim, {"head_dim"}),
          .intermediate_size = detail::size_or_default(s, otherwise.intermediate_size, {"intermediate_size"}),
          .max_position_embeddings = s.size_or(otherwise.max_position_embeddings, {"max_position_embeddings"}),
          .norm_epsilon = s.number_or(otherwise.norm_epsilon, {"rms_norm_eps"}),
          .rope_theta = rope->number_or(s.number_or(otherwise.rope_theta, {"rope_theta"}), {"rope_theta"}),
          .rope_scaling = read_rope_scaling(s),
          .attention_bias = s.flag_or(false, {"attention_bias"}),
          .output_bias = s.flag_or(false, {"attention_bias"}),
          .feed_forward_bias = s.flag_or(false, {"mlp_bias"}),
          .tie_word_embeddings = s.flag_or(otherwise.tie_word_embeddings, {"tie_word_embeddings"}),
          .attention_dropout = attention_dropout,
          .initializer_range = s.number_or(0.02, {"initializer_range"}),
          .bos = detail::token_or_default(s, otherwise.bos, vocab_size, "bos_token_id"),
          .eos = detail::tokens_or_default(s, otherwise.eos, vocab_size, "eos_token_id"),
          .pad_token_id = s.token_or(otherwise.pad_token_id, "pad_token_id")};
}

XTRAIN_INLINE rope_scaling_config llama_family::read_rope_scaling(const named_settings& s) {
  using rule = rope_scaling_config::rule;
  const auto rope = s.object_at({"rope_parameters", "rope_scaling"});
  for (const char* layers : {"full_attention", "sliding_attention"})
    require<config_error>(!rope->has({layers}), s.who(), ": rope_parameters must be the same for all layers; given some for ", layers);
  const std::string kind = rope->text_or("default", {"rope_type", "type"});
  if (kind == "default") return {};
  require<config_error>(kind == "dynamic" || kind == "linear" || kind == "llama3", s.who(),
                        ": rope scaling must be default, dynamic, linear or llama3; given '", kind, "'");
  std::vector<const char*> needed{"factor"};
  if (kind == "llama3") needed.insert(needed.end(), {"low_freq_factor", "high_freq_factor"});
  for (const char* key : needed)
    require<config_error>(rope->has({key}), s.who(), ": rope scaling of type '", kind, "' must have a ", key, "; it is missing");
  const double part = rope->number_or(s.number_or(1.0, {"partial_rotary_factor"}), {"partial_rotary_factor"});
  require<config_error>(part == 1.0, s.who(), ": partial_rotary_factor must be 1 with rope scaling of type '", kind, "'; given ", part);
  if (kind == "dynamic") {
    const double factor = rope->number_or(1.0, {"factor"});
    require<config_error>(factor > 0.0, s.who(), ": the factor of rope scaling must be positive; given ", factor);
    return {.factor = factor};
  }
  if (kind == "llama3") {  // transformers 5 takes the outer value, earlier releases the inner
    const std::size_t inner = rope->size({"original_max_position_embeddings"}), outer = s.size_or(inner, {"original_max_position_embeddings"});
    require<config_error>(inner == outer, s.who(), ": original_max_position_embeddings must be that of rope scaling, ", inner, "; given ", outer);
  }
  return {.kind = kind == "linear" ? rule::linear : rule::llama3,
          .factor = rope->number_or(1.0, {"factor"}),
          .low_frequency_factor = rope->number_or(1.0, {"low_freq_factor"}),
          .high_frequency_factor = rope->number_or(4.0, {"high_freq_factor"}),
          .original_context = kind == "linear" ? 0 : rope->size({"original_max_position_embeddings"})};
}

XTRAIN_INLINE std::vector<bool> llama_family::read_layer_types(const named_settings& s, std::size_t num_layers) {
  const std::vector<std::string> types = s.texts({"layer_types"});
  require<config_error>(types.empty() || types.size() == num_layers, s.who(), ": layer_types must have one type for each of the ", num_layers,
                        " layers; given ", types.size());
  std::vector<bool> windowed;
  for (const std::string& type : types) {
    require<config_error>(type == "full_attention" || type == "sliding_attention", s.who(),
                          ": layer_types must be full_attention or sliding_attention; given '", type, "'");
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

XTRAIN_INLINE void llama_family::write_layer_types(const decoder_config& c, named_settings& s) {
  std::vector<std::string> types;
  for (std::size_t layer = 0; layer < c.num_layers; ++layer) types.emplace_back(c.window_of(layer) != 0 ? "sliding_attention" : "full_attention");
  s.set("layer_types", types);
}

XTRAIN_INLINE void llama_family::write_rope_scaling(const decoder_config& c, named_settings& s) {
  using rule = rope_scaling_config::rule;
  const bool is_dynamic = c.rope_scaling.kind == rule::none && c.rope_scaling.factor != 1.0;
  if (c.rope_scaling.kind == rule::none && !is_dynamic) return;
  const auto rope = s.new_object();
  rope->set("rope_type", is_dynamic ? "dynamic" : c.rope_scaling.kind == rule::linear ? "linear" : "llama3");
  rope->set("rope_theta", c.rope_theta);
  rope->set("factor", c.rope_scaling.factor);
  if (c.rope_scaling.kind == rule::llama3) {
    rope->set("low_freq_factor", c.rope_scaling.low_frequency_factor);
    rope->set("high_freq_factor", c.rope_scaling.high_frequency_factor);
    rope->set("original_max_position_embeddings", c.rope_scaling.original_context);
  }
  s.set_object("rope_scaling", *rope);
}

XTRAIN_INLINE void llama_family::write_rope_scaling_of_two_fields(const decoder_config& c, named_settings& s) {
  using rule = rope_scaling_config::rule;
  if (c.rope_scaling.kind == rule::llama3 || c.rope_scaling.factor == 1.0) return;
  const auto rope = s.new_object();
  rope->set("type", c.rope_scaling.kind == rule::linear ? "linear" : "dynamic");
  rope->set("factor", c.rope_scaling.factor);
  s.set_object("rope_scaling", *rope);
}

XTRAIN_INLINE void llama_family::write(const decoder_config& c, named_settings& s) {
  s.set("vocab_size", c.vocab_size);
  s.set("hidden_size", c.hidden_size);
  s.set("num_hidden_layers", c.num_layers);
  s.set("num_attention_heads", c.num_heads);
  s.set("num_key_value_heads", c.num_kv_heads);
  s.set("head_dim", c.head_dim);
  s.set("intermediate_size", c.intermediate_size);
  s.set("max_position_embeddings", c.max_position_embeddings);
  s.set("rms_norm_eps", c.norm_epsilon);
  s.set("rope_theta", c.rope_theta);
  s.set("hidden_act", "silu");
  write_rope_scaling(c, s);
  s.set("attention_bias", c.attention_bias);
  s.set("mlp_bias", c.feed_forward_bias);
  s.set("attention_dropout", c.attention_dropout);
  s.set("initializer_range", c.initializer_range);
  s.set("tie_word_embeddings", c.tie_word_embeddings);
  if (c.bos >= 0) s.set("bos_token_id", c.bos);
  s.set_tokens("eos_token_id", c.eos);
  s.set_token("pad_token_id", c.pad_token_id);
}

XTRAIN_INLINE bool llama_family::may_be_ignored(std::string_view tensor, const decoder_config& c) {
  return tensor.ends_with(".rotary_emb.inv_freq") || decoder_family::may_be_ignored(tensor, c);
}

}  // namespace xtrain
