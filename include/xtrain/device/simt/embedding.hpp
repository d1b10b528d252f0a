// Token embeddings and rotary positions.
#pragma once

#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain {

namespace simt {

/// Element i of y is in row i / c; vectors lie in one row.
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

/// first_n[i] = 1 where no earlier row has the same token, and the token has a row of the table.
struct first_occurrences {
  static constexpr int threads = 256;
  struct shared {
    shared_array<token, threads> tokens;
  };
  const token* index;
  int* first_n;
  std::size_t n, v;
  token first, padding;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const std::size_t i = thread_of_grid(threads);
    const token mine = i < n ? index[i] : token{-1};
    const auto row = static_cast<std::int64_t>(mine) - first;
    bool is_first = i < n && mine != padding && row >= 0 && row < static_cast<std::int64_t>(v);
    for (std::size_t begin = 0; begin <= static_cast<std::size_t>(block_x()) * threads; begin += threads) {
      const std::size_t j = begin + static_cast<std::size_t>(thread());
      s.tokens[thread()] = j < n ? index[j] : token{-1};
      sync();
      for (int other = 0; other < threads && begin + static_cast<std::size_t>(other) < i; ++other)
        is_first = is_first && s.tokens[other] != mine;
      sync();
    }
    if (i < n) first_n[i] = is_first ? 1 : 0;
  }
};

/// A block per token that occurs, and per range of columns: its rows are added in their order, each rounded to G.
template <class T, class G, int Width>
struct embedding_backward_rows {
  static constexpr int threads = 128, columns = threads * Width;
  struct shared {
    shared_array<token, threads> tokens;
  };
  const token* index;
  const int* first_n;
  const T* dy;
  G* dtable;
  std::size_t n, c;
  token first;
  float scale;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto begin = static_cast<std::size_t>(block_x());
    if (first_n[begin] == 0) return;  // the whole block
    const token mine = index[begin];
    const std::size_t j = static_cast<std::size_t>(block_y()) * columns + static_cast<std::size_t>(thread()) * Width;
    const bool exists = j < c;
    G* const to = dtable + static_cast<std::size_t>(mine - first) * c + (exists ? j : 0);
    vector_of<G, Width> sum = load<Width>(static_cast<const G*>(to));
    for (std::size_t of_tile = begin; of_tile < n; of_tile += threads) {
      const std::size_t i = of_tile + static_cast<std::size_t>(thread());
      s.tokens[thread()] = i < n ? index[i] : token{-1};
      sync();
      const int rows = static_cast<int>(smaller<std::size_t>(threads, n - of_tile));
      for (int other = 0; other < rows; ++other) {
        if (s.tokens[other] != mine || !exists) continue;
        const auto row = load<Width>(dy + (of_tile + static_cast<std::size_t>(other)) * c + j);
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < Width; ++e) sum.v[e] = rounded<G>(widen(sum.v[e]) + scale * widen(row.v[e]));
      }
      sync();
    }
    if (exists) store<Width>(to, sum);
  }
};

/// A thread per pair (i, i + d/2) of a head.
template <class T>
struct rotary_launch {
  static constexpr int threads = 256;
  struct shared {};
  const token* position;
  const float* cos_sin;
  T* x;
  std::size_t pairs, heads, half, stride, head_stride, positions;  // pairs: n · heads · half
  float direction;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t number = thread_of_grid(threads);
    if (number >= pairs) return;
    const std::size_t pair = number % half, head = number / half % heads, row = number / half / heads;
    const token now = position[row];
    if (now < 0 || static_cast<std::size_t>(now) >= positions) return;
    const float* const table = cos_sin + static_cast<std::size_t>(now) * 2 * half;
    const float cosine = table[pair], sine = direction * table[half + pair];
    T* const low = x + row * stride + head * head_stride + pair;
    T* const high = low + half;
    const float a = widen(*low), b = widen(*high);
    *low = rounded<T>(a * cosine - b * sine);
    *high = rounded<T>(b * cosine + a * sine);
  }
};

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::embedding<M, T>& k, scratch_span<M>) {
  const simt::embedding_op<T> op{k.index_n.raw(), k.table_vc.raw(), k.y_nc.raw(), k.v, k.c, k.first, simt::narrowed(k.scale), k.accumulate};
  simt::launch_each<simt::elements_of<T>>(stream, op, k.n * k.c,
                                          k.c % simt::elements_of<T> == 0 && simt::all_aligned(k.table_vc.raw(), k.y_nc.raw()));
}

template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::embedding_backward<M, T, G>& k,
                                                                      scratch_span<M> scratch) {
  if (k.n == 0 || k.c == 0) return;
  auto* const first_n = reinterpret_cast<int*>(scratch.raw());
  stream.launch(simt::first_occurrences{k.index_n.raw(), first_n, k.n, k.v, k.first, k.padding}, {simt::blocks_of(k.n, 256), 1, 1});
  constexpr int width = 4;
  simt::choose(k.c % width == 0 && simt::all_aligned(k.dy_nc.raw(), k.dtable_vc.raw()), [&](auto vectors) {
    using rows = simt::embedding_backward_rows<T, G, decltype(vectors)::value ? width : 1>;
    stream.launch(rows{k.index_n.raw(), first_n, k.dy_nc.raw(), k.dtable_vc.raw(), k.n, k.c, k.first, simt::narrowed(k.scale)},
                  {static_cast<int>(k.n), simt::blocks_of(k.c, rows::columns), 1});
  });
}
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::embedding_backward<M, T, G>& k) { return k.n * sizeof(int); }

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::rotary<M, T>& k, scratch_span<M>) {
  const std::size_t half = k.d / 2, pairs = k.n * k.heads * half;
  if (pairs == 0) return;
  stream.launch(simt::rotary_launch<T>{k.position_n.raw(), k.cos_sin_pd.raw(), k.x.raw(), pairs, k.heads, half, k.stride, k.head_stride,
                                       k.positions, k.inverse ? -1.0f : 1.0f},
                {simt::blocks_of(pairs, 256), 1, 1});
}

}  // namespace xtrain
