// Weights as integers of 4 or 8 bits with a scale per row: memory and quantization.        [ChatGLM-6B's quantization.py]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/hooks.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// Bits per frozen linear weight in an adapter's config; 0: not stored as integers.
template <class Adapter>
[[nodiscard]] std::size_t integer_bits_of(const typename Adapter::config& config) {
  if constexpr (has_hook<Adapter, hook::weight_bits>) return config.weight_bits;
  else return 0;
}

/// Quantized rows; arrays: see kernel::dequantize_rows.
template <class Memory>
struct row_integers_view {
  std::size_t rows = 0, columns = 0, bits = 8;
  device_span<std::uint8_t, Memory> code{};
  device_span<float, Memory> scale_r{};
};

/// Quantized rows on the host, with their memory.
struct row_integers_array {
  std::vector<std::uint8_t> code{};
  std::vector<float> scale_r{};
};

namespace row_integers {

/// In fp16: scale = largest magnitude of a row / largest integer; integer = value / scale, ties to even.
///   who     the parameter, for errors
///   throws  config_error when a value is not finite in fp16
template <class T>
[[nodiscard]] row_integers_array quantize(std::span<const T> x, std::size_t columns, std::size_t bits, std::string_view who) {
  const std::size_t rows = x.size() / columns, bytes = row_bytes(columns, bits);
  row_integers_array made{std::vector<std::uint8_t>(rows * bytes), std::vector<float>(rows)};
  const auto most = static_cast<float>(largest(bits));
  const auto rounded = [](T value) { return static_cast<float>(fp16(static_cast<accumulate_t<T>>(value))); };
  const auto pool = thread_pool::shared();
  const auto quantize_row = [&](std::size_t r, std::size_t) {
    const auto row = x.subspan(r * columns, columns);
    float magnitude = 0;
    bool finite = true;
    for (const T value : row) {
      const float size = std::abs(rounded(value));
      finite = finite && size <= 65504.0f;
      magnitude = std::max(magnitude, size);
    }
    const float scale = fp16(magnitude / most);
    made.scale_r[r] = finite ? scale : -1.0f;
    if (scale == 0 || !finite) return;
    for (std::size_t i = 0; i < columns; ++i) {
      const float quotient = fp16(rounded(row[i]) / scale);
      const auto integer = static_cast<std::int32_t>(std::clamp(std::nearbyint(quotient), -most, most));
      std::uint8_t& byte = made.code[r * bytes + (bits == 8 ? i : i / 2)];
      if (bits == 8) byte = static_cast<std::uint8_t>(integer);
      else byte = static_cast<std::uint8_t>(byte | (i % 2 == 0 ? (integer & 15) << 4 : integer & 15));
    }
  };
  pool->run(rows, pool->threads(), quantize_row);
  require<config_error>(std::find(made.scale_r.begin(), made.scale_r.end(), -1.0f) == made.scale_r.end(), "parameter '", who,
                        "': must be finite in fp16 to be stored in ", bits, " bits");
  return made;
}

/// Inverse on the host, as kernel::dequantize_rows.
template <class T>
void dequantize(const row_integers_array& from, std::size_t columns, std::size_t bits, std::span<T> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t r = i / columns;
    x[i] = static_cast<T>(value_of(integer_at(from.code.data() + r * row_bytes(columns, bits), i % columns, bits), from.scale_r[r]));
  }
}

}  // namespace row_integers

}  // namespace xtrain
