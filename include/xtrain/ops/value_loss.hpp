#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/value_loss.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Clipped losses of predicted values, and derivatives: kernel::value_loss
///   value_n, old_n, return_n; token_n     read
///   loss_n, dvalue_n, is_clipped_n        written
///   throws  config_error unless epsilon is positive
template <class Device>
void value_loss(execution<Device>& on, double epsilon, in_vector<double, Device> value_n, in_vector<double, Device> old_n,
                in_vector<double, Device> return_n, in_vector<token, Device> token_n, vector<double, Device> loss_n, vector<double, Device> dvalue_n,
                vector<double, Device> is_clipped_n) {
  require<config_error>(epsilon > 0.0, "value_loss: epsilon must be positive; given ", epsilon);
  const std::size_t n = value_n.shape(0);
  require_shape("value_loss: old_n", old_n.shape(), {n});
  require_shape("value_loss: return_n", return_n.shape(), {n});
  require_shape("value_loss: token_n", token_n.shape(), {n});
  require_shape("value_loss: loss_n", loss_n.shape(), {n});
  require_shape("value_loss: dvalue_n", dvalue_n.shape(), {n});
  require_shape("value_loss: is_clipped_n", is_clipped_n.shape(), {n});
  launch(on, kernel::value_loss<typename Device::memory>{.n = n,
                                                         .epsilon = epsilon,
                                                         .value_n = value_n.span(),
                                                         .old_n = old_n.span(),
                                                         .return_n = return_n.span(),
                                                         .token_n = token_n.span(),
                                                         .loss_n = loss_n.span(),
                                                         .dvalue_n = dvalue_n.span(),
                                                         .is_clipped_n = is_clipped_n.span()});
}

}  // namespace xtrain::ops
