// Dequantizes rows of integers: a row's values by integer are computed once, then looked up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/row_integers.hpp>

namespace xtrain {

namespace cpu_kernels {

template <class T>
void dequantize_rows(const cpu_stream& stream, const kernel::dequantize_rows<host_memory, T>& k) {
  const std::size_t bytes = row_integers::row_bytes(k.columns, k.bits);
  constexpr std::size_t elements_at_once = 1 << 15;
  const std::size_t rows_at_once = k.columns == 0 ? 1 : elements_at_once / k.columns + 1;
  stream.parallel_ranges(k.rows, rows_at_once, [&](std::size_t begin, std::size_t end) {
    std::array<T, 256> values;  // by integer in two's complement
    for (std::size_t r = begin; r < end; ++r) {
      const std::uint8_t* const code = k.code.raw() + r * bytes;
      T* const y = k.y_n.raw() + r * k.columns;
      const float scale = k.scale_r.raw()[r];
      const std::int32_t most = row_integers::largest(k.bits) + 1;
      for (std::int32_t i = -most; i < most; ++i)
        values[static_cast<std::size_t>(i & (2 * most - 1))] = static_cast<T>(row_integers::value_of(i, scale));
      if (k.bits == 8) {
        for (std::size_t i = 0; i < k.columns; ++i) y[i] = values[code[i]];
        continue;
      }
      for (std::size_t i = 0; i + 1 < k.columns; i += 2) {
        y[i] = values[code[i / 2] >> 4];
        y[i + 1] = values[code[i / 2] & 15];
      }
      if (k.columns % 2 == 1) y[k.columns - 1] = values[code[k.columns / 2] >> 4];
    }
  });
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::dequantize_rows<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<6>(k);
  cpu_kernels::dequantize_rows(stream, k);
}

}  // namespace xtrain
