#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/require_softcap.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// y = gelu(x), tanh approximation.
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

/// y = gelu(x), exact (erf).
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

/// y = cap · tanh(x / cap); y_nv may alias x_nv.
template <class Device, class T>
void softcap(execution<Device>& on, in_matrix<std::remove_const_t<T>, Device> x_nv, double cap, matrix<T, Device> y_nv) {
  require_softcap("softcap", cap, true);
  require_shape("softcap: y_nv", y_nv.shape(), x_nv.shape());
  launch(on, kernel::softcap<typename Device::memory, T>{.n = x_nv.size(), .cap = cap, .x_n = x_nv.span(), .y_n = y_nv.span()});
}

/// y_nv: the forward's result, in accumulate; d_nv: dy in, dx out.
template <class Device, class T>
void softcap_backward(execution<Device>& on, in_matrix<accumulate_t<T>, Device> y_nv, double cap, matrix<T, Device> d_nv) {
  require_softcap("softcap_backward", cap, true);
  require_shape("softcap_backward: d_nv", d_nv.shape(), y_nv.shape());
  launch(on, kernel::softcap_backward<typename Device::memory, T>{.n = y_nv.size(), .cap = cap, .y_n = y_nv.span(), .d_n = d_nv.span()});
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

namespace detail {

/// throws shape_error unless rows hold a gate and an up per output
inline void require_gate_up(std::string_view kernel, const char* operand, const shape_of_rank<2>& given, std::size_t n, std::size_t f) {
  const shape_of_rank<2> expected{n, 2 * f};
  require<shape_error>(given == expected, kernel, ": ", operand, ": must have shape ", expected, "; given ", given);
}
template <template <class, class> class Kernel, class Device, class T>
void gated_unit(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, matrix<T, Device> y_nf) {
  using kernel_type = Kernel<typename Device::memory, T>;
  const std::size_t n = y_nf.shape(0), f = y_nf.shape(1);
  require_gate_up(kernel_type::name, "gate_up_n2f", gate_up_n2f.shape(), n, f);
  launch(on, kernel_type{.n = n, .f = f, .gate_up_n2f = gate_up_n2f.span(), .y_nf = y_nf.span()});
}
template <template <class, class> class Kernel, class Device, class T>
void gated_unit_backward(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, in_matrix<T, Device> dy_nf, matrix<T, Device> dgate_up_n2f) {
  using kernel_type = Kernel<typename Device::memory, T>;
  const std::size_t n = dy_nf.shape(0), f = dy_nf.shape(1);
  require_gate_up(kernel_type::name, "gate_up_n2f", gate_up_n2f.shape(), n, f);
  require_gate_up(kernel_type::name, "dgate_up_n2f", dgate_up_n2f.shape(), n, f);
  launch(on, kernel_type{.n = n, .f = f, .gate_up_n2f = gate_up_n2f.span(), .dy_nf = dy_nf.span(), .dgate_up_n2f = dgate_up_n2f.span()});
}

}  // namespace detail

/// y = silu(gate) · up; rows of gate_up_n2f: gates, then ups.
template <class Device, class T>
void swiglu(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, matrix<T, Device> y_nf) {
  detail::gated_unit<kernel::swiglu, Device, T>(on, gate_up_n2f, y_nf);
}
/// dgate_up_n2f is written; it may alias gate_up_n2f.
template <class Device, class T>
void swiglu_backward(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, in_matrix<T, Device> dy_nf, matrix<T, Device> dgate_up_n2f) {
  detail::gated_unit_backward<kernel::swiglu_backward, Device, T>(on, gate_up_n2f, dy_nf, dgate_up_n2f);
}

/// y = gelu(gate) · up (tanh approximation); rows of gate_up_n2f: gates, then ups.
template <class Device, class T>
void geglu(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, matrix<T, Device> y_nf) {
  detail::gated_unit<kernel::geglu, Device, T>(on, gate_up_n2f, y_nf);
}
/// dgate_up_n2f is written; it may alias gate_up_n2f.
template <class Device, class T>
void geglu_backward(execution<Device>& on, in_matrix<T, Device> gate_up_n2f, in_matrix<T, Device> dy_nf, matrix<T, Device> dgate_up_n2f) {
  detail::gated_unit_backward<kernel::geglu_backward, Device, T>(on, gate_up_n2f, dy_nf, dgate_up_n2f);
}

}  // namespace xtrain::ops
