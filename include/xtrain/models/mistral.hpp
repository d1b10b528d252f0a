// Mistral.                                                                       [Jiang et al. 2023, "Mistral 7B"]
#pragma once

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with sliding-window attention.
struct mistral_family : llama_family {
  static constexpr const char* name = "mistral";
  static constexpr const char* architecture = "MistralForCausalLM";

  static decoder_config read(const named_settings& s) {
    decoder_config c = llama_family::read(s);
    c.sliding_window = s.is_null("sliding_window") ? 0 : s.size_or(4096, {"sliding_window"});  // the default of transformers' configuration class
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    llama_family::write(c, s);
    if (c.sliding_window != 0) s.set("sliding_window", c.sliding_window);
    else s.set_null("sliding_window");
  }
};

template <class Recipe>
using mistral = decoder<Recipe, mistral_family>;

}  // namespace xtrain
