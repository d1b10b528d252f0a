// Attention: tiles of queries by tiles of keys on the tensor cores, without the time × time matrix. A warp has 16 rows of a tile.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/language/tensor_core.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/random.hpp>

namespace xtrain {

namespace simt {

inline constexpr float log2_e = 1.4426950408889634f;

/// What forward and backward have in common. Scores are in powers of two.
template <class T>
struct attention_arguments {
  const T* qkv;
  const token *start, *end;  // null: from position 0; causal
  const float* slopes;       // null: no bias
  int t, heads, kv_heads, d, window;
  std::uint64_t all_heads, first_head;  // of all ranks; of the first sequence, this rank's first among all
  float scale, softcap, kept;
  std::uint32_t threshold;
  random_site random;
  const kernel::step_inputs* inputs;
  bool aligned;

  XTRAIN_SIMT_FN std::size_t row() const { return static_cast<std::size_t>(heads + 2 * kv_heads) * static_cast<std::size_t>(d); }
  XTRAIN_SIMT_FN int kv_head_of(int head) const { return head / (heads / kv_heads); }
  XTRAIN_SIMT_FN const T* query(std::size_t at, int head) const { return qkv + at * row() + static_cast<std::size_t>(head) * static_cast<std::size_t>(d); }
  XTRAIN_SIMT_FN const T* key(std::size_t at, int kv_head) const { return query(at, heads + kv_head); }
  XTRAIN_SIMT_FN const T* value(std::size_t at, int kv_head) const { return query(at, heads + kv_heads + kv_head); }
  XTRAIN_SIMT_FN std::size_t place(int b, int i) const { return static_cast<std::size_t>(b) * static_cast<std::size_t>(t) + static_cast<std::size_t>(i); }
  /// Where the values of a head begin in [b, heads, t], and where a query's output does in [b, t, heads, d].
  XTRAIN_SIMT_FN std::size_t of_head(int b, int head) const {
    return (static_cast<std::size_t>(b) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) * static_cast<std::size_t>(t);
  }
  XTRAIN_SIMT_FN std::size_t output(int b, int i, int head) const {
    return (place(b, i) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) * static_cast<std::size_t>(d);
  }
  XTRAIN_SIMT_FN float slope_of(int head) const { return slopes != nullptr ? slopes[head] * log2_e : 0.0f; }

  /// The first key that query i attends to, and one past the last. Nothing for a query beyond the end.
  XTRAIN_SIMT_FN int low(int b, int i) const {
    if (i >= t) return t;
    const int first = start != nullptr ? start[place(b, i)] : 0, earliest = window == 0 || window > i ? 0 : i + 1 - window;
    return larger(first, earliest);
  }
  XTRAIN_SIMT_FN int high(int b, int i) const {
    if (i >= t) return 0;
    return end != nullptr ? end[place(b, i)] : i + 1;
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
  /// 0 if p_ij is dropped, else 1 / (1 − probability).
  XTRAIN_SIMT_FN float kept_of(const random_site& site, int b, int head, int i, int j) const {
    const std::uint64_t head_of_all = static_cast<std::uint64_t>(b) * all_heads + first_head + static_cast<std::uint64_t>(head);
    const auto time = static_cast<std::uint64_t>(t);
    const std::uint64_t element = (head_of_all * time + static_cast<std::uint64_t>(i)) * time + static_cast<std::uint64_t>(j);
    return random_word_of(site, element) >= threshold ? kept : 0.0f;
  }
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
template <class T, int D, bool Drops, bool Caps>
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
  attention_arguments<T> all;
  T* o;
  float* lse;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int b = block_z(), head = block_y(), q0 = block_x() * queries, kv_head = all.kv_head_of(head), t = all.t;
    const int own_rows = warp() * 16;
    int query[slots], low[slots], high[slots], from = t, to = 0;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int slot = tensor_layout::row_slot(e), i = q0 + own_rows + c_row(e);
      query[slot] = i, low[slot] = all.low(b, i), high[slot] = all.high(b, i);
      if (i < t) from = smaller(from, low[slot]), to = larger(to, high[slot]);
    }
    range_of_block<threads / warp_width>(from, to, s.bounds);
    const int first_tile = from / keys, end_tile = (to + keys - 1) / keys;

    const auto fetch = [&](int tile, int stage) {
      const int k0 = tile * keys;
      copy_tile<T, keys, D, stride, threads>(s.k.at(stage * keys * stride), all.key(all.place(b, k0), kv_head), all.row(), t - k0, all.d, all.aligned);
      copy_tile<T, keys, D, stride, threads>(s.v.at(stage * keys * stride), all.value(all.place(b, k0), kv_head), all.row(), t - k0, all.d, all.aligned);
    };
    copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(all.place(b, q0), head), all.row(), t - q0, all.d, all.aligned);
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
      for (int y = 0; y < keys / 8; ++y)
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int r = tensor_layout::row_slot(e), j = k0 + y * 8 + c_column(e);
          float& x = score[y].r[e];
          x = j >= low[r] && j < high[r] ? all.template score<Caps>(x) - slope * static_cast<float>(query[r] - j) : -INFINITY;
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
      for (int x = 0; x < D / 8; ++x)
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < 4; ++e) o_part[x].r[e] *= shrink[tensor_layout::row_slot(e)];
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y)
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int r = tensor_layout::row_slot(e);
          float& x = score[y].r[e];
          x = exp2(x - largest[r]);
          sum[r] += x;
          if constexpr (Drops) x *= all.kept_of(site, b, head, query[r], k0 + y * 8 + c_column(e));
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
    float share[slots];
    XTRAIN_SIMT_UNROLL
    for (int r = 0; r < slots; ++r) {
      sum[r] = over_row_lanes(sum[r], [](float a, float c) { return a + c; });
      share[r] = 1.0f / sum[r];
    }
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int r = tensor_layout::row_slot(e), i = query[r];
      if (i >= t) continue;
      if (c_column(e) == 0) lse[all.of_head(b, head) + static_cast<std::size_t>(i)] = (largest[r] + ::log2f(sum[r])) / log2_e;
      T* const out = o + all.output(b, i, head);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 8; ++x) {
        const int j = x * 8 + c_column(e);
        if (j < all.d) out[j] = rounded<T>(o_part[x].r[e] * share[r]);
      }
    }
  }
};

/// delta_bht = Σ do · o of each query and head: a warp each.
template <class T>
struct attention_delta {
  static constexpr int threads = 256;
  struct shared {};
  const T *o, *d_o;
  float* delta;
  std::size_t all;  // b · t · heads
  int t, heads, d;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t number = static_cast<std::size_t>(block_x()) * (threads / warp_width) + static_cast<std::size_t>(warp());
    if (number >= all) return;
    const std::size_t head = number % static_cast<std::size_t>(heads), place = number / static_cast<std::size_t>(heads);
    const T *const o_d = o + number * static_cast<std::size_t>(d), *const do_d = d_o + number * static_cast<std::size_t>(d);
    float sum = 0;
    for (int j = lane(); j < d; j += warp_width) sum += widen(o_d[j]) * widen(do_d[j]);
    sum = warp_sum(sum);
    const std::size_t b = place / static_cast<std::size_t>(t), i = place % static_cast<std::size_t>(t);
    if (lane() == 0) delta[(b * static_cast<std::size_t>(heads) + head) * static_cast<std::size_t>(t) + i] = sum;
  }
};

/// What the backward kernels read in addition.
template <class T>
struct attention_gradients {
  const T* d_o;
  const float *lse, *delta;  // [b, heads, t]
  T* dqkv;
};

/// dq of a tile of queries: tiles of keys and values pass by.                       [Dao et al. 2022, section B.2]
template <class T, int D, bool Drops, bool Caps>
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
  attention_gradients<T> gradients;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int b = block_z(), head = block_y(), q0 = block_x() * queries, kv_head = all.kv_head_of(head), t = all.t;
    const int own_rows = warp() * 16;
    const std::size_t of_head = all.of_head(b, head);
    int query[slots], low[slots], high[slots], from = t, to = 0;
    float lse[slots], delta[slots];
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int slot = tensor_layout::row_slot(e), i = q0 + own_rows + c_row(e);
      query[slot] = i, low[slot] = all.low(b, i), high[slot] = all.high(b, i);
      lse[slot] = 0, delta[slot] = 0;
      if (i >= t) continue;
      from = smaller(from, low[slot]), to = larger(to, high[slot]);
      lse[slot] = gradients.lse[of_head + static_cast<std::size_t>(i)] * log2_e;
      delta[slot] = gradients.delta[of_head + static_cast<std::size_t>(i)];
    }
    range_of_block<threads / warp_width>(from, to, s.bounds);

    const std::size_t o_row = static_cast<std::size_t>(all.heads) * static_cast<std::size_t>(all.d);
    copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(all.place(b, q0), head), all.row(), t - q0, all.d, all.aligned);
    copy_tile<T, queries, D, stride, threads>(s.d_o.at(0), gradients.d_o + all.output(b, q0, head), o_row, t - q0, all.d, all.aligned);
    const float slope = all.slope_of(head);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    fragment_c dq[D / 8];
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < D / 8; ++x) set_zero(dq[x]);
    for (int tile = from / keys; tile < (to + keys - 1) / keys; ++tile) {
      const int k0 = tile * keys;
      copy_tile<T, keys, D, stride, threads>(s.k.at(0), all.key(all.place(b, k0), kv_head), all.row(), t - k0, all.d, all.aligned);
      copy_tile<T, keys, D, stride, threads>(s.v.at(0), all.value(all.place(b, k0), kv_head), all.row(), t - k0, all.d, all.aligned);
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
      for (int y = 0; y < keys / 8; ++y)
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int r = tensor_layout::row_slot(e), j = k0 + y * 8 + c_column(e);
          const float x = all.template score<Caps>(score[y].r[e]);
          const bool sees = j >= low[r] && j < high[r];
          const float p = sees ? exp2(x - slope * static_cast<float>(query[r] - j) - lse[r]) : 0.0f;
          float dp_ij = dp[y].r[e];
          if constexpr (Drops) dp_ij *= all.kept_of(site, b, head, query[r], j);
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
      if (i >= t) continue;
      T* const out = gradients.dqkv + all.place(b, i) * all.row() + static_cast<std::size_t>(head) * static_cast<std::size_t>(all.d);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 8; ++x) {
        const int j = x * 8 + c_column(e);
        if (j < all.d) out[j] = rounded<T>(all.scale * dq[x].r[e]);
      }
    }
  }
};

/// dk and dv of a tile of keys: tiles of queries and of do pass by, for each query head of the key's. Products are those of the transposes: rows are keys.
///   WithK, WithV   which of the two; both where registers hold them
template <class T, int D, bool Drops, bool Caps, bool WithK, bool WithV>
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
  attention_gradients<T> gradients;

  /// Whether any query of the tile attends to a key of this block. The same for all threads.
  XTRAIN_SIMT_FN bool meets(int b, int q0, int k0) const {
    if (all.start == nullptr && all.end == nullptr) return true;  // bounds of the loop are exact
    bool sees = false;
    for (int i = lane(); i < queries; i += warp_width) sees = sees || (all.low(b, q0 + i) < k0 + keys && all.high(b, q0 + i) > k0);
    return warp_max(sees ? 1 : 0) != 0;
  }

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int b = block_z(), kv_head = block_y(), k0 = block_x() * keys, t = all.t, group = all.heads / all.kv_heads;
    const int own_rows = warp() * 16;
    copy_tile<T, keys, D, stride, threads>(s.k.at(0), all.key(all.place(b, k0), kv_head), all.row(), t - k0, all.d, all.aligned);
    copy_tile<T, keys, D, stride, threads>(s.v.at(0), all.value(all.place(b, k0), kv_head), all.row(), t - k0, all.d, all.aligned);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    // queries that may attend to these keys: from the first key on where attention is causal, up to the last key's window
    const int first = all.end != nullptr ? 0 : k0 / queries;
    const int limit = all.end != nullptr || all.window == 0 ? t : smaller(t, k0 + keys - 1 + all.window);
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
        copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(all.place(b, q0), head), all.row(), t - q0, all.d, all.aligned);
        copy_tile<T, queries, D, stride, threads>(s.d_o.at(0), gradients.d_o + all.output(b, q0, head), o_row, t - q0, all.d, all.aligned);
        commit_copies();
        for (int i = thread(); i < queries; i += threads) {
          const bool exists = q0 + i < t;
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
        for (int y = 0; y < queries / 8; ++y)
          XTRAIN_SIMT_UNROLL
          for (int e = 0; e < 4; ++e) {
            const int j = k0 + own_rows + c_row(e), of_tile = y * 8 + c_column(e), i = q0 + of_tile;
            const float x = all.template score<Caps>(score[y].r[e]);
            const bool sees = j >= s.low[of_tile] && j < s.high[of_tile];
            const float p = sees ? exp2(x - slope * static_cast<float>(i - j) - s.lse[of_tile]) : 0.0f;
            const float kept = Drops ? all.kept_of(site, b, head, i, j) : 1.0f;
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
      if (j >= t) continue;
      T* const dk_at = gradients.dqkv + all.place(b, j) * all.row() + static_cast<std::size_t>(all.heads + kv_head) * static_cast<std::size_t>(all.d);
      T* const dv_at = dk_at + static_cast<std::size_t>(all.kv_heads) * static_cast<std::size_t>(all.d);
      XTRAIN_SIMT_UNROLL
      for (int x = 0; x < D / 8; ++x) {
        const int c = x * 8 + c_column(e);
        if (c >= all.d) continue;
        if constexpr (WithK) dk_at[c] = rounded<T>(all.scale * dk[x].r[e]);
        if constexpr (WithV) dv_at[c] = rounded<T>(dv[x].r[e]);
      }
    }
  }
};

template <class Kernel>
[[nodiscard]] auto attention_arguments_of(const Kernel& k) {
  using T = std::remove_const_t<typename decltype(k.qkv)::element_type>;
  const auto& s = k.shape;
  require<config_error>(s.d <= 256, "attention: heads must have at most 256 elements on this device; given ", s.d);
  attention_arguments<T> all{};
  all.qkv = k.qkv.raw();
  all.start = k.start_bt.raw(), all.end = k.end_bt.raw(), all.slopes = k.slope_h.raw();
  all.t = static_cast<int>(s.t), all.heads = static_cast<int>(s.h), all.kv_heads = static_cast<int>(s.k), all.d = static_cast<int>(s.d);
  all.window = static_cast<int>(std::min(k.window, s.t));
  all.all_heads = s.all_heads == 0 ? s.h : s.all_heads;
  all.first_head = k.random.first * all.all_heads + s.first_head;
  all.scale = narrowed(k.scale), all.softcap = narrowed(k.softcap);
  all.kept = k.dropout < 1.0 ? narrowed(1.0 / (1.0 - k.dropout)) : 0.0f;
  all.threshold = dropout_threshold(k.dropout);
  all.random = k.random;
  all.random.first = 0;  // it is in first_head
  all.inputs = k.inputs_1.raw();
  all.aligned = s.d % static_cast<std::size_t>(wide<T>) == 0 && is_aligned(k.qkv.raw());
  return all;
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

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention<M, T>& k, scratch_span<M>) {
  const auto& s = k.shape;
  if (s.b * s.t * s.h == 0) return;
  const auto all = simt::attention_arguments_of(k);
  simt::with_attention_variant<T>(s.d, k.dropout > 0.0, k.softcap > 0.0, [&]<int D, bool Drops, bool Caps>() {
    using launch = simt::attention_forward<T, D, Drops, Caps>;
    stream.launch(launch{all, k.o_bthd.raw(), k.lse_bht.raw()}, {simt::blocks_of(s.t, launch::queries), static_cast<int>(s.h), static_cast<int>(s.b)});
  });
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention_backward<M, T>& k, scratch_span<M> scratch) {
  const auto& s = k.shape;
  const std::size_t number = s.b * s.t * s.h;
  if (number == 0) return;
  auto all = simt::attention_arguments_of(k);
  all.aligned = all.aligned && simt::is_aligned(k.do_bthd.raw());
  auto* const delta = reinterpret_cast<float*>(scratch.raw());
  stream.launch(simt::attention_delta<T>{k.o_bthd.raw(), k.do_bthd.raw(), delta, number, all.t, all.heads, all.d},
                {simt::blocks_of(number, 256 / simt::warp_width), 1, 1});
  const simt::attention_gradients<T> gradients{k.do_bthd.raw(), k.lse_bht.raw(), delta, k.dqkv.raw()};
  simt::with_attention_variant<T>(s.d, k.dropout > 0.0, k.softcap > 0.0, [&]<int D, bool Drops, bool Caps>() {
    using dq = simt::attention_dq<T, D, Drops, Caps>;
    const int b = static_cast<int>(s.b), tiles = simt::blocks_of(s.t, dq::queries);
    stream.launch(dq{all, gradients}, {tiles, all.heads, b});
    if constexpr (D <= 128) {
      stream.launch(simt::attention_dkv<T, D, Drops, Caps, true, true>{all, gradients}, {tiles, all.kv_heads, b});
    } else {
      stream.launch(simt::attention_dkv<T, D, Drops, Caps, true, false>{all, gradients}, {tiles, all.kv_heads, b});
      stream.launch(simt::attention_dkv<T, D, Drops, Caps, false, true>{all, gradients}, {tiles, all.kv_heads, b});
    }
  });
}
template <simt::of_simt_device P, class M, class T>
requires simt::up_to_float<T> [[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::attention_backward<M, T>& k) {
  return k.shape.b * k.shape.t * k.shape.h * sizeof(float);
}

}  // namespace xtrain
