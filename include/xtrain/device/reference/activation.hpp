#pragma once

#include <cmath>

#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

template <class A>
inline constexpr A gelu_slope = static_cast<A>(0.79788456080286535588);  // sqrt(2/π)
template <class A>
inline constexpr A gelu_cubic = static_cast<A>(0.044715);
template <class A>
inline constexpr A root_half = static_cast<A>(0.70710678118654752440);  // 1/√2
template <class A>
inline constexpr A normal_peak = static_cast<A>(0.39894228040143267794);  // 1/√(2π)

}  // namespace detail

template <class T>
void run_kernel(reference_stream&, const kernel::gelu_tanh<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  using acc = accumulate_t<T>;
  const auto x = detail::values<acc>(k.x_n, k.n);
  const array<acc, 1> u = detail::gelu_slope<acc> * (x + detail::gelu_cubic<acc> * x * x * x);
  detail::store<1>(k.y_n, acc(0.5) * x * (acc{1} + xt::tanh(u)));
}

template <class T>
void run_kernel(reference_stream&, const kernel::gelu_tanh_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  const auto x = detail::values<acc>(k.x_n, k.n);
  const auto dy = detail::values<acc>(k.dy_n, k.n);
  const array<acc, 1> u = detail::gelu_slope<acc> * (x + detail::gelu_cubic<acc> * x * x * x);
  const array<acc, 1> tanh_u = xt::tanh(u);
  const array<acc, 1> du = detail::gelu_slope<acc> * (acc{1} + acc{3} * detail::gelu_cubic<acc> * x * x);
  detail::store<1>(k.dx_n, dy * (acc(0.5) * (acc{1} + tanh_u) + acc(0.5) * x * (acc{1} - tanh_u * tanh_u) * du));
}

template <class T>
void run_kernel(reference_stream&, const kernel::gelu_erf<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  using acc = accumulate_t<T>;
  array<acc, 1> y = detail::values<acc>(k.x_n, k.n);
  for (acc& x : y) x = acc(0.5) * x * (acc{1} + std::erf(x * detail::root_half<acc>));
  detail::store<1>(k.y_n, y);
}

template <class T>
void run_kernel(reference_stream&, const kernel::gelu_erf_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  array<acc, 1> dx = detail::values<acc>(k.x_n, k.n);
  for (acc& x : dx)
    x = acc(0.5) * (acc{1} + std::erf(x * detail::root_half<acc>)) + x * detail::normal_peak<acc> * std::exp(acc(-0.5) * x * x);
  detail::store<1>(k.dx_n, dx * detail::values<acc>(k.dy_n, k.n));
}

template <class T>
void run_kernel(reference_stream&, const kernel::tanh<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  detail::store<1>(k.y_n, xt::tanh(detail::values<accumulate_t<T>>(k.x_n, k.n)));
}

template <class T>
void run_kernel(reference_stream&, const kernel::tanh_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  const auto y = detail::values<acc>(k.y_n, k.n);
  detail::store<1>(k.dx_n, detail::values<acc>(k.dy_n, k.n) * (acc{1} - y * y));
}

template <class T>
void run_kernel(reference_stream&, const kernel::softcap<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  const acc cap = static_cast<acc>(k.cap);
  detail::store<1>(k.y_n, cap * xt::tanh(detail::values<acc>(k.x_n, k.n) / cap));
}

template <class T>
void run_kernel(reference_stream&, const kernel::softcap_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  const array<acc, 1> part = detail::values<acc>(k.y_n, k.n) / static_cast<acc>(k.cap);
  detail::store<1>(k.d_n, detail::values<acc>(k.d_n, k.n) * (acc{1} - part * part));
}

template <class T>
void run_kernel(reference_stream&, const kernel::swiglu<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  const auto gate_up = detail::values<acc>(k.gate_up_n2f, k.n, 2 * k.f);
  const auto gate = xt::view(gate_up, xt::all(), xt::range(std::size_t{0}, k.f));
  const auto up = xt::view(gate_up, xt::all(), xt::range(k.f, 2 * k.f));
  detail::store<2>(k.y_nf, gate / (acc{1} + xt::exp(-gate)) * up);
}

template <class T>
void run_kernel(reference_stream&, const kernel::swiglu_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  using acc = accumulate_t<T>;
  const auto gate_up = detail::values<acc>(k.gate_up_n2f, k.n, 2 * k.f);
  const auto dy = detail::values<acc>(k.dy_nf, k.n, k.f);
  const auto gate = xt::view(gate_up, xt::all(), xt::range(std::size_t{0}, k.f));
  const auto up = xt::view(gate_up, xt::all(), xt::range(k.f, 2 * k.f));
  const array<acc, 2> s = acc{1} / (acc{1} + xt::exp(-gate));
  array<acc, 2> dgate_up(std::array<std::size_t, 2>{k.n, 2 * k.f});
  xt::view(dgate_up, xt::all(), xt::range(std::size_t{0}, k.f)) = dy * up * s * (acc{1} + gate * (acc{1} - s));
  xt::view(dgate_up, xt::all(), xt::range(k.f, 2 * k.f)) = dy * gate * s;
  detail::store<2>(k.dgate_up_n2f, dgate_up);
}

template <class T>
void run_kernel(reference_stream&, const kernel::geglu<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  const auto gate_up = detail::values<acc>(k.gate_up_n2f, k.n, 2 * k.f);
  const array<acc, 2> gate = xt::view(gate_up, xt::all(), xt::range(std::size_t{0}, k.f));
  const auto up = xt::view(gate_up, xt::all(), xt::range(k.f, 2 * k.f));
  const array<acc, 2> u = detail::gelu_slope<acc> * (gate + detail::gelu_cubic<acc> * gate * gate * gate);
  detail::store<2>(k.y_nf, acc(0.5) * gate * (acc{1} + xt::tanh(u)) * up);
}

template <class T>
void run_kernel(reference_stream&, const kernel::geglu_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  using acc = accumulate_t<T>;
  const auto gate_up = detail::values<acc>(k.gate_up_n2f, k.n, 2 * k.f);
  const auto dy = detail::values<acc>(k.dy_nf, k.n, k.f);
  const array<acc, 2> gate = xt::view(gate_up, xt::all(), xt::range(std::size_t{0}, k.f));
  const auto up = xt::view(gate_up, xt::all(), xt::range(k.f, 2 * k.f));
  const array<acc, 2> tanh_u = xt::tanh(detail::gelu_slope<acc> * (gate + detail::gelu_cubic<acc> * gate * gate * gate));
  const array<acc, 2> du = detail::gelu_slope<acc> * (acc{1} + acc{3} * detail::gelu_cubic<acc> * gate * gate);
  array<acc, 2> dgate_up(std::array<std::size_t, 2>{k.n, 2 * k.f});
  xt::view(dgate_up, xt::all(), xt::range(std::size_t{0}, k.f)) =
      dy * up * (acc(0.5) * (acc{1} + tanh_u) + acc(0.5) * gate * (acc{1} - tanh_u * tanh_u) * du);
  xt::view(dgate_up, xt::all(), xt::range(k.f, 2 * k.f)) = dy * acc(0.5) * gate * (acc{1} + tanh_u);
  detail::store<2>(k.dgate_up_n2f, dgate_up);
}

}  // namespace xtrain
