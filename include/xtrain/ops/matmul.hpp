#pragma once

#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Replaces the output or adds to it.
enum class result : bool { replaces, is_added };

/// y = or += alpha · x · wᵀ + bias.
///   x_ni read, w_oi read, bias_o read or none, y_no written
template <class Device, class X, class C>
void linear(execution<Device>& on, matrix<X, Device> x_ni, in_matrix<std::remove_const_t<X>, Device> w_oi,
            in_vector<std::remove_const_t<X>, Device> bias_o, matrix<C, Device> y_no, result write_mode = result::replaces, double alpha = 1.0) {
  const std::size_t n = x_ni.shape(0), i = x_ni.shape(1), o = w_oi.shape(0);
  require_shape("linear: w_oi", w_oi.shape(), {o, i});
  require_shape("linear: y_no", y_no.shape(), {n, o});
  if (bias_o.exists()) require_shape("linear: bias_o", bias_o.shape(), {o});
  launch(on, kernel::matmul<typename Device::memory, std::remove_const_t<X>, C>{.m = n,
                                                                                .n = o,
                                                                                .k = i,
                                                                                .lda = x_ni.stride(),
                                                                                .ldb = w_oi.stride(),
                                                                                .ldc = y_no.stride(),
                                                                                .transpose_b = true,
                                                                                .accumulate = write_mode == result::is_added,
                                                                                .alpha = alpha,
                                                                                .a = x_ni.extent(),
                                                                                .b = w_oi.extent(),
                                                                                .bias_n = bias_o.extent(),
                                                                                .c = y_no.extent()});
}

/// forward: y = alpha · x · wᵀ.   dx = or += alpha · dy · w
template <class Device, class T>
void linear_backward_input(execution<Device>& on, in_matrix<T, Device> dy_no, in_matrix<T, Device> w_oi, matrix<T, Device> dx_ni,
                           result write_mode = result::replaces, double alpha = 1.0) {
  const std::size_t n = dy_no.shape(0), o = dy_no.shape(1), i = w_oi.shape(1);
  require_shape("linear_backward_input: w_oi", w_oi.shape(), {o, i});
  require_shape("linear_backward_input: dx_ni", dx_ni.shape(), {n, i});
  launch(on, kernel::matmul<typename Device::memory, T, T>{.m = n,
                                                           .n = i,
                                                           .k = o,
                                                           .lda = dy_no.stride(),
                                                           .ldb = w_oi.stride(),
                                                           .ldc = dx_ni.stride(),
                                                           .accumulate = write_mode == result::is_added,
                                                           .alpha = alpha,
                                                           .a = dy_no.extent(),
                                                           .b = w_oi.extent(),
                                                           .c = dx_ni.extent()});
}

/// forward: y = alpha · x · wᵀ.   dw += alpha · dyᵀ · x
template <class Device, class X, class G>
void linear_backward_weight(execution<Device>& on, in_matrix<std::remove_const_t<X>, Device> dy_no, matrix<X, Device> x_ni,
                            matrix<G, Device> dw_oi, double alpha = 1.0) {
  const std::size_t n = dy_no.shape(0), o = dy_no.shape(1), i = x_ni.shape(1);
  require_shape("linear_backward_weight: x_ni", x_ni.shape(), {n, i});
  require_shape("linear_backward_weight: dw_oi", dw_oi.shape(), {o, i});
  launch(on, kernel::matmul<typename Device::memory, std::remove_const_t<X>, G>{.m = o,
                                                                                .n = i,
                                                                                .k = n,
                                                                                .lda = dy_no.stride(),
                                                                                .ldb = x_ni.stride(),
                                                                                .ldc = dw_oi.stride(),
                                                                                .transpose_a = true,
                                                                                .accumulate = true,
                                                                                .alpha = alpha,
                                                                                .a = dy_no.extent(),
                                                                                .b = x_ni.extent(),
                                                                                .c = dw_oi.extent()});
}

/// forward: y = … + bias.   dbias += sum over rows of dy
template <class Device, class Y, class G>
void bias_backward(execution<Device>& on, matrix<Y, Device> dy_no, vector<G, Device> dbias_o) {
  require_shape("bias_backward: dbias_o", dbias_o.shape(), {dy_no.shape(1)});
  launch(on, kernel::column_sum<typename Device::memory, std::remove_const_t<Y>, G>{
                 .n = dy_no.shape(0), .c = dy_no.shape(1), .stride = dy_no.stride(), .x_nc = dy_no.extent(), .sum_c = dbias_o.span()});
}

}  // namespace xtrain::ops
