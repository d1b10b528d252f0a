// Definitions of phi3.hpp.
#pragma once

#include <cmath>
#include <string>

#include <xtrain/core/library.hpp>
#include <xtrain/layers/rope.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/models/phi3.hpp>

namespace xtrain {

XTRAIN_INLINE void phi3_family::complete(decoder_config& c) {
  llama_family::complete(c);
  require<config_error>(!c.attention_bias && !c.output_bias && !c.feed_forward_bias, name, ": there must be no biases");
  require<config_error>(c.embedding_dropout == 0.0, name, ": embedding_dropout must be 0, as in transformers' class; given ", c.embedding_dropout);
  require<config_error>(c.rope_scaling.kind == rope_scaling_config::rule::none && c.rope_scaling.factor == 1.0, name,
                        ": rope_scaling must be none, because a config.json of this family may have LongRoPE only; given a factor of ", c.rope_scaling.factor);
}

XTRAIN_INLINE decoder_names phi3_family::names() {
  decoder_names names = llama_family::names();
  names.qkv = {"self_attn.qkv_proj"};
  names.up = {"mlp.gate_up_proj"};
  return names;
}

XTRAIN_INLINE decoder_config phi3_family::read(const named_settings& s) {
  const auto rope = s.object_at({"rope_parameters", "rope_scaling"});
  const std::string kind = rope->text_or("default", {"rope_type", "type"});
  require<config_error>(kind == "default", s.who(), ": rope scaling must be default; given '", kind,
                        "': models with LongRoPE (128k tokens) are not supported");
  decoder_config c = llama_family::read(s, defaults);
  c.sliding_window = s.size_or(0, {"sliding_window"});
  c.residual_dropout = s.number_or(0.0, {"resid_pdrop"});
  require<config_error>(!c.attention_bias && !c.feed_forward_bias, s.who(), ": attention_bias and mlp_bias must be false, because Phi-3 has no biases");
  const double part = rope->number_or(s.number_or(1.0, {"partial_rotary_factor"}), {"partial_rotary_factor"});
  require<config_error>(part > 0.0 && part <= 1.0, s.who(), ": partial_rotary_factor must be in (0, 1]; given ", part);
  const std::size_t d = c.head_dim != 0 ? c.head_dim : c.num_heads != 0 ? c.hidden_size / c.num_heads : 0;
  if (part == 1.0) return c;
  c.rotary_dim = static_cast<std::size_t>(std::floor(static_cast<double>(d) * part));
  require<config_error>(c.rotary_dim > 0, s.who(), ": partial_rotary_factor must be such that at least two elements of a head are rotated; given ", part,
                        " of a head dim of ", d);  // 0 would rotate all
  return c;
}

XTRAIN_INLINE void phi3_family::write(const decoder_config& c, named_settings& s) {
  llama_family::write(c, s);
  s.erase({"attention_bias", "mlp_bias"});
  if (c.head_dim * c.num_heads == c.hidden_size) s.erase({"head_dim"});
  s.set("original_max_position_embeddings", c.max_position_embeddings);
  s.set("embd_pdrop", 0.0);
  s.set("resid_pdrop", c.residual_dropout);
  if (c.rotary_dim != 0 && c.rotary_dim != c.head_dim) {
    const auto d = static_cast<double>(c.head_dim), rotary = static_cast<double>(c.rotary_dim);
    double part = rotary / d;
    while (part * d < rotary) part = std::nextafter(part, 2.0);  // readers round the product down
    s.set("partial_rotary_factor", part);
  }
  if (c.sliding_window != 0) s.set("sliding_window", c.sliding_window);
  else s.set_null("sliding_window");
}

}  // namespace xtrain
