#pragma once

#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T>
void run_kernel(reference_stream&, const kernel::dequantize_rows<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<6>(k);
  const std::size_t bytes = row_integers::row_bytes(k.columns, k.bits);
  for (std::size_t r = 0; r < k.rows; ++r)
    for (std::size_t i = 0; i < k.columns; ++i)
      k.y_n.raw()[r * k.columns + i] =
          static_cast<T>(row_integers::value_of(row_integers::integer_at(k.code.raw() + r * bytes, i, k.bits), k.scale_r.raw()[r]));
}

}  // namespace xtrain
