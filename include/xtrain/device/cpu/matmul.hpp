// Matrix products: all threads pack A once; tasks take parts of C and pack their columns of B. [Goto & van de Geijn 2008; Van Zee & van de Geijn 2015]
//
// Every element of C is summed over k in an order independent of threads and tile position: results do not depend on how work is divided.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/cpu/few_rows.hpp>
#include <xtrain/device/cpu/matrix_tiles.hpp>
#include <xtrain/device/cpu/packing.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/slim.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/cpu/tile.hpp>
#include <xtrain/device/kernel/grouped_matmul.hpp>
#include <xtrain/device/kernel/matmul.hpp>

namespace xtrain {

namespace cpu_kernels {

struct product_plan {
  /// Rows per block of A's panels, which stays in L2 while panels of B stream through.
  static constexpr std::size_t rows_per_block = 168;
  /// Maximum columns of C per part.
  static constexpr std::size_t columns_per_part = 128;
  /// Limits of packed A: rows, units.
  static constexpr std::size_t rows_at_once = 1036;
  static constexpr std::size_t units_at_once = std::size_t{1} << 23;

  std::size_t m = 0, n = 0, k = 0;
  std::size_t per_unit = 1;     // elements along k per unit
  std::size_t blocks = 1;       // along k
  std::size_t block_depth = 0;  // elements along k (last: fewer); a multiple of per_unit
  std::size_t rows = 0;         // rows of A packed at once
  std::size_t part_rows = 0;
  std::size_t part_columns = 0;
  std::size_t threads = 1;
  std::size_t tile = 1;  // rows per tile

  static constexpr std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

  template <class Arch, class T, class C>
  [[nodiscard]] static product_plan of(const kernel::matmul<host_memory, T, C>& kernel, std::size_t usable_threads) {
    using U = unit<Arch, T>;
    const std::size_t m = kernel.m, n = kernel.n, k = kernel.k;
    // below this size a second thread costs more than it saves
    const std::size_t threads = kernel.operations() < 1e5 ? 1 : usable_threads;
    constexpr std::size_t tile_height = tile_rows<Arch>, panel = panel_columns<accumulate_t<T>, Arch>;
    product_plan plan{.m = m, .n = n, .k = k, .per_unit = depth_of_unit<U>, .threads = threads, .tile = tile_height};
    const std::size_t units = units_of<U>(k);
    const depth_blocks cut = depth_blocks::of<U>(k);
    plan.blocks = cut.count;
    plan.block_depth = cut.depth;
    const std::size_t affordable = std::max(tile_height, units_at_once / std::max<std::size_t>(1, units) / tile_height * tile_height);
    const std::size_t passes = (m + std::min(rows_at_once, affordable) - 1) / std::min(rows_at_once, affordable);
    plan.rows = passes <= 1 ? m : std::min(m, round_up((m + passes - 1) / passes, tile_height));
    // several parts per thread, for slow threads; products with few columns are also split by rows
    const std::size_t wanted = 4 * threads;
    plan.part_columns = std::min(columns_per_part, round_up(std::max<std::size_t>(1, (n + wanted - 1) / wanted), panel));
    const std::size_t column_parts = (n + plan.part_columns - 1) / plan.part_columns;
    const std::size_t row_parts = column_parts >= wanted ? 1 : wanted / column_parts;
    plan.part_rows = std::min(plan.rows, std::max(4 * tile_height, round_up((plan.rows + row_parts - 1) / row_parts, tile_height)));
    return plan;
  }

  [[nodiscard]] std::size_t units() const { return (k + per_unit - 1) / per_unit; }
  [[nodiscard]] std::size_t a_units() const { return round_up(rows * units(), 16); }
  [[nodiscard]] std::size_t b_units() const { return round_up(part_columns, widest_panel) * (block_depth / per_unit); }
  [[nodiscard]] std::size_t sums(bool narrow) const { return narrow && blocks > 1 ? part_rows * part_columns : 0; }

  template <class A>
  [[nodiscard]] std::size_t worker_bytes(bool narrow) const {
    return round_up((b_units() + sums(narrow)) * sizeof(A), 64);
  }
  /// For this product and any with fewer rows or less depth: cutting evenly, a smaller product can need more.
  template <class A>
  [[nodiscard]] std::size_t bytes(bool narrow) const {
    const std::size_t max_rows = std::min(m, round_up(rows_at_once, tile));
    const std::size_t a = round_up(std::min(max_rows * units(), units_at_once + tile * units()), 16);
    const std::size_t b = round_up(part_columns, widest_panel) * std::min(round_up(units(), 4), depth_blocks::units_per_block);
    const std::size_t sums = narrow && blocks > 1 ? max_rows * part_columns : 0;
    return a * sizeof(A) + threads * round_up((b + sums) * sizeof(A), 64);
  }
};

/// A part of C over the entire depth: rows from packed row i0 on, `columns` columns.
template <class Arch, class U, class T, class C, class A>
void multiply_part(const product_plan& plan, std::size_t i0, std::size_t rows, std::size_t columns, const U* packed_a,
                   const strided<T>& b_transposed, C* c, std::size_t ldc, const epilogue<A, T>& end, U* packed_b, A* sums) {
  constexpr bool narrow = !std::is_same_v<C, A>;
  constexpr std::size_t panel = panel_columns<A, Arch>;
  for (std::size_t block = 0; block < plan.blocks; ++block) {
    const std::size_t p0 = block * plan.block_depth, depth = std::min(plan.block_depth, plan.k - p0), units = units_of<U>(depth);
    const U* const a = packed_a + plan.rows * (p0 / plan.per_unit);
    const bool first = block == 0, last = block + 1 == plan.blocks;
    for (std::size_t i = 0; i < rows; i += product_plan::rows_per_block) {
      const std::size_t some = std::min(product_plan::rows_per_block, rows - i);
      for (std::size_t j = 0; j < columns; j += panel) {
        const std::size_t width = std::min(panel, columns - j);
        U* const b = packed_b + j * units;
        panel_prefetch<T> upcoming;
        if (i == 0) {
          pack_b<Arch, A>(b_transposed.from(j, p0), width, depth, b);
          if (j + panel < columns) upcoming = {b_transposed.from(j + panel, p0), std::min(panel, columns - j - panel), depth};
          else if (!last) upcoming = {b_transposed.from(0, p0 + depth), std::min(panel, columns), std::min(depth, plan.k - p0 - depth)};
        }
        const packed_rows<U> a_panels{a + (i0 + i) * units, units};
        const auto multiply = [&](auto* to, std::size_t row, const epilogue<A, T>& finish) {
          multiply_panel<Arch>(some, width, units, a_panels, b, to + i * row + j, row, finish, upcoming);
        };
        const T* const bias = end.bias == nullptr ? nullptr : end.bias + j;
        if (!narrow) {
          multiply(c, ldc, {end.alpha, first ? bias : nullptr, !first || end.add, nullptr, 0});
        } else if (!last) {  // sums are completed before rounding
          multiply(sums, plan.part_columns, {A{1}, nullptr, !first, nullptr, 0});
        } else {
          const A* const before = first ? nullptr : sums + i * plan.part_columns + j;
          multiply(c, ldc, {end.alpha, bias, end.add, before, plan.part_columns});
        }
      }
    }
  }
}

template <class Arch, class T, class C>
void product(const cpu_stream& stream, const kernel::matmul<host_memory, T, C>& k, std::byte* scratch) {
  using A = accumulate_t<T>;
  using U = unit<Arch, T>;
  static_assert(sizeof(U) <= sizeof(A));
  constexpr bool narrow = !std::is_same_v<C, A>;
  constexpr std::size_t height = tile_rows<Arch>;
  const strided<T> a{k.a.raw(), k.transpose_a ? 1 : k.lda, k.transpose_a ? k.lda : 1};
  const strided<T> b_transposed{k.b.raw(), k.transpose_b ? k.ldb : 1, k.transpose_b ? 1 : k.ldb};
  const product_plan plan = product_plan::of<Arch>(k, stream.threads());
  U* const packed_a = reinterpret_cast<U*>(scratch);
  std::byte* const workers = scratch + plan.a_units() * sizeof(A);
  const auto run = [&](std::size_t parts, auto&& task) {
    if (plan.threads == 1)
      for (std::size_t part = 0; part < parts; ++part) task(part, std::size_t{0});
    else stream.parallel(parts, task);
  };
  for (std::size_t i0 = 0; i0 < k.m; i0 += plan.rows) {
    const std::size_t rows = std::min(plan.rows, k.m - i0);
    // panels of a depth block are contiguous
    const std::size_t panels = (rows + height - 1) / height, at_once = std::max<std::size_t>(1, panels / (2 * plan.threads));
    run(plan.blocks * ((panels + at_once - 1) / at_once), [&](std::size_t part, std::size_t) {
      const std::size_t p0 = part % plan.blocks * plan.block_depth, depth = std::min(plan.block_depth, k.k - p0);
      const std::size_t i = part / plan.blocks * at_once * height;
      pack_a<Arch>(a.from(i0 + i, p0), std::min(at_once * height, rows - i), depth,
                   packed_a + plan.rows * (p0 / plan.per_unit) + i * units_of<U>(depth));
    });
    const std::size_t column_parts = (k.n + plan.part_columns - 1) / plan.part_columns;
    const std::size_t row_parts = (rows + plan.part_rows - 1) / plan.part_rows;
    run(column_parts * row_parts, [&](std::size_t part, std::size_t worker) {
      const std::size_t i = part / column_parts * plan.part_rows, j = part % column_parts * plan.part_columns;
      U* const packed_b = reinterpret_cast<U*>(workers + worker * plan.template worker_bytes<A>(narrow));
      A* const sums = reinterpret_cast<A*>(packed_b) + plan.b_units();
      const epilogue<A, T> end{static_cast<A>(k.alpha), k.bias_n.empty() ? nullptr : k.bias_n.raw() + j, k.accumulate, nullptr, 0};
      multiply_part<Arch>(plan, i, std::min(plan.part_rows, rows - i), std::min(plan.part_columns, k.n - j), packed_a,
                          b_transposed.from(j, 0), k.c.raw() + (i0 + i) * k.ldc + j, k.ldc, end, packed_b, sums);
    });
  }
}

/// Threads split columns, so each sum is in row order; several vectors at a time, because rows are far apart.
template <class Arch, class T, class G>
void sum_columns(const cpu_stream& stream, const kernel::column_sum<host_memory, T, G>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t w = simd::width<A, Arch>, vectors = 8, rows_ahead = 8;
  const auto add_to_sum = [&](std::size_t j, const batch& sum, auto count) XTRAIN_LAMBDA_INLINE {
    G* const out = k.sum_c.raw() + j;
    simd::store(out, sum + simd::load<Arch>(out, count), count);
  };
  stream.parallel_ranges(k.c, vectors * w, [&](std::size_t begin, std::size_t end) {
    if (end - begin == vectors * w) {
      batch sum[vectors];
      XTRAIN_UNROLL for (std::size_t v = 0; v < vectors; ++v) sum[v] = batch(A{0});
      const T* row = k.x_nc.raw() + begin;
      for (std::size_t i = 0; i < k.n; ++i, row += k.stride) {
        XTRAIN_UNROLL for (std::size_t v = 0; v < vectors; ++v) {
          __builtin_prefetch(row + rows_ahead * k.stride + v * w);
          sum[v] = sum[v] + simd::load<Arch>(row + v * w);
        }
      }
      constexpr std::integral_constant<std::size_t, w> whole{};
      XTRAIN_UNROLL for (std::size_t v = 0; v < vectors; ++v) add_to_sum(begin + v * w, sum[v], whole);
    } else {
      simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        batch sum(A{0});
        for (std::size_t i = 0; i < k.n; ++i) sum = sum + simd::load<Arch>(k.x_nc.raw() + i * k.stride + j, count);
        add_to_sum(j, sum, count);
      });
    }
  });
}

}  // namespace cpu_kernels

template <class T, class C>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::matmul<host_memory, T, C>& k) {
  if (k.m <= cpu_kernels::few_rows && k.transpose_b && !k.transpose_a) return 0;
  using A = accumulate_t<T>;
  const std::size_t slim = cpu_kernels::slim_product<simd::native, T, C>::bytes(k, cpu.threads);
#ifdef XTRAIN_MATRIX_TILES
  if constexpr (std::is_same_v<T, bf16>)
    if (cpu_kernels::has_matrix_tiles()) return std::max(slim, cpu_kernels::tile_product<C>::bytes(k, cpu.threads));
#endif
  return std::max(slim, cpu_kernels::product_plan::of<simd::native>(k, cpu.threads).template bytes<A>(!std::is_same_v<C, A>));
}

template <class T, class C>
void run_native(cpu_stream& stream, const kernel::matmul<host_memory, T, C>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<14>(k);
  using slim = cpu_kernels::slim_product<simd::native, T, C>;
  if (k.m <= cpu_kernels::few_rows && k.transpose_b && !k.transpose_a) return cpu_kernels::few_rows_product<simd::native>(stream, k);
  if (const auto side = slim::side(k); side != cpu_kernels::slim_side::none) {
    if constexpr (cpu_kernels::units_in_place<typename slim::U, T>)
      return slim{stream, k, reinterpret_cast<typename slim::U*>(scratch.raw())}.run(side);
  }
#ifdef XTRAIN_MATRIX_TILES
  if constexpr (std::is_same_v<T, bf16>)
    if (cpu_kernels::has_matrix_tiles()) return cpu_kernels::tile_product<C>(stream, k, scratch.raw()).run();
#endif
  cpu_kernels::product<simd::native>(stream, k, scratch.raw());
}

/// Successive products, each split among the threads.
template <class T, class C>
void run_native(cpu_stream& stream, const kernel::grouped_matmul<host_memory, T, C>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<15>(k);
  kernel::for_each_product(k, [&](const kernel::matmul<host_memory, T, C>& product) { run_native(stream, product, scratch); });
}
template <class T, class C>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::grouped_matmul<host_memory, T, C>& k) {
  return native_scratch_bytes(cpu, k.of(0, 0, k.rows()));
}

template <class T, class G>
void run_native(cpu_stream& stream, const kernel::column_sum<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  cpu_kernels::sum_columns<simd::native>(stream, k);
}

}  // namespace xtrain
