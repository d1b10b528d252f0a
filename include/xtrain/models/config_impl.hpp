// Definitions of config.hpp.
#pragma once

#include <cmath>
#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/rope.hpp>
#include <xtrain/models/config.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE void complete_decoder(decoder_config& c, const char* family) {
  const auto positive = [&](std::size_t value, const char* what) {
    require<config_error>(value > 0, family, ": ", what, " must be given; it is 0");
  };
  positive(c.vocab_size, "vocab_size");
  positive(c.hidden_size, "hidden_size");
  positive(c.num_layers, "num_layers");
  positive(c.num_heads, "num_heads");
  positive(c.max_position_embeddings, "max_position_embeddings");
  if (c.num_kv_heads == 0) c.num_kv_heads = c.num_heads;
  require<config_error>(c.num_heads % c.num_kv_heads == 0, family, ": num_heads (", c.num_heads, ") must be divisible by num_kv_heads (", c.num_kv_heads, ")");
  if (c.head_dim == 0) {
    require<config_error>(c.hidden_size % c.num_heads == 0, family, ": hidden_size (", c.hidden_size, ") must be divisible by num_heads (", c.num_heads, ")");
    c.head_dim = c.hidden_size / c.num_heads;
  }
  positive(c.intermediate_size, "intermediate_size");
  constexpr std::size_t limit = std::size_t{1} << 31;
  for (const std::size_t size : {c.vocab_size, c.hidden_size, c.num_layers, c.num_heads, c.head_dim, c.intermediate_size, c.max_position_embeddings})
    require<config_error>(size < limit, family, ": every size must be below 2^31; given ", size);
  constexpr std::size_t max_layers = 4096;  // construction takes time and memory per layer, before weights are read
  require<config_error>(c.num_layers <= max_layers, family, ": num_layers must be at most ", max_layers, "; given ", c.num_layers);
  for (const double p : {c.embedding_dropout, c.attention_dropout, c.residual_dropout})
    require<config_error>(p >= 0.0 && p < 1.0, family, ": dropout must be in [0, 1); given ", p);
  require<config_error>(c.z_loss >= 0.0, family, ": z_loss must not be negative; given ", c.z_loss);
  require<config_error>(c.num_experts <= max_experts && c.num_layers * c.num_experts <= 4 * max_layers, family, ": num_experts must be at most ",
                        max_experts, ", and at most ", 4 * max_layers, " in all layers; given ", c.num_experts, " in each of ", c.num_layers);
  require<config_error>(c.num_experts_per_token <= c.num_experts, family, ": num_experts_per_token must be at most the ", c.num_experts, " experts; given ",
                        c.num_experts_per_token);
  require<config_error>(c.router_aux_loss_coef >= 0.0, family, ": router_aux_loss_coef must not be negative; given ", c.router_aux_loss_coef);
  require<config_error>(c.norm_epsilon > 0.0, family, ": norm_epsilon must be positive; given ", c.norm_epsilon);
  require<config_error>(c.rope_theta > 0.0, family, ": rope_theta must be positive; given ", c.rope_theta);
  require<config_error>(c.rotary_dim % 2 == 0 && c.rotary_dim <= c.head_dim, family, ": rotary_dim must be even and at most the head dim of ",
                        c.head_dim, "; given ", c.rotary_dim);
  for (const double value : {c.query_pre_attn_scalar, c.attn_logit_softcapping, c.final_logit_softcapping})
    require<config_error>(value >= 0.0 && std::isfinite(value), family,
                          ": query_pre_attn_scalar and the softcaps of logits must be finite and not negative; given ", value);
  require<config_error>(c.windowed_layers.empty() || (c.windowed_layers.size() == c.num_layers && c.sliding_window != 0), family,
                        ": windowed_layers must have one value for each of the ", c.num_layers, " layers, and sliding_window must be given; it has ",
                        c.windowed_layers.size(), ", the window is ", c.sliding_window);
  require<config_error>(!(c.tie_word_embeddings && c.normalized_head), family, ": a normalized head cannot be tied to the embedding");
  const rope_scaling_config& rope = c.rope_scaling;
  if (rope.kind != rope_scaling_config::rule::none)
    require<config_error>(rope.factor > 0.0 && rope.low_frequency_factor > 0.0 && rope.high_frequency_factor > rope.low_frequency_factor,
                          family, ": the factors of rope scaling must be positive, the high one above the low one; given ", rope.factor,
                          ", ", rope.low_frequency_factor, ", ", rope.high_frequency_factor);
}

}  // namespace detail

}  // namespace xtrain
