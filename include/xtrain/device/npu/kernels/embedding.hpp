// Embeddings and rotary positions.
#pragma once

#include <cstddef>
#include <type_traits>

#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::embedding<Memory, T>& k) {
  kernel::check_arity<9>(k);
  if (k.n == 0 || k.c == 0) return;
  const npu_view index_n = view_of(k.index_n, {k.n}), y_nc = view_of(k.y_nc, {k.n, k.c});
  if (k.v == 0) {
    if (!k.accumulate) s.run(npu_op::inplace_zero, y_nc);
    return;
  }
  const npu_view rows_nc = s.fresh(npu_type_of<T>, {k.n, k.c});
  s.run(npu_op::embedding, view_of(k.table_vc, {k.v, k.c}), clamped(s, index_n, k.first, k.v), rows_nc);
  clear_unless(s, inside(s, index_n, k.first, k.v).as({k.n, 1}), rows_nc);
  if (k.scale == 1.0) return store(s, rows_nc, y_nc, k.accumulate);
  const npu_view scaled_nc = wide(s, rows_nc);
  s.run(npu_op::inplace_muls, scaled_nc, npu_scalar{k.scale});
  store(s, scaled_nc, y_nc, k.accumulate);
}

// A gradient of 16 bits is rounded after every row: CANN has no operator that does
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::embedding_backward<Memory, T, float>& k) {
  kernel::check_arity<9>(k);
  if (k.n == 0 || k.c == 0 || k.v == 0) return;
  const npu_view index_n = view_of(k.index_n, {k.n}), sum_vc = s.fresh(npu_type::fp32, {k.v + 1, k.c});
  npu_view counts_n = inside(s, index_n, k.first, k.v);
  if (k.padding >= 0) {
    const npu_view is_token_n = s.fresh_like(index_n, npu_type::boolean);
    s.run(npu_op::not_equal, index_n, integer(k.padding), is_token_n);
    counts_n = both(s, counts_n, is_token_n, index_n);
  }
  // rows that do not count go to a row behind the table
  const npu_view row_n = s.fresh_like(index_n, npu_type::int32);
  s.run(npu_op::where, counts_n, clamped(s, index_n, k.first, k.v), filled(s, npu_type::int32, static_cast<double>(k.v)), row_n);
  s.run(npu_op::embedding_backward, wide(s, view_of(k.dy_nc, {k.n, k.c})), row_n, k.v + 1, ~std::uint64_t{0}, false, sum_vc);
  s.run(npu_op::inplace_add, view_of(k.dtable_vc, {k.v, k.c}), sum_vc.slice(0, 0, k.v), npu_scalar{k.scale});
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::rotary<Memory, T>& k) {
  kernel::check_arity<10>(k);
  const std::size_t half = k.d / 2;
  if (k.n == 0 || k.heads == 0 || half == 0 || k.positions == 0) return;
  const npu_view position_n = view_of(k.position_n, {k.n}), cos_sin_nd = s.fresh(npu_type::fp32, {k.n, k.d});
  s.run(npu_op::embedding, view_of(k.cos_sin_pd, {k.positions, k.d}), clamped(s, position_n, 0, k.positions), cos_sin_nd);
  const npu_view is_rotated_n = inside(s, position_n, 0, k.positions).as({k.n, 1, 1});
  const auto table = [&](std::size_t first) { return cos_sin_nd.as({k.n, 1, half}).with_strides({k.d, k.d, 1}).from(first); };
  const auto part = [&](std::size_t first) { return view_of(k.x, {k.n, k.heads, half}).with_strides({k.stride, k.head_stride, 1}).from(first); };
  const npu_view cosine = table(0), sine = table(half), a = wide(s, part(0)), b = wide(s, part(half));
  const auto rotate = [&](const npu_view& x, const npu_view& other, double sign) {
    const npu_view rotated = product(s, x, cosine, x), kept = s.fresh_like(x);
    s.run(npu_op::inplace_addcmul, rotated, other, sine, npu_scalar{sign});
    s.run(npu_op::where, is_rotated_n, rotated, x, kept);
    return kept;
  };
  const double sign = k.inverse ? -1.0 : 1.0;
  const npu_view first = rotate(a, b, -sign), second = rotate(b, a, sign);
  store(s, first, part(0));
  store(s, second, part(half));
}

}  // namespace xtrain::npu_kernels
