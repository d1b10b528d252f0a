// Dequantization of integers of 4 or 8 bits with a scale per row.        [ChatGLM-6B's quantization.py]
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

/// Integers in -(2^(bits-1) - 1) ... 2^(bits-1) - 1, two's complement. 4 bits: element 2j is in the upper half of byte j of its row, 2j + 1 in the lower.
/// Scales
/// and dequantized values are fp16.
namespace row_integers {

/// Per row.
[[nodiscard]] constexpr std::size_t row_bytes(std::size_t columns, std::size_t bits) { return bits == 8 ? columns : (columns + 1) / 2; }
/// By bits.
[[nodiscard]] constexpr std::int32_t largest(std::size_t bits) { return bits == 8 ? 127 : 7; }

/// Of a column.
[[nodiscard]] inline std::int32_t integer_at(const std::uint8_t* row, std::size_t column, std::size_t bits) {
  if (bits == 8) return static_cast<std::int8_t>(row[column]);
  const std::int32_t nibble = column % 2 == 0 ? row[column / 2] >> 4 : row[column / 2] & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

/// The product is exact in fp32: rounded once.
[[nodiscard]] inline float value_of(std::int32_t integer, float scale) { return fp16(static_cast<float>(integer) * scale); }

}  // namespace row_integers

namespace kernel {

/// y = integer · scale of its row, rounded to fp16, then to T.
///   code      read      rows · row_integers::row_bytes(columns, bits)
///   scale_r   read      fp16 values
///   y_n       written   rows · columns
template <class Memory, class T>
struct dequantize_rows {
  static constexpr std::string_view name = "dequantize_rows";
  template <class M>
  using on = dequantize_rows<M, T>;

  std::size_t rows = 0, columns = 0, bits = 8;
  read<std::uint8_t, Memory> code{};
  read<float, Memory> scale_r{};
  written<T, Memory> y_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.rows, s.columns, s.bits, s.code, s.scale_r, s.y_n);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(rows) * static_cast<double>(columns); }
};

}  // namespace kernel

}  // namespace xtrain
