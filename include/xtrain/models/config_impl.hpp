// Definitions of config.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/number.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/rope.hpp>
#include <xtrain/models/config.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE void complete_decoder(decoder_config& c, const char* family) {
  const auto positive = [&](std::size_t value, const char* what) {
    require<config_error>(value > 0, family, ": ", what, " must be given; it is 0");
  };
  positive(c.vocabulary, "vocabulary");
  positive(c.width, "width");
  positive(c.layers, "layers");
  positive(c.heads, "heads");
  positive(c.context, "context");
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  require<config_error>(c.heads % c.kv_heads == 0, family, ": heads (", c.heads, ") must be divisible by kv_heads (", c.kv_heads, ")");
  if (c.head_dim == 0) {
    require<config_error>(c.width % c.heads == 0, family, ": width (", c.width, ") must be divisible by heads (", c.heads, ")");
    c.head_dim = c.width / c.heads;
  }
  positive(c.feed_forward, "feed_forward");
  constexpr std::size_t limit = std::size_t{1} << 31;
  for (const std::size_t size : {c.vocabulary, c.width, c.layers, c.heads, c.head_dim, c.feed_forward, c.context})
    require<config_error>(size < limit, family, ": every size must be below 2^31; given ", size);
  constexpr std::size_t most_layers = 4096;  // constructing a model takes time and memory per layer, before weights are read
  require<config_error>(c.layers <= most_layers, family, ": layers must be at most ", most_layers, "; given ", c.layers);
  for (const double p : {c.embedding_dropout, c.attention_dropout, c.residual_dropout})
    require<config_error>(p >= 0.0 && p < 1.0, family, ": dropout must be in [0, 1); given ", p);
  require<config_error>(c.z_loss >= 0.0, family, ": z_loss must not be negative; given ", c.z_loss);
  require<config_error>(c.experts <= most_experts && c.layers * c.experts <= 4 * most_layers, family, ": experts must be at most ",
                        most_experts, ", and at most ", 4 * most_layers, " in all layers; given ", c.experts, " in each of ", c.layers);
  require<config_error>(c.experts_per_token <= c.experts, family, ": experts_per_token must be at most the ", c.experts, " experts; given ",
                        c.experts_per_token);
  require<config_error>(c.balance_loss >= 0.0, family, ": balance_loss must not be negative; given ", c.balance_loss);
  require<config_error>(c.norm_epsilon > 0.0, family, ": norm_epsilon must be positive; given ", c.norm_epsilon);
  require<config_error>(c.rope_base > 0.0, family, ": rope_base must be positive; given ", c.rope_base);
  require<config_error>(c.rotated % 2 == 0 && c.rotated <= c.head_dim, family, ": rotated must be even and at most the head dim of ",
                        c.head_dim, "; given ", c.rotated);
  require<config_error>(!(c.tied_head && c.normalized_head), family, ": a normalised head cannot be tied to the embedding");
  const rope_scaling& rope = c.rope;
  if (rope.kind != rope_scaling::rule::none)
    require<config_error>(rope.factor > 0.0 && rope.low_frequency_factor > 0.0 && rope.high_frequency_factor > rope.low_frequency_factor,
                          family, ": the factors of rope scaling must be positive, the high one above the low one; given ", rope.factor,
                          ", ", rope.low_frequency_factor, ", ", rope.high_frequency_factor);
}

}  // namespace detail

}  // namespace xtrain
