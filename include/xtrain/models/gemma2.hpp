// Gemma 2.                                       [Gemma team 2024, "Gemma 2: Improving open language models at a practical size"]
#pragma once

#include <cstddef>

#include <xtrain/models/gemma.hpp>

namespace xtrain {

/// Gemma with softcaps of attention scores and logits, scores divided by sqrt(query_pre_attn_scalar), a sliding window in some layers (default: every
/// second, from the first), and RMSNorm of both branches' outputs.
struct gemma2_family : gemma_family {
  static constexpr const char* name = "gemma2";
  static constexpr const char* architecture = "Gemma2ForCausalLM";
  static constexpr bool has_layer_types = true;
  static constexpr bool has_softcaps = true;
  static constexpr std::size_t default_sliding_window = 4096;  // of transformers' class

  /// A sliding window without windowed_layers: layers 0, 2, 4, …
  static void complete(decoder_config& c);
  static decoder_names names();
  static constexpr config_defaults defaults{.vocab_size = 256000,
                                            .hidden_size = 2304,
                                            .num_layers = 26,
                                            .num_heads = 8,
                                            .intermediate_size = 9216,
                                            .num_kv_heads = 4,
                                            .head_dim = 256,
                                            .max_position_embeddings = 8192,
                                            .tie_word_embeddings = true,
                                            .bos = 2,
                                            .eos = 1,
                                            .pad_token_id = 0};

  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
};

/// A Gemma 2.
template <class Recipe>
using gemma2 = decoder<Recipe, gemma2_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/gemma2_impl.hpp>
#endif
