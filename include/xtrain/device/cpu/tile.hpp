// The innermost loop of products: a tile of C whose sums stay in registers while panels of A and B stream through.
// [Goto & van de Geijn 2008; Van Zee & van de Geijn 2015]
//
// An element of C is summed along the depth in the same order at any position in a tile.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <xtrain/device/cpu/packing.hpp>
#include <xtrain/device/cpu/simd.hpp>

namespace xtrain::cpu_kernels {

/// Rows per tile: leaves registers for two vectors of B and one of A.
template <class Arch>
inline constexpr std::size_t tile_rows = simd::registers<Arch> >= 32 ? 14 : 6;
template <class A, class Arch>
inline constexpr std::size_t panel_columns = 2 * simd::width<A, Arch>;
inline constexpr std::size_t widest_panel = 64;  // columns; bound for all architectures

/// Rows of the next panel of A with `left` remaining: full tiles, then smaller.
template <class Arch>
[[nodiscard]] constexpr std::size_t next_panel_rows(std::size_t left) {
  constexpr std::size_t most = tile_rows<Arch>;
  if (left >= most) return most;
  if (most > 8 && left >= 8) return 8;
  return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/// Columns of the next panel of B with `left` remaining: two vectors, or one if enough.
template <class A, class Arch>
[[nodiscard]] constexpr std::size_t next_panel_columns(std::size_t left) {
  return left > simd::width<A, Arch> ? panel_columns<A, Arch> : simd::width<A, Arch>;
}

/// Finishes a tile: C = alpha · (sum + earlier sums) (+ bias) (+ C).
template <class A, class T>
struct epilogue {
  A alpha{1};
  const T* bias = nullptr;    // at the tile's first column, or null
  bool add = false;           // add to C
  const A* before = nullptr;  // sums of earlier depth blocks at the tile's first element, or null
  std::size_t before_row = 0;

  [[nodiscard]] epilogue at(std::size_t i, std::size_t j) const {
    return {alpha, bias == nullptr ? nullptr : bias + j, add, before == nullptr ? nullptr : before + i * before_row + j, before_row};
  }
};

/// Writes sums to C's first `columns` columns. Conditions are tested once per tile: in shallow products the epilogue takes as long as the sums.
template <class A, class Arch, std::size_t Rows, std::size_t Vectors, class C, class T>
XTRAIN_ALWAYS_INLINE void finish_tile(simd::batch<A, Arch> (&sum)[Rows][Vectors], C* c, std::size_t ldc, const epilogue<A, T>& end) {
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t w = simd::width<A, Arch>;
  const auto each = [&](auto&& step) XTRAIN_LAMBDA_INLINE {
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) { XTRAIN_UNROLL for (std::size_t v = 0; v < Vectors; ++v) step(sum[i][v], i, v); }
  };
  // step(sum, x) per vector, x from row of(i), two vectors at a time if possible
  const auto each_with = [&](const auto& of, auto&& step) XTRAIN_LAMBDA_INLINE {
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      if constexpr (Vectors % 2 == 0) {
        XTRAIN_UNROLL for (std::size_t v = 0; v < Vectors; v += 2) {
          const auto two = simd::load_two<Arch>(of(i) + v * w);
          step(sum[i][v], two[0]);
          step(sum[i][v + 1], two[1]);
        }
      } else {
        XTRAIN_UNROLL for (std::size_t v = 0; v < Vectors; ++v) step(sum[i][v], simd::load<Arch>(of(i) + v * w));
      }
    }
  };
  const batch alpha(end.alpha);
  const auto plus = [](batch& s, const batch& x) XTRAIN_LAMBDA_INLINE { s = s + x; };
  const auto scaled_plus = [&](batch& s, const batch& x) XTRAIN_LAMBDA_INLINE { s = simd::multiply_add(s, alpha, x); };
  const auto row_of_c = [&](std::size_t i) XTRAIN_LAMBDA_INLINE { return c + i * ldc; };
  if (end.before != nullptr) each_with([&](std::size_t i) XTRAIN_LAMBDA_INLINE { return end.before + i * end.before_row; }, plus);
  if (end.bias != nullptr) {
    each_with([&](std::size_t) XTRAIN_LAMBDA_INLINE { return end.bias; }, scaled_plus);
    if (end.add) each_with(row_of_c, plus);
  } else if (end.add) {
    each_with(row_of_c, scaled_plus);
  } else {
    each([&](batch& s, std::size_t, std::size_t) XTRAIN_LAMBDA_INLINE { s = s * alpha; });
  }
  if constexpr (Vectors % 2 == 0) {
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      XTRAIN_UNROLL for (std::size_t v = 0; v < Vectors; v += 2) simd::store_two(c + i * ldc + v * w, sum[i][v], sum[i][v + 1]);
    }
  } else {
    each([&](batch& s, std::size_t i, std::size_t v) XTRAIN_LAMBDA_INLINE { simd::store(c + i * ldc + v * w, s); });
  }
}

/// For the first `columns` at C's edge, through a full-size copy.
template <class A, class Arch, std::size_t Rows, std::size_t Vectors, class C, class T>
void finish_edge(simd::batch<A, Arch> (&sum)[Rows][Vectors], C* c, std::size_t ldc, std::size_t columns, epilogue<A, T> end) {
  constexpr std::size_t width = Vectors * simd::width<A, Arch>;
  std::array<C, Rows * width> whole{};
  std::array<A, Rows * width> before{};
  std::array<T, width> bias{};
  for (std::size_t i = 0; i < Rows; ++i) {
    if (end.add) std::copy_n(c + i * ldc, columns, whole.data() + i * width);
    if (end.before != nullptr) std::copy_n(end.before + i * end.before_row, columns, before.data() + i * width);
  }
  if (end.before != nullptr) {
    end.before = before.data();
    end.before_row = width;
  }
  if (end.bias != nullptr) {
    std::copy_n(end.bias, columns, bias.data());
    end.bias = bias.data();
  }
  finish_tile(sum, whole.data(), width, end);
  for (std::size_t i = 0; i < Rows; ++i) std::copy_n(whole.data() + i * width, columns, c + i * ldc);
}

/// Source of a tile's units: consecutive lines of `Step` units.
template <class Arch, std::size_t Step, class U>
struct packed_lines {
  const U* data = nullptr;
  [[nodiscard]] XTRAIN_ALWAYS_INLINE const U* at(std::size_t i) const { return data + i; }
  template <class A>
  [[nodiscard]] XTRAIN_ALWAYS_INLINE auto load(std::size_t v) const {
    return simd::load_units<Arch>(data + v * simd::width<A, Arch>);
  }
  XTRAIN_ALWAYS_INLINE void next() { data += Step; }
};

/// sum over p < depth of a[p][i] · b[p][j], for Rows rows and `columns` columns of C (at most Vectors vectors).
template <class Arch, class U, std::size_t Rows, std::size_t Vectors, class Left, class Right, class C, class A, class T>
XTRAIN_ALWAYS_INLINE void tile_from(std::size_t depth, Left a, Right b, C* c, std::size_t ldc, std::size_t columns, const epilogue<A, T>& end) {
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t w = simd::width<A, Arch>;
  batch sum[Rows][Vectors];
  XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) { XTRAIN_UNROLL for (std::size_t v = 0; v < Vectors; ++v) sum[i][v] = batch(A{0}); }
  XTRAIN_UNROLL_4 for (std::size_t p = 0; p < depth; ++p) {
    batch b_p[Vectors];
    XTRAIN_UNROLL for (std::size_t v = 0; v < Vectors; ++v) b_p[v] = b.template load<A>(v);
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      if constexpr (Vectors == 1) {
        sum[i][0] = simd::multiply_add_unit<U>(a.at(i), b_p[0], sum[i][0]);
      } else {
        const batch a_p = simd::broadcast_unit<U, Arch>(a.at(i));
        XTRAIN_UNROLL for (std::size_t v = 0; v < Vectors; ++v) sum[i][v] = simd::multiply_add_units<U>(a_p, b_p[v], sum[i][v]);
      }
    }
    a.next();
    b.next();
  }
  if (columns == Vectors * w) finish_tile(sum, c, ldc, end);
  else finish_edge(sum, c, ldc, columns, end);
}

/// From packed panels.
template <class Arch, std::size_t Rows, std::size_t Vectors, class U, class C, class A, class T>
void tile(std::size_t depth, const U* a_panel, const U* b_panel, C* c, std::size_t ldc, std::size_t columns, const epilogue<A, T>& end) {
  constexpr std::size_t line = Vectors * simd::width<A, Arch>, cache_line = 64 / sizeof(C);
  // C may be in main memory: prefetch it during the sums
  XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
    XTRAIN_UNROLL for (std::size_t j = 0; j < line; j += cache_line) __builtin_prefetch(c + i * ldc + j, 0, 2);
  }
  tile_from<Arch, U, Rows, Vectors>(depth, packed_lines<Arch, Rows, U>{a_panel}, packed_lines<Arch, line, U>{b_panel}, c, ldc, columns, end);
}

template <class Arch, std::size_t Vectors, class U, class C, class A, class T>
XTRAIN_ALWAYS_INLINE void tile_of(std::size_t rows, std::size_t depth, const U* a_panel, const U* b_panel, C* c, std::size_t ldc,
                           std::size_t columns, const epilogue<A, T>& end) {
  constexpr std::size_t most = tile_rows<Arch>;
  switch (rows) {
    case most:
      return tile<Arch, most, Vectors>(depth, a_panel, b_panel, c, ldc, columns, end);
    case 8:
      return tile<Arch, 8, Vectors>(depth, a_panel, b_panel, c, ldc, columns, end);
    case 4:
      return tile<Arch, 4, Vectors>(depth, a_panel, b_panel, c, ldc, columns, end);
    case 2:
      return tile<Arch, 2, Vectors>(depth, a_panel, b_panel, c, ldc, columns, end);
    default:
      return tile<Arch, 1, Vectors>(depth, a_panel, b_panel, c, ldc, columns, end);
  }
}

/// Packed panels of A: row i's begins at data + i · units, the packed depth.
template <class U>
struct packed_rows {
  const U* data = nullptr;
  std::size_t units = 0;
  [[nodiscard]] packed_rows from(std::size_t row) const { return {data + row * units, units}; }
};

/// A panel of B times panels of A: `rows` by `columns` of C, over the first `depth` units. Prefetches the next operand between tiles.
template <class Arch, class U, class C, class A, class T>
void multiply_panel(std::size_t rows, std::size_t columns, std::size_t depth, packed_rows<U> a, const U* b, C* c, std::size_t ldc,
                    const epilogue<A, T>& end, panel_prefetch<T> upcoming = {}) {
  const bool one_vector = columns <= simd::width<A, Arch>;
  const std::size_t asked = upcoming.size() / std::max<std::size_t>(1, rows / tile_rows<Arch>) + 1;
  for (std::size_t i = 0; i < rows;) {
    const std::size_t some = next_panel_rows<Arch>(rows - i);
    upcoming.ask(asked);
    if (one_vector) tile_of<Arch, 1>(some, depth, a.from(i).data, b, c + i * ldc, ldc, columns, end.at(i, 0));
    else tile_of<Arch, 2>(some, depth, a.from(i).data, b, c + i * ldc, ldc, columns, end.at(i, 0));
    i += some;
  }
}

/// Consecutive panels of A: panel i begins at to + i · units of the depth.
template <class Arch, class U, class T>
void pack_a(const strided<T>& a, std::size_t rows, std::size_t depth, U* to) {
  // rows of A are columns in memory: a cache line serves several panels, so pack few lines at a time for all
  const std::size_t at_once = a.row == 1 ? 16 : depth;
  for (std::size_t p = 0; p < depth; p += at_once) {
    const std::size_t some_depth = std::min(at_once, depth - p);
    for (std::size_t i = 0; i < rows;) {
      const std::size_t some = next_panel_rows<Arch>(rows - i);
      pack_panel<Arch, tile_rows<Arch>>(a.from(i, p), some, some_depth, to + i * units_of<U>(depth) + p / depth_of_unit<U> * some, some);
      i += some;
    }
  }
}

/// A panel of B: at most panel_columns columns.
template <class Arch, class A, class U, class T>
void pack_b(const strided<T>& b_transposed, std::size_t columns, std::size_t depth, U* to) {
  pack_panel<Arch, panel_columns<A, Arch>>(b_transposed, columns, depth, to, next_panel_columns<A, Arch>(columns));
}

}  // namespace xtrain::cpu_kernels
