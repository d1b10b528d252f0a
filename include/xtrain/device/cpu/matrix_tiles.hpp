// bf16 products in tile registers: 16 rows of A by 16 columns of B, 32 deep, per instruction.
//
// Every element of C is summed along the depth in the same order at any position in a tile.
#pragma once

#include <xtrain/device/cpu/tile_registers.hpp>

#ifdef XTRAIN_MATRIX_TILES

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/cpu/packing.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/cpu/tile.hpp>
#include <xtrain/device/kernel/matmul.hpp>

namespace xtrain::cpu_kernels {

/// 16 lines of 16 sums, or of 16 pairs of bf16.
struct matrix_tile {
  static constexpr std::size_t lines = 16, units = lines * 16;
  static constexpr std::size_t elements_deep = 32;

  [[nodiscard]] static constexpr std::size_t count(std::size_t lines_of_it) { return (lines_of_it + lines - 1) / lines; }
  [[nodiscard]] static constexpr std::size_t deep(std::size_t depth) { return (depth + elements_deep - 1) / elements_deep; }
};

/// sums (+)= A · B for Rows by Columns tiles, `deep` tiles along the depth.
///   a, b        packed tiles of the first rows and columns; the second's follow after `deep` tiles
///   sums        row-major, `row` floats per row
///   continues   adds to sums
template <class Registers, int Rows, int Columns>
XTRAIN_USES_TILES void multiply_tiles(std::size_t deep, const simd::bf16_pair* a, const simd::bf16_pair* b, float* sums, std::size_t row, bool continues) {
  constexpr std::size_t lines = matrix_tile::lines, units = matrix_tile::units;
  __asm__ volatile("" ::: "memory");  // compilers do not see that the loads read packed memory
  const std::size_t row_bytes = row * sizeof(float);
  float* const below = sums + lines * row;
  if (continues) {
    Registers::template load<0>(sums, row_bytes);
    if constexpr (Columns == 2) Registers::template load<1>(sums + lines, row_bytes);
    if constexpr (Rows == 2) Registers::template load<2>(below, row_bytes);
    if constexpr (Rows == 2 && Columns == 2) Registers::template load<3>(below + lines, row_bytes);
  } else {
    Registers::template zero<0>();
    if constexpr (Columns == 2) Registers::template zero<1>();
    if constexpr (Rows == 2) Registers::template zero<2>();
    if constexpr (Rows == 2 && Columns == 2) Registers::template zero<3>();
  }
  const simd::bf16_pair* const a_below = a + deep * units;
  const simd::bf16_pair* const b_beside = b + deep * units;
  for (std::size_t at = 0, end = deep * units; at < end; at += units) {
    Registers::template load<4>(a + at, 64);
    Registers::template load<6>(b + at, 64);
    Registers::template multiply_add<0>();
    if constexpr (Columns == 2) {
      Registers::template load<7>(b_beside + at, 64);
      Registers::template multiply_add<1>();
    }
    if constexpr (Rows == 2) {
      Registers::template load<5>(a_below + at, 64);
      Registers::template multiply_add<2>();
    }
    if constexpr (Rows == 2 && Columns == 2) Registers::template multiply_add<3>();
  }
  Registers::template store<0>(sums, row_bytes);
  if constexpr (Columns == 2) Registers::template store<1>(sums + lines, row_bytes);
  if constexpr (Rows == 2) Registers::template store<2>(below, row_bytes);
  if constexpr (Rows == 2 && Columns == 2) Registers::template store<3>(below + lines, row_bytes);
}

/// Peak of tile registers: products of operands that stay there. Returns the number of operations.
XTRAIN_USES_TILES inline double multiply_tiles_repeatedly(std::size_t rounds) {
  const tile_registers registers;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::size_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return 4.0 * static_cast<double>(rounds) * 2.0 * static_cast<double>(matrix_tile::units * matrix_tile::elements_deep);
}

/// A: a line is a row's 16 pairs; B: a line is a pair of all 16 columns.
enum class tile_of_operand { a, b };

/// Tiles of up to 16 rows of A, or columns of B (rows of its transpose), along the depth; zero-padded.
template <tile_of_operand Operand>
void pack_tiles(const strided<bf16>& x, std::size_t rows, std::size_t depth, simd::bf16_pair* to) {
  constexpr std::size_t lines = matrix_tile::lines;
  const bool rows_are_lines = x.row != 1;
  for (std::size_t p = 0; p < depth; p += matrix_tile::elements_deep, to += matrix_tile::units) {
    const std::size_t some = std::min(matrix_tile::elements_deep, depth - p);
    __m512i line[lines];
    if (rows_are_lines) {  // contiguous along the depth
      const auto first = static_cast<__mmask32>((std::uint64_t{1} << some) - 1);
      XTRAIN_UNROLL for (std::size_t i = 0; i < lines; ++i) line[i] = i < rows ? _mm512_maskz_loadu_epi16(first, x.at(i, p)) : _mm512_setzero_si512();
    } else {
      const auto first = static_cast<__mmask16>((1U << rows) - 1);
      const auto widened = [&](std::size_t q) XTRAIN_LAMBDA_INLINE {
        return q < some ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, x.at(0, p + q))) : _mm512_setzero_si512();
      };
      XTRAIN_UNROLL for (std::size_t i = 0; i < lines; ++i) line[i] = _mm512_or_si512(widened(2 * i), _mm512_slli_epi32(widened(2 * i + 1), 16));
    }
    if (rows_are_lines != (Operand == tile_of_operand::a)) simd::transpose_lines(line);
    XTRAIN_UNROLL for (std::size_t i = 0; i < lines; ++i) _mm512_storeu_si512(to + i * lines, line[i]);
  }
}

/// A product in tile registers: all threads pack A once; tasks take parts of C and pack their columns of B.
template <class C, class Registers = tile_registers>
class tile_product {
 public:
  tile_product(const cpu_stream& stream, const kernel::matmul<host_memory, bf16, C>& k, std::byte* scratch)
      : stream_(stream), k_(k), cut_(depth_blocks::of<simd::bf16_pair>(k.k)), threads_(threads_of(k, stream.threads())), rows_(rows_at_once(k)),
        part_columns_(columns_of_part(k.n, threads_)), packed_a_(reinterpret_cast<simd::bf16_pair*>(scratch)),
        workers_(scratch + a_units(k) * sizeof(simd::bf16_pair)), worker_bytes_(bytes_of_worker(k, threads_)) {
    // several parts per thread, for slow threads; products with few columns are also split by rows
    const std::size_t column_parts = std::max<std::size_t>(1, (k.n + part_columns_ - 1) / part_columns_), wanted = 4 * threads_;
    const std::size_t row_parts = column_parts >= wanted ? 1 : wanted / column_parts;
    part_rows_ = std::min(rows_, std::max<std::size_t>(64, round_up((rows_ + row_parts - 1) / row_parts, 32)));
  }

  /// For this product and any with fewer rows or less depth.
  [[nodiscard]] static std::size_t bytes(const kernel::matmul<host_memory, bf16, C>& k, std::size_t usable_threads) {
    const std::size_t threads = threads_of(k, usable_threads);
    return a_units(k) * sizeof(simd::bf16_pair) + threads * bytes_of_worker(k, threads);
  }

  void run() {
    for (std::size_t i0 = 0; i0 < k_.m; i0 += rows_) {
      const std::size_t rows = std::min(rows_, k_.m - i0), column_parts = (k_.n + part_columns_ - 1) / part_columns_;
      pack_a(i0, rows);
      each(column_parts * ((rows + part_rows_ - 1) / part_rows_), [&](std::size_t part, std::size_t worker) {
        const std::size_t i = part / column_parts * part_rows_, j = part % column_parts * part_columns_;
        multiply_part(i0, rows, i, std::min(part_rows_, rows - i), j, std::min(part_columns_, k_.n - j), workers_ + worker * worker_bytes_);
      });
    }
  }

 private:
  using kernel_type = kernel::matmul<host_memory, bf16, C>;
  static constexpr std::size_t lines = matrix_tile::lines;
  /// Rows per block of A's tiles, which stays in L2 while columns of B stream through.
  static constexpr std::size_t rows_per_block = 192;
  static constexpr std::size_t most_rows_at_once = 1024, most_units_at_once = std::size_t{1} << 23, most_columns_per_part = 128;

  static constexpr std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }
  // below this size a second thread costs more than it saves
  static std::size_t threads_of(const kernel_type& k, std::size_t usable) { return k.operations() < 1e5 ? 1 : usable; }
  /// At least the tiles of any depth up to k.
  static std::size_t most_deep(std::size_t k) { return k / matrix_tile::elements_deep + depth_blocks::of<simd::bf16_pair>(k).count + 1; }
  static std::size_t most_rows(const kernel_type& k) { return std::min(round_up(k.m, lines), most_rows_at_once); }
  static std::size_t rows_at_once(const kernel_type& k) {
    const std::size_t affordable = std::max<std::size_t>(32, most_units_at_once / (most_deep(k.k) * lines) / 32 * 32);
    const std::size_t most = std::max<std::size_t>(1, std::min(most_rows(k), affordable)), passes = (k.m + most - 1) / most;
    return passes <= 1 ? round_up(k.m, lines) : round_up((k.m + passes - 1) / passes, 32);
  }
  static std::size_t columns_of_part(std::size_t n, std::size_t threads) {
    return std::min(most_columns_per_part, round_up(std::max<std::size_t>(1, (n + 4 * threads - 1) / (4 * threads)), 2 * lines));
  }
  static std::size_t a_units(const kernel_type& k) {
    const std::size_t per_row = most_deep(k.k) * lines;
    return std::min(most_rows(k) * per_row, std::max(most_units_at_once, 32 * per_row));
  }
  static std::size_t b_units(const kernel_type& k, std::size_t threads) {
    const depth_blocks cut = depth_blocks::of<simd::bf16_pair>(k.k);
    const std::size_t deep = cut.count > 1 ? matrix_tile::deep(2 * depth_blocks::units_per_block) : matrix_tile::deep(k.k);
    return columns_of_part(k.n, threads) * deep * lines;
  }
  static std::size_t bytes_of_worker(const kernel_type& k, std::size_t threads) {
    constexpr std::size_t whole = 4 * lines * lines;  // sums of as many tiles as registers
    const std::size_t sums = depth_blocks::of<simd::bf16_pair>(k.k).count > 1 ? std::max(whole, most_rows(k) * columns_of_part(k.n, threads)) : whole;
    return b_units(k, threads) * sizeof(simd::bf16_pair) + sums * sizeof(float);
  }

  template <class Task>
  void each(std::size_t parts, const Task& task) const {
    if (threads_ == 1)
      for (std::size_t part = 0; part < parts; ++part) task(part, std::size_t{0});
    else stream_.parallel(parts, task);
  }
  [[nodiscard]] std::size_t depth_of(std::size_t block) const { return cut_.depth_of(block, k_.k); }
  /// Packed tiles from row `i` on, of `rows` packed rows.
  [[nodiscard]] simd::bf16_pair* a_at(std::size_t block, std::size_t rows, std::size_t i) const {
    return packed_a_ + (round_up(rows, lines) * block * matrix_tile::deep(depth_of(0)) + i * matrix_tile::deep(depth_of(block))) * lines;
  }

  void pack_a(std::size_t i0, std::size_t rows) const {
    const strided<bf16> a{k_.a.raw(), k_.transpose_a ? 1 : k_.lda, k_.transpose_a ? k_.lda : 1};
    const std::size_t tiles = matrix_tile::count(rows), at_once = std::max<std::size_t>(1, tiles / (2 * threads_));
    each(cut_.count * ((tiles + at_once - 1) / at_once), [&](std::size_t part, std::size_t) {
      const std::size_t block = part % cut_.count, first = part / cut_.count * at_once;
      for (std::size_t i = first * lines; i < std::min(rows, (first + at_once) * lines); i += lines)
        pack_tiles<tile_of_operand::a>(a.from(i0 + i, cut_.begin(block)), std::min(lines, rows - i), depth_of(block), a_at(block, rows, i));
    });
  }

  /// Rows from i0 + i and columns from j of C, over the entire depth.
  void multiply_part(std::size_t i0, std::size_t packed_rows, std::size_t i, std::size_t rows, std::size_t j, std::size_t columns, std::byte* memory) const {
    const strided<bf16> b_transposed{k_.b.raw(), k_.transpose_b ? k_.ldb : 1, k_.transpose_b ? 1 : k_.ldb};
    auto* const packed_b = reinterpret_cast<simd::bf16_pair*>(memory);
    float* const sums = reinterpret_cast<float*>(packed_b + b_units(k_, threads_));
    C* const c = k_.c.raw() + (i0 + i) * k_.ldc + j;
    const epilogue<float, bf16> end{static_cast<float>(k_.alpha), k_.bias_n.empty() ? nullptr : k_.bias_n.raw() + j, k_.accumulate, nullptr, 0};
    const bool one_block = cut_.count == 1;
    const std::size_t row = one_block ? 2 * lines : part_columns_;
    const Registers registers;
    for (std::size_t block = 0; block < cut_.count; ++block) {
      const std::size_t depth = depth_of(block), deep = matrix_tile::deep(depth);
      for (std::size_t block_row = 0; block_row < rows; block_row += rows_per_block) {
        for (std::size_t x = 0; x < columns; x += 2 * lines) {
          simd::bf16_pair* const b = packed_b + x * deep * lines;
          if (block_row == 0)
            for (std::size_t at = x; at < std::min(columns, x + 2 * lines); at += lines)
              pack_tiles<tile_of_operand::b>(b_transposed.from(j + at, cut_.begin(block)), std::min(lines, columns - at), depth, packed_b + at * deep * lines);
          for (std::size_t y = block_row; y < std::min(rows, block_row + rows_per_block); y += 2 * lines) {
            float* const to = one_block ? sums : sums + y * row + x;
            multiply(columns - x, rows - y, deep, a_at(block, packed_rows, i + y), b, to, row, block > 0);
            if (block + 1 == cut_.count)
              finish(to, row, std::min(2 * lines, rows - y), std::min(2 * lines, columns - x), c + y * k_.ldc + x, k_.ldc, end.at(0, x));
          }
        }
      }
    }
  }

  static void multiply(std::size_t columns, std::size_t rows, std::size_t deep, const simd::bf16_pair* a, const simd::bf16_pair* b, float* sums,
                       std::size_t row, bool continues) {
    if (rows > lines && columns > lines) multiply_tiles<Registers, 2, 2>(deep, a, b, sums, row, continues);
    else if (rows > lines) multiply_tiles<Registers, 2, 1>(deep, a, b, sums, row, continues);
    else if (columns > lines) multiply_tiles<Registers, 1, 2>(deep, a, b, sums, row, continues);
    else multiply_tiles<Registers, 1, 1>(deep, a, b, sums, row, continues);
  }

  /// Writes sums of up to 32 columns to C.
  static void finish(const float* sums, std::size_t row, std::size_t rows, std::size_t columns, C* c, std::size_t ldc, const epilogue<float, bf16>& end) {
    std::size_t i = 0;
    for (; i + 4 <= rows; i += 4) finish_rows<4>(sums + i * row, row, columns, c + i * ldc, ldc, end);
    for (; i < rows; ++i) finish_rows<1>(sums + i * row, row, columns, c + i * ldc, ldc, end);
  }
  template <std::size_t Rows>
  static void finish_rows(const float* sums, std::size_t row, std::size_t columns, C* c, std::size_t ldc, const epilogue<float, bf16>& end) {
    using Arch = simd::native;
    simd::batch<float, Arch> sum[Rows][2];
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      XTRAIN_UNROLL for (std::size_t v = 0; v < 2; ++v) sum[i][v] = simd::load<Arch>(sums + i * row + v * lines);
    }
    if (columns == 2 * lines) finish_tile(sum, c, ldc, end);
    else finish_edge(sum, c, ldc, columns, end);
  }

  const cpu_stream& stream_;
  const kernel_type& k_;
  depth_blocks cut_;
  std::size_t threads_, rows_, part_columns_, part_rows_ = 0;
  simd::bf16_pair* packed_a_;
  std::byte* workers_;
  std::size_t worker_bytes_;
};

}  // namespace xtrain::cpu_kernels

#endif
