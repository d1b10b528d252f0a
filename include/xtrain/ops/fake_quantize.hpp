#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// y = x rounded to integers and back, in groups of `group` consecutive elements of a row
///   throws  shape_error unless `group` divides the row length
template <class Device, class T>
void fake_quantize(execution<Device>& on, in_tensor<T, 2, Device> x, std::size_t group, const fake_quantization& format, tensor_of<T, 2, Device> y) {
  require_shape("fake_quantize: y", y.shape(), x.shape());
  require<shape_error>(group > 0 && x.shape(1) % group == 0, "fake_quantize: rows of ", x.shape(1), " elements must consist of whole groups of ", group);
  launch(on, kernel::fake_quantize<typename Device::memory, T>{.n = x.size(), .group = group, .format = format, .x_n = x.span(), .y_n = y.span()});
}

/// dx = dy or dx += dy where the forward did not clamp x, else 0
///   throws  shape_error unless `group` divides the row length
template <class Device, class T, class G>
void fake_quantize_backward(execution<Device>& on, in_tensor<T, 2, Device> x, std::size_t group, const fake_quantization& format,
                            tensor_view<G, 2, typename Device::memory> dy, tensor_view<G, 2, typename Device::memory> dx,
                            result write_mode = result::replaces) {
  require_shape("fake_quantize_backward: dy", dy.shape(), x.shape());
  require_shape("fake_quantize_backward: dx", dx.shape(), x.shape());
  require<shape_error>(group > 0 && x.shape(1) % group == 0, "fake_quantize: rows of ", x.shape(1), " elements must consist of whole groups of ", group);
  launch(on, kernel::fake_quantize_backward<typename Device::memory, T, G>{.n = x.size(),
                                                                           .group = group,
                                                                           .format = format,
                                                                           .accumulate = write_mode == result::is_added,
                                                                           .x_n = x.span(),
                                                                           .dy_n = dy.span(),
                                                                           .dx_n = dx.span()});
}

}  // namespace xtrain::ops
