// LoRA+: other learning rates for B than for A.                 [Hayou et al. 2024, "LoRA+: Efficient low rank adaptation of large models"]
#pragma once

#include <cstddef>
#include <string_view>

#include <xtrain/adapt/lora_config.hpp>

namespace xtrain {

/// Factors of the learning rate; the defaults change nothing.
struct lora_plus_factors {
  double b = 1.0;          ///< of B, and of vectors: magnitudes, and biases and norms that are trained besides
  double embedding = 1.0;  ///< of both matrices of an adapted embedding

  /// Of one trained parameter, in the groups of PEFT's create_loraplus_optimizer.
  ///   dims   the number of its dims
  [[nodiscard]] constexpr double of(std::string_view parameter, std::size_t dims) const {
    if (parameter.ends_with(lora_names::table_a) || parameter.ends_with(lora_names::table_b)) return embedding;
    return parameter.ends_with(lora_names::b) || dims == 1 ? b : 1.0;
  }
};

}  // namespace xtrain
