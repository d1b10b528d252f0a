// Attention's forward: tiles of queries by tiles of keys on tensor cores, without the time × time matrix.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/device/simt/attention_tiles.hpp>

namespace xtrain {

namespace simt {

/// o = softmax(q kᵀ) v, the softmax updated tile by tile.                                        [Dao 2023, algorithm 1]
///   Out   T, or float: merged into o and lse, unless `begins`
template <class T, int D, bool Drops, bool Caps, class Out>
struct attention_forward {
  using tiles = attention_tiles<T, D, Drops>;
  static constexpr int threads = tiles::threads, queries = tiles::rows, keys = tiles::forward_keys, stride = tiles::stride,
                       columns = tiles::columns;
  static constexpr bool keeps_q = D <= 128 && is_16_bits<T>;
  static constexpr int slots = tensor_layout::row_slots;
  struct shared {
    shared_array<T, queries * stride> q;
    shared_array<T, 2 * keys * stride> k, v;
    shared_array<int, 4 * threads / warp_width> bounds;
  };
  static constexpr bool merges = !std::is_same_v<Out, T> || !is_16_bits<T>;  // fp32 has one variant of both
  attention_arguments<T> all;
  Out* o;
  float* lse;  // null: unwanted
  bool is_merged, begins, aligned_o;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const own_queries<T, threads> own(all, s.bounds);
    copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(own.b, own.first, own.head), all.q_stride, all.queries.count - own.first,
                                              all.d, all.aligned);
    commit_copies();
    for (int first_column = 0; first_column < D; first_column += columns) write_columns(s, own, first_column);
  }

 private:
  /// o's columns from first_column on; lse with the last.
  XTRAIN_SIMT_FN void write_columns(shared& s, const own_queries<T, threads>& own, int first_column) const {
    const int b = own.b, head = own.head, own_rows = warp() * 16;
    const int first_tile = own.range.from / keys, end_tile = (own.range.to + keys - 1) / keys;
    const auto fetch = [&](int tile, int stage) {
      const int k0 = tile * keys, rows = own.k_count - k0;
      copy_tile<T, keys, D, stride, threads>(s.k.at(stage * keys * stride), all.key(b, k0, own.kv_head), all.keys.stride, rows, all.d,
                                             all.aligned);
      copy_tile<T, keys, D, stride, threads>(s.v.at(stage * keys * stride), all.value(b, k0, own.kv_head), all.keys.stride, rows, all.d,
                                             all.aligned);
    };
    if (first_tile < end_tile) fetch(first_tile, 0);
    commit_copies();

    const float slope = all.slope_of(head);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    fragment_a<T> q_part[keeps_q ? D / 16 : 1];
    fragment_c o_part[columns / 8];
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < columns / 8; ++x) set_zero(o_part[x]);
    float largest[slots], sum[slots];
    XTRAIN_SIMT_UNROLL
    for (int r = 0; r < slots; ++r) largest[r] = -1e30f, sum[r] = 0;

    for (int tile = first_tile; tile < end_tile; ++tile) {
      const int stage = (tile - first_tile) % 2, k0 = tile * keys;
      if (tile + 1 < end_tile) fetch(tile + 1, 1 - stage);
      commit_copies();
      wait_for_copies<1>();
      sync();
      if constexpr (keeps_q) {
        if (tile == first_tile) {
          XTRAIN_SIMT_UNROLL
          for (int x = 0; x < D / 16; ++x) q_part[x] = load_a<T>(s.q.at(own_rows * stride + x * 16), stride);
        }
      }
      fragment_c score[keys / 8];
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y) set_zero(score[y]);
      multiply_by_rows<T, D, keys>(
          score,
          [&](int x) {
            if constexpr (keeps_q) return q_part[x / 16];
            else return load_a<T>(s.q.at(own_rows * stride + x), stride);
          },
          s.k.at(stage * keys * stride), stride);
      const auto each_score = [&](auto&& f) {
        XTRAIN_SIMT_UNROLL
        for (int y = 0; y < keys / 8; ++y) XTRAIN_SIMT_UNROLL
        for (int e = 0; e < 4; ++e) f(score[y].r[e], tensor_layout::row_slot(e), k0 + y * 8 + c_column(e));
      };
      each_score([&](float& x, int, int) { x = all.template score<Caps>(x); });
      if (slope != 0.0f) each_score([&](float& x, int r, int j) { x -= slope * static_cast<float>(own.query[r] + own.offset - j); });
      if (own.range.is_edge(k0, keys)) each_score([&](float& x, int r, int j) { x = own.sees(r, j) ? x : -INFINITY; });
      float now[slots], shrink[slots];
      XTRAIN_SIMT_UNROLL
      for (int r = 0; r < slots; ++r) now[r] = largest[r];
      each_score([&](float& x, int r, int) { now[r] = larger(now[r], x); });
      XTRAIN_SIMT_UNROLL
      for (int r = 0; r < slots; ++r) {
        now[r] = over_row_lanes(now[r], [](float a, float c) { return larger(a, c); });
        shrink[r] = exp2(largest[r] - now[r]);
        largest[r] = now[r];
        sum[r] *= shrink[r];
      }
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < columns / 8; ++x) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) o_part[x].r[e] *= shrink[tensor_layout::row_slot(e)];
      each_score([&](float& x, int r, int j) {
        x = exp2(x - largest[r]);
        sum[r] += x;
        if constexpr (Drops) x *= all.kept_of(site, b, head, all.position(b, own.query[r]), all.keys.first + j);
      });
      multiply_by_columns<T, keys, columns>(o_part, score, s.v.at(stage * keys * stride + first_column), stride);
      sync();  // before the next copy replaces these tiles
    }
    wait_for_copies<0>();  // no tile was processed
    // shares of this block and of the earlier o: o' = old · o + share · (this block's)
    float share[slots], old[slots], lse_of[slots];
    XTRAIN_SIMT_UNROLL
    for (int r = 0; r < slots; ++r) {
      sum[r] = over_row_lanes(sum[r], [](float a, float c) { return a + c; });
      share[r] = 1.0f / sum[r], old[r] = 0, lse_of[r] = 0;
      const int i = own.query[r];
      if (i >= all.queries.count) continue;
      float of_row = sum[r] > 0.0f ? (largest[r] + ::log2f(sum[r])) / log2_e : -INFINITY;
      if constexpr (merges) {
        if (is_merged) {
          const float before = begins ? -INFINITY : lse[all.of_head(b, head) + static_cast<std::size_t>(i)];
          if (!(sum[r] > 0.0f)) {
            share[r] = 0, old[r] = begins ? 0.0f : 1.0f, of_row = before;
          } else {
            const float most = larger(before, of_row), weight_before = exp(before - most), weight_now = exp(of_row - most),
                        both = weight_before + weight_now;
            old[r] = weight_before / both;
            share[r] *= weight_now / both;
            of_row = most + log(both);
          }
        }
      }
      lse_of[r] = of_row;
    }
    sync();  // lse is replaced by lane 0 of each row after all lanes have read it; without tiles, all copies of q have arrived, which results replace
    if (lse != nullptr && first_column + columns == D) {
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int r = tensor_layout::row_slot(e), i = own.query[r];
        if (i < all.queries.count && c_column(e) == 0) lse[all.of_head(b, head) + static_cast<std::size_t>(i)] = lse_of[r];
      }
    }
    if constexpr (merges) {
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int r = tensor_layout::row_slot(e), i = own.query[r];
        if (i >= all.queries.count) continue;
        Out* const out = o + all.output(b, i, head);
        XTRAIN_SIMT_UNROLL
        for (int x = 0; x < columns / 8; ++x) {
          const int j = first_column + x * 8 + c_column(e);
          if (j >= all.d) continue;
          float value = o_part[x].r[e] * share[r];
          if (old[r] != 0.0f) value += old[r] * widen(out[j]);
          out[j] = rounded<Out>(value);
        }
      }
    } else {
      store_rows<T, D>(
          s.q.at(own_rows * stride), stride, all.d, aligned_o,
          [&](int e, int x) { return o_part[x / 8].r[e] * share[tensor_layout::row_slot(e)]; },
          [&](int i) {
            const int query = own.first + own_rows + i;
            return query < all.queries.count ? o + all.output(b, query, head) : nullptr;
          });
    }
  }
};

template <class Out, launches Stream, class T>
void launch_attention(Stream& stream, const attention_arguments<T>& all, std::size_t b, bool drops, bool caps, Out* o, float* lse,
                      bool is_merged, bool begins) {
  if (b == 0 || all.queries.count == 0 || all.heads == 0) return;
  const bool aligned_o = all.d % wide<Out> == 0 && is_aligned(o);
  with_attention_variant<T>(static_cast<std::size_t>(all.d), drops, caps, [&]<int D, bool Drops, bool Caps>() {
    using launch = attention_forward<T, D, Drops, Caps, Out>;
    stream.launch(launch{all, o, lse, is_merged, begins, aligned_o},
                  {all.heads, blocks_of(static_cast<std::size_t>(all.queries.count), launch::queries), static_cast<int>(b)});
  });
}

/// Entire sequences.
template <launches Stream, class M, class T>
void launch_whole(Stream& stream, const kernel::attention<M, T>& k) {
  auto all = attention_arguments_of<T>(k);
  take_keys_of_rows(all, k.shape);
  launch_attention(stream, all, k.shape.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), k.lse_bht.raw(), false, true);
}

/// Appends keys and values to the cache, a thread per element.
template <class T>
struct append_to_cache {
  const T* qkv;
  const token* before;
  T *k_cache, *v_cache;
  std::size_t t, kv_heads, d, capacity, row, key_offset, value_offset;
  XTRAIN_SIMT_FN void operator()(std::size_t number) const {
    const std::size_t j = number % d, head = number / d % kv_heads, i = number / d / kv_heads % t, b = number / d / kv_heads / t;
    const std::size_t from = (b * t + i) * row + head * d + j;
    const std::size_t to = ((b * kv_heads + head) * capacity + static_cast<std::size_t>(before[b]) + i) * d + j;
    k_cache[to] = qkv[from + key_offset];
    v_cache[to] = qkv[from + value_offset];
  }
};
}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention<M, T>& k, scratch_span<M>) {
  kernel::check_arity<13>(k);
  simt::launch_whole(stream, k);
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::cached_attention<M, T>& k, scratch_span<M>) {
  kernel::check_arity<12>(k);
  const auto& s = k.shape;
  const std::size_t fresh = s.b * s.t * s.k * s.d;
  if (fresh == 0) return;
  simt::launch_items(stream,
                     simt::append_to_cache<T>{k.qkv.raw(), k.length_b.raw(), k.k_cache.raw(), k.v_cache.raw(), s.t, s.k, s.d, k.capacity,
                                              s.row(), s.key_offset(), s.value_offset()},
                     fresh);
  auto all = simt::attention_arguments_of<T>(k);
  all.queries.before = k.length_b.raw();
  all.k = k.k_cache.raw(), all.v = k.v_cache.raw();
  all.keys = {.count = static_cast<int>(k.capacity),
              .first = 0,
              .at = 0,
              .stride = s.d,
              .head_stride = k.capacity * s.d,
              .sequence_stride = s.k * k.capacity * s.d};
  all.aligned = all.aligned && simt::all_aligned(k.k_cache.raw(), k.v_cache.raw());
  simt::launch_attention(stream, all, s.b, false, k.softcap > 0.0, k.o_bthd.raw(), static_cast<float*>(nullptr), false, true);
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention_block<M, T>& k, scratch_span<M>) {
  kernel::check_arity<17>(k);
  auto all = simt::attention_arguments_of<T>(k);
  simt::take_blocks(all, k);
  simt::launch_attention(stream, all, k.shape.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), k.lse_bht.raw(), true, k.begins);
}

}  // namespace xtrain
