#pragma once

#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// y = gelu(x), tanh approximation; equal shapes.
template <class Device, class T>
void gelu_tanh(execution<Device>& on, in_matrix<T, Device> x_nf, matrix<T, Device> y_nf) {
  require_shape("gelu_tanh: y_nf", y_nf.shape(), x_nf.shape());
  launch(on, kernel::gelu_tanh<typename Device::memory, T>{.n = x_nf.size(), .x_n = x_nf.span(), .y_n = y_nf.span()});
}

/// dx = dy · gelu'(x); dx_nf may alias x_nf or dy_nf.
template <class Device, class T>
void gelu_tanh_backward(execution<Device>& on, in_matrix<T, Device> x_nf, in_matrix<T, Device> dy_nf, matrix<T, Device> dx_nf) {
  require_shape("gelu_tanh_backward: dy_nf", dy_nf.shape(), x_nf.shape());
  require_shape("gelu_tanh_backward: dx_nf", dx_nf.shape(), x_nf.shape());
  launch(on, kernel::gelu_tanh_backward<typename Device::memory, T>{
                 .n = x_nf.size(), .x_n = x_nf.span(), .dy_n = dy_nf.span(), .dx_n = dx_nf.span()});
}

/// y = gelu(x), exact form with erf; equal shapes.
template <class Device, class T>
void gelu_erf(execution<Device>& on, in_matrix<T, Device> x_nf, matrix<T, Device> y_nf) {
  require_shape("gelu_erf: y_nf", y_nf.shape(), x_nf.shape());
  launch(on, kernel::gelu_erf<typename Device::memory, T>{.n = x_nf.size(), .x_n = x_nf.span(), .y_n = y_nf.span()});
}

/// dx = dy · gelu'(x); dx_nf may alias x_nf or dy_nf.
template <class Device, class T>
void gelu_erf_backward(execution<Device>& on, in_matrix<T, Device> x_nf, in_matrix<T, Device> dy_nf, matrix<T, Device> dx_nf) {
  require_shape("gelu_erf_backward: dy_nf", dy_nf.shape(), x_nf.shape());
  require_shape("gelu_erf_backward: dx_nf", dx_nf.shape(), x_nf.shape());
  launch(on, kernel::gelu_erf_backward<typename Device::memory, T>{
                 .n = x_nf.size(), .x_n = x_nf.span(), .dy_n = dy_nf.span(), .dx_n = dx_nf.span()});
}

/// y = tanh(x); y_nc may alias x_nc.
template <class Device, class T>
void tanh(execution<Device>& on, in_matrix<T, Device> x_nc, matrix<T, Device> y_nc) {
  require_shape("tanh: y_nc", y_nc.shape(), x_nc.shape());
  launch(on, kernel::tanh<typename Device::memory, T>{.n = x_nc.size(), .x_n = x_nc.span(), .y_n = y_nc.span()});
}

/// dx = dy · (1 − y²); dx_nc may alias dy_nc.
template <class Device, class T>
void tanh_backward(execution<Device>& on, in_matrix<T, Device> y_nc, in_matrix<T, Device> dy_nc, matrix<T, Device> dx_nc) {
  require_shape("tanh_backward: dy_nc", dy_nc.shape(), y_nc.shape());
  require_shape("tanh_backward: dx_nc", dx_nc.shape(), y_nc.shape());
  launch(on, kernel::tanh_backward<typename Device::memory, T>{
                 .n = y_nc.size(), .y_n = y_nc.span(), .dy_n = dy_nc.span(), .dx_n = dx_nc.span()});
}

/// y = silu(gate) · up; each row of gate_up_n2f holds the gates, then the ups.
template <class Device, class T>
void swiglu(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, matrix<T, Device> y_nf) {
  const std::size_t n = y_nf.shape(0), f = y_nf.shape(1);
  require_shape("swiglu: gate_up_n2f", gate_up_n2f.shape(), {n, 2 * f});
  launch(on, kernel::swiglu<typename Device::memory, T>{.n = n, .f = f, .gate_up_n2f = gate_up_n2f.span(), .y_nf = y_nf.span()});
}

/// dgate_up_n2f is written; it may alias gate_up_n2f.
template <class Device, class T>
void swiglu_backward(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, in_matrix<T, Device> dy_nf, matrix<T, Device> dgate_up_n2f) {
  const std::size_t n = dy_nf.shape(0), f = dy_nf.shape(1);
  require_shape("swiglu_backward: gate_up_n2f", gate_up_n2f.shape(), {n, 2 * f});
  require_shape("swiglu_backward: dgate_up_n2f", dgate_up_n2f.shape(), {n, 2 * f});
  launch(on, kernel::swiglu_backward<typename Device::memory, T>{
                 .n = n, .f = f, .gate_up_n2f = gate_up_n2f.span(), .dy_nf = dy_nf.span(), .dgate_up_n2f = dgate_up_n2f.span()});
}

}  // namespace xtrain::ops
