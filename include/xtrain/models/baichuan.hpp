// Baichuan 7B and 13B, Baichuan 2.                             [Yang et al. 2023, "Baichuan 2: Open large-scale language models"]
#pragma once

#include <string>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA, with fused queries, keys and values in files. 7B has rotary positions; 13B has ALiBi, and is recognized by a config.json without
/// max_position_embeddings, and Baichuan 2 by its vocabulary or a z_loss_weight. Baichuan 2 normalizes the rows of its head in every pass
/// and adds a z-loss: it is averaged over the tokens that have a label, while the published code averages over all.
struct baichuan_family : llama_family {
  static constexpr const char* name = "baichuan";
  static constexpr const char* architecture = "BaichuanForCausalLM";

  template <class Recipe>
  using positions = rotary_or_alibi_positions<Recipe>;

  static decoder_names names() {
    decoder_names names = llama_family::names();
    names.qkv = {"self_attn.W_pack"};
    return names;
  }
  static std::vector<std::string> adapter_targets() { return {"W_pack"}; }

  static decoder_config read(const named_settings& s) {
    decoder_config c = llama_family::read(s);
    c.padding = s.token_or(0, "pad_token_id");  // the default of the published configuration class
    c.linear_biases = !s.has({"max_position_embeddings"});
    if (c.linear_biases) c.context = s.size_or(4096, {"model_max_length"});
    constexpr std::size_t vocabulary_of_2 = 125696;
    c.normalized_head = s.has({"z_loss_weight"}) || c.vocabulary == vocabulary_of_2;
    c.z_loss = s.number_or(0.0, {"z_loss_weight"});
    return c;
  }
  static void write(const decoder_config& c, named_settings& s) {
    llama_family::write(c, s);
    s.erase({"attention_bias", "mlp_bias", "head_dim", "num_key_value_heads", "attention_dropout", "rope_theta"});
    s.set("model_max_length", c.context);
    if (c.linear_biases) s.erase({"max_position_embeddings"});
    if (c.normalized_head) s.set("z_loss_weight", c.z_loss);
  }
};

template <class Recipe>
using baichuan = decoder<Recipe, baichuan_family>;

}  // namespace xtrain
