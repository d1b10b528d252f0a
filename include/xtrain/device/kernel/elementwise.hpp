// Elementwise kernels, and the sum of squares, which also shows whether all elements are finite.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain::kernel {

/// y += factor · x; rounded once
template <class Memory, class T>
struct add {
  static constexpr std::string_view name = "add";
  template <class M>
  using on = add<M, T>;

  std::size_t n = 0;
  double factor = 1.0;
  read<T, Memory> x_n{};
  updated<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.factor, s.x_n, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n); }
};

/// Copies or adds rows, which may be strided; gaps are untouched.
///   x          read
///   y          updated; rounded once when added to. Must not alias x
///   x_stride, y_stride   between rows, in elements
template <class Memory, class T>
struct copy_rows {
  static constexpr std::string_view name = "copy_rows";
  template <class M>
  using on = copy_rows<M, T>;

  std::size_t rows = 0, columns = 0, x_stride = 0, y_stride = 0;
  bool accumulate = false;
  read<T, Memory> x{};
  updated<T, Memory> y{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.rows, s.columns, s.x_stride, s.y_stride, s.accumulate, s.x, s.y);
  }
  [[nodiscard]] constexpr double operations() const { return accumulate ? static_cast<double>(rows * columns) : 0.0; }
};

/// y = x in another dtype, rounded to nearest
template <class Memory, class From, class To>
struct cast {
  static constexpr std::string_view name = "cast";
  template <class M>
  using on = cast<M, From, To>;

  std::size_t n = 0;
  read<From, Memory> x_n{};
  written<To, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return 0.0; }
};

/// y = or += x / (1 − probability) where the element's random word is at least dropout_threshold(probability), else 0. Also the backward: the mask is a
/// function
/// of `random` and never stored.                                         [Srivastava et al. 2014]
///   width, whole_width  x has `width` columns of rows with `whole_width` elements: element (i, j) draws number i · whole_width + j; 0: consecutive
///   inputs_1   read      its step number is added to random.step; may be empty
///   x_n        read
///   y_n        written (may alias x_n), or updated with accumulate
template <class Memory, class T>
struct dropout {
  static constexpr std::string_view name = "dropout";
  template <class M>
  using on = dropout<M, T>;

  std::size_t n = 0;
  double probability = 0.0;
  bool accumulate = false;
  std::size_t width = 0, whole_width = 0;
  random_site random{};
  read<step_inputs, Memory> inputs_1{};
  read<T, Memory> x_n{};
  updated<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.probability, s.accumulate, s.width, s.whole_width, s.random, s.inputs_1, s.x_n, s.y_n);
  }
  /// Number drawn by element i.
  [[nodiscard]] constexpr std::size_t drawn(std::size_t i) const { return width == 0 ? i : i / width * whole_width + i % width; }
  [[nodiscard]] constexpr double operations() const { return 2.0 * static_cast<double>(n); }
  /// The first row draws the numbers of the first of all rows.
  [[nodiscard]] constexpr dropout rows(std::size_t first, std::size_t count, std::size_t total) const {
    return on_rows(*this, first, count, total, &dropout::x_n, &dropout::y_n);
  }
};

/// y += magnitude · u, u uniform in [−1, 1): element i draws number i, with 24 random bits: u = (word >> 8) · 2⁻²³ − 1.
///   inputs_1   read      its step number is added to random.step; may be empty
///   y_n        updated   rounded once
template <class Memory, class T>
struct uniform_noise {
  static constexpr std::string_view name = "uniform_noise";
  template <class M>
  using on = uniform_noise<M, T>;

  std::size_t n = 0;
  double magnitude = 0.0;
  random_site random{};
  read<step_inputs, Memory> inputs_1{};
  updated<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.magnitude, s.random, s.inputs_1, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return 3.0 * static_cast<double>(n); }
};

/// sum_1 = Σ x². Non-finite exactly when an element is non-finite or above 1e19 in magnitude (fp32 squares overflow).
///   x_n     read
///   sum_1   written   double, in an order independent of the number of threads
template <class Memory, class T>
struct sum_of_squares {
  static constexpr std::string_view name = "sum_of_squares";
  template <class M>
  using on = sum_of_squares<M, T>;

  std::size_t n = 0;
  read<T, Memory> x_n{};
  written<double, Memory> sum_1{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.sum_1);
  }
  [[nodiscard]] constexpr double operations() const { return 2.0 * static_cast<double>(n); }
};

}  // namespace xtrain::kernel
