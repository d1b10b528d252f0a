// Packed operands for the innermost loop: a panel holds a few rows of A (or columns of B), contiguous per step along the depth.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <xtrain/device/cpu/simd.hpp>

namespace xtrain::cpu_kernels {

/// op(X)(i, j) is at data[i·row + j·column]; one stride is 1.
template <class T>
struct strided {
  const T* data = nullptr;
  std::size_t row = 0, column = 0;
  [[nodiscard]] const T* at(std::size_t i, std::size_t j) const { return data + i * row + j * column; }
  [[nodiscard]] strided from(std::size_t i, std::size_t j) const { return {at(i, j), row, column}; }
};

/// Prefetches the next panel to pack, a few lines at a time, during multiplication.
template <class T>
class panel_prefetch {
 public:
  panel_prefetch() = default;
  panel_prefetch(const strided<T>& x, std::size_t lanes, std::size_t depth)
      : next_(reinterpret_cast<const char*>(x.data)), step_((x.row == 1 ? x.column : x.row) * sizeof(T)),
        lines_((x.row == 1 ? depth : lanes)), length_((x.row == 1 ? lanes : depth) * sizeof(T)) {}

  /// Cache lines to prefetch.
  [[nodiscard]] std::size_t size() const { return lines_ * ((length_ + cache_line - 1) / cache_line); }
  void ask(std::size_t count) {
    for (; count > 0 && lines_ > 0; --count) {
      __builtin_prefetch(next_ + at_, 0, 2);
      at_ += cache_line;
      if (at_ >= length_) {
        at_ = 0;
        next_ += step_;
        lines_ -= 1;
      }
    }
  }

 private:
  static constexpr std::size_t cache_line = 64;
  const char* next_ = nullptr;
  std::size_t step_ = 0, lines_ = 0, length_ = 0, at_ = 0;
};

/// Element of panels: pairs of bf16 where the processor multiplies pairs, else the accumulate type.
template <class Arch, class T>
using unit = std::conditional_t<std::is_same_v<T, bf16> && simd::multiplies_pairs<Arch>, simd::bf16_pair, accumulate_t<T>>;

/// Elements along the depth per unit.
template <class U>
inline constexpr std::size_t depth_of_unit = std::is_same_v<U, simd::bf16_pair> ? 2 : 1;
template <class U>
[[nodiscard]] constexpr std::size_t units_of(std::size_t depth) {
  return (depth + depth_of_unit<U> - 1) / depth_of_unit<U>;
}

/// Blocks of sums along the depth: they depend on the depth alone, so that sums do not depend on how work is divided.
struct depth_blocks {
  /// Panels of A and B fit in L2 with their tiles.
  static constexpr std::size_t units_per_block = 384;
  std::size_t count = 1;
  std::size_t depth = 0;  // elements (last: fewer); entire units

  template <class U>
  [[nodiscard]] static depth_blocks of(std::size_t k) {
    const std::size_t units = units_of<U>(k), count = std::max<std::size_t>(1, (units + units_per_block - 1) / units_per_block);
    return {count, ((units + count - 1) / count + 3) / 4 * 4 * depth_of_unit<U>};
  }
  [[nodiscard]] std::size_t begin(std::size_t block) const { return block * depth; }
  [[nodiscard]] std::size_t depth_of(std::size_t block, std::size_t k) const { return std::min(depth, k - begin(block)); }
};

/// `count` elements with stride `step`, zero-padded.
template <class U, class T>
[[nodiscard]] XTRAIN_ALWAYS_INLINE U make_unit(const T* from, std::size_t step, std::size_t count) {
  if constexpr (std::is_same_v<U, simd::bf16_pair>) {
    const std::uint32_t low = from[0].bits, high = count > 1 ? from[step].bits : 0U;
    return {low | high << 16};
  } else {
    return static_cast<U>(*from);
  }
}

/// Transposes four rows of four units: `Rows` of them go to to[j·step …] for columns j. Shuffles of 128-bit registers everywhere: cheap, no lane crossing.
template <class Arch, std::size_t Rows, class T>
XTRAIN_ALWAYS_INLINE void transpose_4x4(const T* from, std::size_t row, void* to, std::size_t step) {
  using quad = simd::quad_arch<Arch>;
  const auto load = [&](std::size_t i) XTRAIN_LAMBDA_INLINE {
    const T* line = from + (i < Rows ? i : 0) * row;
    if constexpr (std::is_same_v<T, bf16> && simd::multiplies_pairs<Arch>) {
      std::array<float, 4> bits;
      std::memcpy(bits.data(), line, sizeof(bits));
      return simd::load<quad>(bits.data());
    } else {
      return simd::load<quad>(line);
    }
  };
  const auto r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
  const auto even_low = xsimd::zip_lo(r0, r2), odd_low = xsimd::zip_lo(r1, r3);
  const auto even_high = xsimd::zip_hi(r0, r2), odd_high = xsimd::zip_hi(r1, r3);
  const auto store = [&](std::size_t j, const auto& x) XTRAIN_LAMBDA_INLINE {
    std::array<float, 4> lanes;
    x.store_unaligned(lanes.data());
    std::memcpy(static_cast<char*>(to) + j * step * sizeof(float), lanes.data(), Rows * sizeof(float));
  };
  store(0, xsimd::zip_lo(even_low, odd_low));
  store(1, xsimd::zip_hi(even_low, odd_low));
  store(2, xsimd::zip_lo(even_high, odd_high));
  store(3, xsimd::zip_hi(even_high, odd_high));
}

/// `Rows` rows, contiguous along the depth.
template <class Arch, std::size_t Rows, class U, class T>
XTRAIN_ALWAYS_INLINE void pack_rows(const T* from, std::size_t row, std::size_t depth, U* to, std::size_t step) {
  constexpr std::size_t per_unit = depth_of_unit<U>;
  std::size_t p = 0;
  if constexpr (sizeof(U) == sizeof(float)) {
    for (; p + 4 * per_unit <= depth; p += 4 * per_unit)
      transpose_4x4<Arch, Rows>(from + p, row, static_cast<void*>(to + p / per_unit * step), step);
  }
  for (std::size_t unit = p / per_unit, end = units_of<U>(depth); unit < end; ++unit) {
    const std::size_t at = unit * per_unit;
    for (std::size_t i = 0; i < Rows; ++i) to[unit * step + i] = make_unit<U>(from + i * row + at, 1, std::min(per_unit, depth - at));
  }
}

template <std::size_t Lanes, class U, class T>
XTRAIN_ALWAYS_INLINE void pack_lanes_one_by_one(const T* from, std::size_t column, std::size_t count, U* to) {
  for (std::size_t i = 0; i < Lanes; ++i) to[i] = make_unit<U>(from + i, column, count);
}

/// `Lanes` units of a step along the depth, from a contiguous row (two for pairs).
template <class Arch, std::size_t Lanes, class U, class T>
XTRAIN_ALWAYS_INLINE void pack_lanes(const T* from, std::size_t column, std::size_t count, U* to) {
  using quad = simd::quad_arch<Arch>;
  if constexpr (std::is_same_v<U, T>) {
    std::memcpy(to, from, Lanes * sizeof(U));
  } else if constexpr (std::is_same_v<U, simd::bf16_pair> && Lanes >= 8) {
    // eight pairs at a time; the last eight may overlap the previous
    if (count < 2) return pack_lanes_one_by_one<Lanes>(from, column, count, to);
    XTRAIN_UNROLL for (std::size_t i = 0; i < Lanes; i += 8) {
      const std::size_t lane = std::min(i, Lanes - 8);
      simd::store_pairs<quad>(from + lane, from + column + lane, to + lane);
    }
  } else if constexpr (std::is_same_v<U, float> && Lanes >= 4) {
    XTRAIN_UNROLL for (std::size_t i = 0; i < Lanes; i += 4) {
      const std::size_t lane = std::min(i, Lanes - 4);
      simd::store(to + lane, simd::load<quad>(from + lane));
    }
  } else {
    pack_lanes_one_by_one<Lanes>(from, column, count, to);
  }
}

#ifdef __AVX512BF16__
/// Pairs from rows are packed 16 to a line. Measured: fp32, and pairs from columns, gain nothing.
template <class Arch, class U>
inline constexpr bool packs_lines = simd::is_avx512<Arch> && std::is_same_v<U, simd::bf16_pair>;
/// Fewer lanes are packed one by one.
inline constexpr std::size_t fewest_lanes_of_lines = 8;

/// Stores a line of up to 16 pairs. A full store is faster; it may write into lanes and lines that are packed later, never behind the last line.
XTRAIN_ALWAYS_INLINE void store_line(const __m512i& line, std::size_t lanes, bool full, simd::bf16_pair* to) {
  if (full) _mm512_storeu_si512(to, line);
  else _mm512_mask_storeu_epi32(to, static_cast<__mmask16>((1U << lanes) - 1), line);
}

/// Up to 16 rows, contiguous along the depth, to lanes from `first` on.
inline void pack_rows_as_lines(const strided<bf16>& x, std::size_t first, std::size_t lanes, std::size_t depth, simd::bf16_pair* to, std::size_t step) {
  constexpr std::size_t at_once = 32;
  const bool stays_in_line = first + 16 <= step;
  to += first;
  for (std::size_t p = 0; p < depth; p += at_once) {
    const std::size_t some = std::min(at_once, depth - p), pairs = (some + 1) / 2;
    const auto mask = static_cast<__mmask32>((std::uint64_t{1} << some) - 1);
    __m512i line[16];
    XTRAIN_UNROLL for (std::size_t i = 0; i < 16; ++i) line[i] = i < lanes ? _mm512_maskz_loadu_epi16(mask, x.at(first + i, p)) : _mm512_setzero_si512();
    simd::transpose_lines(line);
    const bool ends = p + some == depth;
    XTRAIN_UNROLL for (std::size_t u = 0; u < 16; ++u) {
      if (u >= pairs) break;
      store_line(line[u], lanes, stays_in_line || (first == 0 && !(ends && u + 1 == pairs)), to);
      to += step;
    }
  }
}

#endif

/// to[p][i] = x(i, p) for i < lanes and units p of the depth; lines are `step` apart, zero-padded from `lanes`. `Full` lanes are packed with constant sizes.
template <class Arch, std::size_t Full, class U, class T>
void pack_panel(const strided<T>& x, std::size_t lanes, std::size_t depth, U* to, std::size_t step) {
  constexpr std::size_t per_unit = depth_of_unit<U>;
  std::size_t done = 0;  // lanes
#ifdef __AVX512BF16__
  if constexpr (packs_lines<Arch, U>) {
    if (x.row != 1) {
      for (std::size_t some; lanes - done >= fewest_lanes_of_lines; done += some) {
        some = std::min<std::size_t>(16, lanes - done);
        pack_rows_as_lines(x, done, some, depth, to, step);
      }
    }
  }
#endif
  if (done == lanes) {
  } else if (x.row == 1) {
    for (std::size_t p = 0; p < depth; p += per_unit) {
      const T* from = x.at(0, p);
      const std::size_t count = std::min(per_unit, depth - p);
      U* line = to + p / per_unit * step;
      if (lanes == Full) {
        pack_lanes<Arch, Full>(from, x.column, count, line);
      } else {
        for (std::size_t i = 0; i < lanes; ++i) line[i] = make_unit<U>(from + i, x.column, count);
      }
    }
  } else {
    // a cache line of every row at a time: panel lines are written while cached
    constexpr std::size_t line = 64 / sizeof(T);
    for (std::size_t p = 0, left = depth; left > 0; p += line) {
      const std::size_t some = std::min(line, left);
      left -= some;
      U* at = to + p / per_unit * step;
      std::size_t i = done;
      for (; i + 4 <= lanes; i += 4) pack_rows<Arch, 4>(x.at(i, p), x.row, some, at + i, step);
      if (i + 2 <= lanes) {
        pack_rows<Arch, 2>(x.at(i, p), x.row, some, at + i, step);
        i += 2;
      }
      if (i < lanes) pack_rows<Arch, 1>(x.at(i, p), x.row, some, at + i, step);
    }
  }
  if (lanes < step)
    for (std::size_t p = 0; p < units_of<U>(depth); ++p) std::fill(to + p * step + lanes, to + (p + 1) * step, U{});
}

}  // namespace xtrain::cpu_kernels
