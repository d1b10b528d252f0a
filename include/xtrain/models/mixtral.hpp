// Mixtral.                                                                       [Jiang et al. 2024, "Mixtral of experts"]
#pragma once

#include <xtrain/layers/experts.hpp>
#include <xtrain/models/mistral.hpp>

namespace xtrain {

/// Mistral with a mixture of experts per block. output_router_logits: training adds a load-balancing loss over a micro-batch's tokens; evaluation does not.
struct mixtral_family : mistral_family {
  static constexpr const char* name = "mixtral";
  static constexpr const char* architecture = "MixtralForCausalLM";
  static constexpr bool has_layer_types = false;

  template <class Recipe>
  using feed_forward_layer = mixture_of_experts<Recipe, swiglu_activation>;

  static void complete(decoder_config& c);
  static decoder_names names();

  static constexpr config_defaults defaults{.vocab_size = 32000,
                                            .hidden_size = 4096,
                                            .num_layers = 32,
                                            .num_heads = 32,
                                            .intermediate_size = 14336,
                                            .num_kv_heads = 8,
                                            .max_position_embeddings = 131072,
                                            .norm_epsilon = 1e-5,
                                            .rope_theta = 1e6,
                                            .bos = 1,
                                            .eos = 2};

  static decoder_config read(const named_settings& s);
  static void write(const decoder_config& c, named_settings& s);
};

/// A Mixtral.
template <class Recipe>
using mixtral = decoder<Recipe, mixtral_family>;

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/models/mixtral_impl.hpp>
#endif
