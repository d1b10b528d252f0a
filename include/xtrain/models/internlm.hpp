// InternLM and InternLM2.                                    [InternLM team 2023; Cai et al. 2024, "InternLM2 technical report"]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with biases on queries, keys, values and attention's output projection.
struct internlm_family : llama_family {
  static constexpr const char* name = "internlm";
  static constexpr const char* architecture = "InternLMForCausalLM";

  static decoder_config read(const named_settings& s) {
    decoder_config c = llama_family::read(s);
    c.padding = s.token_or(0, "pad_token_id");  // the default of the published configuration class
    c.attention_bias = c.output_bias = s.flag_or(true, {"bias"});
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    llama_family::write(c, s);
    s.erase({"attention_bias", "mlp_bias", "head_dim"});
    s.set("bias", c.attention_bias);
  }
};

/// LLaMA with fused queries, keys and values, grouped in files by key/value head: the queries that share a key, the
/// key, the value.
struct internlm2_family : llama_family {
  static constexpr const char* name = "internlm2";
  static constexpr const char* architecture = "InternLM2ForCausalLM";

  static decoder_names names() {
    return {.embedding = "model.tok_embeddings",
            .blocks = "model.layers.",
            .attention_norm = "attention_norm",
            .qkv = {"attention.wqkv"},
            .attention_output = "attention.wo",
            .feed_forward_norm = "ffn_norm",
            .up = {"feed_forward.w1", "feed_forward.w3"},
            .down = "feed_forward.w2",
            .final_norm = "model.norm",
            .head = "output"};
  }
  static std::vector<std::string> adapter_targets() { return {"wqkv"}; }
  static file_order qkv_order(const decoder_config& c) {
    const std::size_t shared = c.heads / c.kv_heads;
    return grouped_order(c, [&](char part, std::size_t head) {
      if (part == 'q') return head / shared * (shared + 2) + head % shared;
      return head * (shared + 2) + shared + (part == 'k' ? 0 : 1);
    });
  }
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c) {
    return llama_family::may_be_ignored(tensor, c) || (c.tied_head && tensor == "output.weight");
  }
  static decoder_config read(const named_settings& s) {
    decoder_config c = llama_family::read(s);
    c.padding = s.token_or(0, "pad_token_id");  // the default of the published configuration class
    c.attention_bias = c.output_bias = s.flag_or(false, {"bias"});
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    internlm_family::write(c, s);
  }
};

template <class Recipe>
using internlm = decoder<Recipe, internlm_family>;
template <class Recipe>
using internlm2 = decoder<Recipe, internlm2_family>;

}  // namespace xtrain
