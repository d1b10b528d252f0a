// Definitions of gemma.hpp.
#pragma once

#include <string>

#include <xtrain/core/library.hpp>
#include <xtrain/models/gemma.hpp>
#include <xtrain/models/llama.hpp>

namespace xtrain {

XTRAIN_INLINE void gemma_family::complete(decoder_config& c) {
  llama_family::complete(c);
  require<config_error>(c.attention_bias == c.output_bias && !c.feed_forward_bias, c.family == nullptr ? name : c.family->name,
                        ": attention must have all biases or none (attention_bias, output_bias), the feed-forward layer none");
}

XTRAIN_INLINE decoder_config gemma_family::read(const named_settings& s) {
  // old files have "gelu" for the tanh approximation; the key depends on the release of transformers
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const std::string activation = s.text_or("gelu_pytorch_tanh", {key});
    require<config_error>(activation == "gelu" || activation == "gelu_pytorch_tanh", s.who(), ": ", key, " must be gelu_pytorch_tanh; given '", activation,
                          "'");
  }
  return read_gemma_sizes(s, defaults);
}

XTRAIN_INLINE decoder_config gemma_family::read_gemma_sizes(const named_settings& s, const config_defaults& otherwise) {
  require<config_error>(!s.flag_or(false, {"use_bidirectional_attention"}), s.who(), ": use_bidirectional_attention must be false");
  decoder_config c = llama_family::read_sizes(s, otherwise);
  c.feed_forward_bias = false;
  return c;
}

XTRAIN_INLINE void gemma_family::write(const decoder_config& c, named_settings& s) {
  llama_family::write(c, s);
  s.erase({"mlp_bias"});
  s.set("hidden_act", "gelu_pytorch_tanh");
  s.set("hidden_activation", "gelu_pytorch_tanh");
}

}  // namespace xtrain
