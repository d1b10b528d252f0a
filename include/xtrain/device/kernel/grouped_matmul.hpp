// Products of a layer's experts.
#pragma once

#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/matmul.hpp>

namespace xtrain::kernel {

/// Each expert's product on its rows range_e2[e]:
///   rows of c = or += rows of a · op(b_e): forward, and input gradient
///   with transpose_a:   c_e = or += (rows of a)ᵀ · rows of b: weight gradient
/// Row-major; op is the transpose or the identity. Rows without expert are untouched.
///   a          read      [m, k], with transpose_a [k, m]; rows lda apart
///   b          read      [e, k, n], with transpose_b [e, n, k], with transpose_a [k, n]; rows ldb apart
///   c          written   [m, n], with transpose_a [e, m, n]; updated with accumulate; rows ldc apart
///   distance   between experts' matrices, in elements; gaps are untouched
///   range_e2   read      first row and number of rows; disjoint, may be empty
///   rounding   as in matmul: products are `of`'s
template <class Memory, class T, class C = T>
struct grouped_matmul {
  static constexpr std::string_view name = "grouped_matmul";
  template <class M>
  using on = grouped_matmul<M, T, C>;

  std::size_t experts = 0, m = 0, n = 0, k = 0;
  std::size_t lda = 0, ldb = 0, ldc = 0, distance = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  read<token, Memory> range_e2{};
  read<T, Memory> a{}, b{};
  updated<C, Memory> c{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.experts, s.m, s.n, s.k, s.lda, s.ldb, s.ldc, s.distance, s.transpose_a, s.transpose_b, s.accumulate, s.range_e2, s.a, s.b, s.c);
  }
  /// For experts that have all rows together.
  [[nodiscard]] constexpr double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  /// Without gaps between the experts' matrices.
  [[nodiscard]] constexpr std::size_t bytes_moved() const {
    const std::size_t of_b = transpose_a ? b.bytes() : experts * n * k * sizeof(T), of_c = transpose_a ? experts * m * n * sizeof(C) : c.bytes();
    return range_e2.bytes() + a.bytes() + of_b + 2 * of_c;
  }
  /// Rows of the batch.
  [[nodiscard]] constexpr std::size_t rows() const { return transpose_a ? k : m; }
  /// An expert's product with these rows.
  [[nodiscard]] constexpr matmul<Memory, T, C> of(std::size_t expert, std::size_t first, std::size_t count) const {
    const auto from = [](const auto& values, std::size_t begin) { return values.subspan(begin, values.size() - begin); };
    matmul<Memory, T, C> one{.m = m, .n = n, .k = k, .lda = lda, .ldb = ldb, .ldc = ldc};
    one.transpose_a = transpose_a;
    one.transpose_b = transpose_b;
    one.accumulate = accumulate;
    one.a = a;
    one.b = from(b, transpose_a ? 0 : expert * distance);
    one.c = from(c, transpose_a ? expert * distance : 0);
    return one.rows(first, count, rows());
  }
};

/// On host memory: multiply(product) for each expert with work, in order.
template <class T, class C, class Multiply>
void for_each_product(const grouped_matmul<host_memory, T, C>& k, Multiply&& multiply) {
  for (std::size_t e = 0; e < k.experts; ++e) {
    const auto first = static_cast<std::size_t>(k.range_e2.raw()[2 * e]), count = static_cast<std::size_t>(k.range_e2.raw()[2 * e + 1]);
    if (count > 0 || writes_without_rows(k.of(e, 0, 0))) multiply(k.of(e, first, count));
  }
}

}  // namespace xtrain::kernel
