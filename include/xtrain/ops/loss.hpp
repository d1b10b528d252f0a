#pragma once

#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/require_softcap.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// throws config_error unless `label_smoothing` is in [0, 1)
inline void require_label_smoothing(std::string_view who, double label_smoothing) {
  require<config_error>(label_smoothing >= 0.0 && label_smoothing < 1.0, who, ": label_smoothing must be in [0, 1); given ",
                        label_smoothing);
}

/// throws config_error if `log_z_loss` is negative
inline void require_log_z_loss(std::string_view who, double log_z_loss) {
  require<config_error>(log_z_loss >= 0.0, who, ": log_z_loss must not be negative; given ", log_z_loss);
}

/// Cross-entropy of x · weightᵀ + bias per row, without storing all logits: kernel::linear_cross_entropy.
///   x_nc, weight_vc, target_n, bias_v or none, token_weight_n or none read; loss_n written
///   throws  config_error unless label_smoothing is in [0, 1), log_z_loss and softcap at least 0
template <class Device, class X>
void linear_cross_entropy(execution<Device>& on, matrix<X, Device> x_nc, in_matrix<std::remove_const_t<X>, Device> weight_vc,
                          in_vector<token, Device> target_n, vector<accumulate_t<std::remove_const_t<X>>, Device> loss_n,
                          in_vector<std::remove_const_t<X>, Device> bias_v = {},
                          in_vector<accumulate_t<std::remove_const_t<X>>, Device> token_weight_n = {}, double label_smoothing = 0.0,
                          double log_z_loss = 0.0, double softcap = 0.0) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1), v = weight_vc.shape(0);
  require_shape("linear_cross_entropy: weight_vc", weight_vc.shape(), {v, c});
  require_shape("linear_cross_entropy: target_n", target_n.shape(), {n});
  require_shape("linear_cross_entropy: loss_n", loss_n.shape(), {n});
  if (bias_v.exists()) require_shape("linear_cross_entropy: bias_v", bias_v.shape(), {v});
  if (token_weight_n.exists()) require_shape("linear_cross_entropy: token_weight_n", token_weight_n.shape(), {n});
  require_label_smoothing("linear_cross_entropy", label_smoothing);
  require_log_z_loss("linear_cross_entropy", log_z_loss);
  require_softcap("linear_cross_entropy", softcap);
  launch(on, kernel::linear_cross_entropy<typename Device::memory, std::remove_const_t<X>>{.n = n,
                                                                                           .c = c,
                                                                                           .v = v,
                                                                                           .label_smoothing = label_smoothing,
                                                                                           .log_z_loss = log_z_loss,
                                                                                           .softcap = softcap,
                                                                                           .x_nc = x_nc.span(),
                                                                                           .weight_vc = weight_vc.span(),
                                                                                           .bias_v = bias_v.extent(),
                                                                                           .target_n = target_n.span(),
                                                                                           .token_weight_n = token_weight_n.extent(),
                                                                                           .loss_n = loss_n.span()});
}

/// linear_cross_entropy and its gradients in one pass: logits are computed once.
///   gradient_scale  on each row's gradient: loss scale / number of targets in the step
///   dx_nc written; dweight_vc and dbias_v added to, or none
template <class Device, class T, class G>
void linear_cross_entropy_with_gradient(execution<Device>& on, in_matrix<T, Device> x_nc, in_matrix<T, Device> weight_vc,
                                        in_vector<token, Device> target_n, kernel::scalar<typename Device::memory> gradient_scale,
                                        vector<accumulate_t<T>, Device> loss_n,
                                        matrix<T, Device> dx_nc, matrix<G, Device> dweight_vc, double z_loss = 0.0,
                                        in_vector<T, Device> bias_v = {}, vector<G, Device> dbias_v = {},
                                        in_vector<accumulate_t<T>, Device> token_weight_n = {}, double label_smoothing = 0.0,
                                        double log_z_loss = 0.0, double softcap = 0.0) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1), v = weight_vc.shape(0);
  require_shape("linear_cross_entropy: weight_vc", weight_vc.shape(), {v, c});
  require_shape("linear_cross_entropy: target_n", target_n.shape(), {n});
  require_shape("linear_cross_entropy: loss_n", loss_n.shape(), {n});
  require_shape("linear_cross_entropy: dx_nc", dx_nc.shape(), {n, c});
  if (bias_v.exists()) require_shape("linear_cross_entropy: bias_v", bias_v.shape(), {v});
  if (dbias_v.exists()) require_shape("linear_cross_entropy: dbias_v", dbias_v.shape(), {v});
  if (dweight_vc.exists()) require_shape("linear_cross_entropy: dweight_vc", dweight_vc.shape(), {v, c});
  if (token_weight_n.exists()) require_shape("linear_cross_entropy: token_weight_n", token_weight_n.shape(), {n});
  require_label_smoothing("linear_cross_entropy", label_smoothing);
  require_log_z_loss("linear_cross_entropy", log_z_loss);
  require_softcap("linear_cross_entropy", softcap);
  launch(on, kernel::linear_cross_entropy<typename Device::memory, T, G>{.n = n,
                                                                         .c = c,
                                                                         .v = v,
                                                                         .with_gradient = true,
                                                                         .gradient_scale = gradient_scale.value,
                                                                         .gradient_factor_1 = gradient_scale.factor_1,
                                                                         .z_loss = z_loss,
                                                                         .label_smoothing = label_smoothing,
                                                                         .log_z_loss = log_z_loss,
                                                                         .softcap = softcap,
                                                                         .x_nc = x_nc.span(),
                                                                         .weight_vc = weight_vc.span(),
                                                                         .bias_v = bias_v.extent(),
                                                                         .target_n = target_n.span(),
                                                                         .token_weight_n = token_weight_n.extent(),
                                                                         .loss_n = loss_n.span(),
                                                                         .dx_nc = dx_nc.span(),
                                                                         .dweight_vc = dweight_vc.extent(),
                                                                         .dbias_v = dbias_v.extent()});
}

}  // namespace xtrain::ops
