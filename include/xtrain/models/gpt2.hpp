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
  static constexpr bool transposed_in_files = true;  // files hold [in, out] (Conv1D)

  static void complete(decoder_config& c);
  /// "We scale the weights of residual layers at initialization by a factor of 1/sqrt(N), N the number of residual layers."
  static initial_values residual_initial(const decoder_config& c);
  static decoder_names names();
  static std::vector<std::string> adapter_targets() { return {"c_attn"}; }

  // Files: keys of config.json, and names that vary between files.

  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
  /// Old files contain the causal mask as a tensor; a tied head may be stored a second time.
  static bool may_be_ignored(std::string_view tensor, const decoder_config& c);
};

/// A GPT-2.
template <class Recipe>
using gpt2 = decoder<Recipe, gpt2_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/gpt2_impl.hpp>
#endif
