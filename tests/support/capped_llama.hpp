// LLaMA with what Gemma 2 has besides: softcaps, windows by layer, norms of the outputs of branches. Its layers, and so its compiled code, are llama's.
#pragma once

#include <xtrain/models/llama.hpp>

struct capped_llama_family : xtrain::llama_family {
  static constexpr const char* name = "capped_llama";
  static constexpr bool has_layer_types = true;
  static constexpr bool has_softcaps = true;

  static xtrain::decoder_names names() {
    xtrain::decoder_names names = llama_family::names();
    names.attention_output_norm = "attention_output_norm";
    names.feed_forward_output_norm = "feed_forward_output_norm";
    return names;
  }
};
template <class Recipe>
using capped_llama = xtrain::decoder<Recipe, capped_llama_family>;
