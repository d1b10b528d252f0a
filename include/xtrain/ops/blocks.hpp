#pragma once

#include <xtrain/device/kernel/blocks.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/tensor/weight_blocks.hpp>

namespace xtrain::ops {

/// y = x dequantized
template <class Device, class T>
void dequantize(execution<Device>& on, const blocks_view<typename Device::memory>& x, vector<T, Device> y_n) {
  require_shape("dequantize: y_n", y_n.shape(), {x.n});
  launch(on, kernel::dequantize_blocks<typename Device::memory, T>{.n = x.n, .format = x.format, .code = x.code, .y_n = y_n.span()});
}

}  // namespace xtrain::ops
