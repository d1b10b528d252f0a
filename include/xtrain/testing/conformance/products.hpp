// Conformance cases: products with every transposition, slim products, column sums.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class C, class Suite>
void check_product(Suite& suite, std::size_t m, std::size_t n, std::size_t k, bool ta, bool tb, bool accumulate, bool bias, std::size_t gap) {
  case_memory mem;
  const std::size_t lda = (ta ? m : k) + gap, ldb = (tb ? k : n) + gap, ldc = n + gap;
  kernel::matmul<host_memory, T, C> kernel{.m = m,
                                           .n = n,
                                           .k = k,
                                           .lda = lda,
                                           .ldb = ldb,
                                           .ldc = ldc,
                                           .transpose_a = ta,
                                           .transpose_b = tb,
                                           .accumulate = accumulate,
                                           .alpha = gap == 0 ? 1.0 : 0.75};
  kernel.a = mem.numbers<T>(((ta ? k : m) - 1) * lda + (ta ? m : k));
  kernel.b = mem.numbers<T>(((tb ? n : k) - 1) * ldb + (tb ? k : n));
  if (bias) kernel.bias_n = mem.numbers<T>(n);
  kernel.c = mem.numbers<C>((m - 1) * ldc + n);
  suite.template check_kernel<T>(kernel, static_cast<double>(k), std::sqrt(static_cast<double>(k)) + 2.0);
}

template <class T, class Suite>
void check_products(Suite& suite) {
  struct size {
    std::size_t m, n, k;
  };
  const std::array<size, 7> product_sizes{{{1, 1, 1}, {3, 5, 7}, {17, 33, 19}, {1, 67, 130}, {6, 35, 21}, {31, 70, 40}, {260, 9, 3}}};
  for (const auto [m, n, k] : product_sizes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        check_product<T, T>(suite, m, n, k, ta, tb, false, true, 0);
        check_product<T, T>(suite, m, n, k, ta, tb, true, false, 3);
        if (!std::is_same_v<T, accumulate_t<T>>) check_product<T, accumulate_t<T>>(suite, m, n, k, ta, tb, true, true, 1);
      }
    }
  }
  check_product<T, T>(suite, 5, 40, 2500, false, false, true, true, 0);  // deeper than any block
  check_product<T, T>(suite, 20, 40, 1030, true, false, true, false, 0);
  struct slim {
    std::size_t m, n, k;
    bool ta, tb;
  };
  // the products of an adapter of rank 12 or 20 on 37 rows, with the depth in one block or several
  for (const auto [m, n, k, ta, tb] : {slim{37, 12, 1030, false, true}, slim{37, 20, 1030, false, false}, slim{37, 150, 12, false, true},
                                       slim{37, 150, 12, false, false}, slim{12, 64, 1030, true, false}, slim{64, 20, 1030, true, false},
                                       slim{64, 12, 37, true, false}}) {
    check_product<T, T>(suite, m, n, k, ta, tb, true, true, 2);
    if (!std::is_same_v<T, accumulate_t<T>>) check_product<T, accumulate_t<T>>(suite, m, n, k, ta, tb, true, false, 0);
  }
  for (const auto& size : sizes_of({{1, 1}, {7, 37}, {40, 131}, {3, 300}})) {
    const std::size_t n = size.rows, c = size.columns;
    const auto sum = [&]<class G>() {
      case_memory mem;
      kernel::column_sum<host_memory, T, G> kernel{.n = n, .c = c, .stride = c + 2};
      kernel.x_nc = mem.uneven_numbers<T>((n - 1) * (c + 2) + c, 1e-4);
      kernel.sum_c = mem.numbers<G>(c);
      suite.template check_kernel<T>(kernel, static_cast<double>(n), std::sqrt(static_cast<double>(n)) + 1.0);
    };
    sum.template operator()<T>();
    if constexpr (!std::is_same_v<T, accumulate_t<T>>) sum.template operator()<accumulate_t<T>>();
  }
}

}  // namespace xtrain::testing::detail
