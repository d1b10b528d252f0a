// ChatGLM2 and ChatGLM3.                                       [Zeng et al. 2024, "ChatGLM: A family of large language models"]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/models/llama.hpp>

namespace xtrain {

/// LLaMA with biases on queries, keys and values, grouped-query attention, RoPE on the first half of each head. Files fuse queries, keys and values,
/// and gate and up, and rotate adjacent elements.
struct chatglm_family : llama_family {
  static constexpr const char* name = "chatglm";
  static constexpr const char* model_type = "chatglm";
  static constexpr const char* architecture = "ChatGLMModel";
  static constexpr bool has_padding_index = false;

  static void complete(decoder_config& c);
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"query_key_value"}; }
  static file_order qkv_order(const decoder_config& c) { return neighbours_order(c, c.rotary_dim); }

  /// ChatGLM-6B shares the model_type.
  static bool describes(const named_settings& s);
  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c);
};

/// A ChatGLM2 or ChatGLM3.
template <class Recipe>
using chatglm = decoder<Recipe, chatglm_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/chatglm_impl.hpp>
#endif
