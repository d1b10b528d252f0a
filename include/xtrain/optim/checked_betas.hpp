// Settings that optimizers with running means of gradients have in common, checked.
#pragma once

#include <cmath>
#include <string_view>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// The given config, if its means converge: PyTorch refuses the same. With a beta of 1 the correction of the bias divides by zero.
///   throws  config_error
template <class Config>
const Config& checked_betas(std::string_view optimizer, const Config& c) {
  require<config_error>(c.beta1 >= 0 && c.beta1 < 1, optimizer, ": beta1 must be in [0, 1); given ", c.beta1);
  require<config_error>(c.beta2 >= 0 && c.beta2 < 1, optimizer, ": beta2 must be in [0, 1); given ", c.beta2);
  if constexpr (requires { c.epsilon; }) require<config_error>(c.epsilon >= 0, optimizer, ": epsilon must not be negative; given ", c.epsilon);
  require<config_error>(c.weight_decay >= 0, optimizer, ": weight_decay must not be negative; given ", c.weight_decay);
  require<config_error>(std::isfinite(c.weight_decay), optimizer, ": weight_decay must be finite; given ", c.weight_decay);
  return c;
}

}  // namespace xtrain::detail
