// Elementwise kernels and sums of all elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::add<Memory, T>& k) {
  kernel::check_arity<4>(k);
  if (k.n == 0) return;
  const npu_view x = view_of(k.x_n, {k.n}), y = view_of(k.y_n, {k.n});
  if (k.factor == 1.0 || y.type == npu_type::fp32) return s.run(npu_op::inplace_add, y, x, npu_scalar{k.factor});
  const npu_view sum = wide(s, y);
  s.run(npu_op::inplace_add, sum, x, npu_scalar{k.factor});
  store(s, sum, y);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::copy_rows<Memory, T>& k) {
  kernel::check_arity<7>(k);
  if (k.rows == 0 || k.columns == 0) return;
  const auto rows = [&](const auto& operand, std::size_t stride) { return view_of(operand, {k.rows, k.columns}).with_strides({stride, 1}); };
  store(s, rows(k.x, k.x_stride), rows(k.y, k.y_stride), k.accumulate);
}

template <class Memory, class From, class To>
requires(is_number<From>&& is_number<To>) void compose(npu_sequence& s, const kernel::cast<Memory, From, To>& k) {
  kernel::check_arity<3>(k);
  if (k.n != 0) store(s, view_of(k.x_n, {k.n}), view_of(k.y_n, {k.n}));
}

/// Elements that are summed in fp32.
inline constexpr std::size_t row_of_sum = 512;
/// factor · the sum of fp32 in double, from sums of rows in fp32; to is written or added to.
inline void sum_in_double(npu_sequence& s, const npu_view& x_n, const npu_view& to_1, bool accumulate, double factor = 1.0) {
  constexpr std::size_t row = row_of_sum;
  const std::size_t n = x_n.elements(), rows = n / row, rest = n - rows * row;
  const npu_view part = s.fresh(npu_type::fp32, {rows + 1});
  if (rows > 0) sum_last(s, x_n.as({rows, row}), part.as({rows, 1}));
  if (rest > 0) sum_last(s, x_n.from(rows * row).as({1, rest}), part.from(rows).as({1, 1}));
  const npu_view wider = s.fresh(npu_type::fp64, {rows + (rest > 0 ? 1 : 0)}), sum = s.fresh(npu_type::fp64, {1});
  s.run(npu_op::cast, part.slice(0, 0, wider.dim(0)), npu_type::fp64, wider);
  s.run(npu_op::reduce_sum, wider, npu_ints{0}, true, static_cast<int>(npu_type::fp64), accumulate ? sum : to_1);
  const npu_view& written = accumulate ? sum : to_1;
  if (factor != 1.0) s.run(npu_op::inplace_muls, written, npu_scalar{factor, npu_type::fp64});
  if (accumulate) s.run(npu_op::inplace_add, to_1, sum, npu_scalar{1, npu_type::fp64});
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::sum_of_squares<Memory, T>& k) {
  kernel::check_arity<3>(k);
  const npu_view sum_1 = view_of(k.sum_1, {1});
  if (k.n == 0) return s.run(npu_op::inplace_zero, sum_1);
  constexpr double scale = 2.0 * static_cast<double>(row_of_sum);  // a power of two: a square may overflow, the sum of a row does not
  for_each_part_of(s, k.n, 4, [&](std::size_t first, std::size_t count) {
    const npu_view x = wide(s, view_of(k.x_n, {k.n}).slice(0, first, count)), square = product(s, x, x, x);
    s.run(npu_op::inplace_muls, square, npu_scalar{1.0 / scale});
    sum_in_double(s, square, sum_1, first != 0, scale);
  });
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::sum<Memory, T>& k) {
  kernel::check_arity<3>(k);
  for_each_part_of(s, k.n, 4, [&](std::size_t first, std::size_t count) {
    sum_in_double(s, wide(s, view_of(k.x_n, {k.n}).slice(0, first, count)), view_of(k.sum_1, {1}), true);
  });
}

}  // namespace xtrain::npu_kernels
