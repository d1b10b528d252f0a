// InternLM and InternLM2.                                    [InternLM team 2023; Cai et al. 2024, "InternLM2 technical report"]
#pragma once

#include <string>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with biases on queries, keys, values and attention's output projection.
struct internlm_family : llama_family {
  static constexpr const char* name = "internlm";
  static constexpr const char* architecture = "InternLMForCausalLM";

  static decoder_config read(const named_settings& s);
  /// `rotary` of the published code: RoPE's base, and the factor of dynamic scaling.
  ///   throws  config_error when its type is neither origin nor dynamic, or rope_theta or rope_scaling differ
  static void read_rotary(const named_settings& s, decoder_config& c);
  static void write(const decoder_config& c, named_settings& s);
};

/// LLaMA with fused queries, keys and values, grouped in files by key/value head: its queries, its key, its value.
struct internlm2_family : llama_family {
  static constexpr const char* name = "internlm2";
  static constexpr const char* architecture = "InternLM2ForCausalLM";

  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"wqkv"}; }
  static file_order qkv_order(const decoder_config& c);
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c);
  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
};

/// An InternLM.
template <class Recipe>
using internlm = decoder<Recipe, internlm_family>;
/// An InternLM2.
template <class Recipe>
using internlm2 = decoder<Recipe, internlm2_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/internlm_impl.hpp>
#endif
