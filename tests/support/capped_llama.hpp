// LLaMA with Gemma 2's features: softcaps, windows per layer, output norms. It shares llama's compiled layers.
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
  static xtrain::decoder_config read(const xtrain::named_settings& s) {
    xtrain::decoder_config c = llama_family::read(s);
    c.query_pre_attn_scalar = s.number_or(0.0, {"query_pre_attn_scalar"});
    c.attn_logit_softcapping = s.number_or(0.0, {"attn_logit_softcapping"});
    c.final_logit_softcapping = s.number_or(0.0, {"final_logit_softcapping"});
    c.sliding_window = s.size_or(0, {"sliding_window"});
    c.windowed_layers = read_layer_types(s, c.num_layers);
    return c;
  }
  static void write(const xtrain::decoder_config& c, xtrain::named_settings& s) {
    llama_family::write(c, s);
    s.set("query_pre_attn_scalar", c.query_pre_attn_scalar);
    s.set("attn_logit_softcapping", c.attn_logit_softcapping);
    s.set("final_logit_softcapping", c.final_logit_softcapping);
    if (c.sliding_window == 0) return;
    s.set("sliding_window", c.sliding_window);
    if (!c.windowed_layers.empty()) write_layer_types(c, s);
  }
};
template <class Recipe>
using capped_llama = xtrain::decoder<Recipe, capped_llama_family>;
