// Qwen3.                                                                         [Yang et al. 2025, "Qwen3 technical report"]
#pragma once

#include <xtrain/models/llama.hpp>
#include <xtrain/models/qwen2.hpp>

namespace xtrain {

/// Qwen2 without biases, with normalized query and key heads.
struct qwen3_family : qwen2_family {
  static constexpr const char* name = "qwen3";
  static constexpr const char* architecture = "Qwen3ForCausalLM";

  static void complete(decoder_config& c) {
    llama_family::complete(c);
    require<config_error>(c.attention_bias == c.output_bias && !c.feed_forward_bias, name,
                          ": attention must have all biases or none (attention_bias, output_bias), the feed-forward layer none");
  }
  static decoder_names names() {
    decoder_names names = llama_family::names();
    names.query_norm = "self_attn.q_norm";
    names.key_norm = "self_attn.k_norm";
    return names;
  }
  static decoder_config read(const named_settings& s) {
    decoder_config c = qwen2_family::read(s);
    c.attention_bias = c.output_bias = s.flag_or(false, {"attention_bias"});
    c.head_dim = s.size_or(128, {"head_dim"});  // the default of transformers' class
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    qwen2_family::write(c, s);
    s.set("attention_bias", c.attention_bias);
    s.set("head_dim", c.head_dim);
  }
};

/// A Qwen3.
template <class Recipe>
using qwen3 = decoder<Recipe, qwen3_family>;

}  // namespace xtrain
