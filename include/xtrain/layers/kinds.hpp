// Kinds of layers, for models whose layer types are chosen at run time.
#pragma once

#include <cstdint>

namespace xtrain {

/// `other`: a layer type that a family defines itself.
enum class norm_kind : std::uint8_t { rms, layer, other };
/// How attention knows positions; `other` as above.
enum class position_kind : std::uint8_t { none, rotary, rotary_2d, alibi, rotary_or_alibi, other };
/// The activation function of a feed-forward.
enum class activation_kind : std::uint8_t { gelu_tanh, gelu_erf, swiglu, geglu, other };
/// How a block arranges its norms.
enum class block_kind : std::uint8_t { pre_norm, normalized_residual, other };

}  // namespace xtrain
