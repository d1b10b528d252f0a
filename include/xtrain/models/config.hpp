// A decoder's configuration, for every family.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/rope.hpp>

namespace xtrain {

struct decoder_family_info;

/// A decoder's sizes and options. Zero: the family's default (`complete`).
struct decoder_config {
  std::size_t vocab_size = 0;
  std::size_t hidden_size = 0;
  std::size_t num_layers = 0;
  std::size_t num_heads = 0;
  std::size_t num_kv_heads = 0;             ///< 0: num_heads
  std::size_t head_dim = 0;                 ///< 0: hidden_size / num_heads
  std::size_t intermediate_size = 0;        ///< per expert in a mixture
  std::size_t max_position_embeddings = 0;  ///< in tokens
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  rope_scaling_config rope_scaling = {};  ///< no type and a factor other than 1: "dynamic", kept for saving
  std::size_t rotary_dim = 0;            ///< elements of a head that RoPE rotates; 0: all
  bool alibi = false;                    ///< ALiBi instead of RoPE, for families that have both
  std::size_t sliding_window = 0;        ///< tokens that a query attends to, itself included; 0: all
  std::size_t first_windowed_layer = 0;  ///< layers before this one have no sliding window
  std::vector<bool> windowed_layers = {};  ///< empty: layers from first_windowed_layer on
  double query_pre_attn_scalar = 0.0;      ///< scores are divided by its square root; 0: head_dim
  double attn_logit_softcapping = 0.0;     ///< c: scores s become c · tanh(s / c); 0: off    [Gemma team 2024, "Gemma 2", section 2]
  double final_logit_softcapping = 0.0;    ///< of the head's logits
  bool attention_bias = false;           ///< for queries, keys and values
  bool output_bias = false;              ///< for attention's output projection
  bool feed_forward_bias = false;
  bool tie_word_embeddings = true;        ///< the head shares the embedding's weight
  double z_loss = 0.0;                    ///< weight of the squared largest logit in the loss    [Yang et al. 2023, section 3.5]
  bool normalized_head = false;           ///< rows of the head have length 1    [Yang et al. 2023, section 3.4]
  std::size_t num_experts = 0;            ///< per block; 0: no mixture
  std::size_t num_experts_per_token = 0;  ///< the router's top-k
  bool balances_experts = false;          ///< load-balancing loss while training    [Fedus et al. 2021, section 2.2]
  double router_aux_loss_coef = 0.001;    ///< its weight
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  double initializer_range = 0.02;         ///< standard deviation of initial weights
  token bos = -1;                          ///< begin-of-text token; negative: none
  token gap = -1, word_gap = -1;           ///< mask tokens for a generated span or word (prefix models); negative: none
  std::vector<token> eos = {};             ///< each ends a text
  std::optional<token> pad_token_id = {};  ///< negative: from the vocabulary's end; padding_idx of torch.nn.Embedding if Family::has_padding_index
  /// null: the family of the model's type. decoder<Recipe, Family> and reading a config.json set it.
  const decoder_family_info* family = nullptr;

  [[nodiscard]] std::size_t window_of(std::size_t layer) const {
    const bool has_window = windowed_layers.empty() ? layer >= first_windowed_layer : windowed_layers.at(layer);
    return has_window ? sliding_window : 0;
  }

  friend bool operator==(const decoder_config&, const decoder_config&) = default;
};

namespace detail {

/// Fills in defaults; checks common to all families.
///   throws  config_error
void complete_decoder(decoder_config& c, const char* family);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/config_impl.hpp>
#endif
