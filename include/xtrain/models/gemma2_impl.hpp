// Definitions of gemma2.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/models/gemma.hpp>
#include <xtrain/models/gemma2.hpp>

namespace xtrain {

XTRAIN_INLINE void gemma2_family::complete(decoder_config& c) {
  gemma_family::complete(c);
  require<config_error>(c.first_windowed_layer == 0, name,
                        ": first_windowed_layer must be 0, because windowed_layers says which layers have the sliding window; given ",
                        c.first_windowed_layer);
  if (c.query_pre_attn_scalar == 0.0 && c.num_heads != 0)
    c.query_pre_attn_scalar = static_cast<double>(c.head_dim != 0 ? c.head_dim : c.hidden_size / c.num_heads);
  if (c.sliding_window == 0 || !c.windowed_layers.empty()) return;
  for (std::size_t layer = 0; layer < c.num_layers; ++layer) c.windowed_layers.push_back(layer % 2 == 0);
}

XTRAIN_INLINE decoder_names gemma2_family::names() {
  decoder_names names = gemma_family::names();
  names.attention_output_norm = "post_attention_layernorm";
  names.feed_forward_norm = "pre_feedforward_layernorm";
  names.feed_forward_output_norm = "post_feedforward_layernorm";
  return names;
}

XTRAIN_INLINE decoder_config gemma2_family::read(const named_settings& s) {
  const std::string activation = s.text_or("gelu_pytorch_tanh", {"hidden_activation"});
  require<config_error>(activation == "gelu_pytorch_tanh", s.who(), ": hidden_activation must be gelu_pytorch_tanh; given '", activation, "'");
  decoder_config c = gemma_family::read_gemma_sizes(s, defaults);
  // null: none; missing: the default of transformers' class
  const auto softcap = [&](const char* key, double otherwise) {
    if (s.is_null(key)) return 0.0;
    const double value = s.number_or(otherwise, {key});
    require<config_error>(value > 0.0, s.who(), ": ", key, " must be positive, or null; given ", value);
    return value;
  };
  c.attn_logit_softcapping = softcap("attn_logit_softcapping", 50.0);
  c.final_logit_softcapping = softcap("final_logit_softcapping", 30.0);
  c.query_pre_attn_scalar = s.number_or(256.0, {"query_pre_attn_scalar"});
  require<config_error>(c.query_pre_attn_scalar > 0.0, s.who(), ": query_pre_attn_scalar must be positive; given ", c.query_pre_attn_scalar);
  c.windowed_layers = read_layer_types(s, c.num_layers);
  if (c.windowed_layers.empty())
    for (std::size_t layer = 0; layer < c.num_layers; ++layer) c.windowed_layers.push_back(layer % 2 == 0);
  if (std::find(c.windowed_layers.begin(), c.windowed_layers.end(), true) == c.windowed_layers.end()) {
    c.windowed_layers.clear();
    return c;
  }
  require<config_error>(!s.is_null("sliding_window"), s.who(), ": sliding_window must be given for layers with sliding_attention; it is null");
  c.sliding_window = s.size_or(default_sliding_window, {"sliding_window"});
  return c;
}

XTRAIN_INLINE void gemma2_family::write(const decoder_config& c, named_settings& s) {
  gemma_family::write(c, s);
  const auto softcap = [&](const char* key, double value) {
    if (value != 0.0) s.set(key, value);
    else s.set_null(key);
  };
  softcap("attn_logit_softcapping", c.attn_logit_softcapping);
  softcap("final_logit_softcapping", c.final_logit_softcapping);
  const double scalar = c.query_pre_attn_scalar;  // an integer in transformers' class
  if (scalar == std::floor(scalar)) s.set("query_pre_attn_scalar", static_cast<std::size_t>(scalar));
  else s.set("query_pre_attn_scalar", scalar);
  s.set("sliding_window", c.sliding_window != 0 ? c.sliding_window : default_sliding_window);  // transformers requires a number
  write_layer_types(c, s);
}

}  // namespace xtrain
