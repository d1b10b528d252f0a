// The configuration of a decoder, the same aggregate for every family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/rope.hpp>

namespace xtrain {

struct decoder_family_info;

/// Zero means the family's default: see each family's `complete`.
struct decoder_config {
  std::size_t vocabulary = 0;
  std::size_t width = 0;
  std::size_t layers = 0;
  std::size_t heads = 0;
  std::size_t kv_heads = 0;      ///< 0: as many as heads
  std::size_t head_dim = 0;      ///< 0: width / heads, i.e. hidden size / number of heads
  std::size_t feed_forward = 0;  ///< intermediate size of the feed-forward layers
  std::size_t context = 0;       ///< maximum sequence length, in tokens (max_position_embeddings)
  double norm_epsilon = 1e-5;
  double rope_base = 10000.0;
  rope_scaling rope = {};
  std::size_t rotated = 0;               ///< elements of a head that RoPE rotates; 0: all
  bool linear_biases = false;            ///< ALiBi instead of RoPE, for families that have both
  std::size_t window = 0;                ///< sliding window: tokens a query attends to, including itself; 0: all
  std::size_t first_windowed_layer = 0;  ///< layers before this one have no sliding window
  bool attention_bias = false;           ///< queries, keys and values have a bias
  bool output_bias = false;              ///< attention's output projection has a bias
  bool feed_forward_bias = false;
  bool tied_head = true;              ///< tied embeddings: the head's weight is the embedding's
  double z_loss = 0.0;                ///< weight of the largest logit's square in the loss              [Yang et al. 2023, section 3.5]
  bool normalized_head = false;       ///< rows of the head's weight are normalized to length 1       [Yang et al. 2023, section 3.4]
  std::size_t experts = 0;            ///< feed-forward layers per block that a token is routed to, for mixtures of experts
  std::size_t experts_per_token = 0;  ///< how many experts a token is routed to (top-k)
  bool balances_experts = false;      ///< training adds a load-balancing loss                             [Fedus et al. 2021, section 2.2]
  double balance_loss = 0.001;        ///< weight of the load-balancing loss
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  double initial_deviation = 0.02;  ///< standard deviation of normally distributed initial weights
  token bos = -1;                   ///< begin-of-text token; negative: none
  token gap = -1, word_gap = -1;    ///< mask tokens that a generated span, or word, replaces, for prefix models; negative: none
  std::vector<token> eos = {};      ///< end-of-text tokens: any of these ends a text
  std::optional<token> padding = {};  ///< pad_token_id; negative counts from the vocabulary's end. If transformers passes it to
                                      ///< torch.nn.Embedding as padding_idx (Family::has_padding_index), its row is initialized
                                      ///< to zeros and not trained by inputs
  /// The family it describes; null: that of the model's type. `decoder<Recipe, Family>` sets it, and so does reading a config.json.
  const decoder_family_info* family = nullptr;

  friend bool operator==(const decoder_config&, const decoder_config&) = default;
};

namespace detail {

/// Fills in defaults and checks what is common to all families.
///   throws  config_error
inline void complete_decoder(decoder_config& c, const char* family) {
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
