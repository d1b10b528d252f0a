// Definitions of mixtral.hpp.
#pragma once

#include <algorithm>

#include <xtrain/core/library.hpp>
#include <xtrain/layers/experts.hpp>
#include <xtrain/models/mistral.hpp>
#include <xtrain/models/mixtral.hpp>

namespace xtrain {

XTRAIN_INLINE void mixtral_family::complete(decoder_config& c) {
  mistral_family::complete(c);
  if (c.num_experts == 0) c.num_experts = 8;
  if (c.num_experts_per_token == 0) c.num_experts_per_token = std::min<std::size_t>(2, c.num_experts);
  require<config_error>(c.first_windowed_layer == 0, name, ": first_windowed_layer must be 0, because all layers have the sliding window, or none; given ",
                        c.first_windowed_layer);
}

XTRAIN_INLINE decoder_names mixtral_family::names() {
  decoder_names names = mistral_family::names();
  names.router = "block_sparse_moe.gate";
  names.up = {"block_sparse_moe.experts.*.w1", "block_sparse_moe.experts.*.w3"};
  names.down = "block_sparse_moe.experts.*.w2";
  return names;
}

XTRAIN_INLINE decoder_config mixtral_family::read(const named_settings& s) {
  require<config_error>(s.number_or(0.0, {"router_jitter_noise"}) == 0.0, s.who(),
                        ": there must be no router_jitter_noise; one is given");
  require<config_error>(!s.has({"layer_types"}), s.who(), ": layer_types must not be given, because all layers of Mixtral have the sliding window, or none");
  decoder_config c = mistral_family::read(s, defaults);
  // defaults of transformers' class
  c.sliding_window = s.size_or(0, {"sliding_window"});
  c.num_experts = s.size_or(8, {"num_local_experts", "num_experts"});
  c.num_experts_per_token = s.size_or(2, {"num_experts_per_tok"});
  c.balances_experts = s.flag_or(false, {"output_router_logits"});
  c.router_aux_loss_coef = s.number_or(0.001, {"router_aux_loss_coef"});
  return c;
}

XTRAIN_INLINE void mixtral_family::write(const decoder_config& c, named_settings& s) {
  mistral_family::write(c, s);
  s.set("num_local_experts", c.num_experts);
  s.set("num_experts_per_tok", c.num_experts_per_token);
  s.set("output_router_logits", c.balances_experts);
  s.set("router_aux_loss_coef", c.router_aux_loss_coef);
}

}  // namespace xtrain
