// Mistral.                                                                       [Jiang et al. 2023, "Mistral 7B"]
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with sliding-window attention in all layers, or in the layers that `layer_types` names (Ministral).
struct mistral_family : llama_family {
  static constexpr const char* name = "mistral";
  static constexpr const char* architecture = "MistralForCausalLM";
  static constexpr bool has_layer_types = true;

  static void complete(decoder_config& c) {
    llama_family::complete(c);
    // transformers' class has no biases and ignores a file's
    require<config_error>(!c.attention_bias && !c.output_bias && !c.feed_forward_bias, c.family == nullptr ? name : c.family->name,
                          ": there must be no biases");
  }
  static constexpr config_defaults defaults{.vocab_size = 32000,
                                            .hidden_size = 4096,
                                            .num_layers = 32,
                                            .num_heads = 32,
                                            .intermediate_size = 14336,
                                            .num_kv_heads = 8,
                                            .max_position_embeddings = 131072,
                                            .bos = 1,
                                            .eos = 2};

  static decoder_config read(const named_settings& s) { return read(s, defaults); }
  static decoder_config read(const named_settings& s, const config_defaults& otherwise) {
    decoder_config c = llama_family::read(s, otherwise);
    c.sliding_window = s.is_null("sliding_window") ? 0 : s.size_or(4096, {"sliding_window"});  // the default of transformers' class
    const std::vector<bool> types = read_layer_types(s, c.num_layers);
    const auto windowed = std::count(types.begin(), types.end(), true);
    require<config_error>(windowed == 0 || c.sliding_window != 0, s.who(),
                          ": sliding_window must be given for layers with sliding_attention; it is null");
    if (types.empty() || windowed == static_cast<std::ptrdiff_t>(types.size())) return c;
    if (windowed == 0) c.sliding_window = 0;
    else c.windowed_layers = types;
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    llama_family::write(c, s);
    s.erase({"attention_bias", "mlp_bias"});
    if (c.sliding_window != 0) s.set("sliding_window", c.sliding_window);
    else s.set_null("sliding_window");
    if (c.sliding_window != 0 && (!c.windowed_layers.empty() || c.first_windowed_layer != 0)) write_layer_types(c, s);
  }
};

/// A Mistral.
template <class Recipe>
using mistral = decoder<Recipe, mistral_family>;

}  // namespace xtrain
