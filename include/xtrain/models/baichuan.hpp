// Baichuan 7B and 13B, Baichuan 2.                             [Yang et al. 2023, "Baichuan 2: Open large-scale language models"]
#pragma once

#include <string>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with fused queries, keys and values in files. 7B: rotary positions. 13B: ALiBi; its config.json has no max_position_embeddings.
/// Baichuan 2 (known by its vocabulary or z_loss_weight): normalized rows of the head, and a z-loss, averaged over tokens with a label
/// (published code: over all tokens).
struct baichuan_family : llama_family {
  static constexpr const char* name = "baichuan";
  static constexpr const char* architecture = "BaichuanForCausalLM";

  template <class Recipe>
  using positions = rotary_or_alibi_positions<Recipe>;

  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"W_pack"}; }

  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
};

/// A Baichuan or Baichuan 2.
template <class Recipe>
using baichuan = decoder<Recipe, baichuan_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/baichuan_impl.hpp>
#endif
