// Non-linearities of feed-forward layers and heads.
#pragma once

#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain {

namespace simt {

// ---- functions and slopes, in fp32 ----

struct gelu_tanh_function {
  XTRAIN_SIMT_FN static float inner(float x) { return 0.7978845608028654f * (x + 0.044715f * x * x * x); }
  XTRAIN_SIMT_FN static float value(float x) { return 0.5f * x * (1.0f + tanh(inner(x))); }
  XTRAIN_SIMT_FN static float slope(float x) {
    const float t = tanh(inner(x)), inner_slope = 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner_slope;
  }
};
struct gelu_erf_function {
  XTRAIN_SIMT_FN static float value(float x) { return 0.5f * x * (1.0f + erf(x * 0.7071067811865476f)); }
  XTRAIN_SIMT_FN static float slope(float x) {
    return 0.5f * (1.0f + erf(x * 0.7071067811865476f)) + x * exp(-0.5f * x * x) * 0.3989422804014327f;
  }
};
struct silu_function {
  XTRAIN_SIMT_FN static float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
  XTRAIN_SIMT_FN static float value(float x) { return x * sigmoid(x); }
  XTRAIN_SIMT_FN static float slope(float x) {
    const float s = sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
  }
};
struct tanh_function {
  XTRAIN_SIMT_FN static float value(float x) { return tanh(x); }
};

// ---- elementwise ----

template <class Function, class T>
struct function_op {
  const T* x;
  T* y;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    auto all = load<N>(x + i);
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) all.v[e] = rounded<T>(Function::value(widen(all.v[e])));
    store<N>(y + i, all);
  }
};
/// dx = dy · slope(x)
template <class Function, class T>
struct slope_op {
  const T *x, *dy;
  T* dx;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const auto x_n = load<N>(x + i);
    auto all = load<N>(dy + i);
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) all.v[e] = rounded<T>(widen(all.v[e]) * Function::slope(widen(x_n.v[e])));
    store<N>(dx + i, all);
  }
};
/// dx = dy · (1 − y²)
template <class T>
struct tanh_backward_op {
  const T *y, *dy;
  T* dx;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const auto y_n = load<N>(y + i);
    auto all = load<N>(dy + i);
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) all.v[e] = rounded<T>(widen(all.v[e]) * (1.0f - widen(y_n.v[e]) * widen(y_n.v[e])));
    store<N>(dx + i, all);
  }
};
template <class T>
struct softcap_op {
  const T* x;
  T* y;
  float cap;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    auto all = load<N>(x + i);
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) all.v[e] = rounded<T>(cap * tanh(widen(all.v[e]) / cap));
    store<N>(y + i, all);
  }
};
template <class T>
struct softcap_backward_op {
  const float* y;
  T* d;
  float cap;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const auto y_n = load<N>(y + i);
    auto all = load<N>(static_cast<const T*>(d + i));
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const float part = y_n.v[e] / cap;
      all.v[e] = rounded<T>(widen(all.v[e]) * (1.0f - part * part));
    }
    store<N>(d + i, all);
  }
};

// ---- gated: rows of f gates, then f ups ----

/// Element i is in row i / f, column i mod f. Vectors lie in one row: f is then a multiple of their width.
template <class Function, class T>
struct gated_op {
  const T* gate_up;
  T* y;
  std::size_t f;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const std::size_t gate_at = i / f * 2 * f + i % f;
    const auto gate = load<N>(gate_up + gate_at), up = load<N>(gate_up + gate_at + f);
    vector_of<T, N> all;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) all.v[e] = rounded<T>(Function::value(widen(gate.v[e])) * widen(up.v[e]));
    store<N>(y + i, all);
  }
};
template <class Function, class T>
struct gated_backward_op {
  const T *gate_up, *dy;
  T* dgate_up;
  std::size_t f;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const std::size_t gate_at = i / f * 2 * f + i % f;
    const auto gate = load<N>(gate_up + gate_at), up = load<N>(gate_up + gate_at + f), dy_n = load<N>(dy + i);
    vector_of<T, N> dgate, dup;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const float d = widen(dy_n.v[e]), g = widen(gate.v[e]);
      dgate.v[e] = rounded<T>(d * widen(up.v[e]) * Function::slope(g));
      dup.v[e] = rounded<T>(d * Function::value(g));
    }
    store<N>(dgate_up + gate_at, dgate);
    store<N>(dgate_up + gate_at + f, dup);
  }
};

// ---- launches: op_of(kernel) gives op, number of elements, operands ----

template <class Op, class T>
struct elementwise_launch {
  Op op;
  std::size_t n;     // elements that threads handle
  std::size_t rows;  // of kernels that know them; 0: the caller of in_rows does
  bool vectors;
};
template <class T, class Op>
[[nodiscard]] elementwise_launch<Op, T> elementwise(const Op& op, std::size_t n, std::size_t rows, bool vectors) {
  return {op, n, rows, vectors};
}

template <class M, class T>
[[nodiscard]] auto op_of(const kernel::gelu_tanh<M, T>& k) {
  kernel::check_arity<3>(k);
  return elementwise<T>(function_op<gelu_tanh_function, T>{k.x_n.raw(), k.y_n.raw()}, k.n, 0, all_aligned(k.x_n.raw(), k.y_n.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::gelu_erf<M, T>& k) {
  kernel::check_arity<3>(k);
  return elementwise<T>(function_op<gelu_erf_function, T>{k.x_n.raw(), k.y_n.raw()}, k.n, 0, all_aligned(k.x_n.raw(), k.y_n.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::tanh<M, T>& k) {
  kernel::check_arity<3>(k);
  return elementwise<T>(function_op<tanh_function, T>{k.x_n.raw(), k.y_n.raw()}, k.n, 0, all_aligned(k.x_n.raw(), k.y_n.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::gelu_tanh_backward<M, T>& k) {
  kernel::check_arity<4>(k);
  return elementwise<T>(slope_op<gelu_tanh_function, T>{k.x_n.raw(), k.dy_n.raw(), k.dx_n.raw()}, k.n, 0,
                        all_aligned(k.x_n.raw(), k.dy_n.raw(), k.dx_n.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::gelu_erf_backward<M, T>& k) {
  kernel::check_arity<4>(k);
  return elementwise<T>(slope_op<gelu_erf_function, T>{k.x_n.raw(), k.dy_n.raw(), k.dx_n.raw()}, k.n, 0,
                        all_aligned(k.x_n.raw(), k.dy_n.raw(), k.dx_n.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::tanh_backward<M, T>& k) {
  kernel::check_arity<4>(k);
  return elementwise<T>(tanh_backward_op<T>{k.y_n.raw(), k.dy_n.raw(), k.dx_n.raw()}, k.n, 0,
                        all_aligned(k.y_n.raw(), k.dy_n.raw(), k.dx_n.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::softcap<M, T>& k) {
  kernel::check_arity<4>(k);
  return elementwise<T>(softcap_op<T>{k.x_n.raw(), k.y_n.raw(), narrowed(k.cap)}, k.n, 0, all_aligned(k.x_n.raw(), k.y_n.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::softcap_backward<M, T>& k) {
  kernel::check_arity<4>(k);
  return elementwise<T>(softcap_backward_op<T>{k.y_n.raw(), k.d_n.raw(), narrowed(k.cap)}, k.n, 0, all_aligned(k.y_n.raw(), k.d_n.raw()));
}
template <class Function, class T, class Kernel>
[[nodiscard]] auto gated_of(const Kernel& k) {
  return elementwise<T>(gated_op<Function, T>{k.gate_up_n2f.raw(), k.y_nf.raw(), k.f}, k.n * k.f, k.n,
                        k.f % elements_of<T> == 0 && all_aligned(k.gate_up_n2f.raw(), k.y_nf.raw()));
}
template <class Function, class T, class Kernel>
[[nodiscard]] auto gated_backward_of(const Kernel& k) {
  return elementwise<T>(gated_backward_op<Function, T>{k.gate_up_n2f.raw(), k.dy_nf.raw(), k.dgate_up_n2f.raw(), k.f}, k.n * k.f, k.n,
                        k.f % elements_of<T> == 0 && all_aligned(k.gate_up_n2f.raw(), k.dy_nf.raw(), k.dgate_up_n2f.raw()));
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::swiglu<M, T>& k) {
  kernel::check_arity<4>(k);
  return gated_of<silu_function, T>(k);
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::geglu<M, T>& k) {
  kernel::check_arity<4>(k);
  return gated_of<gelu_tanh_function, T>(k);
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::swiglu_backward<M, T>& k) {
  kernel::check_arity<5>(k);
  return gated_backward_of<silu_function, T>(k);
}
template <class M, class T>
[[nodiscard]] auto op_of(const kernel::geglu_backward<M, T>& k) {
  kernel::check_arity<5>(k);
  return gated_backward_of<gelu_tanh_function, T>(k);
}

template <class Op, class T>
void launch_elementwise(launches auto& stream, const elementwise_launch<Op, T>& work, row_range rows = {}) {
  launch_each<elements_of<T>>(stream, work.op, work.n, work.vectors, rows);
}

/// An activation over a GPU dtype.
template <class Kernel>
inline constexpr bool is_activation = false;
template <template <class, class> class Kernel, class M, class T>
inline constexpr bool is_activation<Kernel<M, T>> = up_to_float<T>&& requires(const Kernel<M, T>& k) {
  op_of(k);
};

}  // namespace simt

template <simt::launches S, class Kernel, class M>
requires simt::is_activation<Kernel>
void run_kernel(S& stream, const Kernel& k, scratch_span<M>) { simt::launch_elementwise(stream, simt::op_of(k)); }
template <simt::launches S, class Kernel, class M>
requires(simt::is_activation<Kernel>&& kernel::works_on_rows<Kernel>) void run_kernel(S& stream, const kernel::in_rows<Kernel, M>& k,
                                                                                      scratch_span<M>) {
  const auto work = simt::op_of(k.whole);
  const std::size_t rows = work.rows != 0 ? work.rows : k.total;
  simt::launch_elementwise(stream, work, {k.range_2.raw(), rows == 0 ? 0 : work.n / rows});
}

}  // namespace xtrain
