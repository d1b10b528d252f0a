// GPT-2.                                       [Radford et al. 2019, "Language models are unsupervised multitask learners"]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/models/decoder.hpp>

namespace xtrain {

/// Learned positions, LayerNorm before each branch, GELU (tanh), biases everywhere, tied head.
struct gpt2_family : decoder_family {
  static constexpr const char* name = "gpt2";
  static constexpr const char* architecture = "GPT2LMHeadModel";

  template <class Recipe>
  using norm = layer_norm<Recipe>;
  template <class Recipe>
  using positions = no_positions<Recipe>;
  using activation = gelu_activation;
  static constexpr bool transposed_in_files = true;  // [in, out] (Conv1D)

  static void complete(decoder_config& c);
  /// Weights of residual layers are scaled by 1/sqrt(N) for N residual layers (section 2.3).
  static initial_values residual_initial(const decoder_config& c);
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"c_attn"}; }

  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
  /// Old files hold the causal mask, and may hold a copy of a tied head.
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c);
};

/// A GPT-2.
template <class Recipe>
using gpt2 = decoder<Recipe, gpt2_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/gpt2_impl.hpp>
#endif
