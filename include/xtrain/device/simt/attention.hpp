// Attention: tiles of queries by tiles of keys on the tensor cores, without the time × time matrix. A warp has 16 rows of a tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/language/tensor_core.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/random.hpp>

namespace xtrain {

namespace simt {

inline constexpr float log2_e = 1.4426950408889634f;

/// Queries of a sequence: consecutive positions, which may be some of those that a matrix holds.
struct query_places {
  int count = 0;                  // queries of a sequence
  int first = 0;                  // position of the first in the sequence
  int own = 0, at = 0;            // rows of a sequence in the matrix, and the first query's among them
  const token* before = nullptr;  // tokens in each sequence's cache: added to positions; null: none
};

/// Keys and values of a sequence: row j of a head begins at head · head_stride + (at + j) · stride of its sequence's part.
struct key_places {
  int count = 0;  // keys of a sequence that may be read; with a cache only those before its end
  int first = 0;  // position of the first
  int at = 0;     // its row
  std::size_t stride = 0, head_stride = 0, sequence_stride = 0;
};

/// What forward and backward have in common. Scores are in powers of two.
template <class T>
struct attention_arguments {
  const T *q, *k, *v;        // the first query head's; the first key and value head's
  const token *start, *end;  // by position of the whole sequence; null: from position 0; causal
  const float* slopes;       // null: no bias
  query_places queries;
  key_places keys;
  int t, heads, kv_heads, d, window;
  std::size_t q_stride;                 // between rows of queries
  std::uint64_t all_heads, first_head;  // of all ranks; of the first sequence, this rank's first among all
  float scale, softcap, kept;
  std::uint32_t threshold;
  random_site random;
  const kernel::step_inputs* inputs;
  bool aligned;

  XTRAIN_SIMT_FN int kv_head_of(int head) const { return head / (heads / kv_heads); }
  /// Matrix row of a query.
  XTRAIN_SIMT_FN std::size_t place(int b, int i) const {
    return static_cast<std::size_t>(b) * static_cast<std::size_t>(queries.own) + static_cast<std::size_t>(queries.at + i);
  }
  XTRAIN_SIMT_FN const T* query(int b, int i, int head) const {
    return q + place(b, i) * q_stride + static_cast<std::size_t>(head) * static_cast<std::size_t>(d);
  }
  XTRAIN_SIMT_FN std::size_t key_row(int b, int j, int kv_head) const {
    return static_cast<std::size_t>(b) * keys.sequence_stride + static_cast<std::size_t>(kv_head) * keys.head_stride +
           static_cast<std::size_t>(keys.at + j) * keys.stride;
  }
  XTRAIN_SIMT_FN const T* key(int b, int j, int kv_head) const { return k + key_row(b, j, kv_head); }
  XTRAIN_SIMT_FN const T* value(int b, int j, int kv_head) const { return v + key_row(b, j, kv_head); }
  /// Where the values of a head begin in [b, heads, own], and where a query's output does in [b, own, heads, d].
  XTRAIN_SIMT_FN std::size_t of_head(int b, int head) const {
    return (static_cast<std::size_t>(b) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) *
               static_cast<std::size_t>(queries.own) +
           static_cast<std::size_t>(queries.at);
  }
  XTRAIN_SIMT_FN std::size_t output(int b, int i, int head) const {
    return (place(b, i) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) * static_cast<std::size_t>(d);
  }
  XTRAIN_SIMT_FN float slope_of(int head) const { return slopes != nullptr ? slopes[head] * log2_e : 0.0f; }

  XTRAIN_SIMT_FN int before(int b) const { return queries.before != nullptr ? queries.before[b] : 0; }
  XTRAIN_SIMT_FN int position(int b, int i) const { return queries.first + before(b) + i; }
  /// Keys of this sequence that exist.
  XTRAIN_SIMT_FN int key_count(int b) const {
    return queries.before != nullptr ? smaller(keys.count, queries.before[b] + queries.count) : keys.count;
  }
  /// Of the keys, the first that query i attends to, and one past the last. Nothing for a query beyond the end.
  XTRAIN_SIMT_FN int low(int b, int i) const {
    if (i >= queries.count) return keys.count;
    const int now = position(b, i), first = start != nullptr ? start[of_sequence(b, i)] : 0,
              earliest = window == 0 || window > now ? 0 : now + 1 - window;
    return in_keys(larger(first, earliest));
  }
  XTRAIN_SIMT_FN int high(int b, int i) const {
    if (i >= queries.count) return 0;
    return in_keys(end != nullptr ? end[of_sequence(b, i)] : position(b, i) + 1);
  }

  /// From q·k to the score in powers of two, without ALiBi's bias.
  template <bool Caps>
  XTRAIN_SIMT_FN float score(float product) const {
    if constexpr (Caps) {
      if (softcap > 0.0f) return softcap * tanh(product * scale / softcap) * log2_e;
    }
    return product * scale * log2_e;
  }
  /// The slope of the bound at that score.
  template <bool Caps>
  XTRAIN_SIMT_FN float cap_slope(float score) const {
    if constexpr (Caps) {
      if (softcap > 0.0f) {
        const float part = score / (log2_e * softcap);
        return 1.0f - part * part;
      }
    }
    return 1.0f;
  }
  /// 0 if p_ij is dropped, else 1 / (1 − probability). i and j are of the whole sequence.
  XTRAIN_SIMT_FN float kept_of(const random_site& site, int b, int head, int i, int j) const {
    const std::uint64_t head_of_all = static_cast<std::uint64_t>(b) * all_heads + first_head + static_cast<std::uint64_t>(head);
    const auto time = static_cast<std::uint64_t>(t);
    const std::uint64_t element = (head_of_all * time + static_cast<std::uint64_t>(i)) * time + static_cast<std::uint64_t>(j);
    return random_word_of(site, element) >= threshold ? kept : 0.0f;
  }

 private:
  XTRAIN_SIMT_FN std::size_t of_sequence(int b, int i) const {
    return static_cast<std::size_t>(b) * static_cast<std::size_t>(t) + static_cast<std::size_t>(queries.first + i);
  }
  XTRAIN_SIMT_FN int in_keys(int position) const { return smaller(larger(position, keys.first), keys.first + keys.count) - keys.first; }
};

/// Sizes of tiles: what 255 registers and 99 KiB of shared memory hold.
template <class T, int D, bool Drops>
struct attention_tiles {
  static constexpr bool is_short = D <= 64, is_long = D > 128;
  static constexpr int threads = is_16_bits<T> || !is_long ? 128 : 64;
  static constexpr int rows = threads / warp_width * 16;  // of the side that a block owns
  static constexpr int forward_keys = is_long || (!is_16_bits<T> && !is_short) ? 16 : !is_16_bits<T> || (Drops && !is_short) ? 32 : 64;
  static constexpr int backward_step = is_16_bits<T> && is_short ? 32 : 16;  // of the side that passes by
  static constexpr int stride = D + wide<T>;                                 // 16 bytes more: eight rows lie in different banks
};

/// The range of keys that a tile of queries attends to, for every thread of the block: each thread has the queries of its row slots.
template <int Warps>
XTRAIN_SIMT_FN void range_of_block(int& from, int& to, shared_array<int, 2 * Warps>& bounds) {
  XTRAIN_SIMT_UNROLL
  for (int mask = warp_width / 2; mask > 0; mask /= 2) {
    from = smaller(from, shuffle_xor(from, mask));
    to = larger(to, shuffle_xor(to, mask));
  }
  if (lane() == 0) bounds[warp()] = from, bounds[Warps + warp()] = to;
  sync();
  XTRAIN_SIMT_UNROLL
  for (int w = 0; w < Warps; ++w) from = smaller(from, bounds[w]), to = larger(to, bounds[Warps + w]);
}

/// o = softmax(q kᵀ) v, with the softmax kept up as tiles of keys pass.                                        [Dao 2023, algorithm 1]
///   Out   T, or float: then the result is merged with what o and lse hold, unless `begins`
template <class T, int D, bool Drops, bool Caps, class Out>
struct attention_forward {
  using tiles = attention_tiles<T, D, Drops>;
  static constexpr int threads = tiles::threads, queries = tiles::rows, keys = tiles::forward_keys, stride = tiles::stride;
  static constexpr bool keeps_q = D <= 128 && is_16_bits<T>;
  static constexpr int slots = tensor_layout::row_slots;
  struct shared {
    shared_array<T, queries * stride> q;
    shared_array<T, 2 * keys * stride> k, v;
    shared_array<int, 2 * threads / warp_width> bounds;
  };
  static constexpr bool merges = !std::is_same_v<Out, T> || !is_16_bits<T>;  // fp32 has one variant of both
  attention_arguments<T> all;
  Out* o;
  float* lse;  // null: not wanted
  bool is_merged, begins;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int b = block_z(), head = block_y(), q0 = block_x() * queries, kv_head = all.kv_head_of(head), q_count = all.queries.count;
    const int own_rows = warp() * 16, k_count = all.key_count(b), offset = all.position(b, 0) - all.keys.first;
    int query[slots], low[slots], high[slots], from = k_count, to = 0;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int slot = tensor_layout::row_slot(e), i = q0 + own_rows + c_row(e);
      query[slot] = i, low[slot] = all.low(b, i), high[slot] = all.high(b, i);
      if (low[slot] < high[slot]) from = smaller(from, low[slot]), to = larger(to, high[slot]);
    }
    range_of_block<threads / warp_width>(from, to, s.bounds);
    const int first_tile = from / keys, end_tile = (to + keys - 1) / keys;

    const auto fetch = [&](int tile, int stage) {
      const int k0 = tile * keys;
      copy_tile<T, keys, D, stride, threads>(s.k.at(stage * keys * stride), all.key(b, k0, kv_head), all.keys.stride, k_count - k0, all.d,
                                             all.aligned);
      copy_tile<T, keys, D, stride, threads>(s.v.at(stage * keys * stride), all.value(b, k0, kv_head), all.keys.stride, k_count - k0, all.d,
                                             all.aligned);
    };
    copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(b, q0, head), all.q_stride, q_count - q0, all.d, all.aligned);
    if (first_tile < end_tile) fetch(first_tile, 0);
    commit_copies();

    const float slope = all.slope_of(head);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    fragment_a<T> q_part[keeps_q ? D / 16 : 1];
    fragment_c o_part[D / 8];
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < D / 8; ++x) set_zero(o_part[x]);
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
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 16; ++x) {
        fragment_a<T> q_x;
        if constexpr (keeps_q) q_x = q_part[x];
        else q_x = load_a<T>(s.q.at(own_rows * stride + x * 16), stride);
        XTRAIN_SIMT_UNROLL
        for (int y = 0; y < keys / 16; ++y) {
          fragment_b<T> left, right;
          load_b_pair<T, true>(left, right, s.k.at((stage * keys + y * 16) * stride + x * 16), stride);
          multiply<T>(score[2 * y], q_x, left);
          multiply<T>(score[2 * y + 1], q_x, right);
        }
      }
      float now[slots];
      XTRAIN_SIMT_UNROLL
      for (int r = 0; r < slots; ++r) now[r] = largest[r];
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int r = tensor_layout::row_slot(e), j = k0 + y * 8 + c_column(e);
        float& x = score[y].r[e];
        x = j >= low[r] && j < high[r] ? all.template score<Caps>(x) - slope * static_cast<float>(query[r] + offset - j) : -INFINITY;
        now[r] = larger(now[r], x);
      }
      float shrink[slots];
      XTRAIN_SIMT_UNROLL
      for (int r = 0; r < slots; ++r) {
        now[r] = over_row_lanes(now[r], [](float a, float c) { return larger(a, c); });
        shrink[r] = exp2(largest[r] - now[r]);
        largest[r] = now[r];
        sum[r] *= shrink[r];
      }
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 8; ++x) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) o_part[x].r[e] *= shrink[tensor_layout::row_slot(e)];
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int r = tensor_layout::row_slot(e);
        float& x = score[y].r[e];
        x = exp2(x - largest[r]);
        sum[r] += x;
        if constexpr (Drops) x *= all.kept_of(site, b, head, all.position(b, query[r]), all.keys.first + k0 + y * 8 + c_column(e));
      }
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 16; ++y) {
        const fragment_a<T> p = operand_of<T>(score[2 * y], score[2 * y + 1]);
        XTRAIN_SIMT_UNROLL
        for (int x = 0; x < D / 16; ++x) {
          fragment_b<T> left, right;
          load_b_pair<T, false>(left, right, s.v.at((stage * keys + y * 16) * stride + x * 16), stride);
          multiply<T>(o_part[2 * x], p, left);
          multiply<T>(o_part[2 * x + 1], p, right);
        }
      }
      sync();  // before the next copy replaces these tiles
    }
    wait_for_copies<0>();
    // of what o holds already, and of this block: o' = old · o + share · (this block's)
    float share[slots], old[slots], lse_of[slots];
    XTRAIN_SIMT_UNROLL
    for (int r = 0; r < slots; ++r) {
      sum[r] = over_row_lanes(sum[r], [](float a, float c) { return a + c; });
      share[r] = 1.0f / sum[r], old[r] = 0;
      const int i = query[r];
      if (i >= q_count) continue;
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
    if constexpr (merges) sync_warp();  // all lanes have read what lane 0 of each row replaces
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int r = tensor_layout::row_slot(e), i = query[r];
      if (i >= q_count) continue;
      if (lse != nullptr && c_column(e) == 0) lse[all.of_head(b, head) + static_cast<std::size_t>(i)] = lse_of[r];
      Out* const out = o + all.output(b, i, head);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 8; ++x) {
        const int j = x * 8 + c_column(e);
        if (j >= all.d) continue;
        float value = o_part[x].r[e] * share[r];
        if constexpr (merges) {
          if (old[r] != 0.0f) value += old[r] * widen(out[j]);
        }
        out[j] = rounded<Out>(value);
      }
    }
  }
};

/// delta_bht = Σ do · o of each query and head: a warp each. It has the places of lse.
template <class T>
struct attention_delta {
  static constexpr int threads = 256;
  struct shared {};
  const T *o, *d_o;
  float* delta;
  attention_arguments<T> all;
  std::size_t number;  // b · queries · heads

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t each = static_cast<std::size_t>(block_x()) * (threads / warp_width) + static_cast<std::size_t>(warp());
    if (each >= number) return;  // the whole warp
    const int head = static_cast<int>(each % static_cast<std::size_t>(all.heads));
    const std::size_t rest = each / static_cast<std::size_t>(all.heads), count = static_cast<std::size_t>(all.queries.count);
    const int i = static_cast<int>(rest % count), b = static_cast<int>(rest / count);
    const T *const o_d = o + all.output(b, i, head), *const do_d = d_o + all.output(b, i, head);
    float sum = 0;
    for (int j = lane(); j < all.d; j += warp_width) sum += widen(o_d[j]) * widen(do_d[j]);
    sum = warp_sum(sum);
    if (lane() == 0) delta[all.of_head(b, head) + static_cast<std::size_t>(i)] = sum;
  }
};

/// What the backward kernels read and write in addition. Gradients of queries, keys and values lie as these do, or, where Out is float, are added to.
template <class T, class Out>
struct attention_gradients {
  static constexpr bool adds = !std::is_same_v<Out, T> || !is_16_bits<T>;
  const T* d_o;
  const float *lse, *delta;  // [b, heads, own]
  Out *dq, *dk, *dv;
  std::size_t dq_stride;
  key_places keys;  // of dk and dv
  bool accumulates;

  XTRAIN_SIMT_FN void put(Out* to, float value) const {
    if constexpr (adds) {
      if (accumulates) value += widen(*to);
    }
    *to = rounded<Out>(value);
  }
  XTRAIN_SIMT_FN std::size_t key_row(int b, int j, int kv_head) const {
    return static_cast<std::size_t>(b) * keys.sequence_stride + static_cast<std::size_t>(kv_head) * keys.head_stride +
           static_cast<std::size_t>(keys.at + j) * keys.stride;
  }
};

/// dq of a tile of queries: tiles of keys and values pass by.                       [Dao et al. 2022, section B.2]
template <class T, int D, bool Drops, bool Caps, class Out>
struct attention_dq {
  using tiles = attention_tiles<T, D, Drops>;
  static constexpr int threads = tiles::threads, queries = tiles::rows, keys = tiles::backward_step, stride = tiles::stride;
  static constexpr int slots = tensor_layout::row_slots;
  struct shared {
    shared_array<T, queries * stride> q, d_o;
    shared_array<T, keys * stride> k, v;
    shared_array<int, 2 * threads / warp_width> bounds;
  };
  attention_arguments<T> all;
  attention_gradients<T, Out> gradients;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int b = block_z(), head = block_y(), q0 = block_x() * queries, kv_head = all.kv_head_of(head), q_count = all.queries.count;
    const int own_rows = warp() * 16, k_count = all.key_count(b), offset = all.position(b, 0) - all.keys.first;
    const std::size_t of_head = all.of_head(b, head);
    int query[slots], low[slots], high[slots], from = k_count, to = 0;
    float lse[slots], delta[slots];
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int slot = tensor_layout::row_slot(e), i = q0 + own_rows + c_row(e);
      query[slot] = i, low[slot] = all.low(b, i), high[slot] = all.high(b, i);
      lse[slot] = 0, delta[slot] = 0;
      if (i >= q_count) continue;
      if (low[slot] < high[slot]) from = smaller(from, low[slot]), to = larger(to, high[slot]);
      lse[slot] = gradients.lse[of_head + static_cast<std::size_t>(i)] * log2_e;
      delta[slot] = gradients.delta[of_head + static_cast<std::size_t>(i)];
    }
    range_of_block<threads / warp_width>(from, to, s.bounds);

    const std::size_t o_row = static_cast<std::size_t>(all.heads) * static_cast<std::size_t>(all.d);
    copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(b, q0, head), all.q_stride, q_count - q0, all.d, all.aligned);
    copy_tile<T, queries, D, stride, threads>(s.d_o.at(0), gradients.d_o + all.output(b, q0, head), o_row, q_count - q0, all.d,
                                              all.aligned);
    const float slope = all.slope_of(head);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    fragment_c dq[D / 8];
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < D / 8; ++x) set_zero(dq[x]);
    for (int tile = from / keys; tile < (to + keys - 1) / keys; ++tile) {
      const int k0 = tile * keys;
      copy_tile<T, keys, D, stride, threads>(s.k.at(0), all.key(b, k0, kv_head), all.keys.stride, k_count - k0, all.d, all.aligned);
      copy_tile<T, keys, D, stride, threads>(s.v.at(0), all.value(b, k0, kv_head), all.keys.stride, k_count - k0, all.d, all.aligned);
      commit_copies();
      wait_for_copies<0>();
      sync();
      fragment_c score[keys / 8], dp[keys / 8];
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y) set_zero(score[y]), set_zero(dp[y]);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 16; ++x) {
        const fragment_a<T> q_x = load_a<T>(s.q.at(own_rows * stride + x * 16), stride);
        const fragment_a<T> do_x = load_a<T>(s.d_o.at(own_rows * stride + x * 16), stride);
        XTRAIN_SIMT_UNROLL
        for (int y = 0; y < keys / 16; ++y) {
          fragment_b<T> left, right;
          load_b_pair<T, true>(left, right, s.k.at(y * 16 * stride + x * 16), stride);
          multiply<T>(score[2 * y], q_x, left);
          multiply<T>(score[2 * y + 1], q_x, right);
          load_b_pair<T, true>(left, right, s.v.at(y * 16 * stride + x * 16), stride);
          multiply<T>(dp[2 * y], do_x, left);
          multiply<T>(dp[2 * y + 1], do_x, right);
        }
      }
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int r = tensor_layout::row_slot(e), j = k0 + y * 8 + c_column(e);
        const float x = all.template score<Caps>(score[y].r[e]);
        const bool sees = j >= low[r] && j < high[r];
        const float p = sees ? exp2(x - slope * static_cast<float>(query[r] + offset - j) - lse[r]) : 0.0f;
        float dp_ij = dp[y].r[e];
        if constexpr (Drops) dp_ij *= all.kept_of(site, b, head, all.position(b, query[r]), all.keys.first + j);
        score[y].r[e] = p * (dp_ij - delta[r]) * all.template cap_slope<Caps>(x);
      }
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 16; ++y) {
        const fragment_a<T> ds = operand_of<T>(score[2 * y], score[2 * y + 1]);
        XTRAIN_SIMT_UNROLL
        for (int x = 0; x < D / 16; ++x) {
          fragment_b<T> left, right;
          load_b_pair<T, false>(left, right, s.k.at(y * 16 * stride + x * 16), stride);
          multiply<T>(dq[2 * x], ds, left);
          multiply<T>(dq[2 * x + 1], ds, right);
        }
      }
      sync();  // before the next copies replace these tiles
    }
    commit_copies();
    wait_for_copies<0>();
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int i = query[tensor_layout::row_slot(e)];
      if (i >= q_count) continue;
      Out* const out =
          gradients.dq + all.place(b, i) * gradients.dq_stride + static_cast<std::size_t>(head) * static_cast<std::size_t>(all.d);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 8; ++x) {
        const int j = x * 8 + c_column(e);
        if (j < all.d) gradients.put(out + j, all.scale * dq[x].r[e]);
      }
    }
  }
};

/// dk and dv of a tile of keys: tiles of queries and of do pass by, for each query head of the key's. Products are those of the transposes: rows are keys.
///   WithK, WithV   which of the two; both where registers hold them
template <class T, int D, bool Drops, bool Caps, class Out, bool WithK, bool WithV>
struct attention_dkv {
  using tiles = attention_tiles<T, D, Drops>;
  static constexpr int threads = tiles::threads, keys = tiles::rows, queries = tiles::backward_step, stride = tiles::stride;
  struct shared {
    shared_array<T, keys * stride> k, v;
    shared_array<T, queries * stride> q, d_o;
    shared_array<int, queries> low, high;
    shared_array<float, queries> lse, delta;
  };
  attention_arguments<T> all;
  attention_gradients<T, Out> gradients;

  /// Whether any query of the tile attends to a key of this block. The same for all threads.
  XTRAIN_SIMT_FN bool meets(int b, int q0, int k0) const {
    if (all.start == nullptr && all.end == nullptr) return true;  // bounds of the loop are exact
    bool sees = false;
    for (int i = lane(); i < queries; i += warp_width) sees = sees || (all.low(b, q0 + i) < k0 + keys && all.high(b, q0 + i) > k0);
    return warp_max(sees ? 1 : 0) != 0;
  }

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int b = block_z(), kv_head = block_y(), k0 = block_x() * keys, q_count = all.queries.count, k_count = all.keys.count,
              group = all.heads / all.kv_heads;
    const int own_rows = warp() * 16, offset = all.queries.first - all.keys.first;
    copy_tile<T, keys, D, stride, threads>(s.k.at(0), all.key(b, k0, kv_head), all.keys.stride, k_count - k0, all.d, all.aligned);
    copy_tile<T, keys, D, stride, threads>(s.v.at(0), all.value(b, k0, kv_head), all.keys.stride, k_count - k0, all.d, all.aligned);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    // queries that may attend to these keys: from the first key's position on where attention is causal, up to the last key's window
    const int first = all.end != nullptr ? 0 : larger(k0 - offset, 0) / queries;
    const int limit = all.end != nullptr || all.window == 0 ? q_count : smaller(q_count, k0 + keys - 1 + all.window - offset);
    const std::size_t o_row = static_cast<std::size_t>(all.heads) * static_cast<std::size_t>(all.d);
    fragment_c dk[WithK ? D / 8 : 1], dv[WithV ? D / 8 : 1];
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < D / 8; ++x) {
      if constexpr (WithK) set_zero(dk[x]);
      if constexpr (WithV) set_zero(dv[x]);
    }
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const float slope = all.slope_of(head);
      const std::size_t of_head = all.of_head(b, head);
      for (int tile = first; tile * queries < limit; ++tile) {
        const int q0 = tile * queries;
        if (!meets(b, q0, k0)) continue;
        copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(b, q0, head), all.q_stride, q_count - q0, all.d, all.aligned);
        copy_tile<T, queries, D, stride, threads>(s.d_o.at(0), gradients.d_o + all.output(b, q0, head), o_row, q_count - q0, all.d,
                                                  all.aligned);
        commit_copies();
        for (int i = thread(); i < queries; i += threads) {
          const bool exists = q0 + i < q_count;
          s.low[i] = all.low(b, q0 + i), s.high[i] = all.high(b, q0 + i);
          s.lse[i] = exists ? gradients.lse[of_head + static_cast<std::size_t>(q0 + i)] * log2_e : 0.0f;
          s.delta[i] = exists ? gradients.delta[of_head + static_cast<std::size_t>(q0 + i)] : 0.0f;
        }
        wait_for_copies<0>();
        sync();
        fragment_c score[queries / 8], dp[queries / 8];
        XTRAIN_SIMT_UNROLL
        for (int y = 0; y < queries / 8; ++y) set_zero(score[y]), set_zero(dp[y]);
        XTRAIN_SIMT_UNROLL
        for (int x = 0; x < D / 16; ++x) {
          const fragment_a<T> k_x = load_a<T>(s.k.at(own_rows * stride + x * 16), stride);
          fragment_a<T> v_x;
          if constexpr (WithK) v_x = load_a<T>(s.v.at(own_rows * stride + x * 16), stride);
          XTRAIN_SIMT_UNROLL
          for (int y = 0; y < queries / 16; ++y) {
            fragment_b<T> left, right;
            load_b_pair<T, true>(left, right, s.q.at(y * 16 * stride + x * 16), stride);
            multiply<T>(score[2 * y], k_x, left);
            multiply<T>(score[2 * y + 1], k_x, right);
            if constexpr (WithK) {
              load_b_pair<T, true>(left, right, s.d_o.at(y * 16 * stride + x * 16), stride);
              multiply<T>(dp[2 * y], v_x, left);
              multiply<T>(dp[2 * y + 1], v_x, right);
            }
          }
        }
        XTRAIN_SIMT_UNROLL
        for (int y = 0; y < queries / 8; ++y) XTRAIN_SIMT_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int j = k0 + own_rows + c_row(e), of_tile = y * 8 + c_column(e), i = q0 + of_tile;
          const float x = all.template score<Caps>(score[y].r[e]);
          const bool sees = j >= s.low[of_tile] && j < s.high[of_tile];
          const float p = sees ? exp2(x - slope * static_cast<float>(i + offset - j) - s.lse[of_tile]) : 0.0f;
          const float kept = Drops ? all.kept_of(site, b, head, all.queries.first + i, all.keys.first + j) : 1.0f;
          if constexpr (WithK) dp[y].r[e] = p * (dp[y].r[e] * kept - s.delta[of_tile]) * all.template cap_slope<Caps>(x);
          score[y].r[e] = p * kept;
        }
        XTRAIN_SIMT_UNROLL
        for (int y = 0; y < queries / 16; ++y) {
          fragment_a<T> p, ds;
          if constexpr (WithV) p = operand_of<T>(score[2 * y], score[2 * y + 1]);
          if constexpr (WithK) ds = operand_of<T>(dp[2 * y], dp[2 * y + 1]);
          XTRAIN_SIMT_UNROLL
          for (int x = 0; x < D / 16; ++x) {
            fragment_b<T> left, right;
            if constexpr (WithV) {
              load_b_pair<T, false>(left, right, s.d_o.at(y * 16 * stride + x * 16), stride);
              multiply<T>(dv[2 * x], p, left);
              multiply<T>(dv[2 * x + 1], p, right);
            }
            if constexpr (WithK) {
              load_b_pair<T, false>(left, right, s.q.at(y * 16 * stride + x * 16), stride);
              multiply<T>(dk[2 * x], ds, left);
              multiply<T>(dk[2 * x + 1], ds, right);
            }
          }
        }
        sync();  // before the next copies replace these tiles
      }
    }
    commit_copies();
    wait_for_copies<0>();
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int j = k0 + own_rows + c_row(e);
      if (j >= k_count) continue;
      Out* const dk_at = gradients.dk + gradients.key_row(b, j, kv_head);
      Out* const dv_at = gradients.dv + gradients.key_row(b, j, kv_head);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 8; ++x) {
        const int c = x * 8 + c_column(e);
        if (c >= all.d) continue;
        if constexpr (WithK) gradients.put(dk_at + c, all.scale * dk[x].r[e]);
        if constexpr (WithV) gradients.put(dv_at + c, dv[x].r[e]);
      }
    }
  }
};

/// What the kernels of attention have in common; queries, keys and values are the caller's.
template <class T, class Kernel>
[[nodiscard]] attention_arguments<T> attention_arguments_of(const Kernel& k) {
  const auto& s = k.shape;
  require<config_error>(s.d <= 256, "attention: heads must have at most 256 elements on this device; given ", s.d);
  attention_arguments<T> all{};
  all.q = k.qkv.raw();
  all.q_stride = s.row();
  all.slopes = k.slope_h.raw(), all.end = k.end_bt.raw();
  all.t = static_cast<int>(s.t), all.heads = static_cast<int>(s.h), all.kv_heads = static_cast<int>(s.k), all.d = static_cast<int>(s.d);
  all.window = static_cast<int>(std::min<std::size_t>(k.window, 0x3fffffff));
  all.scale = narrowed(k.scale), all.softcap = narrowed(k.softcap);
  all.queries = {.count = all.t, .first = 0, .own = all.t, .at = 0};
  all.aligned = s.d % static_cast<std::size_t>(wide<T>) == 0 && is_aligned(k.qkv.raw());
  all.kept = 1.0f;
  if constexpr (requires { k.dropout; }) {
    all.start = k.start_bt.raw();
    all.all_heads = s.all_heads == 0 ? s.h : s.all_heads;
    all.first_head = k.random.first * all.all_heads + s.first_head;
    all.kept = k.dropout < 1.0 ? narrowed(1.0 / (1.0 - k.dropout)) : 0.0f;
    all.threshold = dropout_threshold(k.dropout);
    all.random = k.random;
    all.random.first = 0;  // it is in first_head
    all.inputs = k.inputs_1.raw();
  }
  return all;
}
/// Keys and values beside the queries, in the same rows.
template <class T>
void take_keys_of_rows(attention_arguments<T>& all, const kernel::attention_shape& s) {
  all.k = all.q + s.key_offset(), all.v = all.q + s.value_offset();
  all.keys = {.count = all.t, .first = 0, .at = 0, .stride = s.row(), .head_stride = s.d, .sequence_stride = s.t * s.row()};
}
/// A block of queries, and a block of keys and values in a matrix of its own.
template <class T, class Kernel>
void take_blocks(attention_arguments<T>& all, const Kernel& k) {
  const auto& s = k.shape;
  const auto as_int = [](std::size_t n) { return static_cast<int>(n); };
  all.queries = {
      .count = as_int(k.queries.count), .first = as_int(k.queries.first), .own = as_int(k.queries.own), .at = as_int(k.queries.at)};
  all.k = k.kv.raw(), all.v = k.kv.raw() + s.k * s.d;
  all.keys = {.count = as_int(k.keys.count),
              .first = as_int(k.keys.first),
              .at = as_int(k.keys.at),
              .stride = 2 * s.k * s.d,
              .head_stride = s.d,
              .sequence_stride = k.keys.own * 2 * s.k * s.d};
  all.aligned = all.aligned && is_aligned(k.kv.raw());
}

/// Calls f.template operator()<D, Drops, Caps>(). fp32 has one variant, whose settings are read as it runs: it is for checks, not for speed.
template <class T, class F>
void with_attention_variant(std::size_t d, bool drops, bool caps, F&& f) {
  const auto of_size = [&]<int D>() {
    if constexpr (!is_16_bits<T>) {
      f.template operator()<D, true, true>();
    } else if (drops) {
      caps ? f.template operator()<D, true, true>() : f.template operator()<D, true, false>();
    } else {
      caps ? f.template operator()<D, false, true>() : f.template operator()<D, false, false>();
    }
  };
  if (d <= 64) of_size.template operator()<64>();
  else if (d <= 128) of_size.template operator()<128>();
  else of_size.template operator()<256>();
}

template <class Out, launches Stream, class T>
void launch_attention(Stream& stream, const attention_arguments<T>& all, std::size_t b, bool drops, bool caps, Out* o, float* lse,
                      bool is_merged, bool begins) {
  if (b == 0 || all.queries.count == 0 || all.heads == 0) return;
  with_attention_variant<T>(static_cast<std::size_t>(all.d), drops, caps, [&]<int D, bool Drops, bool Caps>() {
    using launch = attention_forward<T, D, Drops, Caps, Out>;
    stream.launch(launch{all, o, lse, is_merged, begins},
                  {blocks_of(static_cast<std::size_t>(all.queries.count), launch::queries), all.heads, static_cast<int>(b)});
  });
}

template <class Out, launches Stream, class T>
void launch_attention_backward(Stream& stream, const attention_arguments<T>& all, std::size_t b, bool drops, bool caps, const T* o,
                               attention_gradients<T, Out> gradients, float* delta) {
  const std::size_t number = b * static_cast<std::size_t>(all.queries.count) * static_cast<std::size_t>(all.heads);
  if (number == 0 || all.keys.count == 0) return;
  gradients.delta = delta;
  stream.launch(attention_delta<T>{o, gradients.d_o, delta, all, number}, {blocks_of(number, 256 / warp_width), 1, 1});
  with_attention_variant<T>(static_cast<std::size_t>(all.d), drops, caps, [&]<int D, bool Drops, bool Caps>() {
    using dq = attention_dq<T, D, Drops, Caps, Out>;
    const grid_size of_queries{blocks_of(static_cast<std::size_t>(all.queries.count), dq::queries), all.heads, static_cast<int>(b)};
    const grid_size of_keys{blocks_of(static_cast<std::size_t>(all.keys.count), dq::queries), all.kv_heads, static_cast<int>(b)};
    stream.launch(dq{all, gradients}, of_queries);
    if constexpr (D <= 128) {
      stream.launch(attention_dkv<T, D, Drops, Caps, Out, true, true>{all, gradients}, of_keys);
    } else {
      stream.launch(attention_dkv<T, D, Drops, Caps, Out, true, false>{all, gradients}, of_keys);
      stream.launch(attention_dkv<T, D, Drops, Caps, Out, false, true>{all, gradients}, of_keys);
    }
  });
}

/// New keys and values go to the cache: a thread per element.
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
template <class Work>
struct each_of_cache {
  static constexpr int threads = 256;
  struct shared {};
  Work work;
  std::size_t n;
  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t i = thread_of_grid(threads);
    if (i < n) work(i);
  }
};

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention<M, T>& k, scratch_span<M>) {
  auto all = simt::attention_arguments_of<T>(k);
  simt::take_keys_of_rows(all, k.shape);
  simt::launch_attention(stream, all, k.shape.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), k.lse_bht.raw(), false, true);
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::cached_attention<M, T>& k, scratch_span<M>) {
  const auto& s = k.shape;
  const std::size_t fresh = s.b * s.t * s.k * s.d;
  if (fresh == 0) return;
  using append = simt::append_to_cache<T>;
  stream.launch(simt::each_of_cache<append>{{k.qkv.raw(), k.length_b.raw(), k.k_cache.raw(), k.v_cache.raw(), s.t, s.k, s.d, k.capacity,
                                             s.row(), s.key_offset(), s.value_offset()},
                                            fresh},
                {simt::blocks_of(fresh, 256), 1, 1});
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
  auto all = simt::attention_arguments_of<T>(k);
  simt::take_blocks(all, k);
  simt::launch_attention(stream, all, k.shape.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), k.lse_bht.raw(), true, k.begins);
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention_backward<M, T>& k, scratch_span<M> scratch) {
  const auto& s = k.shape;
  auto all = simt::attention_arguments_of<T>(k);
  simt::take_keys_of_rows(all, s);
  all.aligned = all.aligned && simt::is_aligned(k.do_bthd.raw());
  T* const dqkv = k.dqkv.raw();
  const simt::attention_gradients<T, T> gradients{k.do_bthd.raw(),         k.lse_bht.raw(), nullptr,  dqkv, dqkv + s.key_offset(),
                                                  dqkv + s.value_offset(), s.row(),         all.keys, false};
  simt::launch_attention_backward(stream, all, s.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), gradients,
                                  reinterpret_cast<float*>(scratch.raw()));
}
template <simt::of_simt_device P, class M, class T>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::attention_backward<M, T>& k) {
  return k.shape.b * k.shape.t * k.shape.h * sizeof(float);
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention_block_backward<M, T>& k, scratch_span<M> scratch) {
  const auto& s = k.shape;
  auto all = simt::attention_arguments_of<T>(k);
  simt::take_blocks(all, k);
  all.aligned = all.aligned && simt::is_aligned(k.do_bthd.raw());
  const simt::attention_gradients<T, float> gradients{
      k.do_bthd.raw(), k.lse_bht.raw(), nullptr, k.dq_bthd.raw(), k.dkv.raw(), k.dkv.raw() + s.k * s.d, s.h * s.d, all.keys, true};
  simt::launch_attention_backward(stream, all, s.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), gradients,
                                  reinterpret_cast<float*>(scratch.raw()));
}
template <simt::of_simt_device P, class M, class T>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::attention_block_backward<M, T>& k) {
  return k.shape.b * k.queries.own * k.shape.h * sizeof(float);
}

}  // namespace xtrain
