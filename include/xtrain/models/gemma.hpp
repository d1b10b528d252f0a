// Gemma.                                                                         [Gemma team 2024, "Gemma: Open models based on Gemini research"]
#pragma once

#include <string>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with GEGLU, RMSNorm scaled by 1 + weight, embeddings multiplied by sqrt(hidden size), heads of any size, tied head. Gemma 3 and later are not
/// supported.
struct gemma_family : llama_family {
  static constexpr const char* name = "gemma";
  static constexpr const char* architecture = "GemmaForCausalLM";
  static constexpr bool zero_centered_norm = true;
  static constexpr bool scaled_embedding = true;
  using activation = geglu_activation;

  static void complete(decoder_config& c);
  static constexpr config_defaults defaults{.vocab_size = 256000,
                                            .hidden_size = 3072,
                                            .num_layers = 28,
                                            .num_heads = 16,
                                            .intermediate_size = 24576,
                                            .num_kv_heads = 16,
                                            .head_dim = 256,
                                            .max_position_embeddings = 8192,
                                            .tie_word_embeddings = true,
                                            .bos = 2,
                                            .eos = 1,
                                            .pad_token_id = 0};

  static decoder_config read(const named_settings& s);
  /// Without checking the activation.
  static decoder_config read_gemma_sizes(const named_settings& s, const config_defaults& otherwise);
  static void write(const decoder_config& c, named_settings& s);
};

/// A Gemma, the first.
template <class Recipe>
using gemma = decoder<Recipe, gemma_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/gemma_impl.hpp>
#endif
