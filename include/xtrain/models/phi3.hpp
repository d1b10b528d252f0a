// Phi-3 and Phi-4.                                    [Abdin et al. 2024, "Phi-3 technical report"; 2024, "Phi-4 technical report"]
#pragma once

#include <string>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with fused modules for queries, keys and values, and for gate and up; dropout of attention weights and residual branches; optional sliding
/// window; RoPE on a part of each head (Phi-4-mini). LongRoPE (128k tokens) is refused. Embeddings have no dropout: transformers' class declares
/// embd_pdrop and does not use it.
struct phi3_family : llama_family {
  static constexpr const char* name = "phi3";
  static constexpr const char* architecture = "Phi3ForCausalLM";

  static void complete(decoder_config& c);
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"qkv_proj", "o_proj"}; }
  static constexpr config_defaults defaults{.vocab_size = 32064,
                                            .hidden_size = 3072,
                                            .num_layers = 32,
                                            .num_heads = 32,
                                            .intermediate_size = 8192,
                                            .max_position_embeddings = 4096,
                                            .norm_epsilon = 1e-5,
                                            .bos = 1,
                                            .eos = 32000,
                                            .pad_token_id = 32000};

  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
};

/// A Phi-3 or Phi-4.
template <class Recipe>
using phi3 = decoder<Recipe, phi3_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/phi3_impl.hpp>
#endif
