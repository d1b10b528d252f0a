// Weights as integers of few bits, and rounding for quantization-aware training.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/blocks.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/device/kernel/nf4.hpp>
#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain {

namespace simt {

/// Constant tables travel with the kernel: device code cannot index a host constant.
struct table_256 {
  float level[256];
};
[[nodiscard]] inline table_256 table_of(const std::array<float, 256>& levels) {
  table_256 table{};
  for (std::size_t i = 0; i < 256; ++i) table.level[i] = levels[i];
  return table;
}

template <class T>
struct dequantize_nf4_op {
  const std::uint8_t *code, *scale;
  const float* outer;
  T* y;
  float level[16];
  table_256 scale_level;

  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const std::size_t block = i / nf4::block;  // vectors lie in one block
    // fma: one rounding, as in nf4::scale_of
    const float of_block = ::fmaf(scale_level.level[scale[block]], outer[1 + block / nf4::scales_together], outer[0]);
    vector_of<T, N> y_n;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const std::size_t element = i + static_cast<std::size_t>(e);
      const std::uint8_t both = code[element / 2];
      y_n.v[e] = rounded<T>(level[element % 2 == 0 ? both >> 4 : both & 15] * of_block);
    }
    store<N>(y + i, y_n);
  }
};

template <class T>
struct dequantize_rows_op {
  const std::uint8_t* code;
  const float* scale;
  T* y;
  std::size_t columns, row_bytes;
  bool is_8_bits;

  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    vector_of<T, N> y_n;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const std::size_t element = i + static_cast<std::size_t>(e), row = element / columns, column = element % columns;
      const std::uint8_t* const from = code + row * row_bytes;
      int integer = 0;
      if (is_8_bits) {
        integer = static_cast<std::int8_t>(from[column]);
      } else {
        integer = column % 2 == 0 ? from[column / 2] >> 4 : from[column / 2] & 15;
        integer = integer < 8 ? integer : integer - 16;
      }
      y_n.v[e] = rounded<T>(widen(rounded<fp16>(static_cast<float>(integer) * scale[row])));
    }
    store<N>(y + i, y_n);
  }
};

template <class T>
struct dequantize_blocks_op {
  block_format format;
  std::uint32_t log2_numbers, bytes;  // per block
  const std::uint8_t* code;
  T* y;
  block_formats::table table;
  bool looks_up;

  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {  // vectors lie in one run
    static_assert(block_formats::run_numbers % static_cast<std::size_t>(N) == 0);
    const std::uint8_t* const block = code + (i >> log2_numbers) * bytes;
    const auto in_block = static_cast<std::uint32_t>(i) & ((1U << log2_numbers) - 1U), r = in_block / 16;
    const block_formats::run run = block_formats::run_of(format, r);
    const block_formats::scaling scaling = block_formats::scaling_of(format, block, r, block_formats::scaling_of_block(format, block));
    vector_of<T, N> y_n;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const std::int32_t one = block_formats::code_at(run, block, in_block % 16 + static_cast<std::uint32_t>(e));
      const std::int32_t number = looks_up ? table.value[one] : one + run.lowest;
      y_n.v[e] = rounded<T>(scaling.scale * static_cast<float>(number) + scaling.offset);
    }
    store<N>(y + i, y_n);
  }
};

/// work(numbers) on every thread of the group's warp.
template <class T, class Work>
XTRAIN_SIMT_FN void with_group(const fake_quantization& format, const T* x, std::size_t n, Work&& work) {
  float smallest = INFINITY, largest = -INFINITY;
  for (auto i = static_cast<std::size_t>(lane()); i < n; i += warp_width)
    smallest = smaller(smallest, widen(x[i])), largest = larger(largest, widen(x[i]));
  largest = warp_max(largest);
  smallest = -warp_max(-smallest);
  if (format.zeros == zero_points::floating) work(format.floating_of<T>(smallest, largest));
  else work(format.of(smallest, largest));
}

/// A warp per group.
template <class T>
struct fake_quantize_groups {
  static constexpr int threads = 256, groups_of_block = threads / warp_width;
  struct shared {};
  fake_quantization format;
  const T* x;
  T* y;
  std::size_t groups, group;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t g = static_cast<std::size_t>(block_x()) * groups_of_block + static_cast<std::size_t>(warp());
    if (g >= groups) return;  // the entire warp
    const T* const from = x + g * group;
    T* const to = y + g * group;
    with_group<T>(format, from, group, [&](const auto& of_group) {
      for (auto i = static_cast<std::size_t>(lane()); i < group; i += warp_width) to[i] = rounded<T>(of_group.rounded(widen(from[i])));
    });
  }
};
template <class T, class G>
struct fake_quantize_backward_groups {
  static constexpr int threads = 256, groups_of_block = threads / warp_width;
  struct shared {};
  fake_quantization format;
  const T* x;
  const G* dy;
  G* dx;
  std::size_t groups, group;
  bool accumulate;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t g = static_cast<std::size_t>(block_x()) * groups_of_block + static_cast<std::size_t>(warp());
    if (g >= groups) return;  // the entire warp
    with_group<T>(format, x + g * group, group, [&](const auto& of_group) {
      for (auto i = static_cast<std::size_t>(lane()); i < group; i += warp_width) {
        const std::size_t at = g * group + i;
        const float d = of_group.passes(widen(x[at])) ? widen(dy[at]) : 0.0f;
        dx[at] = rounded<G>(accumulate ? widen(dx[at]) + d : d);
      }
    });
  }
};

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::dequantize_nf4<M, T>& k, scratch_span<M>) {
  kernel::check_arity<5>(k);
  simt::dequantize_nf4_op<T> op{k.code_n2.raw(), k.scale_k.raw(), k.outer.raw(), k.y_n.raw(), {}, simt::table_of(nf4::scale_levels)};
  for (std::size_t i = 0; i < 16; ++i) op.level[i] = nf4::levels[i];
  simt::launch_each<simt::elements_of<T>>(stream, op, k.n, simt::is_aligned(k.y_n.raw()));
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::dequantize_rows<M, T>& k, scratch_span<M>) {
  kernel::check_arity<6>(k);
  const simt::dequantize_rows_op<T> op{k.code.raw(), k.scale_r.raw(), k.y_n.raw(), k.columns, row_integers::row_bytes(k.columns, k.bits),
                                       k.bits == 8};
  simt::launch_each<simt::elements_of<T>>(stream, op, k.rows * k.columns, simt::is_aligned(k.y_n.raw()));
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::dequantize_blocks<M, T>& k, scratch_span<M>) {
  kernel::check_arity<4>(k);
  const block_formats::description& of = block_formats::of(k.format);
  const simt::dequantize_blocks_op<T> op{k.format,
                                         static_cast<std::uint32_t>(std::countr_zero(of.numbers)),
                                         static_cast<std::uint32_t>(of.bytes),
                                         k.code.raw(),
                                         k.y_n.raw(),
                                         block_formats::table_of(k.format),
                                         block_formats::has_table(k.format)};
  simt::launch_each<simt::elements_of<T>>(stream, op, k.n, simt::is_aligned(k.y_n.raw()));
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::fake_quantize<M, T>& k, scratch_span<M>) {
  kernel::check_arity<5>(k);
  using groups = simt::fake_quantize_groups<T>;
  if (k.n == 0) return;
  const std::size_t number = k.n / k.group;
  stream.launch(groups{k.format, k.x_n.raw(), k.y_n.raw(), number, k.group}, {simt::blocks_of(number, groups::groups_of_block), 1, 1});
}
template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::fake_quantize_backward<M, T, G>& k,
                                                                      scratch_span<M>) {
  kernel::check_arity<7>(k);
  using groups = simt::fake_quantize_backward_groups<T, G>;
  if (k.n == 0) return;
  const std::size_t number = k.n / k.group;
  stream.launch(groups{k.format, k.x_n.raw(), k.dy_n.raw(), k.dx_n.raw(), number, k.group, k.accumulate},
                {simt::blocks_of(number, groups::groups_of_block), 1, 1});
}

}  // namespace xtrain
