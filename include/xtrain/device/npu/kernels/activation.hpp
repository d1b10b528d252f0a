// Activations.
#pragma once

#include <cstddef>

#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// CANN's names of GELU's forms: a number in the forward pass, a word in the backward pass.
struct gelu_form {
  int forward;
  const char* backward;
};
inline constexpr gelu_form gelu_by_tanh{1, "tanh"}, gelu_by_erf{0, "none"};

inline void gelu(npu_sequence& s, const npu_view& x, const npu_view& y, const gelu_form& form) {
  const npu_view from = wide(s, x), to = s.fresh_like(from);
  s.run(npu_op::gelu, from, form.forward, to);
  store(s, to, y);
}
/// dx may be x's or dy's memory.
inline void gelu_backward(npu_sequence& s, const npu_view& x, const npu_view& dy, const npu_view& dx, const gelu_form& form) {
  const npu_view from = wide(s, x), to = s.fresh_like(from);
  s.run(npu_op::gelu_backward, wide(s, dy), from, form.backward, to);
  store(s, to, dx);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::gelu_tanh<Memory, T>& k) {
  kernel::check_arity<3>(k);
  if (k.n != 0) gelu(s, view_of(k.x_n, {k.n}), view_of(k.y_n, {k.n}), gelu_by_tanh);
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::gelu_tanh_backward<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n != 0) gelu_backward(s, view_of(k.x_n, {k.n}), view_of(k.dy_n, {k.n}), view_of(k.dx_n, {k.n}), gelu_by_tanh);
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::gelu_erf<Memory, T>& k) {
  kernel::check_arity<3>(k);
  if (k.n != 0) gelu(s, view_of(k.x_n, {k.n}), view_of(k.y_n, {k.n}), gelu_by_erf);
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::gelu_erf_backward<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n != 0) gelu_backward(s, view_of(k.x_n, {k.n}), view_of(k.dy_n, {k.n}), view_of(k.dx_n, {k.n}), gelu_by_erf);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::tanh<Memory, T>& k) {
  kernel::check_arity<3>(k);
  if (k.n == 0) return;
  const npu_view y = wide_copy(s, view_of(k.x_n, {k.n}));
  s.run(npu_op::inplace_tanh, y);
  store(s, y, view_of(k.y_n, {k.n}));
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::tanh_backward<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n == 0) return;
  const npu_view y = wide(s, view_of(k.y_n, {k.n})), dx = s.fresh_like(y);
  s.run(npu_op::tanh_backward, wide(s, view_of(k.dy_n, {k.n})), y, dx);
  store(s, dx, view_of(k.dx_n, {k.n}));
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::softcap<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n == 0) return;
  const npu_view y = times(s, wide(s, view_of(k.x_n, {k.n})), 1.0 / k.cap);
  s.run(npu_op::inplace_tanh, y);
  s.run(npu_op::inplace_muls, y, npu_scalar{k.cap});
  store(s, y, view_of(k.y_n, {k.n}));
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::softcap_backward<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n == 0) return;
  const npu_view part = times(s, wide(s, view_of(k.y_n, {k.n})), 1.0 / k.cap), d = wide(s, view_of(k.d_n, {k.n})), change = product(s, part, part, part);
  s.run(npu_op::inplace_mul, change, d);
  if (d.type == npu_type_of<T>) return s.run(npu_op::inplace_sub, d, change, npu_scalar{1});
  s.run(npu_op::inplace_sub, d, change, npu_scalar{1});
  store(s, d, view_of(k.d_n, {k.n}));
}

/// The gates, or the ups, of rows that have both.
[[nodiscard]] inline npu_view half_of(const npu_view& gate_up_n2f, std::size_t which) {
  const std::size_t f = gate_up_n2f.dim(1) / 2;
  return gate_up_n2f.slice(1, which * f, f);
}

inline void swiglu(npu_sequence& s, const npu_view& gate_up_n2f, const npu_view& y_nf) {
  if (s.rules().has_fused()) return s.run(npu_op::swi_glu, gate_up_n2f, -1, y_nf);
  const npu_view gate_nf = wide(s, half_of(gate_up_n2f, 0)), y = s.fresh_like(gate_nf);
  s.run(npu_op::sigmoid, gate_nf, y);
  s.run(npu_op::inplace_mul, y, gate_nf);
  s.run(npu_op::inplace_mul, y, half_of(gate_up_n2f, 1));
  store(s, y, y_nf);
}
/// dgate_up may be gate_up's memory.
inline void swiglu_backward(npu_sequence& s, const npu_view& gate_up_n2f, const npu_view& dy_nf, const npu_view& dgate_up_n2f) {
  if (s.rules().has_fused() && dy_nf.dim(1) * bytes_of(dy_nf.type) % 64 == 0) {  // other widths are not supported
    const npu_view result_n2f = s.fresh_like(gate_up_n2f, gate_up_n2f.type);
    s.run(npu_op::swi_glu_grad, dy_nf, gate_up_n2f, -1, result_n2f);
    return store(s, result_n2f, dgate_up_n2f);
  }
  const npu_view gate_nf = wide(s, half_of(gate_up_n2f, 0)), sigmoid_nf = s.fresh_like(gate_nf);
  s.run(npu_op::sigmoid, gate_nf, sigmoid_nf);
  // forward: y = gate · s · up
  const npu_view dup_nf = product(s, gate_nf, sigmoid_nf, gate_nf), slope_nf = s.fresh_like(gate_nf);
  s.run(npu_op::addcmul, dup_nf, dup_nf, sigmoid_nf, npu_scalar{-1}, slope_nf);  // gate · s · (1 − s)
  add_to(s, sigmoid_nf, slope_nf);
  s.run(npu_op::inplace_mul, slope_nf, half_of(gate_up_n2f, 1));
  const npu_view dy = wide(s, dy_nf);
  s.run(npu_op::inplace_mul, slope_nf, dy);
  s.run(npu_op::inplace_mul, dup_nf, dy);
  store(s, slope_nf, half_of(dgate_up_n2f, 0));
  store(s, dup_nf, half_of(dgate_up_n2f, 1));
}
inline void geglu(npu_sequence& s, const npu_view& gate_up_n2f, const npu_view& y_nf) {
  const npu_view gate_nf = wide_copy(s, half_of(gate_up_n2f, 0)), y = s.fresh_like(gate_nf);
  s.run(npu_op::gelu, gate_nf, gelu_by_tanh.forward, y);
  s.run(npu_op::inplace_mul, y, half_of(gate_up_n2f, 1));
  store(s, y, y_nf);
}
inline void geglu_backward(npu_sequence& s, const npu_view& gate_up_n2f, const npu_view& dy_nf, const npu_view& dgate_up_n2f) {
  const npu_view gate_nf = wide_copy(s, half_of(gate_up_n2f, 0)), dy = wide(s, dy_nf), dup_nf = s.fresh_like(gate_nf), dgate_nf = s.fresh_like(gate_nf);
  // forward: y = gelu(gate) · up
  s.run(npu_op::gelu, gate_nf, gelu_by_tanh.forward, dup_nf);
  s.run(npu_op::inplace_mul, dup_nf, dy);
  const npu_view dgelu_nf = product(s, dy, half_of(gate_up_n2f, 1), gate_nf);
  s.run(npu_op::gelu_backward, dgelu_nf, gate_nf, gelu_by_tanh.backward, dgate_nf);
  store(s, dgate_nf, half_of(dgate_up_n2f, 0));
  store(s, dup_nf, half_of(dgate_up_n2f, 1));
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::swiglu<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n != 0 && k.f != 0) swiglu(s, view_of(k.gate_up_n2f, {k.n, 2 * k.f}), view_of(k.y_nf, {k.n, k.f}));
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::swiglu_backward<Memory, T>& k) {
  kernel::check_arity<5>(k);
  if (k.n != 0 && k.f != 0) swiglu_backward(s, view_of(k.gate_up_n2f, {k.n, 2 * k.f}), view_of(k.dy_nf, {k.n, k.f}), view_of(k.dgate_up_n2f, {k.n, 2 * k.f}));
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::geglu<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n != 0 && k.f != 0) geglu(s, view_of(k.gate_up_n2f, {k.n, 2 * k.f}), view_of(k.y_nf, {k.n, k.f}));
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::geglu_backward<Memory, T>& k) {
  kernel::check_arity<5>(k);
  if (k.n != 0 && k.f != 0) geglu_backward(s, view_of(k.gate_up_n2f, {k.n, 2 * k.f}), view_of(k.dy_nf, {k.n, k.f}), view_of(k.dgate_up_n2f, {k.n, 2 * k.f}));
}

}  // namespace xtrain::npu_kernels
