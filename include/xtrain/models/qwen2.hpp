// Qwen1.5, Qwen2 and Qwen2.5.                                                    [Yang et al. 2024, "Qwen2 technical report"]
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with biases on queries, keys and values; optional sliding window, from a layer on or by `layer_types`.
struct qwen2_family : llama_family {
  static constexpr const char* name = "qwen2";
  static constexpr const char* architecture = "Qwen2ForCausalLM";
  static constexpr bool has_layer_types = true;

  static void complete(decoder_config& c) {
    llama_family::complete(c);
    c.attention_bias = true;
    require<config_error>(!c.output_bias && !c.feed_forward_bias, name, ": there must be no biases but those of queries, keys and values");
  }
  static constexpr config_defaults defaults{.vocab_size = 151936,
                                            .hidden_size = 4096,
                                            .num_layers = 32,
                                            .num_heads = 32,
                                            .intermediate_size = 22016,
                                            .num_kv_heads = 32,
                                            .max_position_embeddings = 32768};

  static decoder_config read(const named_settings& s) {
    decoder_config c = llama_family::read(s, defaults);
    c.attention_bias = c.output_bias = c.feed_forward_bias = false;
    read_windows(s, c);
    return c;
  }
  /// As in transformers: a window needs use_sliding_window; layer_types overrides max_window_layers.
  static void read_windows(const named_settings& s, decoder_config& c) {
    const bool has_window = s.flag_or(false, {"use_sliding_window"}) && !s.is_null("sliding_window");
    const std::size_t window = s.size_or(4096, {"sliding_window"});
    const token first = s.token_or(28, "max_window_layers").value_or(28);
    require<config_error>(first >= 0, s.who(), ": max_window_layers must not be negative; given ", first);
    const std::vector<bool> types = read_layer_types(s, c.num_layers);
    const auto begin = std::find(types.begin(), types.end(), true);
    const bool types_have_window = begin != types.end();
    require<config_error>(has_window || !types_have_window, s.who(),
                          ": layer_types has sliding_attention, so use_sliding_window must be true and sliding_window be given");
    if (!has_window || (!types.empty() && !types_have_window)) return;
    c.sliding_window = window;
    if (types.empty()) c.first_windowed_layer = static_cast<std::size_t>(first);
    else if (std::find(begin, types.end(), false) == types.end()) c.first_windowed_layer = static_cast<std::size_t>(begin - types.begin());
    else c.windowed_layers = types;
  }
  static void write(const decoder_config& c, named_settings& s) {
    llama_family::write(c, s);
    s.erase({"attention_bias", "mlp_bias"});
    s.set("use_sliding_window", c.sliding_window != 0);
    if (c.sliding_window == 0) return;
    s.set("sliding_window", c.sliding_window);
    if (c.windowed_layers.empty()) s.set("max_window_layers", c.first_windowed_layer);
    else write_layer_types(c, s);
  }
};

/// A Qwen1.5, Qwen2 or Qwen2.5.
template <class Recipe>
using qwen2 = decoder<Recipe, qwen2_family>;

}  // namespace xtrain
