// Token embeddings and rotary positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain {

namespace simt {

/// Element i is in row i / c; vectors lie in one row.
template <class T>
struct embedding_op {
  const token* index;
  const T* table;
  T* y;
  std::size_t v, c;
  token first;
  float scale;
  bool accumulate;

  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const auto row = static_cast<std::int64_t>(index[i / c]) - first;
    const bool exists = row >= 0 && row < static_cast<std::int64_t>(v);
    vector_of<T, N> x_n{};
    if (exists) x_n = load<N>(table + static_cast<std::size_t>(row) * c + i % c);
    vector_of<T, N> y_n{};
    if (accumulate) y_n = load<N>(static_cast<const T*>(y + i));
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const float value = exists ? scale * widen(x_n.v[e]) : 0.0f;
      y_n.v[e] = rounded<T>(accumulate ? widen(y_n.v[e]) + value : value);
    }
    store<N>(y + i, y_n);
  }
};

/// Sort key: the table's row, then the place. Rows without one come last.
inline constexpr std::uint64_t no_table_row = 0xffffffff;
[[nodiscard]] XTRAIN_SIMT_FN std::uint64_t table_row_of(std::uint64_t key) { return key >> 32; }

/// Number of `count` ascending, distinct keys below `key`.
template <class Keys>
XTRAIN_SIMT_FN int less_than(std::uint64_t key, const Keys& keys, int count) {
  int low = 0;
  while (low < count) {
    const int middle = (low + count) / 2;
    if (keys(middle) < key) low = middle + 1;
    else count = middle;
  }
  return low;
}
/// Place of key i in the merge of its ascending run with the adjacent one, of up to `width` keys each; `n`: number of all keys.
template <class Keys>
XTRAIN_SIMT_FN int place_in_merged(int i, int width, int n, const Keys& keys) {
  const int run = i / width, first = run / 2 * 2 * width, other = (run % 2 == 0 ? run + 1 : run - 1) * width;
  const int others = smaller(width, larger(n - other, 0));
  return first + (i - run * width) +
         less_than(
             keys(i), [&](int j) { return keys(other + j); }, others);
}

/// Keys of rows, ascending per tile.
struct sort_tiles {
  static constexpr int threads = 256, tile = 1024;
  struct shared {
    shared_array<std::uint64_t, 2 * tile> keys;
  };
  const token* index;
  std::uint64_t* keys;
  int n;
  std::int64_t v;
  token first, padding;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int begin = block_x() * tile, count = smaller(tile, n - begin);
    for (int i = thread(); i < count; i += threads) {
      const token mine = index[begin + i];
      const std::int64_t row = static_cast<std::int64_t>(mine) - first;
      const bool exists = mine != padding && row >= 0 && row < v;
      s.keys[i] = (exists ? static_cast<std::uint64_t>(row) : no_table_row) << 32 | static_cast<std::uint64_t>(begin + i);
    }
    int from = 0;
    for (int width = 1; width < count; width *= 2) {
      sync();
      const auto keys_of_tile = [&](int i) { return s.keys[from + i]; };
      for (int i = thread(); i < count; i += threads)
        s.keys[tile - from + place_in_merged(i, width, count, keys_of_tile)] = s.keys[from + i];
      from = tile - from;
    }
    sync();
    for (int i = thread(); i < count; i += threads) keys[begin + i] = s.keys[from + i];
  }
};
/// Merges runs of `width` keys in pairs.
struct merge_runs {
  const std::uint64_t* from;
  std::uint64_t* to;
  int n, width;
  XTRAIN_SIMT_FN void operator()(std::size_t i) const {
    to[place_in_merged(static_cast<int>(i), width, n, [&](int j) { return from[j]; })] = from[i];
  }
};
/// Sorts rows stably by table row, in 2 · n words.
///   returns   n ascending keys
template <launches Stream>
[[nodiscard]] const std::uint64_t* launch_sort(Stream& stream, const token* index, int n, std::int64_t v, token first, token padding,
                                               std::uint64_t* words) {
  stream.launch(sort_tiles{index, words, n, v, first, padding}, {blocks_of(static_cast<std::size_t>(n), sort_tiles::tile), 1, 1});
  std::uint64_t *from = words, *to = words + n;
  for (int width = sort_tiles::tile; width < n; width *= 2) {
    launch_items(stream, merge_runs{from, to, n, width}, static_cast<std::size_t>(n));
    std::swap(from, to);
  }
  return from;
}

/// A block per sorted row and range of columns; the first of equal table rows adds all, in order, each rounded to G.
template <class T, class G, int Width>
struct embedding_backward_rows {
  static constexpr int threads = 128, columns = threads * Width;
  struct shared {};
  const std::uint64_t* keys;
  const T* dy;
  G* dtable;
  int n;
  std::size_t c;
  float scale;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const int begin = block_x();
    const std::uint64_t row = table_row_of(keys[begin]);
    if (row == no_table_row || (begin > 0 && table_row_of(keys[begin - 1]) == row)) return;
    const std::size_t j = static_cast<std::size_t>(block_y()) * columns + static_cast<std::size_t>(thread()) * Width;
    if (j >= c) return;
    G* const to = dtable + static_cast<std::size_t>(row) * c + j;
    vector_of<G, Width> sum = load<Width>(static_cast<const G*>(to));
    constexpr int at_once = 4;  // loads in flight together; sums stay in order
    bool is_more = true;
    for (int i = begin; is_more; i += at_once) {
      vector_of<T, Width> dy_n[at_once];
      int rows = 0;
      XTRAIN_SIMT_UNROLL
      for (int r = 0; r < at_once; ++r) {
        is_more = is_more && i + r < n && table_row_of(keys[i + r]) == row;
        if (is_more) dy_n[r] = load<Width>(dy + static_cast<std::size_t>(keys[i + r] & 0xffffffff) * c + j), rows = r + 1;
      }
      XTRAIN_SIMT_UNROLL
      for (int r = 0; r < at_once; ++r) {
        if (r >= rows) break;
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < Width; ++e) sum.v[e] = rounded<G>(widen(sum.v[e]) + scale * widen(dy_n[r].v[e]));
      }
    }
    store<Width>(to, sum);
  }
};

/// A block per row, a thread per Width pairs (i, i + d/2) of a head.
template <class T, int Width>
struct rotary_rows {
  static constexpr int threads = 128;
  struct shared {};
  const token* position;
  const float* cos_sin;
  T* x;
  int heads, half, positions;
  std::size_t stride, head_stride;
  float direction;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const auto row = static_cast<std::size_t>(block_x());
    const token now = position[row];
    if (now < 0 || now >= positions) return;
    const float* const table = cos_sin + static_cast<std::size_t>(now) * 2 * static_cast<std::size_t>(half);
    const int of_head = half / Width;
    for (int number = thread(); number < heads * of_head; number += threads) {
      const int head = number / of_head, pair = number % of_head * Width;
      T* const low = x + row * stride + static_cast<std::size_t>(head) * head_stride + pair;
      auto a = load<Width>(static_cast<const T*>(low)), b = load<Width>(static_cast<const T*>(low + half));
      const auto cosine = load<Width>(table + pair), sine = load<Width>(table + half + pair);
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < Width; ++e) {
        const float a_e = widen(a.v[e]), b_e = widen(b.v[e]), sine_e = direction * sine.v[e];
        a.v[e] = rounded<T>(a_e * cosine.v[e] - b_e * sine_e);
        b.v[e] = rounded<T>(b_e * cosine.v[e] + a_e * sine_e);
      }
      store<Width>(low, a);
      store<Width>(low + half, b);
    }
  }
};

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::embedding<M, T>& k, scratch_span<M>) {
  kernel::check_arity<9>(k);
  const simt::embedding_op<T> op{k.index_n.raw(), k.table_vc.raw(), k.y_nc.raw(), k.v, k.c, k.first, simt::narrowed(k.scale), k.accumulate};
  simt::launch_each<simt::elements_of<T>>(stream, op, k.n * k.c,
                                          k.c % simt::elements_of<T> == 0 && simt::all_aligned(k.table_vc.raw(), k.y_nc.raw()));
}

template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::embedding_backward<M, T, G>& k,
                                                                      scratch_span<M> scratch) {
  kernel::check_arity<9>(k);
  if (k.n == 0 || k.c == 0) return;
  require<config_error>(k.n <= 0x7fffffff && k.v < simt::no_table_row,
                        "embedding: a pass must have less than 2^31 tokens, and a table less than 2^32 - 1 rows, ",
                        "on this device; given ", k.n, " tokens, ", k.v, " rows");
  const int n = static_cast<int>(k.n);
  const std::uint64_t* const keys = simt::launch_sort(stream, k.index_n.raw(), n, static_cast<std::int64_t>(k.v), k.first, k.padding,
                                                      reinterpret_cast<std::uint64_t*>(scratch.raw()));
  constexpr int width = 4;
  simt::choose(k.c % width == 0 && simt::all_aligned(k.dy_nc.raw(), k.dtable_vc.raw()), [&](auto vectors) {
    using rows = simt::embedding_backward_rows<T, G, decltype(vectors)::value ? width : 1>;
    stream.launch(rows{keys, k.dy_nc.raw(), k.dtable_vc.raw(), n, k.c, simt::narrowed(k.scale)},
                  {n, simt::blocks_of(k.c, rows::columns), 1});
  });
}
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::embedding_backward<M, T, G>& k) { return 2 * k.n * sizeof(std::uint64_t); }

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::rotary<M, T>& k, scratch_span<M>) {
  kernel::check_arity<10>(k);
  const std::size_t half = k.d / 2;
  if (k.n == 0 || k.heads * half == 0) return;
  constexpr std::size_t width = simt::elements_of<T>;
  const bool vectors =
      half % width == 0 && k.stride % width == 0 && k.head_stride % width == 0 && simt::all_aligned(k.x.raw(), k.cos_sin_pd.raw());
  simt::choose(vectors, [&](auto wide) {
    stream.launch(simt::rotary_rows < T,
                  decltype(wide)::value
                      ? simt::elements_of<T>
                      : 1 > {k.position_n.raw(), k.cos_sin_pd.raw(), k.x.raw(), static_cast<int>(k.heads), static_cast<int>(half),
                             static_cast<int>(k.positions), k.stride, k.head_stride, k.inverse ? -1.0f : 1.0f},
                  {static_cast<int>(k.n), 1, 1});
  });
}

}  // namespace xtrain
