// Loops for peaks: only multiply-adds, copies, or reads.
#pragma once

#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/cpu/matrix_tiles.hpp>
#include <xtrain/device/cpu/packing.hpp>
#include <xtrain/device/cpu/simd.hpp>

namespace xtrain::cpu_kernels {

/// Enough independent chains to hide latency. Returns the number of operations; `keep` prevents removal of the loop.
template <class Arch, class T>
[[nodiscard]] double multiply_add_chains(std::size_t rounds, float& keep) {
#ifdef XTRAIN_MATRIX_TILES
  if constexpr (std::is_same_v<T, bf16>)
    if (has_matrix_tiles()) return multiply_tiles_repeatedly(rounds);
#endif
  using U = unit<Arch, T>;
  using batch = simd::batch<float, Arch>;
  constexpr std::size_t chains = 12;
  batch sum[chains];
  XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = batch(static_cast<float>(c));
  // as bits of bf16 pairs: 1 and almost 0
  const batch a(1.0f), b(0.001f);
  for (std::size_t i = 0; i < rounds; ++i) {
    XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = simd::multiply_add_units<U>(a, b, sum[c]);
  }
  XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) keep += simd::sum(sum[c]);
  return 2.0 * chains * static_cast<double>(rounds * simd::width<float, Arch> * depth_of_unit<U>);
}

/// Compiled here; compiled_once.hpp and levels.hpp declare separately compiled counterparts.
struct peak_loops_here {
  [[nodiscard]] static double multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep) {
    return of_bf16 ? cpu_kernels::multiply_add_chains<simd::native, bf16>(rounds, keep)
                   : cpu_kernels::multiply_add_chains<simd::native, float>(rounds, keep);
  }
  /// `count`: a multiple of every vector's size
  static void copy(const float* from, float* to, std::size_t count) {
    using batch = simd::batch<float, simd::native>;
    for (std::size_t i = 0; i < count; i += batch::size) batch::load_unaligned(from + i).store_unaligned(to + i);
  }
  /// `count`: a multiple of 64
  [[nodiscard]] static float sum(const float* from, std::size_t count) {
    using batch = simd::batch<float, simd::native>;
    constexpr std::size_t chains = 4;
    batch sums[chains];
    XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sums[c] = batch(0.0f);
    for (std::size_t i = 0; i < count; i += chains * batch::size) {
      XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sums[c] = sums[c] + batch::load_unaligned(from + i + c * batch::size);
    }
    return simd::sum(sums[0] + sums[1] + (sums[2] + sums[3]));
  }
};

}  // namespace xtrain::cpu_kernels
