// The configuration of a decoder, the same aggregate for every family.
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

/// Zero means the family's default: see each family's `complete`.
struct decoder_config {
  std::size_t vocab_size = 0;
  std::size_t hidden_size = 0;
  std::size_t num_layers = 0;
  std::size_t num_heads = 0;
  std::size_t num_kv_heads = 0;             ///< 0: num_heads
  std::size_t head_dim = 0;                 ///< 0: hidden_size / num_heads
  std::size_t intermediate_size = 0;        ///< of the feed-forward layers; of each expert in a mixture
  std::size_t max_position_embeddings = 0;  ///< maximum sequence length, in tokens
  double norm_epsilon = 1e-5;
  double rope_theta = 10000.0;
  rope_scaling_config rope_scaling = {};  ///< no rule, and a factor other than 1: "dynamic", which scales longer sequences than these only
  std::size_t rotary_dim = 0;            ///< elements of a head that RoPE rotates; 0: all
  bool alibi = false;                    ///< ALiBi instead of RoPE, for families that have both
  std::size_t sliding_window = 0;        ///< tokens that a query attends to, including itself; 0: all
  std::size_t first_windowed_layer = 0;  ///< layers before this one have no sliding window
  std::vector<bool> windowed_layers = {};  ///< which layers have the sliding window; empty: those from first_windowed_layer on
  double query_pre_attn_scalar = 0.0;      ///< attention scores are divided by its square root; 0: head_dim
  double attn_logit_softcapping = 0.0;     ///< c: attention scores s become c · tanh(s / c); 0: they do not [Gemma team 2024, "Gemma 2", section 2]
  double final_logit_softcapping = 0.0;    ///< the same of the head's logits
  bool attention_bias = false;           ///< queries, keys and values have a bias
  bool output_bias = false;              ///< attention's output projection has a bias
  bool feed_forward_bias = false;
  bool tie_word_embeddings = true;        ///< the head's weight is the embedding's
  double z_loss = 0.0;                    ///< weight of the largest logit's square in the loss              [Yang et al. 2023, section 3.5]
  bool normalized_head = false;           ///< rows of the head's weight are normalized to length 1       [Yang et al. 2023, section 3.4]
  std::size_t num_experts = 0;            ///< experts in each block of a mixture of experts
  std::size_t num_experts_per_token = 0;  ///< the router's top-k
  bool balances_experts = false;          ///< training adds a load-balancing loss                             [Fedus et al. 2021, section 2.2]
  double router_aux_loss_coef = 0.001;    ///< weight of that loss
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  double initializer_range = 0.02;         ///< standard deviation of normally distributed initial weights
  token bos = -1;                          ///< begin-of-text token; negative: none
  token gap = -1, word_gap = -1;           ///< mask tokens that a generated span, or word, replaces, for prefix models; negative: none
  std::vector<token> eos = {};             ///< end-of-text tokens: any of these ends a text
  std::optional<token> pad_token_id = {};  ///< negative counts from the vocabulary's end. If transformers passes it to
                                      ///< torch.nn.Embedding as padding_idx (Family::has_padding_index), its row is initialized
                                      ///< to zeros and not trained by inputs
  /// The family it describes; null: that of the model's type. `decoder<Recipe, Family>` sets it, and so does reading a config.json.
  const decoder_family_info* family = nullptr;

  /// The sliding window of a layer; 0: none.
  [[nodiscard]] std::size_t window_of(std::size_t layer) const {
    const bool has_window = windowed_layers.empty() ? layer >= first_windowed_layer : windowed_layers.at(layer);
    return has_window ? sliding_window : 0;
  }

  friend bool operator==(const decoder_config&, const decoder_config&) = default;
};

namespace detail {

/// Fills in defaults and checks what is common to all families.
///   throws  config_error
void complete_decoder(decoder_config& c, const char* family);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/config_impl.hpp>
#endif
