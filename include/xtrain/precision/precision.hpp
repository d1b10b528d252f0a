// Dtypes by role, one struct per policy.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/precision/concepts.hpp>

namespace xtrain {

/// Everything in fp32.
struct fp32 {
  static constexpr std::string_view name = "fp32";
  using parameter = float;  ///< weights in layers
  using compute = float;    ///< activations and their gradients
  using gradient = float;   ///< weight gradients
  using master = float;     ///< weights that the optimizer updates
  using state = float;      ///< per weight
  static constexpr rounding update = rounding::nearest;
  static constexpr bool scales_loss = false;
};

/// bf16 weights and activations; weight gradients accumulate in fp32 over micro-batches and ranks; fp32 master weights and optimizer state. 18 bytes per
/// weight with adamw.                                      [Kalamkar et al. 2019]
struct bf16_mixed {
  static constexpr std::string_view name = "bf16_mixed";
  using parameter = bf16;
  using compute = bf16;
  using gradient = float;
  using master = float;
  using state = float;
  static constexpr rounding update = rounding::nearest;
  static constexpr bool scales_loss = false;
};

/// bf16_mixed with weight gradients rounded to bf16 after each micro-batch and each sum over ranks. 16 bytes per weight with adamw, half the
/// communication; one micro-batch per step on one rank loses only one rounding.
struct bf16_gradients : bf16_mixed {
  static constexpr std::string_view name = "bf16_gradients";
  using gradient = bf16;
};

/// Stored in bf16, accumulated in fp32. 8 bytes per weight with adamw. Stochastic rounding preserves updates below half a bf16 unit.
///                                               [Gupta et al. 2015; Zamirai et al. 2020]
struct bf16_pure {
  static constexpr std::string_view name = "bf16_pure";
  using parameter = bf16;
  using compute = bf16;
  using gradient = bf16;
  using master = bf16;
  using state = bf16;
  static constexpr rounding update = rounding::stochastic;
  static constexpr bool scales_loss = false;
};

/// fp16 weights, activations and gradients; fp32 master weights and optimizer state. Dynamic loss scaling prevents gradient underflow.
///                                               [Micikevicius et al. 2018]
struct fp16_mixed {
  static constexpr std::string_view name = "fp16_mixed";
  using parameter = fp16;
  using compute = fp16;
  using gradient = fp16;
  using master = float;
  using state = float;
  static constexpr rounding update = rounding::nearest;
  static constexpr bool scales_loss = true;
};

/// For gradient checks, not for training.
struct fp64 {
  static constexpr std::string_view name = "fp64";
  using parameter = double;
  using compute = double;
  using gradient = double;
  using master = double;
  using state = double;
  static constexpr rounding update = rounding::nearest;
  static constexpr bool scales_loss = false;
};

static_assert(precision<fp32> && precision<bf16_mixed> && precision<bf16_gradients> && precision<bf16_pure> && precision<fp16_mixed> && precision<fp64>);

}  // namespace xtrain
