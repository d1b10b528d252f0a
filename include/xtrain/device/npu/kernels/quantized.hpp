// Dequantization. Both numbers of a byte are read from a table of 256 rows: no integer operator splits it.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// [256, 2]: what the upper and the lower half of each byte mean.
///   level_16   of the halves
[[nodiscard]] inline npu_view table_of_bytes(npu_sequence& s, const npu_view& level_16) {
  const npu_view all = s.fresh(npu_type::fp32, {16, 16, 2});
  s.run(npu_op::inplace_copy, all.slice(2, 0, 1), level_16.as({16, 1, 1}));
  s.run(npu_op::inplace_copy, all.slice(2, 1, 1), level_16.as({1, 16, 1}));
  return all.as({256, 2});
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::dequantize_rows<Memory, T>& k) {
  kernel::check_arity<6>(k);
  if (k.rows == 0 || k.columns == 0) return;
  const std::size_t bytes = row_integers::row_bytes(k.columns, k.bits), width = k.bits == 8 ? bytes : 2 * bytes;
  npu_view table{};
  if (k.bits != 8) {  // 0 ... 7, then -8 ... -1
    const npu_view level_16 = s.fresh(npu_type::fp32, {16});
    store(s, count_from(s, 0, 8), level_16.slice(0, 0, 8));
    store(s, count_from(s, -8, 8), level_16.slice(0, 8, 8));
    table = table_of_bytes(s, level_16);
  }
  npu_view code_rb = view_of(k.code, {k.rows, bytes});
  if (k.bits == 8) code_rb.type = npu_type::int8;
  const npu_view scale_r1 = view_of(k.scale_r, {k.rows, 1}), y_rc = view_of(k.y_n, {k.rows, k.columns});
  const std::size_t at_once = std::max<std::size_t>(1, s.rules().settings.chunk_bytes / (3 * width * sizeof(float)));
  for (std::size_t first = 0; first < k.rows; first += at_once) {
    const npu_sequence::scope here(s);
    const std::size_t rows = std::min(at_once, k.rows - first);
    const npu_view code = code_rb.slice(0, first, rows), number = s.fresh(npu_type::fp32, {rows, width}), half = s.fresh(npu_type::fp16, {rows, k.columns});
    if (k.bits == 8) {
      s.run(npu_op::cast, code, npu_type::fp32, number);
    } else {
      const npu_view index = s.fresh(npu_type::int32, {rows, bytes});
      s.run(npu_op::cast, code, npu_type::int32, index);
      s.run(npu_op::embedding, table, index.as({rows * bytes}), number.as({rows * bytes, 2}));
    }
    s.run(npu_op::inplace_mul, number, scale_r1.slice(0, first, rows));
    store(s, number.slice(1, 0, k.columns), half);
    store(s, half, y_rc.slice(0, first, rows));
  }
}

}  // namespace xtrain::npu_kernels
