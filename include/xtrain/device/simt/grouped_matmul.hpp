// Products of a layer's experts in one launch: blocks find their tile of rows in the ranges.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/kernel/grouped_matmul.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/matmul.hpp>

namespace xtrain {

namespace simt {

/// Blocks: columns; tiles of rows, expert after expert, for the maximum number of tiles.
template <class T, class C, bool TransposeB>
struct grouped_tiles {
  using product = matmul_tiles<T, C, false, TransposeB>;
  using shared = typename product::shared;
  static constexpr int threads = product::threads, blocks_at_once = product::blocks_at_once;
  product one;  // of the first expert
  const token* range_e2;
  int experts;
  std::size_t distance;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    int tile = block_y(), e = 0, rows = 0;
    for (; e < experts; ++e) {
      rows = range_e2[2 * e + 1];
      const int tiles = (rows + product::tile_m - 1) / product::tile_m;
      if (tile < tiles) break;
      tile -= tiles;
    }
    if (e == experts) return;  // the entire block
    const auto first = static_cast<std::size_t>(range_e2[2 * e]);
    one.multiply_tile(s, one.a + first * one.lda, one.b + static_cast<std::size_t>(e) * distance, one.c + first * one.ldc, rows, one.k,
                      tile * product::tile_m);
  }
};

/// Weight gradient. Blocks: columns, rows, experts.
template <class T, class C>
struct grouped_weight_tiles {
  using product = matmul_tiles<T, C, true, false>;
  using shared = typename product::shared;
  static constexpr int threads = product::threads, blocks_at_once = product::blocks_at_once;
  product one;  // of the first expert
  const token* range_e2;
  std::size_t distance;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto e = static_cast<std::size_t>(block_z());
    const int depth = range_e2[2 * e + 1];
    if (depth == 0 && one.accumulate) return;  // the entire block
    const auto first = static_cast<std::size_t>(range_e2[2 * e]);
    one.multiply_tile(s, one.a + first * one.lda, one.b + first * one.ldb, one.c + e * distance, one.m, depth, block_y() * product::tile_m);
  }
};

}  // namespace simt

template <simt::launches S, class M, class T, class C>
requires(simt::up_to_float<T>&& simt::up_to_float<C>) void run_kernel(S& stream, const kernel::grouped_matmul<M, T, C>& k, scratch_span<M>) {
  kernel::check_arity<15>(k);
  if (k.experts == 0 || k.m == 0 || k.n == 0) return;
  const int columns = simt::blocks_of(k.n, simt::matmul_tiles<T, C, false, false>::tile_n);
  constexpr std::size_t height = simt::matmul_tiles<T, C, false, false>::tile_m;
  const bool apart = k.distance % simt::wide<T> == 0;  // all matrices are aligned if the first is
  if (k.transpose_a) {
    using tiles = simt::grouped_weight_tiles<T, C>;
    auto one = simt::tiles_of<typename tiles::product>(k.of(0, 0, k.k), nullptr);
    one.aligned_c = one.aligned_c && k.distance % simt::wide<C> == 0;
    stream.launch(tiles{one, k.range_e2.raw(), k.distance},
                  {columns, simt::blocks_of(k.m, height), static_cast<int>(k.experts)});
    return;
  }
  simt::choose(k.transpose_b, [&](auto b) {
    using tiles = simt::grouped_tiles<T, C, decltype(b)::value>;
    auto one = simt::tiles_of<typename tiles::product>(k.of(0, 0, k.m), nullptr);
    one.aligned_b = one.aligned_b && apart;
    // an expert fills all its tiles but the last
    const std::size_t most = (k.m + std::min(k.m, k.experts) * (height - 1)) / height;
    stream.launch(tiles{one, k.range_e2.raw(), static_cast<int>(k.experts), k.distance}, {columns, static_cast<int>(most), 1});
  });
}

}  // namespace xtrain
