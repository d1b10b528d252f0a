// Non-linearities of feed-forward layers and heads.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// Gaussian error linear unit, tanh approximation, elementwise.    [Hendrycks & Gimpel 2016, section 2]
///   y = x/2 · (1 + tanh(sqrt(2/π) · (x + 0.044715 x³)))
///   x_n read, y_n written; computed in accumulate, rounded once
template <class Memory, class T>
struct gelu_tanh {
  static constexpr std::string_view name = "gelu_tanh";
  template <class M>
  using on = gelu_tanh<M, T>;

  std::size_t n = 0;
  read<T, Memory> x_n{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return 12.0 * static_cast<double>(n); }
  [[nodiscard]] constexpr gelu_tanh rows(std::size_t first, std::size_t count, std::size_t total) const {
    return on_rows(*this, first, count, total, &gelu_tanh::x_n, &gelu_tanh::y_n);
  }
};

/// With u the argument of tanh:  dx = dy · (1 + tanh u)/2 + dy · x/2 · (1 − tanh² u) · u'
///   x_n, dy_n read; dx_n written, may alias x_n or dy_n
template <class Memory, class T>
struct gelu_tanh_backward {
  static constexpr std::string_view name = "gelu_tanh_backward";
  template <class M>
  using on = gelu_tanh_backward<M, T>;

  std::size_t n = 0;
  read<T, Memory> x_n{}, dy_n{};
  written<T, Memory> dx_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.dy_n, s.dx_n);
  }
  [[nodiscard]] constexpr double operations() const { return 20.0 * static_cast<double>(n); }
  [[nodiscard]] constexpr gelu_tanh_backward rows(std::size_t first, std::size_t count, std::size_t total) const {
    return on_rows(*this, first, count, total, &gelu_tanh_backward::x_n, &gelu_tanh_backward::dy_n, &gelu_tanh_backward::dx_n);
  }
};

/// Gaussian error linear unit, exact form, elementwise.      [Hendrycks & Gimpel 2016, section 2]
///   y = x/2 · (1 + erf(x/√2))
///   x_n read, y_n written; computed in accumulate, rounded once
template <class Memory, class T>
struct gelu_erf {
  static constexpr std::string_view name = "gelu_erf";
  template <class M>
  using on = gelu_erf<M, T>;

  std::size_t n = 0;
  read<T, Memory> x_n{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return 12.0 * static_cast<double>(n); }
  [[nodiscard]] constexpr gelu_erf rows(std::size_t first, std::size_t count, std::size_t total) const {
    return on_rows(*this, first, count, total, &gelu_erf::x_n, &gelu_erf::y_n);
  }
};

/// dx = dy · ((1 + erf(x/√2))/2 + x · exp(−x²/2)/√(2π))
///   x_n, dy_n read; dx_n written, may alias x_n or dy_n
template <class Memory, class T>
struct gelu_erf_backward {
  static constexpr std::string_view name = "gelu_erf_backward";
  template <class M>
  using on = gelu_erf_backward<M, T>;

  std::size_t n = 0;
  read<T, Memory> x_n{}, dy_n{};
  written<T, Memory> dx_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.dy_n, s.dx_n);
  }
  [[nodiscard]] constexpr double operations() const { return 20.0 * static_cast<double>(n); }
  [[nodiscard]] constexpr gelu_erf_backward rows(std::size_t first, std::size_t count, std::size_t total) const {
    return on_rows(*this, first, count, total, &gelu_erf_backward::x_n, &gelu_erf_backward::dy_n, &gelu_erf_backward::dx_n);
  }
};

/// y = tanh(x), elementwise.
///   x_n read, y_n written, may alias x_n; computed in accumulate, rounded once
template <class Memory, class T>
struct tanh {
  static constexpr std::string_view name = "tanh";
  template <class M>
  using on = tanh<M, T>;

  std::size_t n = 0;
  read<T, Memory> x_n{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return 8.0 * static_cast<double>(n); }
};

/// dx = dy · (1 − y²), y of the forward
///   y_n, dy_n read; dx_n written, may alias dy_n
template <class Memory, class T>
struct tanh_backward {
  static constexpr std::string_view name = "tanh_backward";
  template <class M>
  using on = tanh_backward<M, T>;

  std::size_t n = 0;
  read<T, Memory> y_n{}, dy_n{};
  written<T, Memory> dx_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.y_n, s.dy_n, s.dx_n);
  }
  [[nodiscard]] constexpr double operations() const { return 3.0 * static_cast<double>(n); }
};

/// y = cap · tanh(x / cap), elementwise.      [Gemma team 2024, "Gemma 2", section 2]
///   x_n read; y_n written, may alias x_n; computed in accumulate, rounded once
template <class Memory, class T>
struct softcap {
  static constexpr std::string_view name = "softcap";
  template <class M>
  using on = softcap<M, T>;

  std::size_t n = 0;
  double cap = 1.0;
  read<T, Memory> x_n{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.cap, s.x_n, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return 10.0 * static_cast<double>(n); }
};

/// d = d · (1 − (y / cap)²), y of the forward
///   y_n read, in accumulate; d_n updated: dy in, dx out, rounded once
template <class Memory, class T>
struct softcap_backward {
  static constexpr std::string_view name = "softcap_backward";
  template <class M>
  using on = softcap_backward<M, T>;

  std::size_t n = 0;
  double cap = 1.0;
  read<accumulate_t<T>, Memory> y_n{};
  updated<T, Memory> d_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.cap, s.y_n, s.d_n);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n); }
};

/// Swish-gated linear unit: y = silu(gate) · up, silu(z) = z / (1 + exp(−z)).    [Shazeer 2020, eq. 6]
///   gate_up_n2f   read      rows of f gates, then f ups
///   y_nf          written   computed in accumulate, rounded once
template <class Memory, class T>
struct swiglu {
  static constexpr std::string_view name = "swiglu";
  template <class M>
  using on = swiglu<M, T>;

  std::size_t n = 0, f = 0;
  read<T, Memory> gate_up_n2f{};
  written<T, Memory> y_nf{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& visit) {
    return visit(s.n, s.f, s.gate_up_n2f, s.y_nf);
  }
  [[nodiscard]] constexpr double operations() const { return 5.0 * static_cast<double>(n) * static_cast<double>(f); }
  [[nodiscard]] constexpr swiglu rows(std::size_t first, std::size_t count, std::size_t) const {
    return on_rows(*this, first, count, n, &swiglu::gate_up_n2f, &swiglu::y_nf);
  }
};

/// With s = 1 / (1 + exp(−gate)):  dgate = dy · up · s · (1 + gate · (1 − s)),  dup = dy · gate · s
///   gate_up_n2f, dy_nf   read
///   dgate_up_n2f         written; may alias gate_up_n2f
template <class Memory, class T>
struct swiglu_backward {
  static constexpr std::string_view name = "swiglu_backward";
  template <class M>
  using on = swiglu_backward<M, T>;

  std::size_t n = 0, f = 0;
  read<T, Memory> gate_up_n2f{}, dy_nf{};
  written<T, Memory> dgate_up_n2f{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& visit) {
    return visit(s.n, s.f, s.gate_up_n2f, s.dy_nf, s.dgate_up_n2f);
  }
  [[nodiscard]] constexpr double operations() const { return 12.0 * static_cast<double>(n) * static_cast<double>(f); }
  [[nodiscard]] constexpr swiglu_backward rows(std::size_t first, std::size_t count, std::size_t) const {
    return on_rows(*this, first, count, n, &swiglu_backward::gate_up_n2f, &swiglu_backward::dy_nf, &swiglu_backward::dgate_up_n2f);
  }
};

/// GELU-gated linear unit: y = gelu_tanh(gate) · up.    [Shazeer 2020, eq. 6]
///   gate_up_n2f   read      rows of f gates, then f ups
///   y_nf          written   computed in accumulate, rounded once
template <class Memory, class T>
struct geglu {
  static constexpr std::string_view name = "geglu";
  template <class M>
  using on = geglu<M, T>;

  std::size_t n = 0, f = 0;
  read<T, Memory> gate_up_n2f{};
  written<T, Memory> y_nf{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& visit) {
    return visit(s.n, s.f, s.gate_up_n2f, s.y_nf);
  }
  [[nodiscard]] constexpr double operations() const { return 13.0 * static_cast<double>(n) * static_cast<double>(f); }
  [[nodiscard]] constexpr geglu rows(std::size_t first, std::size_t count, std::size_t) const {
    return on_rows(*this, first, count, n, &geglu::gate_up_n2f, &geglu::y_nf);
  }
};

/// With the tanh approximation:  dgate = dy · up · gelu'(gate),  dup = dy · gelu(gate)
///   gate_up_n2f, dy_nf   read
///   dgate_up_n2f         written; may alias gate_up_n2f
template <class Memory, class T>
struct geglu_backward {
  static constexpr std::string_view name = "geglu_backward";
  template <class M>
  using on = geglu_backward<M, T>;

  std::size_t n = 0, f = 0;
  read<T, Memory> gate_up_n2f{}, dy_nf{};
  written<T, Memory> dgate_up_n2f{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& visit) {
    return visit(s.n, s.f, s.gate_up_n2f, s.dy_nf, s.dgate_up_n2f);
  }
  [[nodiscard]] constexpr double operations() const { return 22.0 * static_cast<double>(n) * static_cast<double>(f); }
  [[nodiscard]] constexpr geglu_backward rows(std::size_t first, std::size_t count, std::size_t) const {
    return on_rows(*this, first, count, n, &geglu_backward::gate_up_n2f, &geglu_backward::dy_nf, &geglu_backward::dgate_up_n2f);
  }
};

}  // namespace xtrain::kernel
