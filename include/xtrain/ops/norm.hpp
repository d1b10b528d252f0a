#pragma once

#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Root-mean-square normalization; the formula is in kernel::rms_norm.
///   x_nc, weight_c read; y_nc, rstd_n written
///   throws  shape_error unless the shapes match
template <class Device, class T>
void rms_norm(execution<Device>& on, in_matrix<T, Device> x_nc, in_vector<T, Device> weight_c, double epsilon, matrix<T, Device> y_nc,
              vector<accumulate_t<T>, Device> rstd_n) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1);
  require_shape("rms_norm: weight_c", weight_c.shape(), {c});
  require_shape("rms_norm: y_nc", y_nc.shape(), {n, c});
  require_shape("rms_norm: rstd_n", rstd_n.shape(), {n});
  launch(on, kernel::rms_norm<typename Device::memory, T>{.n = n,
                                                          .c = c,
                                                          .epsilon = epsilon,
                                                          .x_nc = x_nc.span(),
                                                          .weight_c = weight_c.span(),
                                                          .y_nc = y_nc.span(),
                                                          .rstd_n = rstd_n.span()});
}

/// dx_nc and dweight_c are added to; dweight_c may be none.
template <class Device, class T, class G>
void rms_norm_backward(execution<Device>& on, in_matrix<T, Device> x_nc, in_vector<T, Device> weight_c,
                       in_vector<accumulate_t<T>, Device> rstd_n, in_matrix<T, Device> dy_nc, matrix<T, Device> dx_nc,
                       vector<G, Device> dweight_c) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1);
  require_shape("rms_norm_backward: weight_c", weight_c.shape(), {c});
  require_shape("rms_norm_backward: rstd_n", rstd_n.shape(), {n});
  require_shape("rms_norm_backward: dy_nc", dy_nc.shape(), {n, c});
  require_shape("rms_norm_backward: dx_nc", dx_nc.shape(), {n, c});
  if (dweight_c.exists()) require_shape("rms_norm_backward: dweight_c", dweight_c.shape(), {c});
  launch(on, kernel::rms_norm_backward<typename Device::memory, T, G>{.n = n,
                                                                      .c = c,
                                                                      .x_nc = x_nc.span(),
                                                                      .weight_c = weight_c.span(),
                                                                      .rstd_n = rstd_n.span(),
                                                                      .dy_nc = dy_nc.span(),
                                                                      .dx_nc = dx_nc.span(),
                                                                      .dweight_c = dweight_c.extent()});
}

/// Layer normalization; the formula is in kernel::layer_norm.
///   x_nc, weight_c, bias_c read; y_nc, mean_n, rstd_n written
///   throws  shape_error unless the shapes match
template <class Device, class T>
void layer_norm(execution<Device>& on, in_matrix<T, Device> x_nc, in_vector<T, Device> weight_c, in_vector<T, Device> bias_c,
                double epsilon, matrix<T, Device> y_nc, vector<accumulate_t<T>, Device> mean_n, vector<accumulate_t<T>, Device> rstd_n) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1);
  require_shape("layer_norm: weight_c", weight_c.shape(), {c});
  require_shape("layer_norm: bias_c", bias_c.shape(), {c});
  require_shape("layer_norm: y_nc", y_nc.shape(), {n, c});
  require_shape("layer_norm: mean_n", mean_n.shape(), {n});
  require_shape("layer_norm: rstd_n", rstd_n.shape(), {n});
  launch(on, kernel::layer_norm<typename Device::memory, T>{.n = n,
                                                            .c = c,
                                                            .epsilon = epsilon,
                                                            .x_nc = x_nc.span(),
                                                            .weight_c = weight_c.span(),
                                                            .bias_c = bias_c.span(),
                                                            .y_nc = y_nc.span(),
                                                            .mean_n = mean_n.span(),
                                                            .rstd_n = rstd_n.span()});
}

/// dx_nc, dweight_c and dbias_c are added to; the last two may be none.
template <class Device, class T, class G>
void layer_norm_backward(execution<Device>& on, in_matrix<T, Device> x_nc, in_vector<T, Device> weight_c,
                         in_vector<accumulate_t<T>, Device> mean_n, in_vector<accumulate_t<T>, Device> rstd_n, in_matrix<T, Device> dy_nc,
                         matrix<T, Device> dx_nc, vector<G, Device> dweight_c, vector<G, Device> dbias_c) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1);
  require_shape("layer_norm_backward: weight_c", weight_c.shape(), {c});
  require_shape("layer_norm_backward: mean_n", mean_n.shape(), {n});
  require_shape("layer_norm_backward: rstd_n", rstd_n.shape(), {n});
  require_shape("layer_norm_backward: dy_nc", dy_nc.shape(), {n, c});
  require_shape("layer_norm_backward: dx_nc", dx_nc.shape(), {n, c});
  if (dweight_c.exists()) require_shape("layer_norm_backward: dweight_c", dweight_c.shape(), {c});
  if (dbias_c.exists()) require_shape("layer_norm_backward: dbias_c", dbias_c.shape(), {c});
  launch(on, kernel::layer_norm_backward<typename Device::memory, T, G>{.n = n,
                                                                        .c = c,
                                                                        .x_nc = x_nc.span(),
                                                                        .weight_c = weight_c.span(),
                                                                        .mean_n = mean_n.span(),
                                                                        .rstd_n = rstd_n.span(),
                                                                        .dy_nc = dy_nc.span(),
                                                                        .dx_nc = dx_nc.span(),
                                                                        .dweight_c = dweight_c.extent(),
                                                                        .dbias_c = dbias_c.extent()});
}

}  // namespace xtrain::ops
