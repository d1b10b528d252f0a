// Products with a slim side (low-rank adapters): packing a wide matrix costs as much as multiplying it by 16 columns, so only the slim operand is packed.
//
// Sums have the order of all vector products: the path does not change bits. Only tile registers add in another order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <xtrain/device/cpu/packing.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/cpu/tile.hpp>
#include <xtrain/device/kernel/matmul.hpp>

namespace xtrain::cpu_kernels {

/// Memory holds units: they can be multiplied in place.
template <class U, class T>
inline constexpr bool units_in_place = std::is_same_v<U, T> || std::is_same_v<U, simd::bf16_pair>;

/// Rows of A in place, contiguous along the depth.
template <class U, class T>
struct rows_in_place {
  const T* data = nullptr;
  std::size_t row = 0;
  [[nodiscard]] XTRAIN_ALWAYS_INLINE const T* at(std::size_t i) const { return data + i * row; }
  XTRAIN_ALWAYS_INLINE void next() { data += depth_of_unit<U>; }
};

/// Vectors of B in place: a row of memory per element along the depth. Pairs read half a cache line of two rows at once, which hardware does not prefetch.
template <class Arch, class U, class T>
struct lines_in_place {
  static constexpr std::size_t pair_rows_ahead = 96;
  const T* data = nullptr;
  std::size_t row = 0;
  template <class A>
  [[nodiscard]] XTRAIN_ALWAYS_INLINE auto load(std::size_t v) const {
    const T* const from = data + v * simd::width<A, Arch>;
    if constexpr (std::is_same_v<U, simd::bf16_pair>) {
      __builtin_prefetch(from + pair_rows_ahead * row, 0, 2);
      __builtin_prefetch(from + (pair_rows_ahead + 1) * row, 0, 2);
      return simd::load_pairs<Arch>(from, from + row);
    } else {
      return simd::load<Arch>(from);
    }
  }
  XTRAIN_ALWAYS_INLINE void next() { data += depth_of_unit<U> * row; }
};

enum class slim_side {
  none,
  columns,               ///< few columns of C: rows of A in place
  rows,                  ///< few rows of C: rows of B in place
  columns_over_columns,  ///< few columns of C, A transposed: the transpose as `rows`
  depth                  ///< small depth: bound by memory traffic of C
};

template <class Arch, class T, class C>
struct slim_product {
  using A = accumulate_t<T>;
  using U = unit<Arch, T>;
  using batch = simd::batch<A, Arch>;
  using kernel_type = kernel::matmul<host_memory, T, C>;
  static constexpr std::size_t w = simd::width<A, Arch>;
  static constexpr bool narrow = !std::is_same_v<C, A>;
  static constexpr bool many_registers = simd::registers<Arch> >= 32;
  /// Rows of A per tile in place. Rows a power of two apart share a set of the 8-way L1 cache: twelve rows run at two thirds of the speed, eight with two
  /// vectors of B at half.
  template <std::size_t Vectors>
  static constexpr std::size_t rows_at_once = many_registers && Vectors == 1 ? 8 : 6;
  /// B in place pays if a vector is a cache line (half for pairs): shorter vectors would fetch lines repeatedly.
  static constexpr bool lines_pay = w * sizeof(A) == 64;
  /// Rows of C per tile with B in place: each line is read once for all.
  static constexpr std::size_t slim_rows = many_registers ? 16 : 8;
  /// Tile of a shallow product: lower and wider, for longer runs of C.
  static constexpr std::size_t shallow_rows = many_registers ? 4 : 2, shallow_vectors = 4, shallow_panel = shallow_vectors * w;
  static constexpr std::size_t shallow_units = 16;
  /// Packed columns of B that stay in L2 while rows of A stream through.
  static constexpr std::size_t shallow_bytes = std::size_t{1} << 19;
  static constexpr std::size_t part_rows = 24;  // a multiple of all rows per tile
  static constexpr std::size_t part_columns = 4 * w;

  [[nodiscard]] static slim_side side(const kernel_type& k) {
    if constexpr (units_in_place<U, T>) {
      const bool whole_units = k.k % depth_of_unit<U> == 0;
      if (!k.transpose_a && k.n <= panel_columns<A, Arch> && k.m >= rows_at_once<1> && whole_units) return slim_side::columns;
      if (lines_pay && !k.transpose_b && k.m <= max_slim_rows && k.n % w == 0 && whole_units) return slim_side::rows;
      if (lines_pay && k.transpose_a && !k.transpose_b && k.n <= 2 * max_slim_rows && k.m % w == 0 && whole_units) return slim_side::columns_over_columns;
      if (is_shallow(k)) return slim_side::depth;
    }
    return slim_side::none;
  }

  /// For these sizes and either parity of the depth, slim or not.
  [[nodiscard]] static std::size_t bytes(const kernel_type& k, std::size_t threads) {
    if constexpr (!units_in_place<U, T>) return 0;
    const std::size_t units = units_of<U>(k.k) + 4 * depth_blocks::of<U>(k.k).count;
    std::size_t most = 0;
    if (k.n <= std::max(panel_columns<A, Arch>, 2 * max_slim_rows)) most = std::max(panel_columns<A, Arch>, 2 * max_slim_rows) * units;
    if (k.m <= max_slim_rows) most = std::max(most, (k.m + slim_rows - 1) / slim_rows * slim_rows * units);
    if (is_shallow(k))
      most = std::max(most, ((k.n + shallow_panel - 1) / shallow_panel * shallow_panel + threads * part_rows) * units_of<U>(k.k));
    return most * sizeof(U);
  }

  const cpu_stream& stream;
  const kernel_type& k;
  U* packed;
  depth_blocks blocks = depth_blocks::of<U>(k.k);
  bool alone = k.operations() < 1e5;  // below this size a second thread costs more than it saves

  void run(slim_side way) const {
    const strided<T> a{k.a.raw(), k.transpose_a ? 1 : k.lda, k.transpose_a ? k.lda : 1};
    const strided<T> b_transposed{k.b.raw(), k.transpose_b ? k.ldb : 1, k.transpose_b ? 1 : k.ldb};
    switch (way) {
      case slim_side::columns:
        return k.n <= w ? few_columns<1>(b_transposed) : few_columns<2>(b_transposed);
      case slim_side::rows:
        if constexpr (lines_pay) return few_rows_of(a, k.m, k.b.raw(), k.ldb, k.n, false);
        break;
      case slim_side::columns_over_columns:
        if constexpr (lines_pay) return few_rows_of(b_transposed, k.n, k.a.raw(), k.lda, k.m, true);
        break;
      case slim_side::depth:
        return shallow(a, b_transposed);
      case slim_side::none:
        break;
    }
  }

 private:
  static constexpr std::size_t max_slim_rows = 16;  // twice as many for a transposed A, which would need packing

  [[nodiscard]] static bool is_shallow(const kernel_type& k) { return !k.transpose_a && k.n >= shallow_panel && units_of<U>(k.k) <= shallow_units; }

  template <class Task>
  void ranges(std::size_t n, std::size_t grain, const Task& task) const {
    if (alone) task(std::size_t{0}, n);
    else stream.parallel_ranges(n, grain, task);
  }

  /// The entire slim operand: x(i, p) for i < lanes, in panels of `Step`.
  template <std::size_t Step>
  void pack(const strided<T>& x, std::size_t lanes) const {
    const std::size_t panels = (lanes + Step - 1) / Step;
    ranges(blocks.count, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t block = begin; block < end; ++block)
        for (std::size_t panel = 0; panel < panels; ++panel)
          pack_panel<Arch, Step>(x.from(panel * Step, blocks.begin(block)), std::min(Step, lanes - panel * Step), blocks.depth_of(block, k.k),
                                 panel_of<Step>(panel, block), Step);
    });
  }
  template <std::size_t Step>
  [[nodiscard]] U* panel_of(std::size_t panel, std::size_t block) const {
    return packed + (panel * units_of<U>(blocks.count * blocks.depth) + units_of<U>(blocks.begin(block))) * Step;
  }

  /// After a block of the depth: a narrow C is rounded once, after the last.
  [[nodiscard]] epilogue<A, T> sums_end(std::size_t block) const { return {A{1}, nullptr, narrow && block != 0, nullptr, 0}; }
  [[nodiscard]] bool finishes(std::size_t block) const { return !narrow || block + 1 == blocks.count; }
  [[nodiscard]] epilogue<A, T> c_end(std::size_t block) const {
    const bool first = narrow || block == 0;
    return {static_cast<A>(k.alpha), k.bias_n.empty() || !first ? nullptr : k.bias_n.raw(), k.accumulate || !first, nullptr, 0};
  }

  /// C from rows of sums `step` apart.
  static void finish(const A* sums, std::size_t step, std::size_t rows, std::size_t columns, C* c, std::size_t ldc, const epilogue<A, T>& end) {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; j += w) {
        batch sum[1][1] = {{batch::load_unaligned(sums + i * step + j)}};
        if (columns - j >= w) finish_tile(sum, c + i * ldc + j, ldc, end.at(i, j));
        else finish_edge(sum, c + i * ldc + j, ldc, columns - j, end.at(i, j));
      }
    }
  }

  template <std::size_t Vectors>
  void few_columns(const strided<T>& b_transposed) const {
    constexpr std::size_t line = Vectors * w, at_once = rows_at_once<Vectors>;
    pack<line>(b_transposed, k.n);
    ranges(k.m, part_rows, [&](std::size_t begin, std::size_t end) {
      std::array<A, at_once * line> sums;
      for (std::size_t row = begin; row < end; row += at_once) {
        // the last tile overlaps finished rows: only new rows are stored
        const std::size_t i = std::min(row, k.m - at_once), done = row - i, rows = std::min(at_once, end - i) - done;
        const T* const next = k.a.raw() + std::min(row + at_once, k.m - at_once) * k.lda;
        for (std::size_t r = 0; r < at_once; ++r) __builtin_prefetch(next + r * k.lda, 0, 2);
        for (std::size_t block = 0; block < blocks.count; ++block) {
          tile_from<Arch, U, at_once, Vectors>(units_of<U>(blocks.depth_of(block, k.k)),
                                                    rows_in_place<U, T>{k.a.raw() + i * k.lda + blocks.begin(block), k.lda},
                                                    packed_lines<Arch, line, U>{panel_of<line>(0, block)}, sums.data(), line, line, sums_end(block));
          if (finishes(block)) finish(sums.data() + done * line, line, rows, k.n, k.c.raw() + row * k.ldc, k.ldc, c_end(block));
        }
      }
    });
  }

  /// C (or its transpose) has `few` rows slim(i, p). Lines of `wide` have n elements, stride `row`.
  void few_rows_of(const strided<T>& slim, std::size_t few, const T* wide, std::size_t row, std::size_t n, bool transposed) const {
    pack<slim_rows>(slim, few);
    ranges(n, part_columns, [&](std::size_t begin, std::size_t end) {
      std::array<A, slim_rows * w> sums, turned;
      for (std::size_t j = begin; j < end; j += w) {
        for (std::size_t i = 0; i < few; i += slim_rows) {
          const std::size_t rows = std::min(slim_rows, few - i);
          for (std::size_t block = 0; block < blocks.count; ++block) {
            tile_from<Arch, U, slim_rows, 1>(units_of<U>(blocks.depth_of(block, k.k)),
                                             packed_lines<Arch, slim_rows, U>{panel_of<slim_rows>(i / slim_rows, block)},
                                             lines_in_place<Arch, U, T>{wide + blocks.begin(block) * row + j, row}, sums.data(), w, w, sums_end(block));
            if (!finishes(block)) continue;
            if (!transposed) {
              const epilogue<A, T> to = c_end(block).at(i, j);
              finish(sums.data(), w, rows, w, k.c.raw() + i * k.ldc + j, k.ldc, to);
            } else {
              for (std::size_t from = 0; from < slim_rows; ++from)
                for (std::size_t v = 0; v < w; ++v) turned[v * slim_rows + from] = sums[from * w + v];
              finish(turned.data(), slim_rows, w, rows, k.c.raw() + j * k.ldc + i, k.ldc, c_end(block).at(j, i));
            }
          }
        }
      }
    });
  }

  /// Depth of one block. Rows of A stream over packed columns of B: rows of C are accessed in order.
  void shallow(const strided<T>& a, const strided<T>& b_transposed) const {
    const std::size_t units = units_of<U>(k.k), panels = (k.n + shallow_panel - 1) / shallow_panel;
    const std::size_t at_once = std::max<std::size_t>(1, shallow_bytes / (shallow_panel * units * sizeof(U))), parts = (k.m + part_rows - 1) / part_rows;
    ranges(panels, 4, [&](std::size_t begin, std::size_t end) {
      for (std::size_t panel = begin; panel < end; ++panel) {
        const std::size_t j = panel * shallow_panel;
        pack_panel<Arch, shallow_panel>(b_transposed.from(j, 0), std::min(shallow_panel, k.n - j), k.k, packed + j * units, shallow_panel);
      }
    });
    U* const packed_rows = packed + panels * shallow_panel * units;
    const auto part = [&](std::size_t index, std::size_t worker) {
      const std::size_t i0 = index % parts * part_rows, rows = std::min(part_rows, k.m - i0), first = index / parts * at_once;
      const std::size_t j0 = first * shallow_panel, j_end = std::min(k.n, (first + at_once) * shallow_panel);
      U* const mine = packed_rows + worker * part_rows * units;
      for (std::size_t i = 0; i < rows;) {
        const std::size_t some = rows - i >= shallow_rows ? shallow_rows : 1;
        pack_panel<Arch, shallow_rows>(a.from(i0 + i, 0), some, k.k, mine, some);
        for (std::size_t j = j0; j < j_end; j += shallow_panel) {
          C* const c = k.c.raw() + (i0 + i) * k.ldc + j;
          const packed_lines<Arch, shallow_panel, U> b{packed + j * units};
          const std::size_t columns = std::min(shallow_panel, k.n - j);
          if (some == 1) tile_from<Arch, U, 1, shallow_vectors>(units, packed_lines<Arch, 1, U>{mine}, b, c, k.ldc, columns, c_end(0).at(0, j));
          else tile_from<Arch, U, shallow_rows, shallow_vectors>(units, packed_lines<Arch, shallow_rows, U>{mine}, b, c, k.ldc, columns, c_end(0).at(0, j));
        }
        i += some;
      }
    };
    const std::size_t tasks = parts * ((panels + at_once - 1) / at_once);
    if (alone)
      for (std::size_t index = 0; index < tasks; ++index) part(index, 0);
    else stream.parallel(tasks, part);
  }
};

}  // namespace xtrain::cpu_kernels
