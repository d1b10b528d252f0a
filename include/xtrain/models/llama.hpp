// LLaMA.                                       [Touvron et al. 2023, "LLaMA: Open and efficient foundation language models"]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/models/decoder.hpp>

namespace xtrain {

/// RMSNorm before each branch, RoPE (optionally scaled, as in LLaMA 3), SwiGLU; optional grouped-query attention and tied head; biases only if
/// configured. Similar families derive from it.
struct llama_family : decoder_family {
  static constexpr const char* name = "llama";
  static constexpr const char* architecture = "LlamaForCausalLM";
  static constexpr bool has_padding_index = true;

  template <class Recipe>
  using norm = rms_norm<Recipe>;
  template <class Recipe>
  using positions = rotary_positions<Recipe>;
  using activation = swiglu_activation;

  /// Intermediate size: 2/3 · 4 · hidden size, rounded up to a multiple of 64 (paper: 256, for larger models).
  static void complete(decoder_config& c);
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"q_proj", "v_proj"}; }

  static constexpr config_defaults defaults{.vocab_size = 32000,
                                            .hidden_size = 4096,
                                            .num_layers = 32,
                                            .num_heads = 32,
                                            .intermediate_size = 11008,
                                            .bos = 1,
                                            .eos = 2};

  static decoder_config read(const named_settings& s) { return read(s, defaults); }
  /// With the defaults of a derived family.
  static decoder_config read(const named_settings& s, const config_defaults& otherwise);
  /// Without checking the activation.
  static decoder_config read_sizes(const named_settings& s, const config_defaults& otherwise);
  /// "dynamic" has no effect up to max_position_embeddings; its factor is kept for saving.
  ///   throws  config_error when the type is unknown, a required value is missing, layers differ, or a scaled rule rotates a part of a head
  static rope_scaling_config read_rope_scaling(const named_settings& s);
  /// Layers with a sliding window, by `layer_types`; empty: not given.
  ///   throws  config_error unless each layer has full_attention or sliding_attention
  static std::vector<bool> read_layer_types(const named_settings& s, std::size_t num_layers);
  static void write_layer_types(const decoder_config& c, named_settings& s);
  static void write_rope_scaling(const decoder_config& c, named_settings& s);
  /// For published classes that accept only type and factor.
  static void write_rope_scaling_of_two_fields(const decoder_config& c, named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
  /// Old files hold rotary frequencies.
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c);
};

/// A LLaMA: 1, 2 or 3.
template <class Recipe>
using llama = decoder<Recipe, llama_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/llama_impl.hpp>
#endif
