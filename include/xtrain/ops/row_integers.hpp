#pragma once

#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/row_integers.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// y = x dequantized
template <class Device, class T>
void dequantize(execution<Device>& on, const row_integers_view<typename Device::memory>& x, vector<T, Device> y_n) {
  require_shape("dequantize: y_n", y_n.shape(), {x.rows * x.columns});
  launch(on, kernel::dequantize_rows<typename Device::memory, T>{
                 .rows = x.rows, .columns = x.columns, .bits = x.bits, .code = x.code, .scale_r = x.scale_r, .y_n = y_n.span()});
}

}  // namespace xtrain::ops
