// Gemma.                                                                         [Gemma team 2024, "Gemma: Open models based on Gemini research"]
#pragma once

#include <string>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with GEGLU, RMSNorm that scales by 1 + weight, embeddings multiplied by the square root of the hidden size, heads of any size, tied head.
/// Gemma 2 is gemma2_family; later ones have more and are not supported.
struct gemma_family : llama_family {
  static constexpr const char* name = "gemma";
  static constexpr const char* architecture = "GemmaForCausalLM";
  static constexpr bool zero_centered_norm = true;
  static constexpr bool scaled_embedding = true;
  using activation = geglu_activation;

  static void complete(decoder_config& c);
  static decoder_config read(const named_settings& s);
  /// The same, whatever the activation is.
  static decoder_config read_gemma_sizes(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
};

template <class Recipe>
using gemma = decoder<Recipe, gemma_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/gemma_impl.hpp>
#endif
