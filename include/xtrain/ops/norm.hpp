#pragma once

#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Root-mean-square normalization: kernel::rms_norm.
///   x_nc, weight_c read; y_nc, rstd_n written
template <class Device, class T>
void rms_norm(execution<Device>& on, in_matrix<T, Device> x_nc, in_vector<T, Device> weight_c, double epsilon, matrix<T, Device> y_nc,
              vector<accumulate_t<T>, Device> rstd_n, double offset = 0.0) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1);
  require_shape("rms_norm: weight_c", weight_c.shape(), {c});
  require_shape("rms_norm: y_nc", y_nc.shape(), {n, c});
  require_shape("rms_norm: rstd_n", rstd_n.shape(), {n});
  launch(on, kernel::rms_norm<typename Device::memory, T>{.n = n,
                                                          .c = c,
                                                          .epsilon = epsilon,
                                                          .offset = offset,
                                                          .x_nc = x_nc.span(),
                                                          .weight_c = weight_c.span(),
                                                          .y_nc = y_nc.span(),
                                                          .rstd_n = rstd_n.span()});
}

/// dx_nc, dweight_c (or none) added to
template <class Device, class T, class G>
void rms_norm_backward(execution<Device>& on, in_matrix<T, Device> x_nc, in_vector<T, Device> weight_c,
                       in_vector<accumulate_t<T>, Device> rstd_n, in_matrix<T, Device> dy_nc, matrix<T, Device> dx_nc,
                       vector<G, Device> dweight_c, double offset = 0.0) {
  const std::size_t n = x_nc.shape(0), c = x_nc.shape(1);
  require_shape("rms_norm_backward: weight_c", weight_c.shape(), {c});
  require_shape("rms_norm_backward: rstd_n", rstd_n.shape(), {n});
  require_shape("rms_norm_backward: dy_nc", dy_nc.shape(), {n, c});
  require_shape("rms_norm_backward: dx_nc", dx_nc.shape(), {n, c});
  if (dweight_c.exists()) require_shape("rms_norm_backward: dweight_c", dweight_c.shape(), {c});
  launch(on, kernel::rms_norm_backward<typename Device::memory, T, G>{.n = n,
                                                                      .c = c,
                                                                      .offset = offset,
                                                                      .x_nc = x_nc.span(),
                                                                      .weight_c = weight_c.span(),
                                                                      .rstd_n = rstd_n.span(),
                                                                      .dy_nc = dy_nc.span(),
                                                                      .dx_nc = dx_nc.span(),
                                                                      .dweight_c = dweight_c.extent()});
}

/// Root-mean-square normalization of query and key heads: kernel::head_norm.
///   x_nr [n, (h + 2k)·d], query_d, key_d read; y_nr, rstd_nh [n·(h + k)] written
template <class Device, class T>
void head_norm(execution<Device>& on, in_matrix<T, Device> x_nr, std::size_t h, std::size_t k, in_vector<T, Device> query_d, in_vector<T, Device> key_d,
               double epsilon, matrix<T, Device> y_nr, vector<accumulate_t<T>, Device> rstd_nh) {
  const std::size_t n = x_nr.shape(0), d = query_d.shape(0);
  require_shape("head_norm: x_nr", x_nr.shape(), {n, (h + 2 * k) * d});
  require_shape("head_norm: key_d", key_d.shape(), {d});
  require_shape("head_norm: y_nr", y_nr.shape(), x_nr.shape());
  require_shape("head_norm: rstd_nh", rstd_nh.shape(), {n * (h + k)});
  launch(on, kernel::head_norm<typename Device::memory, T>{.n = n,
                                                           .h = h,
                                                           .k = k,
                                                           .d = d,
                                                           .epsilon = epsilon,
                                                           .x_nr = x_nr.span(),
                                                           .query_d = query_d.span(),
                                                           .key_d = key_d.span(),
                                                           .y_nr = y_nr.span(),
                                                           .rstd_nh = rstd_nh.span()});
}

/// dx_nr written, may alias dy_nr; dquery_d, dkey_d (or none) added to
template <class Device, class T, class G>
void head_norm_backward(execution<Device>& on, in_matrix<T, Device> x_nr, std::size_t h, std::size_t k, in_vector<T, Device> query_d,
                        in_vector<T, Device> key_d, in_vector<accumulate_t<T>, Device> rstd_nh, in_matrix<T, Device> dy_nr, matrix<T, Device> dx_nr,
                        vector<G, Device> dquery_d, vector<G, Device> dkey_d) {
  const std::size_t n = x_nr.shape(0), d = query_d.shape(0);
  require_shape("head_norm_backward: x_nr", x_nr.shape(), {n, (h + 2 * k) * d});
  require_shape("head_norm_backward: key_d", key_d.shape(), {d});
  require_shape("head_norm_backward: rstd_nh", rstd_nh.shape(), {n * (h + k)});
  require_shape("head_norm_backward: dy_nr", dy_nr.shape(), x_nr.shape());
  require_shape("head_norm_backward: dx_nr", dx_nr.shape(), x_nr.shape());
  require<shape_error>(dquery_d.exists() == dkey_d.exists(), "head_norm_backward: both weights must have a gradient, or none");
  if (dquery_d.exists()) require_shape("head_norm_backward: dquery_d", dquery_d.shape(), {d});
  if (dkey_d.exists()) require_shape("head_norm_backward: dkey_d", dkey_d.shape(), {d});
  launch(on, kernel::head_norm_backward<typename Device::memory, T, G>{.n = n,
                                                                       .h = h,
                                                                       .k = k,
                                                                       .d = d,
                                                                       .x_nr = x_nr.span(),
                                                                       .query_d = query_d.span(),
                                                                       .key_d = key_d.span(),
                                                                       .rstd_nh = rstd_nh.span(),
                                                                       .dy_nr = dy_nr.span(),
                                                                       .dx_nr = dx_nr.span(),
                                                                       .dquery_d = dquery_d.extent(),
                                                                       .dkey_d = dkey_d.extent()});
}

/// Layer normalization: kernel::layer_norm.
///   x_nc, weight_c, bias_c read; y_nc, mean_n, rstd_n written
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

/// dx_nc, dweight_c, dbias_c added to; the last two may be none
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
