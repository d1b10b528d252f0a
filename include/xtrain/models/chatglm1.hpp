// ChatGLM-6B.                      [Du et al. 2022, "GLM: General language model pretraining with autoregressive blank infilling"]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/models/decoder.hpp>
#include <xtrain/models/normalized_residual_block.hpp>

namespace xtrain {

/// Prefix language model: bidirectional context, bos, generated span. LayerNorm, GELU (tanh), 2D positions, biases except in the head. Files
/// interleave queries, keys and values per head; ChatGLM2 and 3 share the model_type.
struct chatglm1_family : decoder_family {
  static constexpr const char* name = "chatglm1";
  static constexpr const char* model_type = "chatglm";
  static constexpr const char* architecture = "ChatGLMModel";

  template <class Recipe>
  using norm = layer_norm<Recipe>;
  template <class Recipe>
  using positions = rotary_positions_2d<Recipe>;
  template <class Recipe, class Norm, class Positions, class FeedForward>
  using block = normalized_residual_block<Recipe, Norm, Positions, FeedForward>;
  using activation = gelu_activation;

  static void complete(decoder_config& c);
  static attention_mask mask(const decoder_config& c) { return {.kind = attention_mask::rule::prefix, .begin = c.bos, .gap = c.gap, .word_gap = c.word_gap}; }
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"query_key_value"}; }
  static file_order qkv_order(const decoder_config& c);

  /// Only ChatGLM-6B has 2D positions.
  static bool describes(const named_settings& s);
  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c);
};

/// A ChatGLM-6B.
template <class Recipe>
using chatglm1 = decoder<Recipe, chatglm1_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/chatglm1_impl.hpp>
#endif
