#pragma once

#include <cstdint>

namespace xtrain {

/// `other`: defined by a family.
enum class norm_kind : std::uint8_t { rms, layer, other };
/// Positions of attention.
enum class position_kind : std::uint8_t { none, rotary, rotary_2d, alibi, rotary_or_alibi, other };
/// Activation functions.
enum class activation_kind : std::uint8_t { gelu_tanh, gelu_erf, swiglu, geglu, other };
/// Arrangement of norms.
enum class block_kind : std::uint8_t { pre_norm, normalized_residual, other };

}  // namespace xtrain
