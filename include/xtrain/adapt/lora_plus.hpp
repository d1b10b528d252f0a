// LoRA+: separate learning rates for B.                 [Hayou et al. 2024, "LoRA+: Efficient low rank adaptation of large models"]
#pragma once

#include <cstddef>
#include <string_view>

#include <xtrain/adapt/lora_config.hpp>

namespace xtrain {

/// Learning-rate factors; defaults change nothing.
struct lora_plus_factors {
  double b = 1.0;          ///< B and vectors: magnitudes, trained biases and norms
  double embedding = 1.0;  ///< both matrices of an embedding's adapter

  /// By the groups of PEFT's create_loraplus_optimizer.
  ///   dims   number of dims of the parameter
  [[nodiscard]] constexpr double of(std::string_view parameter, std::size_t dims) const {
    if (parameter.ends_with(lora_names::table_a) || parameter.ends_with(lora_names::table_b)) return embedding;
    return parameter.ends_with(lora_names::b) || dims == 1 ? b : 1.0;
  }
};

}  // namespace xtrain
