// Normalization over the channels of each row.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// Root-mean-square normalization, scaled per channel.              [Zhang & Sennrich 2019, eq. 4]
///   y = x · rstd · (offset + weight),  rstd = 1 / sqrt(mean(x²) + epsilon)
///   x_nc      read              rstd_n   written, for the backward
///   weight_c  read              y_nc     written
///   offset    0, or 1 for zero-centered weights
///   rounding  squares summed in accumulate; y rounded once
template <class Memory, class T>
struct rms_norm {
  static constexpr std::string_view name = "rms_norm";
  template <class M>
  using on = rms_norm<M, T>;

  std::size_t n = 0, c = 0;
  double epsilon = 1e-5, offset = 0.0;
  read<T, Memory> x_nc{}, weight_c{};
  written<T, Memory> y_nc{};
  written<accumulate_t<T>, Memory> rstd_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.epsilon, s.offset, s.x_nc, s.weight_c, s.y_nc, s.rstd_n);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n) * static_cast<double>(c); }
};

/// With g = dy · (offset + weight) and x̂ = x · rstd:  dx += rstd · (g − x̂ · mean(g · x̂)),  dweight += sum over rows of dy · x̂
///   x_nc, weight_c, rstd_n, dy_nc   read
///   dx_nc       updated   holds the residual's gradient
///   dweight_c   updated   empty when frozen
template <class Memory, class T, class G = T>
struct rms_norm_backward {
  static constexpr std::string_view name = "rms_norm_backward";
  template <class M>
  using on = rms_norm_backward<M, T, G>;

  std::size_t n = 0, c = 0;
  double offset = 0.0;
  read<T, Memory> x_nc{}, weight_c{};
  read<accumulate_t<T>, Memory> rstd_n{};
  read<T, Memory> dy_nc{};
  updated<T, Memory> dx_nc{};
  updated<G, Memory> dweight_c{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.offset, s.x_nc, s.weight_c, s.rstd_n, s.dy_nc, s.dx_nc, s.dweight_c);
  }
  [[nodiscard]] constexpr double operations() const { return 10.0 * static_cast<double>(n) * static_cast<double>(c); }
};

/// Root-mean-square normalization of query and key heads, one weight for query heads, one for key heads (QK-norm). Values are copied.
///                                                                          [Dehghani et al. 2023, section 2.1; Yang et al. 2025, section 2]
///   y = x · rstd · weight per head,  rstd = 1 / sqrt(mean of the head's x² + epsilon)
///   x_nr                read      rows of h query, k key, k value heads of d elements
///   query_d, key_d      read      weights
///   y_nr                written   as x; must not alias it
///   rstd_nh             written   [n, h + k], for the backward
///   rounding  squares summed in accumulate; y rounded once
template <class Memory, class T>
struct head_norm {
  static constexpr std::string_view name = "head_norm";
  template <class M>
  using on = head_norm<M, T>;

  std::size_t n = 0, h = 0, k = 0, d = 0;
  double epsilon = 1e-6;
  read<T, Memory> x_nr{}, query_d{}, key_d{};
  written<T, Memory> y_nr{};
  written<accumulate_t<T>, Memory> rstd_nh{};

  [[nodiscard]] constexpr std::size_t row() const { return (h + 2 * k) * d; }
  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.h, s.k, s.d, s.epsilon, s.x_nr, s.query_d, s.key_d, s.y_nr, s.rstd_nh);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n) * static_cast<double>((h + k) * d); }
};

/// Per head, with g = dy · weight and x̂ = x · rstd:  dx = rstd · (g − x̂ · mean(g · x̂)),  dweight += sum over rows and heads of dy · x̂
///   x_nr, query_d, key_d, rstd_nh, dy_nr   read
///   dx_nr               written   gradients of values are copied; may alias dy_nr
///   dquery_d, dkey_d    updated   both empty when frozen
template <class Memory, class T, class G = T>
struct head_norm_backward {
  static constexpr std::string_view name = "head_norm_backward";
  template <class M>
  using on = head_norm_backward<M, T, G>;

  std::size_t n = 0, h = 0, k = 0, d = 0;
  read<T, Memory> x_nr{}, query_d{}, key_d{};
  read<accumulate_t<T>, Memory> rstd_nh{};
  read<T, Memory> dy_nr{};
  written<T, Memory> dx_nr{};
  updated<G, Memory> dquery_d{}, dkey_d{};

  [[nodiscard]] constexpr std::size_t row() const { return (h + 2 * k) * d; }
  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.h, s.k, s.d, s.x_nr, s.query_d, s.key_d, s.rstd_nh, s.dy_nr, s.dx_nr, s.dquery_d, s.dkey_d);
  }
  [[nodiscard]] constexpr double operations() const { return 10.0 * static_cast<double>(n) * static_cast<double>((h + k) * d); }
};

/// Layer normalization, scaled and shifted per channel.              [Ba, Kiros & Hinton 2016, eq. 4]
///   y = (x − mean) · rstd · weight + bias,  rstd = 1 / sqrt(variance + epsilon), without Bessel's correction
///   x_nc              read      mean_n, rstd_n   written, for the backward
///   weight_c, bias_c  read      y_nc             written
///   rounding  sums in accumulate, variance from deviations (two passes); y rounded once
template <class Memory, class T>
struct layer_norm {
  static constexpr std::string_view name = "layer_norm";
  template <class M>
  using on = layer_norm<M, T>;

  std::size_t n = 0, c = 0;
  double epsilon = 1e-5;
  read<T, Memory> x_nc{}, weight_c{}, bias_c{};
  written<T, Memory> y_nc{};
  written<accumulate_t<T>, Memory> mean_n{}, rstd_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.epsilon, s.x_nc, s.weight_c, s.bias_c, s.y_nc, s.mean_n, s.rstd_n);
  }
  [[nodiscard]] constexpr double operations() const { return 7.0 * static_cast<double>(n) * static_cast<double>(c); }
};

/// With g = dy · weight and x̂ = (x − mean) · rstd:  dx += rstd · (g − mean(g) − x̂ · mean(g · x̂)),
/// dweight += sum over rows of dy · x̂,  dbias += sum over rows of dy
///   x_nc, weight_c, mean_n, rstd_n, dy_nc   read
///   dx_nc               updated   holds the residual's gradient
///   dweight_c, dbias_c  updated   empty when frozen
template <class Memory, class T, class G = T>
struct layer_norm_backward {
  static constexpr std::string_view name = "layer_norm_backward";
  template <class M>
  using on = layer_norm_backward<M, T, G>;

  std::size_t n = 0, c = 0;
  read<T, Memory> x_nc{}, weight_c{};
  read<accumulate_t<T>, Memory> mean_n{}, rstd_n{};
  read<T, Memory> dy_nc{};
  updated<T, Memory> dx_nc{};
  updated<G, Memory> dweight_c{}, dbias_c{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.x_nc, s.weight_c, s.mean_n, s.rstd_n, s.dy_nc, s.dx_nc, s.dweight_c, s.dbias_c);
  }
  [[nodiscard]] constexpr double operations() const { return 13.0 * static_cast<double>(n) * static_cast<double>(c); }
};

}  // namespace xtrain::kernel
