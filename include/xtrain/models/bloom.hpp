// Bloom.                                     [BigScience workshop 2022, "BLOOM: A 176B-parameter open-access multilingual language model"]
#pragma once

#include <string>
#include <vector>

#include <xtrain/models/decoder.hpp>

namespace xtrain {

/// LayerNorm after the embedding and before each branch, ALiBi, GELU (tanh), biases, tied head. Files interleave queries, keys and values per head.
struct bloom_family : decoder_family {
  static constexpr const char* name = "bloom";
  static constexpr const char* architecture = "BloomForCausalLM";
  static constexpr bool embedding_norm = true;

  template <class Recipe>
  using norm = layer_norm<Recipe>;
  template <class Recipe>
  using positions = alibi_positions<Recipe>;
  using activation = gelu_activation;

  static void complete(decoder_config& c);
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"query_key_value"}; }
  static file_order qkv_order(const decoder_config& c);

  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
};

/// A Bloom.
template <class Recipe>
using bloom = decoder<Recipe, bloom_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/bloom_impl.hpp>
#endif
