// LLaMA.                                       [Touvron et al. 2023, "LLaMA: Open and efficient foundation language models"]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/models/decoder.hpp>

namespace xtrain {

/// RMSNorm before each branch, RoPE (optionally scaled, as in LLaMA 3), SwiGLU; optional grouped-query attention and tied head;
/// no biases unless configured. Families that differ from it in a few members derive from it.
struct llama_family : decoder_family {
  static constexpr const char* name = "llama";
  static constexpr const char* architecture = "LlamaForCausalLM";
  static constexpr bool has_padding_index = true;

  template <class Recipe>
  using norm = rms_norm<Recipe>;
  template <class Recipe>
  using positions = rotary_positions<Recipe>;
  using activation = swiglu_activation;

  /// The intermediate size is 2/3 · 4 · hidden size, rounded up to a multiple of 64 (the paper's 256 is for its own, larger hidden sizes).
  static void complete(decoder_config& c);
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"q_proj", "v_proj"}; }

  // Files: keys of config.json, and names that vary between files.

  static constexpr config_defaults defaults{.vocab_size = 32000,
                                            .hidden_size = 4096,
                                            .num_layers = 32,
                                            .num_heads = 32,
                                            .intermediate_size = 11008,
                                            .bos = 1,
                                            .eos = 2};

  static decoder_config read(const named_settings& s) { return read(s, defaults); }
  /// For families that derive from it: with the defaults of their own class; without any, where sizes must be given.
  static decoder_config read(const named_settings& s, const config_defaults& otherwise);
  /// The same, whatever the activation is.
  static decoder_config read_sizes(const named_settings& s, const config_defaults& otherwise);
  /// "dynamic" changes nothing up to the sequence length that the model was trained on, and sequences are never longer: it is no rule, with its
  /// factor, which is written again.
  ///   throws  config_error when the type is none of these, what it needs is missing, layers have rules of their own, or a scaled rule is of a part of a head
  static rope_scaling_config read_rope_scaling(const named_settings& s);
  /// Which layers have the sliding window, by `layer_types`; empty if it is not given.
  ///   throws  config_error when a type is neither full_attention nor sliding_attention, or not one is given for each layer
  static std::vector<bool> read_layer_types(const named_settings& s, std::size_t num_layers);
  static void write_layer_types(const decoder_config& c, named_settings& s);
  static void write_rope_scaling(const decoder_config& c, named_settings& s);
  /// The same for published configuration classes that accept two fields, type and factor, and nothing else.
  static void write_rope_scaling_of_two_fields(const decoder_config& c, named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
  /// Old files contain the rotary frequencies.
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c);
};

/// A LLaMA: 1, 2 or 3.
template <class Recipe>
using llama = decoder<Recipe, llama_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/llama_impl.hpp>
#endif
