// Which dtype is used where, and where it is rounded. One struct per policy.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/precision/concepts.hpp>

namespace xtrain {

/// Everything in fp32.
struct fp32 {
  static constexpr std::string_view name = "fp32";
  using parameter = float;  ///< weights as layers read them
  using compute = float;    ///< activations and their gradients
  using gradient = float;   ///< weight gradients
  using master = float;     ///< master weights, which the optimizer updates
  using state = float;      ///< optimizer state per weight
  static constexpr rounding update = rounding::nearest;
  static constexpr bool scales_loss = false;
};

/// bf16 weights and activations; weight gradients accumulate in fp32 over micro-batches and ranks; fp32 master weights and optimizer state.
/// 18 bytes per weight with adamw.                                      [Kalamkar et al. 2019]
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

/// bf16_mixed, but weight gradients are rounded to bf16 after every micro-batch and every rank's sum. 16 bytes per weight with adamw, and
/// half the communication; with one micro-batch per step on one rank, the only loss is one rounding.
struct bf16_gradients : bf16_mixed {
  static constexpr std::string_view name = "bf16_gradients";
  using gradient = bf16;
};

/// Everything stored in bf16, accumulated in fp32. 8 bytes per weight with adamw. Updates smaller than half a bf16 unit would be
/// lost, so they are rounded up or down at random instead.              [Gupta et al. 2015; Zamirai et al. 2020]
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

/// fp16 weights, activations and gradients; fp32 master weights and optimizer state. Gradients would underflow in fp16, so dynamic
/// loss scaling is used.                                                [Micikevicius et al. 2018]
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

/// Everything in fp64: for gradient checks, not for training.
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
