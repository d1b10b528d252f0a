// Steps that compositions share. A composition computes in fp32 and rounds once, as the kernel's formula says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/npu/operators.hpp>
#include <xtrain/device/npu/sequence.hpp>

namespace xtrain::npu_kernels {

/// Types that operators compute with.
template <class T>
inline constexpr bool is_number = std::is_same_v<T, float> || std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

/// A kernel's operand as a tensor.
template <class T, class Memory>
[[nodiscard]] npu_view view_of(const device_span<T, Memory>& operand, std::initializer_list<std::size_t> dims) {
  return npu_view::dense(npu_type_of<std::remove_const_t<T>>, reinterpret_cast<std::uintptr_t>(operand.raw()), dims);
}
/// A number among others of the type double: a member of scalars in device memory.
template <class T, class Memory>
[[nodiscard]] npu_view number_of(const device_span<T, Memory>& scalars, std::size_t index) {
  return npu_view::dense(npu_type::fp64, reinterpret_cast<std::uintptr_t>(scalars.raw()) + index * sizeof(double), {1});
}

/// Calls f(first, count) for parts of n elements: `copies` of a part in fp32 are as large as the rules say.
template <class F>
void for_each_part_of(npu_sequence& s, std::size_t n, std::size_t copies, F&& f) {
  constexpr std::size_t multiple = 512;
  const std::size_t most = std::max<std::size_t>(1, s.rules().settings.chunk_bytes / (copies * sizeof(float) * multiple)) * multiple;
  for (std::size_t first = 0; first < n; first += most) {
    const npu_sequence::scope here(s);
    f(first, std::min(most, n - first));
  }
}

[[nodiscard]] inline npu_scalar integer(token value) { return {static_cast<double>(value), npu_type::int32}; }

/// The same in fp32: itself if it is.
[[nodiscard]] inline npu_view wide(npu_sequence& s, const npu_view& x) {
  if (x.type == npu_type::fp32) return x;
  const npu_view all = s.fresh_like(x);
  s.run(npu_op::cast, x, npu_type::fp32, all);
  return all;
}
/// A copy in fp32.
[[nodiscard]] inline npu_view wide_copy(npu_sequence& s, const npu_view& x) {
  if (x.type != npu_type::fp32) return wide(s, x);
  const npu_view all = s.fresh_like(x);
  s.run(npu_op::inplace_copy, all, x);
  return all;
}
/// to = from, rounded to its type.
inline void store(npu_sequence& s, const npu_view& from, const npu_view& to) {
  if (from.type == to.type) s.run(npu_op::inplace_copy, to, from);
  else s.run(npu_op::cast, from, to.type, to);
}
/// to += from; the sum of 16 and 32 bits is formed in fp32.
inline void add_to(npu_sequence& s, const npu_view& from, const npu_view& to) { s.run(npu_op::inplace_add, to, from, npu_scalar{1}); }
/// to = from, or to += from
inline void store(npu_sequence& s, const npu_view& from, const npu_view& to, bool accumulate) {
  if (accumulate) add_to(s, from, to);
  else store(s, from, to);
}

[[nodiscard]] inline npu_view product(npu_sequence& s, const npu_view& a, const npu_view& b, const npu_view& like) {
  const npu_view c = s.fresh_like(like);
  s.run(npu_op::mul, a, b, c);
  return c;
}
[[nodiscard]] inline npu_view times(npu_sequence& s, const npu_view& a, double by) {
  const npu_view c = s.fresh_like(a);
  s.run(npu_op::muls, a, npu_scalar{by}, c);
  return c;
}
inline void add_number(npu_sequence& s, const npu_view& to, double value) { s.run(npu_op::inplace_adds, to, npu_scalar{value}, npu_scalar{1}); }

/// The sum over the last dim of fp32, which remains with size 1.
inline void sum_last(npu_sequence& s, const npu_view& x, const npu_view& sum) {
  s.run(npu_op::reduce_sum, x, npu_ints{-1}, true, static_cast<int>(npu_type::fp32), sum);
}
[[nodiscard]] inline npu_view sum_last(npu_sequence& s, const npu_view& x) {
  npu_view like = x;
  like.dims[like.rank - 1] = 1;
  const npu_view sum = s.fresh_like(like);
  sum_last(s, x, sum);
  return sum;
}
/// The mean over the last dim.
[[nodiscard]] inline npu_view mean_last(npu_sequence& s, const npu_view& x) {
  const npu_view mean = sum_last(s, x);
  s.run(npu_op::inplace_muls, mean, npu_scalar{1.0 / static_cast<double>(x.dim(x.rank - 1))});
  return mean;
}
/// to_c += the sum over dim 0 of x_nc.
inline void add_column_sum(npu_sequence& s, const npu_view& x_nc, const npu_view& to_c) {
  const npu_view sum_c = s.fresh(npu_type::fp32, {x_nc.dim(1)});
  s.run(npu_op::reduce_sum, x_nc, npu_ints{0}, false, static_cast<int>(npu_type::fp32), sum_c);
  add_to(s, sum_c, to_c);
}
/// The integers from `first` on.
[[nodiscard]] inline npu_view count_from(npu_sequence& s, std::int64_t first, std::size_t n) {
  const npu_view all = s.fresh(npu_type::int32, {n});
  const auto number = [](std::int64_t value) { return npu_scalar{static_cast<double>(value), npu_type::int64}; };
  s.run(npu_op::arange, number(first), number(first + static_cast<std::int64_t>(n)), number(1), all);
  return all;
}
[[nodiscard]] inline npu_view filled(npu_sequence& s, npu_type type, double value) {
  const npu_view one = s.fresh(type, {1});
  s.run(npu_op::inplace_fill, one, npu_scalar{value, type == npu_type::int32 ? npu_type::int32 : npu_type::fp32});
  return one;
}
[[nodiscard]] inline npu_view both(npu_sequence& s, const npu_view& a, const npu_view& b, const npu_view& like) {
  const npu_view c = s.fresh_like(like, npu_type::boolean);
  s.run(npu_op::logical_and, a, b, c);
  return c;
}
/// first + count, of 32 bits where it can be: comparisons of int64 are reported to be wrong on some chips.
[[nodiscard]] inline npu_scalar end_of(token first, std::size_t count) {
  const double end = static_cast<double>(first) + static_cast<double>(count);
  return {end, end <= 2147483647.0 ? npu_type::int32 : npu_type::int64};
}
/// Which integers are in [first, first + count).
[[nodiscard]] inline npu_view inside(npu_sequence& s, const npu_view& index, token first, std::size_t count) {
  const npu_view low = s.fresh_like(index, npu_type::boolean), high = s.fresh_like(index, npu_type::boolean);
  s.run(npu_op::at_least_number, index, integer(first), low);
  s.run(npu_op::less_than, index, end_of(first, count), high);
  return both(s, low, high, index);
}
/// Indices of rows, moved into [0, count): operators do not check them.
[[nodiscard]] inline npu_view clamped(npu_sequence& s, const npu_view& index, token first, std::size_t count) {
  const npu_view rows = s.fresh_like(index, npu_type::int32);
  s.run(npu_op::clamp, index, integer(first), end_of(first, count - 1), rows);
  if (first != 0) s.run(npu_op::inplace_sub, rows, filled(s, npu_type::int32, first), integer(1));
  return rows;
}
/// y = 0 where mask does not hold.
inline void clear_unless(npu_sequence& s, const npu_view& mask, const npu_view& y) {
  const npu_view hidden = s.fresh_like(mask, npu_type::boolean);
  s.run(npu_op::logical_not, mask, hidden);
  s.run(npu_op::inplace_masked_fill, y, hidden, npu_scalar{0});
}

}  // namespace xtrain::npu_kernels
