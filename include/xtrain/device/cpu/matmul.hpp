// Matrix products: panels packed once per block, a tile of accumulators that stays in registers, columns or rows divided
// among threads. [Goto & van de Geijn 2008; Van Zee & van de Geijn 2015]
//
// Every element of C is summed over k in the same order whatever the number of threads and wherever it lies in a tile, so
// results do not depend on how the work is divided.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/matmul.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Blocks of C that are worked on at once, and how deep. Sizes in elements; the same for every architecture, because
/// scratch memory is sized by them and one program may hold code for several.
inline constexpr std::size_t rows_per_block = 252;
inline constexpr std::size_t columns_per_block = 2048;
inline constexpr std::size_t depth_per_block = 1024;
inline constexpr std::size_t widest_panel = 64;  // columns; no architecture's panel is wider

/// Rows of C in one tile: as many as leave registers for two vectors of B and one of A.
template <class Arch>
inline constexpr std::size_t tile_rows = simd::registers<Arch> >= 32 ? 14 : 6;
template <class A, class Arch>
inline constexpr std::size_t panel_columns = 2 * simd::width<A, Arch>;

/// An operand of a product: op(X)(i, j) is at data[i·row + j·column], where one of the two steps is 1.
template <class T>
struct strided {
  const T* data = nullptr;
  std::size_t row = 0, column = 0;
  [[nodiscard]] const T* at(std::size_t i, std::size_t j) const { return data + i * row + j * column; }
};

/// What becomes of a finished tile: C = alpha · sum (+ bias) (+ C).
template <class A, class T>
struct epilogue {
  A alpha{1};
  const T* bias = nullptr;  // of the tile's first column, or null
  bool add = false;
};

/// sum over p < k of a_panel[p][i] · b_panel[p][j], for Rows rows and `columns` columns of C.
template <class Arch, std::size_t Rows, class A, class C, class T>
void tile(std::size_t k, const A* a_panel, const A* b_panel, C* c, std::size_t ldc, std::size_t columns, const epilogue<A, T>& end) {
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t w = simd::width<A, Arch>;
  batch sum[Rows][2];
  XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
    sum[i][0] = batch(A{0});
    sum[i][1] = batch(A{0});
  }
#pragma GCC unroll 4
  for (std::size_t p = 0; p < k; ++p) {
    const batch b0 = batch::load_unaligned(b_panel);
    const batch b1 = batch::load_unaligned(b_panel + w);
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      const batch a(a_panel[i]);
      sum[i][0] = simd::multiply_add(a, b0, sum[i][0]);
      sum[i][1] = simd::multiply_add(a, b1, sum[i][1]);
    }
    a_panel += Rows;
    b_panel += 2 * w;
  }
  const auto finish = [&](const batch& s, C* row, const T* bias, auto count) XTRAIN_LAMBDA_INLINE {
    batch result = s * batch(end.alpha);
    if (bias != nullptr) result = result + simd::load<Arch>(bias, count);
    if (end.add) result = result + simd::load<Arch>(row, count);
    simd::store(row, result, count);
  };
  constexpr std::integral_constant<std::size_t, w> whole{};
  const T* bias1 = end.bias == nullptr ? nullptr : end.bias + w;
  if (columns == 2 * w) {
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      finish(sum[i][0], c + i * ldc, end.bias, whole);
      finish(sum[i][1], c + i * ldc + w, bias1, whole);
    }
  } else {
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      finish(sum[i][0], c + i * ldc, end.bias, std::min(columns, w));
      if (columns > w) finish(sum[i][1], c + i * ldc + w, bias1, columns - w);
    }
  }
}

/// Rows of the next panel of A when `left` rows are left: full tiles, then ever smaller ones.
template <class Arch>
[[nodiscard]] constexpr std::size_t next_panel_rows(std::size_t left) {
  constexpr std::size_t most = tile_rows<Arch>;
  if (left >= most) return most;
  if (most > 8 && left >= 8) return 8;
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

template <class Arch, class A, class C, class T>
void tile_of(std::size_t rows, std::size_t k, const A* a_panel, const A* b_panel, C* c, std::size_t ldc, std::size_t columns,
             const epilogue<A, T>& end) {
  constexpr std::size_t most = tile_rows<Arch>;
  switch (rows) {
    case most:
      return tile<Arch, most>(k, a_panel, b_panel, c, ldc, columns, end);
    case 8:
      return tile<Arch, 8>(k, a_panel, b_panel, c, ldc, columns, end);
    case 4:
      return tile<Arch, 4>(k, a_panel, b_panel, c, ldc, columns, end);
    case 2:
      return tile<Arch, 2>(k, a_panel, b_panel, c, ldc, columns, end);
    default:
      return tile<Arch, 1>(k, a_panel, b_panel, c, ldc, columns, end);
  }
}

/// Four rows of four numbers, transposed: column j of the block goes to to[j·step … j·step + 3]. The shuffles are those of
/// 128-bit registers on every architecture: cheap, and no lane is crossed.
template <class Arch, class T>
XTRAIN_INLINE void transpose_4x4(const T* from, std::size_t row, float* to, std::size_t step) {
  using quad = simd::quad_arch<Arch>;
  const auto r0 = simd::load<quad>(from);
  const auto r1 = simd::load<quad>(from + row);
  const auto r2 = simd::load<quad>(from + 2 * row);
  const auto r3 = simd::load<quad>(from + 3 * row);
  const auto even_low = xsimd::zip_lo(r0, r2), odd_low = xsimd::zip_lo(r1, r3);
  const auto even_high = xsimd::zip_hi(r0, r2), odd_high = xsimd::zip_hi(r1, r3);
  simd::store(to, xsimd::zip_lo(even_low, odd_low));
  simd::store(to + step, xsimd::zip_hi(even_low, odd_low));
  simd::store(to + 2 * step, xsimd::zip_lo(even_high, odd_high));
  simd::store(to + 3 * step, xsimd::zip_hi(even_high, odd_high));
}

/// to[p][i] = x(i, p) for i < rows, p < depth: `rows` numbers side by side, rows of the panel `step` apart, zeros from
/// `rows` to `step`.
template <class Arch, class A, class T>
void pack_panel(const strided<T>& x, std::size_t rows, std::size_t depth, A* to, std::size_t step) {
  if (x.row == 1) {  // the numbers lie side by side already
    for (std::size_t p = 0; p < depth; ++p) {
      const T* from = x.at(0, p);
      A* line = to + p * step;
      simd::for_each_vector<A, Arch>(0, rows,
                                     [&](std::size_t i, auto count) { simd::store(line + i, simd::load<Arch>(from + i, count), count); });
      for (std::size_t i = rows; i < step; ++i) line[i] = A{0};
    }
    return;
  }
  std::size_t i = 0;
  if constexpr (std::is_same_v<A, float>) {
    for (; i + 4 <= rows; i += 4) {
      std::size_t p = 0;
      for (; p + 4 <= depth; p += 4) transpose_4x4<Arch>(x.at(i, p), x.row, to + p * step + i, step);
      for (; p < depth; ++p)
        for (std::size_t r = 0; r < 4; ++r) to[p * step + i + r] = static_cast<A>(*x.at(i + r, p));
    }
  }
  for (; i < rows; ++i)
    for (std::size_t p = 0; p < depth; ++p) to[p * step + i] = static_cast<A>(*x.at(i, p));
  for (; i < step; ++i)
    for (std::size_t p = 0; p < depth; ++p) to[p * step + i] = A{0};
}

/// The scratch memory of one thread: packed panels of A, of B, and a block of sums for products deeper than a block whose
/// C is narrower than the sums.
template <class A>
struct product_scratch {
  A* a = nullptr;
  A* b = nullptr;
  A* sums = nullptr;

  static constexpr std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }
  static std::size_t a_size(std::size_t m, std::size_t k) {
    return round_up(std::min(m, rows_per_block) * std::min(k, depth_per_block), 16);
  }
  static std::size_t b_size(std::size_t n, std::size_t k) {
    return round_up(std::min(n, columns_per_block), widest_panel) * std::min(k, depth_per_block);
  }
  static std::size_t sums_size(std::size_t m, std::size_t n, std::size_t k, bool narrow) {
    return narrow && k > depth_per_block ? std::min(m, rows_per_block) * round_up(std::min(n, columns_per_block), widest_panel) : 0;
  }
  static std::size_t bytes(std::size_t m, std::size_t n, std::size_t k, bool narrow) {
    return round_up((a_size(m, k) + b_size(n, k) + sums_size(m, n, k, narrow)) * sizeof(A), 64);
  }
  product_scratch(std::byte* memory, std::size_t m, std::size_t n, std::size_t k)
      : a(reinterpret_cast<A*>(memory)), b(a + a_size(m, k)), sums(b + b_size(n, k)) {}
};

/// One block of C from packed panels of A and B.
template <class Arch, class A, class C, class T>
void multiply_packed(std::size_t m, std::size_t n, std::size_t k, const A* a, const A* b, C* c, std::size_t ldc, epilogue<A, T> end) {
  constexpr std::size_t columns = panel_columns<A, Arch>;
  const T* bias = end.bias;
  for (std::size_t j = 0; j < n; j += columns) {
    if (bias != nullptr) end.bias = bias + j;
    for (std::size_t i = 0; i < m;) {
      const std::size_t rows = next_panel_rows<Arch>(m - i);
      tile_of<Arch>(rows, k, a + i * k, b + j * k, c + i * ldc + j, ldc, std::min(columns, n - j), end);
      i += rows;
    }
  }
}

/// C = alpha · A·B (+ bias) (+ C) on one thread. b_transposed(j, p) is B(p, j).
template <class Arch, class T, class C>
void multiply(std::size_t m, std::size_t n, std::size_t k, const strided<T>& a, const strided<T>& b_transposed, C* c, std::size_t ldc,
              const epilogue<accumulate_t<T>, T>& end, std::byte* memory) {
  using A = accumulate_t<T>;
  constexpr bool narrow = !std::is_same_v<C, A>;
  constexpr std::size_t columns = panel_columns<A, Arch>;
  const product_scratch<A> scratch(memory, m, n, k);
  const auto pack_a = [&](std::size_t i0, std::size_t rows, std::size_t p0, std::size_t depth) {
    for (std::size_t i = 0; i < rows;) {
      const std::size_t panel = next_panel_rows<Arch>(rows - i);
      pack_panel<Arch>(strided<T>{a.at(i0 + i, p0), a.row, a.column}, panel, depth, scratch.a + i * depth, panel);
      i += panel;
    }
  };
  const auto pack_b = [&](std::size_t j0, std::size_t width, std::size_t p0, std::size_t depth) {
    for (std::size_t j = 0; j < width; j += columns)
      pack_panel<Arch>(strided<T>{b_transposed.at(j0 + j, p0), b_transposed.row, b_transposed.column}, std::min(columns, width - j), depth,
                       scratch.b + j * depth, columns);
  };
  for (std::size_t j0 = 0; j0 < n; j0 += columns_per_block) {
    const std::size_t width = std::min(columns_per_block, n - j0);
    const T* bias = end.bias == nullptr ? nullptr : end.bias + j0;
    if (narrow && k > depth_per_block) {  // sums must be whole before they are rounded
      for (std::size_t i0 = 0; i0 < m; i0 += rows_per_block) {
        const std::size_t rows = std::min(rows_per_block, m - i0);
        for (std::size_t p0 = 0; p0 < k; p0 += depth_per_block) {
          const std::size_t depth = std::min(depth_per_block, k - p0);
          pack_a(i0, rows, p0, depth);
          pack_b(j0, width, p0, depth);
          multiply_packed<Arch, A, A, T>(rows, width, depth, scratch.a, scratch.b, scratch.sums, width, {A{1}, nullptr, p0 != 0});
        }
        for (std::size_t i = 0; i < rows; ++i) {
          C* line = c + (i0 + i) * ldc + j0;
          simd::for_each_vector<A, Arch>(0, width, [&](std::size_t j, auto count) {
            auto result = simd::load<Arch>(scratch.sums + i * width + j, count) * simd::batch<A, Arch>(end.alpha);
            if (bias != nullptr) result = result + simd::load<Arch>(bias + j, count);
            if (end.add) result = result + simd::load<Arch>(line + j, count);
            simd::store(line + j, result, count);
          });
        }
      }
      continue;
    }
    for (std::size_t p0 = 0; p0 < k; p0 += depth_per_block) {
      const std::size_t depth = std::min(depth_per_block, k - p0);
      pack_b(j0, width, p0, depth);
      for (std::size_t i0 = 0; i0 < m; i0 += rows_per_block) {
        const std::size_t rows = std::min(rows_per_block, m - i0);
        pack_a(i0, rows, p0, depth);
        multiply_packed<Arch, A, C, T>(rows, width, depth, scratch.a, scratch.b, c + i0 * ldc + j0, ldc,
                                       {end.alpha, p0 == 0 ? bias : nullptr, end.add || p0 != 0});
      }
    }
  }
}

/// Rows of X against rows of W, for the few rows of a decoding step: nothing is packed, W is read once.
///   c(i, j) = alpha · Σ_p x(i, p) w(j, p) (+ bias_j) (+ c)
inline constexpr std::size_t few_rows = 8;

template <class Arch, std::size_t Rows, std::size_t Columns, class T, class C>
void dot_products(std::size_t k, const T* x, std::size_t ldx, const T* w, std::size_t ldw, C* c, std::size_t ldc,
                  const epilogue<accumulate_t<T>, T>& end) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  batch sum[Rows][Columns];
  XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) { XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) sum[i][j] = batch(A{0}); }
  simd::for_each_vector<A, Arch>(0, k, [&](std::size_t p, auto count) XTRAIN_LAMBDA_INLINE {
    batch w_p[Columns];
    XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) w_p[j] = simd::load<Arch>(w + j * ldw + p, count);
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      const batch x_p = simd::load<Arch>(x + i * ldx + p, count);
      XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) sum[i][j] = simd::multiply_add(x_p, w_p[j], sum[i][j]);
    }
  });
  XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
    XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) {
      A result = simd::sum(sum[i][j]) * end.alpha;
      if (end.bias != nullptr) result += static_cast<A>(end.bias[j]);
      C& out = c[i * ldc + j];
      out = static_cast<C>(end.add ? static_cast<A>(out) + result : result);
    }
  }
}

template <class Arch, std::size_t Rows, class T, class C>
void multiply_few_rows(std::size_t n, std::size_t k, const T* x, std::size_t ldx, const T* w, std::size_t ldw, C* c, std::size_t ldc,
                       epilogue<accumulate_t<T>, T> end) {
  constexpr std::size_t at_once = 4;  // rows of W: enough loads in flight
  const T* bias = end.bias;
  std::size_t j = 0;
  for (; j + at_once <= n; j += at_once) {
    if (bias != nullptr) end.bias = bias + j;
    dot_products<Arch, Rows, at_once>(k, x, ldx, w + j * ldw, ldw, c + j, ldc, end);
  }
  for (; j < n; ++j) {
    if (bias != nullptr) end.bias = bias + j;
    dot_products<Arch, Rows, 1>(k, x, ldx, w + j * ldw, ldw, c + j, ldc, end);
  }
}

template <class Arch, class T, class C>
void few_rows_product(const cpu_stream& stream, const kernel::matmul<host_memory, T, C>& k) {
  using A = accumulate_t<T>;
  const std::size_t grain = std::max<std::size_t>(4, (std::size_t{1} << 16) / std::max<std::size_t>(1, k.k) / 4 * 4);
  stream.parallel_ranges(k.n, grain, [&](std::size_t begin, std::size_t end) {
    const epilogue<A, T> finish{static_cast<A>(k.alpha), k.bias_n.empty() ? nullptr : k.bias_n.raw() + begin, k.accumulate};
    const T* w = k.b.raw() + begin * k.ldb;
    for (std::size_t i = 0; i < k.m;) {
      const T* x = k.a.raw() + i * k.lda;
      C* c = k.c.raw() + i * k.ldc + begin;
      const std::size_t left = k.m - i;
      if (left >= 4) {
        multiply_few_rows<Arch, 4>(end - begin, k.k, x, k.lda, w, k.ldb, c, k.ldc, finish);
        i += 4;
      } else if (left >= 2) {
        multiply_few_rows<Arch, 2>(end - begin, k.k, x, k.lda, w, k.ldb, c, k.ldc, finish);
        i += 2;
      } else {
        multiply_few_rows<Arch, 1>(end - begin, k.k, x, k.lda, w, k.ldb, c, k.ldc, finish);
        i += 1;
      }
    }
  });
}

/// The part of C that thread `part` of `parts` computes: the longer side is divided, in whole tiles or panels.
struct share {
  std::size_t begin = 0, end = 0;
};
[[nodiscard]] inline share share_of(std::size_t size, std::size_t unit, std::size_t part, std::size_t parts) {
  const std::size_t units = (size + unit - 1) / unit;
  return {std::min(size, units * part / parts * unit), std::min(size, units * (part + 1) / parts * unit)};
}

template <class Arch, class T, class C>
void product(const cpu_stream& stream, const kernel::matmul<host_memory, T, C>& k, std::byte* scratch) {
  using A = accumulate_t<T>;
  const strided<T> a{k.a.raw(), k.transpose_a ? 1 : k.lda, k.transpose_a ? k.lda : 1};
  const strided<T> b_transposed{k.b.raw(), k.transpose_b ? k.ldb : 1, k.transpose_b ? 1 : k.ldb};
  const bool by_columns = k.n >= k.m;
  // below some size a second thread costs more than it brings
  const std::size_t parts = k.operations() < 1e5 ? 1 : stream.threads();
  const std::size_t unit = by_columns ? panel_columns<A, Arch> : tile_rows<Arch>;
  const std::size_t bytes = product_scratch<A>::bytes(k.m, k.n, k.k, !std::is_same_v<C, A>);
  const auto part = [&](std::size_t p, std::size_t worker) {
    const share mine = share_of(by_columns ? k.n : k.m, unit, p, parts);
    if (mine.begin == mine.end) return;
    const std::size_t i = by_columns ? 0 : mine.begin;
    const std::size_t j = by_columns ? mine.begin : 0;
    const epilogue<A, T> finish{static_cast<A>(k.alpha), k.bias_n.empty() ? nullptr : k.bias_n.raw() + j, k.accumulate};
    multiply<Arch>(by_columns ? k.m : mine.end - mine.begin, by_columns ? mine.end - mine.begin : k.n, k.k,
                   strided<T>{a.at(i, 0), a.row, a.column}, strided<T>{b_transposed.at(j, 0), b_transposed.row, b_transposed.column},
                   k.c.raw() + i * k.ldc + j, k.ldc, finish, scratch + worker * bytes);
  };
  stream.parallel(parts, part);
}

/// Columns are divided among threads, so each column is summed from the first row to the last.
template <class Arch, class T, class G>
void sum_columns(const cpu_stream& stream, const kernel::column_sum<host_memory, T, G>& k) {
  using A = accumulate_t<T>;
  stream.parallel_ranges(k.c, 8 * simd::width<A, Arch>, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
      simd::batch<A, Arch> sum(A{0});
      for (std::size_t i = 0; i < k.n; ++i) sum = sum + simd::load<Arch>(k.x_nc.raw() + i * k.stride + j, count);
      G* out = k.sum_c.raw() + j;
      simd::store(out, sum + simd::load<Arch>(out, count), count);
    });
  });
}

}  // namespace cpu_kernels

template <class T, class C>
[[nodiscard]] std::size_t scratch_bytes(const cpu_properties& cpu, const kernel::matmul<host_memory, T, C>& k) {
  if (k.m <= cpu_kernels::few_rows && k.transpose_b && !k.transpose_a) return 0;
  return cpu.threads * cpu_kernels::product_scratch<accumulate_t<T>>::bytes(k.m, k.n, k.k, !std::is_same_v<C, accumulate_t<T>>);
}

template <class T, class C>
void run_kernel(cpu_stream& stream, const kernel::matmul<host_memory, T, C>& k, scratch_span<host_memory> scratch) {
  if (k.m <= cpu_kernels::few_rows && k.transpose_b && !k.transpose_a) cpu_kernels::few_rows_product<simd::native>(stream, k);
  else cpu_kernels::product<simd::native>(stream, k, scratch.raw());
}

template <class T, class G>
void run_kernel(cpu_stream& stream, const kernel::column_sum<host_memory, T, G>& k, scratch_span<host_memory>) {
  cpu_kernels::sum_columns<simd::native>(stream, k);
}

}  // namespace xtrain
