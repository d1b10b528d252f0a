// Products in tiles of 128 × 128 of C, operands' tiles in three stages. On NVIDIA GPUs this is the fallback of cuBLASLt.
#pragma once

#include <cstddef>

#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/device/simt/language/tensor_core.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain {

namespace simt {

template <class T, class C, bool TransposeA, bool TransposeB>
struct matmul_tiles {
  static constexpr int threads = 256, blocks_at_once = is_16_bits<T> ? 2 : 1, tile_m = 128, tile_n = 128, tile_k = is_16_bits<T> ? 32 : 16, stages = 3;
  static constexpr int warp_m = 64, warp_n = 32, warps_n = tile_n / warp_n;
  static constexpr int a_rows = TransposeA ? tile_k : tile_m, a_columns = TransposeA ? tile_m : tile_k;
  static constexpr int b_rows = TransposeB ? tile_n : tile_k, b_columns = TransposeB ? tile_k : tile_n;
  static constexpr int a_stride = a_columns + wide<T>, b_stride = b_columns + wide<T>;  // 16 bytes more: eight rows lie in different banks
  static constexpr int out_stride = warp_n + wide<float>;
  struct shared {
    shared_array<T, stages * a_rows * a_stride> a;
    shared_array<T, stages * b_rows * b_stride> b;
    shared_array<float, threads / warp_width * 16 * out_stride> out;  // 16 rows per warp, between lanes and rows
  };
  const T *a, *b, *bias;
  C* c;
  int m, n, k;
  std::size_t lda, ldb, ldc;
  float alpha;
  bool accumulate, aligned_a, aligned_b, aligned_c;
  const token* range;  // rows of a and c, with TransposeA of a and b; null: all

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const T *a_at = a, *b_at = b;
    C* c_at = c;
    int rows = m, depth = k;
    if (range != nullptr) {
      const auto first = static_cast<std::size_t>(range[0]);
      a_at += first * lda;
      if (TransposeA) b_at += first * ldb, depth = range[1];
      else c_at += first * ldc, rows = range[1];
    }
    const int m0 = block_y() * tile_m;
    if (m0 >= rows) return;  // the entire block
    multiply_tile(s, a_at, b_at, c_at, rows, depth, m0);
  }
  /// The tile of c from row m0 and the block's column on; c has `rows` rows.
  XTRAIN_SIMT_FN void multiply_tile(shared& s, const T* a_at, const T* b_at, C* c_at, int rows, int depth, int m0) const {
    const int n0 = block_x() * tile_n;
    const int row = warp() / warps_n * warp_m, column = warp() % warps_n * warp_n;
    const int steps = (depth + tile_k - 1) / tile_k;
    const auto bring = [&](int step) {
      if (step < steps) {
        const int stage = step % stages, k0 = step * tile_k;
        const int ar = TransposeA ? k0 : m0, ac = TransposeA ? m0 : k0, br = TransposeB ? n0 : k0, bc = TransposeB ? k0 : n0;
        copy_tile<T, a_rows, a_columns, a_stride, threads>(s.a.at(stage * a_rows * a_stride), at(a_at, ar, ac, lda), lda,
                                                           (TransposeA ? depth : rows) - ar, (TransposeA ? rows : depth) - ac, aligned_a);
        copy_tile<T, b_rows, b_columns, b_stride, threads>(s.b.at(stage * b_rows * b_stride), at(b_at, br, bc, ldb), ldb,
                                                           (TransposeB ? n : depth) - br, (TransposeB ? depth : n) - bc, aligned_b);
      }
      commit_copies();
    };
    fragment_c sum[warp_m / 16][warp_n / 8];
    XTRAIN_SIMT_UNROLL
    for (int i = 0; i < warp_m / 16; ++i) XTRAIN_SIMT_UNROLL
    for (int j = 0; j < warp_n / 8; ++j) set_zero(sum[i][j]);
    XTRAIN_SIMT_UNROLL
    for (int step = 0; step < stages - 1; ++step) bring(step);
    for (int step = 0; step < steps; ++step) {
      wait_for_copies<stages - 2>();
      sync();  // this step's tiles have arrived; tiles to be replaced are no longer read
      bring(step + stages - 1);
      const T* const a_tile = s.a.at(step % stages * a_rows * a_stride);
      const T* const b_tile = s.b.at(step % stages * b_rows * b_stride);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < tile_k; x += 16) {
        fragment_a<T> a_part[warp_m / 16];
        fragment_b<T> b_part[warp_n / 8];
        XTRAIN_SIMT_UNROLL
        for (int i = 0; i < warp_m / 16; ++i) {
          const int at_m = row + i * 16;
          a_part[i] = load_a<T, TransposeA>(TransposeA ? a_tile + x * a_stride + at_m : a_tile + at_m * a_stride + x, a_stride);
        }
        XTRAIN_SIMT_UNROLL
        for (int j = 0; j < warp_n / 16; ++j) {
          const int at_n = column + j * 16;
          load_b_pair<T, TransposeB>(b_part[2 * j], b_part[2 * j + 1],
                                     TransposeB ? b_tile + at_n * b_stride + x : b_tile + x * b_stride + at_n, b_stride);
        }
        XTRAIN_SIMT_UNROLL
        for (int i = 0; i < warp_m / 16; ++i) XTRAIN_SIMT_UNROLL
        for (int j = 0; j < warp_n / 8; ++j) multiply<T>(sum[i][j], a_part[i], b_part[j]);
      }
    }
    constexpr int width = wide<C>, pieces = warp_n / width;
    const int out = warp() * 16 * out_stride;
    XTRAIN_SIMT_UNROLL
    for (int i = 0; i < warp_m / 16; ++i) {
      XTRAIN_SIMT_UNROLL
      for (int j = 0; j < warp_n / 8; ++j) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) s.out[out + c_row(e) * out_stride + j * 8 + c_column(e)] = sum[i][j].r[e];
      sync_warp();
      XTRAIN_SIMT_UNROLL
      for (int q = 0; q < 16 * pieces / warp_width; ++q) {
        const int piece = q * warp_width + lane(), of_warp_y = piece / pieces, of_warp_x = piece % pieces * width;
        const int y = m0 + row + i * 16 + of_warp_y, x = n0 + column + of_warp_x;
        if (y < rows && x < n)
          write(c_at + static_cast<std::size_t>(y) * ldc + static_cast<std::size_t>(x), x,
                s.out.at(out + of_warp_y * out_stride + of_warp_x));
      }
      sync_warp();  // before the next rows replace these
    }
  }

 private:
  /// A row's neighbours in C from column x on.
  XTRAIN_SIMT_FN void write(C* to, int x, const float* sums) const {
    constexpr int width = wide<C>;
    const int exist = smaller(width, n - x);
    const bool at_once = aligned_c && exist == width;
    vector_of<C, width> old{}, fresh;
    if (accumulate) {
      if (at_once) {
        old = load<width>(static_cast<const C*>(to));
      } else {
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < width; ++e)
          if (e < exist) old.v[e] = to[e];
      }
    }
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < width; ++e) {
      float value = alpha * sums[e];
      if (bias != nullptr && e < exist) value += widen(bias[x + e]);
      if (accumulate) value += widen(old.v[e]);
      fresh.v[e] = rounded<C>(value);
    }
    if (at_once) {
      store<width>(to, fresh);
    } else {
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < width; ++e)
        if (e < exist) to[e] = fresh.v[e];
    }
  }
  XTRAIN_SIMT_FN static const T* at(const T* from, int i, int j, std::size_t stride) {
    return from + static_cast<std::size_t>(i) * stride + static_cast<std::size_t>(j);
  }
};

template <class Tiles, class M, class T, class C>
[[nodiscard]] Tiles tiles_of(const kernel::matmul<M, T, C>& k, const token* range) {
  return {k.a.raw(), k.b.raw(), k.bias_n.raw(), k.c.raw(), static_cast<int>(k.m), static_cast<int>(k.n), static_cast<int>(k.k),
          k.lda, k.ldb, k.ldc, narrowed(k.alpha), k.accumulate, is_aligned(k.a.raw()) && k.lda % wide<T> == 0,
          is_aligned(k.b.raw()) && k.ldb % wide<T> == 0, is_aligned(k.c.raw()) && k.ldc % wide<C> == 0, range};
}

template <launches Stream, class M, class T, class C>
void launch_matmul(Stream& stream, const kernel::matmul<M, T, C>& k, const token* range) {
  if (k.m == 0 || k.n == 0) return;
  choose(k.transpose_a, [&](auto a) {
    choose(k.transpose_b, [&](auto b) {
      using tiles = matmul_tiles<T, C, decltype(a)::value, decltype(b)::value>;
      stream.launch(tiles_of<tiles>(k, range), {blocks_of(k.n, tiles::tile_n), blocks_of(k.m, tiles::tile_m), 1});
    });
  });
}

}  // namespace simt

template <simt::launches S, class M, class T, class C>
requires(simt::up_to_float<T>&& simt::up_to_float<C>) void run_kernel(S& stream, const kernel::matmul<M, T, C>& k, scratch_span<M>) {
  kernel::check_arity<14>(k);
  simt::launch_matmul(stream, k, nullptr);
}
template <simt::launches S, class M, class T, class C>
requires(simt::up_to_float<T>&& simt::up_to_float<C>) void run_kernel(S& stream, const kernel::in_rows<kernel::matmul<M, T, C>, M>& k,
                                                                      scratch_span<M>) {
  simt::launch_matmul(stream, k.whole, k.range_2.raw());
}

}  // namespace xtrain
