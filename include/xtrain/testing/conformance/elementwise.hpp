// Conformance cases: elementwise kernels and strided rows.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/blocks.hpp>
#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/device/kernel/nf4.hpp>
#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_elementwise(Suite& suite) {
  static constexpr kernel::step_inputs inputs{.number = 3};  // of some draws
  for (const std::size_t n : {std::size_t{1}, std::size_t{67}, std::size_t{33333}}) {
    case_memory mem;
    for (const double factor : {1.0, -2.5}) {
      kernel::add<host_memory, T> sum{.n = n, .factor = factor};
      sum.x_n = mem.numbers<T>(n);
      sum.y_n = mem.numbers<T>(n);
      suite.template check_kernel<T>(sum, 1.0, std::abs(factor));
    }
    kernel::cast<host_memory, T, float> widen{.n = n};
    widen.x_n = mem.numbers<T>(n, -70000.0, 70000.0);
    widen.y_n = mem.fresh<float>(n);
    suite.template check_kernel<T>(widen, 0.0, 0.0);
    kernel::cast<host_memory, float, T> narrow{.n = n};
    narrow.x_n = mem.numbers<float>(n, -1e-5, 1e-5);
    narrow.y_n = mem.fresh<T>(n);
    suite.template check_kernel<T>(narrow, 0.0, 0.0);
    for (const bool accumulate : {false, true}) {
      kernel::dropout<host_memory, T> drop{
          .n = n, .probability = 0.3, .accumulate = accumulate, .random = {.seed = 5, .step = 2, .site = 9, .first = n + 1}};
      drop.x_n = mem.numbers<T>(n);
      drop.y_n = mem.numbers<T>(n);
      suite.template check_kernel<T>(drop, 1.0, 2.0);
      drop.width = 7;  // the last row may be shorter
      drop.whole_width = 20;
      suite.template check_kernel<T>(drop, 1.0, 2.0);
      drop.width = drop.whole_width = 0;
      drop.inputs_1 = span_of(&inputs, 1);
      if (accumulate) {
        suite.template check_kernel<T>(drop, 1.0, 2.0);
        continue;
      }
      drop.y_n = mem.copy(drop.x_n);  // in place
      drop.x_n = drop.y_n;
      suite.template check_kernel<T>(drop, 1.0, 2.0);
    }
    kernel::uniform_noise<host_memory, T> noise{.n = n, .magnitude = 0.3, .random = {.seed = 5, .step = 2, .site = 9, .first = n + 1}};
    noise.y_n = mem.numbers<T>(n);
    suite.template check_kernel<T>(noise, 2.0, 2.0);
    noise.inputs_1 = span_of(&inputs, 1);
    suite.template check_kernel<T>(noise, 2.0, 2.0);
    for (const fake_quantization format : {fake_quantization{.bits = 4}, fake_quantization{.bits = 8, .zeros = zero_points::integer},
                                           fake_quantization{.bits = 4, .zeros = zero_points::floating}}) {
      const std::size_t group = n % 41 == 0 && format.bits == 8 ? 41 : n % 3 == 0 ? n / 3 : n;  // few numbers; many; all
      kernel::fake_quantize<host_memory, T> rounded{.n = n, .group = group, .format = format};
      rounded.x_n = mem.numbers<T>(n);
      rounded.y_n = mem.fresh<T>(n);
      suite.template check_kernel<T>(rounded, 0.0, 0.0);
      auto in_place = rounded;
      in_place.y_n = mem.copy(rounded.x_n);
      in_place.x_n = in_place.y_n;
      suite.template check_kernel<T>(in_place, 0.0, 0.0);
      for (const bool accumulate : {false, true}) {
        kernel::fake_quantize_backward<host_memory, T, T> back{.n = n, .group = group, .format = format, .accumulate = accumulate};
        back.x_n = rounded.x_n;
        back.dy_n = mem.numbers<T>(n);
        back.dx_n = mem.numbers<T>(n);
        suite.template check_kernel<T>(back, 0.0, 0.0);
        if (accumulate) continue;
        back.dx_n = mem.copy(back.dy_n);  // in place
        back.dy_n = back.dx_n;
        suite.template check_kernel<T>(back, 0.0, 0.0);
      }
    }
    kernel::dequantize_nf4<host_memory, T> numbers{.n = n};
    numbers.code_n2 = mem.numbers<std::uint8_t>(nf4::code_bytes(n), 0.0, 255.9);
    numbers.scale_k = mem.numbers<std::uint8_t>(nf4::scales(n), 0.0, 255.9);
    numbers.outer = mem.numbers<float>(nf4::outer_scales(n));
    numbers.y_n = mem.fresh<T>(n);
    // computed in fp32 even if T is wider
    suite.template check_kernel<T>(numbers, 1.0, 2.0 * std::max(1.0, dtype_traits<float>::unit_roundoff / dtype_traits<accumulate_t<T>>::unit_roundoff));
    for (const std::size_t bits : {4U, 8U})
      for (const std::size_t rows : {std::size_t{1}, n % 3 == 0 ? std::size_t{3} : std::size_t{1}}) {
        kernel::dequantize_rows<host_memory, T> integers{.rows = rows, .columns = n / rows, .bits = bits};
        integers.code = mem.numbers<std::uint8_t>(rows * row_integers::row_bytes(n / rows, bits), 0.0, 255.9);
        integers.scale_r = mem.numbers<float>(rows);
        integers.y_n = mem.fresh<T>(n);
        suite.template check_kernel<T>(integers, 0.0, 0.0);
      }
    kernel::sum_of_squares<host_memory, T> squares{.n = n};
    squares.x_n = mem.uneven_numbers<T>(n, 1e-9);
    squares.sum_1 = mem.fresh<double>(1);
    suite.template check_kernel<T>(squares, static_cast<double>(n), static_cast<double>(n));
    kernel::sum<host_memory, T> sum{.n = n};
    sum.x_n = mem.numbers<T>(n);
    sum.sum_1 = mem.numbers<double>(1);
    suite.template check_kernel<T>(sum, static_cast<double>(n), static_cast<double>(n));
  }
}

/// Random bytes are valid blocks; small exponents of scales keep all numbers finite in fp16.
template <class T, class Suite>
void check_blocks(Suite& suite) {
  for (const block_formats::description& of : block_formats::all)
    for (const std::size_t numbers : {of.numbers, 3 * of.numbers, std::size_t{66} * 256}) {
      case_memory mem;
      kernel::dequantize_blocks<host_memory, T> k{.n = numbers, .format = of.format};
      const auto code = mem.codes(block_formats::bytes_of(of.format, numbers));
      for (std::size_t i = 0; i < code.size(); ++i) {
        const bool has_exponent = of.format == block_format::mxfp4 ? i % of.bytes == 0 : i % 2 == 1;
        code.raw()[i] = static_cast<std::uint8_t>(code.raw()[i] & (!has_exponent ? 0xff : of.format == block_format::mxfp4 ? 0x7f : 0xbf));
      }
      k.code = code;
      k.y_n = mem.fresh<T>(numbers);
      suite.template check_kernel<T>(k, 0.0, 0.0);
    }
}

template <class T, class Suite>
void check_rows_apart(Suite& suite) {
  for (const auto& [rows, columns, gap] : {std::array<std::size_t, 3>{1, 3, 0}, {7, 33, 5}, {300, 70, 1}, {5, 20000, 0}}) {
    case_memory mem;
    for (const bool accumulate : {false, true}) {
      const std::size_t x_stride = columns + gap, y_stride = columns + 2 * gap;
      kernel::copy_rows<host_memory, T> copy{
          .rows = rows, .columns = columns, .x_stride = x_stride, .y_stride = y_stride, .accumulate = accumulate};
      copy.x = mem.numbers<T>((rows - 1) * x_stride + columns);
      copy.y = mem.numbers<T>((rows - 1) * y_stride + columns);
      suite.template check_kernel<T>(copy, 1.0, accumulate ? 1.0 : 0.0);
    }
  }
}

}  // namespace xtrain::testing::detail
