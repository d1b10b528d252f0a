// A decoder family: names in files, and layers. A family is a short struct (llama.hpp); `info_of<Family>` is its value, so that models of many
// families share one type.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/kinds.hpp>
#include <xtrain/models/config.hpp>
#include <xtrain/models/family_info.hpp>
#include <xtrain/models/file_order.hpp>

namespace xtrain {

/// Module names in files. Modules of a block: "<blocks><index>.<name>".
struct decoder_names {
  std::string embedding{};
  std::string positions{};       // empty: none
  std::string embedding_norm{};  // empty: none
  std::string blocks{};
  std::string attention_norm{};
  std::vector<std::string> qkv{};  // one fused module, or three
  std::string attention_output{};
  std::string attention_output_norm{}, feed_forward_output_norm{};  // empty: no such norm
  std::string query_norm{}, key_norm{};  // empty: no such norm
  std::string feed_forward_norm{};
  std::string router{};           // empty: dense feed-forward layers
  std::vector<std::string> up{};  // one module, or gate and up; for experts with '*' in place of the index
  std::string down{};             // for experts with '*'
  std::string final_norm{};
  std::string head{};
};

/// Defaults of the family's published class for keys missing in config.json. A size of 0: the key must be given.
struct config_defaults {
  std::size_t vocab_size = 0, hidden_size = 0, num_layers = 0, num_heads = 0, intermediate_size = 0;
  std::size_t num_kv_heads = 0;  ///< 0 or null: num_heads
  std::size_t head_dim = 0;      ///< 0: hidden_size / num_heads
  std::size_t max_position_embeddings = 2048;
  double norm_epsilon = 1e-6, rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  token bos = -1, eos = -1;  ///< negative: none
  std::optional<token> pad_token_id = {};
};

namespace detail {

/// A size of config.json, or the default. Null is refused, as by transformers 5.
[[nodiscard]] inline std::size_t size_or_default(const named_settings& s, std::size_t otherwise, named_settings::names keys) {
  return otherwise == 0 || s.is_null(*keys.begin()) ? s.size(keys) : s.size_or(otherwise, keys);
}
/// Tokens of config.json, or the default if the vocabulary has it.
[[nodiscard]] inline std::vector<token> tokens_or_default(const named_settings& s, token otherwise, std::size_t vocab_size, const char* key) {
  const bool is_missing = !s.has({key}) && !s.is_null(key);
  if (is_missing && otherwise >= 0 && static_cast<std::size_t>(otherwise) < vocab_size) return {otherwise};
  return s.tokens({key});
}
[[nodiscard]] inline token token_or_default(const named_settings& s, token otherwise, std::size_t vocab_size, const char* key) {
  const std::vector<token> all = tokens_or_default(s, otherwise, vocab_size, key);
  return all.empty() ? -1 : all.front();
}

}  // namespace detail

/// Defaults of most families; a family derives from it and overrides what differs.
struct decoder_family : family_defaults {
  static constexpr bool embedding_norm = false;       ///< a norm before the first block
  static constexpr bool zero_centered_norm = false;   ///< RMSNorm scales by 1 + weight
  static constexpr bool scaled_embedding = false;     ///< embeddings are multiplied by sqrt(hidden size)
  static constexpr bool has_padding_index = false;    ///< the padding token's embedding is not trained
  static constexpr bool has_layer_types = false;      ///< config.json has layer_types (sliding window)
  static constexpr bool has_softcaps = false;         ///< config.json has query_pre_attn_scalar and softcaps

  static void complete(decoder_config&) {}
  /// Default: causal.
  static attention_mask mask(const decoder_config&) { return {}; }
  /// For matrices that end in the residual stream.
  static initial_values residual_initial(const decoder_config& c) { return initial_values::normal(c.initializer_range); }
  /// Row order of a fused qkv module in files; empty: queries, keys, values.
  static file_order qkv_order(const decoder_config&) { return {}; }
  /// The parameter's names in other files.
  static std::vector<std::string> other_names(const std::string&) { return {}; }
  /// Tensors of files without a parameter: files may hold a copy of a tied head.
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c) { return c.tie_word_embeddings && tensor == "lm_head.weight"; }
};

/// A decoder family as a value.
struct decoder_family_info : family_info<decoder_config> {
  decoder_names (*names)();
  attention_mask (*mask)(const decoder_config&);
  initial_values (*residual_initial)(const decoder_config&);
  file_order (*qkv_order)(const decoder_config&);
  bool embedding_norm;
  bool zero_centered_norm;
  bool scaled_embedding;
  bool has_padding_index;
  bool has_layer_types;
  bool has_softcaps;
  bool has_experts;  ///< in every block
  norm_kind norm;
  position_kind positions;
  activation_kind activation;
  block_kind block;

  /// All layers are the library's: layers chosen at run time can form this family.
  [[nodiscard]] constexpr bool has_known_layers() const {
    return norm != norm_kind::other && positions != position_kind::other && activation != activation_kind::other && block != block_kind::other;
  }
};

template <class Recipe>
class rms_norm;
template <class Recipe>
class layer_norm;
template <class Recipe>
class no_positions;
template <class Recipe>
class rotary_positions;
template <class Recipe>
class rotary_positions_2d;
template <class Recipe>
class alibi_positions;
template <class Recipe>
class rotary_or_alibi_positions;
struct gelu_activation;
struct gelu_erf_activation;
struct swiglu_activation;
struct geglu_activation;
template <class Recipe, class Activation>
class mixture_of_experts;
template <class Recipe, class Norm, class Positions, class FeedForward>
class normalized_residual_block;

namespace detail {

/// Incomplete: finds the class template of a family's layer without instantiating it.
struct any_recipe;

template <class Family>
[[nodiscard]] constexpr norm_kind norm_kind_of() {
  using norm = typename Family::template norm<any_recipe>;
  return std::is_same_v<norm, rms_norm<any_recipe>> ? norm_kind::rms : std::is_same_v<norm, layer_norm<any_recipe>> ? norm_kind::layer : norm_kind::other;
}
template <class Family>
[[nodiscard]] constexpr position_kind position_kind_of() {
  using positions = typename Family::template positions<any_recipe>;
  if constexpr (std::is_same_v<positions, no_positions<any_recipe>>) return position_kind::none;
  else if constexpr (std::is_same_v<positions, rotary_positions<any_recipe>>) return position_kind::rotary;
  else if constexpr (std::is_same_v<positions, rotary_positions_2d<any_recipe>>) return position_kind::rotary_2d;
  else if constexpr (std::is_same_v<positions, alibi_positions<any_recipe>>) return position_kind::alibi;
  else if constexpr (std::is_same_v<positions, rotary_or_alibi_positions<any_recipe>>) return position_kind::rotary_or_alibi;
  else return position_kind::other;
}
template <class Family>
inline constexpr bool names_feed_forward = requires { typename Family::template feed_forward_layer<any_recipe>; };

template <class Activation>
[[nodiscard]] constexpr activation_kind activation_kind_of() {
  return std::is_same_v<Activation, gelu_activation>       ? activation_kind::gelu_tanh
         : std::is_same_v<Activation, gelu_erf_activation> ? activation_kind::gelu_erf
         : std::is_same_v<Activation, swiglu_activation>   ? activation_kind::swiglu
         : std::is_same_v<Activation, geglu_activation>    ? activation_kind::geglu
                                                           : activation_kind::other;
}
template <class Family>
[[nodiscard]] constexpr bool has_expert_layers() {
  if constexpr (names_feed_forward<Family>)
    return std::is_same_v<typename Family::template feed_forward_layer<any_recipe>, mixture_of_experts<any_recipe, typename Family::activation>>;
  else return false;
}
template <class Family>
concept names_block = requires { typename Family::template block<any_recipe, int, int, int>; };
template <class Family>
[[nodiscard]] constexpr block_kind block_kind_of() {
  if constexpr (names_block<Family>)
    return std::is_same_v<typename Family::template block<any_recipe, int, int, int>, normalized_residual_block<any_recipe, int, int, int>>
               ? block_kind::normalized_residual
               : block_kind::other;
  else return block_kind::pre_norm;
}

template <class Family>
[[nodiscard]] constexpr decoder_family_info make_decoder_family_info() {
  decoder_family_info info{};
  static_cast<family_info<decoder_config>&>(info) = make_family_info<Family, decoder_config>();
  info.names = [] { return Family::names(); };
  info.mask = [](const decoder_config& c) { return Family::mask(c); };
  info.residual_initial = [](const decoder_config& c) { return Family::residual_initial(c); };
  info.qkv_order = [](const decoder_config& c) { return Family::qkv_order(c); };
  info.embedding_norm = Family::embedding_norm;
  info.zero_centered_norm = Family::zero_centered_norm;
  info.scaled_embedding = Family::scaled_embedding;
  info.has_padding_index = Family::has_padding_index;
  info.has_layer_types = Family::has_layer_types;
  info.has_softcaps = Family::has_softcaps;
  info.has_experts = has_expert_layers<Family>();
  info.norm = norm_kind_of<Family>();
  info.positions = position_kind_of<Family>();
  info.activation = activation_kind_of<typename Family::activation>();
  if (names_feed_forward<Family> && !info.has_experts) info.activation = activation_kind::other;
  info.block = block_kind_of<Family>();
  return info;
}

}  // namespace detail

/// A family as a value.
template <class Family>
inline constexpr decoder_family_info info_of = detail::make_decoder_family_info<Family>();

}  // namespace xtrain
