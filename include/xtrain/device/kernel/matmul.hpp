// Matrix products, and the column sum (gradient of a bias).
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// C = or += alpha · op(A) · op(B) + bias. Row-major; op is the transpose or the identity.
///   a        read      [m, k], with transpose_a [k, m]; rows lda apart
///   b        read      [k, n], with transpose_b [n, k]; rows ldb apart
///   bias_n   read      [n], added to every row; may be empty
///   c        written   [m, n]; updated with accumulate; rows ldc apart
///   rounding products summed in T's accumulate type; c rounded once (after adding the old c)
template <class Memory, class T, class C = T>
struct matmul {
  static constexpr std::string_view name = "matmul";
  template <class M>
  using on = matmul<M, T, C>;

  std::size_t m = 0, n = 0, k = 0;
  std::size_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  double alpha = 1.0;
  read<T, Memory> a{}, b{}, bias_n{};
  updated<C, Memory> c{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.transpose_a, s.transpose_b, s.accumulate, s.alpha, s.a, s.b, s.bias_n, s.c);
  }
  [[nodiscard]] constexpr double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  [[nodiscard]] constexpr bool writes_without_rows() const { return transpose_a && !accumulate; }
  /// Rows of a linear layer's batch: of a and c; with transpose_a of a and b, summed over.
  [[nodiscard]] constexpr matmul rows(std::size_t first, std::size_t count, std::size_t) const {
    const auto from = [&](auto& values, std::size_t stride) { values = values.subspan(first * stride, values.size() - first * stride); };
    matmul some = *this;
    (transpose_a ? some.k : some.m) = count;
    from(some.a, lda);
    if (transpose_a) from(some.b, ldb);
    else from(some.c, ldc);
    return some;
  }
};

/// sum_c += sum over rows of x: a bias's gradient.
///   x_nc     read      rows `stride` apart
///   sum_c    updated   rounded once per column
template <class Memory, class T, class G = T>
struct column_sum {
  static constexpr std::string_view name = "column_sum";
  template <class M>
  using on = column_sum<M, T, G>;

  std::size_t n = 0, c = 0, stride = 0;
  read<T, Memory> x_nc{};
  updated<G, Memory> sum_c{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.stride, s.x_nc, s.sum_c);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n) * static_cast<double>(c); }
  [[nodiscard]] constexpr column_sum rows(std::size_t first, std::size_t count, std::size_t) const {
    column_sum some = *this;
    some.n = count;
    some.x_nc = x_nc.subspan(first * stride, x_nc.size() - first * stride);
    return some;
  }
};

}  // namespace xtrain::kernel
