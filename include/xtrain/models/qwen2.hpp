// Qwen1.5, Qwen2 and Qwen2.5.                                                    [Yang et al. 2024, "Qwen2 technical report"]
#pragma once

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with biases on queries, keys and values; optional sliding-window attention from some layer on.
struct qwen2_family : llama_family {
  static constexpr const char* name = "qwen2";
  static constexpr const char* architecture = "Qwen2ForCausalLM";

  static void complete(decoder_config& c) {
    llama_family::complete(c);
    c.attention_bias = true;
  }
  static decoder_config read(const named_settings& s) {
    decoder_config c = llama_family::read(s);
    if (s.flag_or(false, {"use_sliding_window"})) {
      c.sliding_window = s.size_or(4096, {"sliding_window"});
      c.first_windowed_layer = s.size_or(28, {"max_window_layers"});
    }
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    llama_family::write(c, s);
    s.erase({"attention_bias", "mlp_bias"});
    s.set("use_sliding_window", c.sliding_window != 0);
    if (c.sliding_window == 0) return;
    s.set("sliding_window", c.sliding_window);
    s.set("max_window_layers", c.first_windowed_layer);
  }
};

template <class Recipe>
using qwen2 = decoder<Recipe, qwen2_family>;

}  // namespace xtrain
