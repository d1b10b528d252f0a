#pragma once

#include <xtrain/device/kernel/nf4.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/nf4.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// y = x dequantized
template <class Device, class T>
void dequantize(execution<Device>& on, const nf4_view<typename Device::memory>& x, vector<T, Device> y_n) {
  require_shape("dequantize: y_n", y_n.shape(), {x.n});
  launch(on, kernel::dequantize_nf4<typename Device::memory, T>{
                 .n = x.n, .code_n2 = x.code_n2, .scale_k = x.scale_k, .outer = x.outer, .y_n = y_n.span()});
}

}  // namespace xtrain::ops
