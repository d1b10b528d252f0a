#pragma once

#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// y += factor · x
template <class Device, class T, std::size_t N>
void add(execution<Device>& on, in_tensor<T, N, Device> x, tensor_of<T, N, Device> y, double factor = 1.0) {
  require_shape("add: y", y.shape(), x.shape());
  launch(on, kernel::add<typename Device::memory, T>{.n = x.size(), .factor = factor, .x_n = x.span(), .y_n = y.span()});
}

/// y = x; both contiguous
template <class Device, class T, std::size_t N>
void copy(execution<Device>& on, in_tensor<T, N, Device> x, tensor_of<T, N, Device> y) {
  require_shape("copy: y", y.shape(), x.shape());
  copy_within(on.stream, y.span(), x.span());
}

/// y = x or y += x; rows may be strided
template <class Device, class T>
void copy_rows(execution<Device>& on, in_matrix<T, Device> x, matrix<T, Device> y, result write_mode = result::replaces) {
  require_shape("copy_rows: y", y.shape(), x.shape());
  launch(on, kernel::copy_rows<typename Device::memory, T>{.rows = x.shape(0),
                                                           .columns = x.shape(1),
                                                           .x_stride = x.stride(),
                                                           .y_stride = y.stride(),
                                                           .accumulate = write_mode == result::is_added,
                                                           .x = x.extent(),
                                                           .y = y.extent()});
}

/// y = x rounded to another dtype
template <class Device, class X, class Y, class M>
void cast(execution<Device>& on, device_span<X, M> x, device_span<Y, M> y) {
  require<shape_error>(x.size() == y.size(), "cast: y must have ", x.size(), " elements; given ", y.size());
  launch(on, kernel::cast<M, std::remove_const_t<X>, Y>{.n = x.size(), .x_n = x, .y_n = y});
}

/// y = dropout(x) or y += dropout(x); also the backward, of gradients.
///   whole_width   columns of the matrix that x is a column range of; 0: x has all
template <class Device, class T, std::size_t N>
void dropout(execution<Device>& on, in_tensor<T, N, Device> x, double probability, const random_site& random, tensor_of<T, N, Device> y,
             result write_mode = result::replaces, std::size_t whole_width = 0) {
  require_shape("dropout: y", y.shape(), x.shape());
  launch(on, kernel::dropout<typename Device::memory, T>{.n = x.size(),
                                                         .probability = probability,
                                                         .accumulate = write_mode == result::is_added,
                                                         .width = whole_width == 0 ? 0 : x.shape(N - 1),
                                                         .whole_width = whole_width,
                                                         .random = random,
                                                         .inputs_1 = on.inputs_1,
                                                         .x_n = x.span(),
                                                         .y_n = y.span()});
}

/// y += magnitude · u, u uniform in [−1, 1)
template <class Device, class T, std::size_t N>
void uniform_noise(execution<Device>& on, double magnitude, const random_site& random, tensor_of<T, N, Device> y) {
  launch(on,
         kernel::uniform_noise<typename Device::memory, T>{.n = y.size(), .magnitude = magnitude, .random = random, .inputs_1 = on.inputs_1, .y_n = y.span()});
}

/// sum_1 = Σ x², in double
template <class Device, class X, class M>
void sum_of_squares(execution<Device>& on, device_span<X, M> x, device_span<double, M> sum_1) {
  launch(on, kernel::sum_of_squares<M, std::remove_const_t<X>>{.n = x.size(), .x_n = x, .sum_1 = sum_1});
}

}  // namespace xtrain::ops
