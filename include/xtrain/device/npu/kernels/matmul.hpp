// Products and column sums.
#pragma once

#include <cstddef>

#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// CANN's cubeMathType: keep the operands' type.
inline constexpr int cube = 0;

/// alpha · a · b in fp32.
[[nodiscard]] inline npu_view wide_product(npu_sequence& s, const npu_view& a, const npu_view& b, double alpha = 1.0) {
  const npu_view c = s.fresh(npu_type::fp32, {a.dim(0), b.dim(1)});
  const bool is_wide = a.type == npu_type::fp32 || s.rules().widens_products();
  const npu_view left = is_wide ? a : wide(s, a), right = is_wide ? b : wide(s, b);
  s.run(npu_op::mm, left, right, c, cube);
  if (alpha != 1.0) s.run(npu_op::inplace_muls, c, npu_scalar{alpha});
  return c;
}

/// c = alpha · a · b + bias, or c += the same
///   bias   [n], or without elements
inline void multiply(npu_sequence& s, const npu_view& a, const npu_view& b, const npu_view* bias, const npu_view& c, double alpha, bool accumulate) {
  const npu_sequence::scope here(s);
  if (a.dim(1) == 0) {
    if (!accumulate) s.run(npu_op::inplace_zero, c);
    if (bias != nullptr) add_to(s, *bias, c);
    return;
  }
  if (s.rules().has_fused() && accumulate && bias == nullptr && alpha == 1.0 && is_16_bits(a.type) && c.type == npu_type::fp32 && c.is_dense()) {
    const npu_view rows_1 = s.fresh(npu_type::int64, {1});  // one group: all rows
    const auto number = [](std::size_t value) { return npu_scalar{static_cast<double>(value), npu_type::int64}; };
    s.run(npu_op::arange, number(a.dim(1)), number(a.dim(1) + 1), number(1), rows_1);
    return s.run(npu_op::grouped_matmul_add, a.transposed(), b, rows_1, c, true, false, 2);
  }
  const bool rounds_once = a.type == npu_type::fp32 || s.rules().adds_before_rounding();
  if (a.type != c.type || (accumulate && bias != nullptr) || ((accumulate || bias != nullptr) && !rounds_once)) {
    const npu_view sum = wide_product(s, a, b, alpha);
    if (bias != nullptr) add_to(s, *bias, sum);
    return store(s, sum, c, accumulate);
  }
  if (accumulate) return s.run(npu_op::inplace_addmm, c, a, b, npu_scalar{1}, npu_scalar{alpha}, cube);
  const npu_view dense = c.is_dense() ? c : s.fresh_like(c, c.type);  // results of products have no strides
  if (bias != nullptr) {
    s.run(npu_op::addmm, *bias, a, b, npu_scalar{1}, npu_scalar{alpha}, dense, cube);
  } else if (alpha == 1.0) {
    s.run(npu_op::mm, a, b, dense, cube);
  } else if (a.type == npu_type::fp32) {
    s.run(npu_op::mm, a, b, dense, cube);
    s.run(npu_op::inplace_muls, dense, npu_scalar{alpha});
  } else {
    return store(s, wide_product(s, a, b, alpha), c);
  }
  if (!c.is_dense()) store(s, dense, c);
}

template <class Memory, class T, class C>
requires(is_number<T>&& is_number<C>) void compose(npu_sequence& s, const kernel::matmul<Memory, T, C>& k) {
  kernel::check_arity<14>(k);
  if (k.m == 0 || k.n == 0) return;
  const auto matrix = [](const auto& operand, std::size_t rows, std::size_t columns, std::size_t stride, bool is_transposed) {
    if (is_transposed) return view_of(operand, {columns, rows}).with_strides({stride, 1}).transposed();
    return view_of(operand, {rows, columns}).with_strides({stride, 1});
  };
  const npu_view bias = view_of(k.bias_n, {k.n});
  multiply(s, matrix(k.a, k.m, k.k, k.lda, k.transpose_a), matrix(k.b, k.k, k.n, k.ldb, k.transpose_b), k.bias_n.empty() ? nullptr : &bias,
           matrix(k.c, k.m, k.n, k.ldc, false), k.alpha, k.accumulate);
}

template <class Memory, class T, class G>
requires(is_number<T>&& is_number<G>) void compose(npu_sequence& s, const kernel::column_sum<Memory, T, G>& k) {
  kernel::check_arity<5>(k);
  if (k.n == 0 || k.c == 0) return;
  add_column_sum(s, view_of(k.x_nc, {k.n, k.c}).with_strides({k.stride, 1}), view_of(k.sum_c, {k.c}));
}

}  // namespace xtrain::npu_kernels
