// Common to attention's forward and backward: places of queries and keys, tiles, products. A warp has 16 rows of a tile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/simt/language/tensor_core.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/random.hpp>

namespace xtrain::simt {

inline constexpr float log2_e = 1.4426950408889634f;

/// Consecutive queries of a sequence, perhaps a part of the matrix's.
struct query_places {
  int count = 0;                  // per sequence
  int first = 0;                  // position of the first
  int own = 0, at = 0;            // rows per sequence in the matrix; the first query's
  const token* before = nullptr;  // cached tokens per sequence, added to positions; null: none

  /// In the matrix.
  XTRAIN_SIMT_FN std::size_t row(int b, int i) const {
    return static_cast<std::size_t>(b) * static_cast<std::size_t>(own) + static_cast<std::size_t>(at + i);
  }
};

/// Row j of a head begins at head · head_stride + (at + j) · stride of its sequence's part.
struct key_places {
  int count = 0;  // readable keys per sequence; with a cache only up to its end
  int first = 0;  // position of the first
  int at = 0;     // its row
  std::size_t stride = 0, head_stride = 0, sequence_stride = 0;

  /// Begin of a key, and of its gradient in the same layout.
  XTRAIN_SIMT_FN std::size_t row(int b, int j, int kv_head) const {
    return static_cast<std::size_t>(b) * sequence_stride + static_cast<std::size_t>(kv_head) * head_stride +
           static_cast<std::size_t>(at + j) * stride;
  }
};

/// Common arguments. Scores are in powers of two.
template <class T>
struct attention_arguments {
  const T *q, *k, *v;        // first query head; first key/value head
  const token *start, *end;  // by position in the entire sequence; null: from 0; causal
  const float* slopes;       // null: no bias
  query_places queries;
  key_places keys;
  int t, heads, kv_heads, d, window;
  std::size_t q_stride;                         // between rows of queries
  std::uint64_t all_heads, first_head;          // of all ranks; this rank's first of the first sequence
  float scale, scale_in_powers, softcap, kept;  // the second: scale · log2(e)
  std::uint32_t threshold;
  random_site random;
  const kernel::step_inputs* inputs;
  bool aligned;

  XTRAIN_SIMT_FN int kv_head_of(int head) const { return head / (heads / kv_heads); }
  XTRAIN_SIMT_FN const T* query(int b, int i, int head) const {
    return q + queries.row(b, i) * q_stride + static_cast<std::size_t>(head) * static_cast<std::size_t>(d);
  }
  XTRAIN_SIMT_FN const T* key(int b, int j, int kv_head) const { return k + keys.row(b, j, kv_head); }
  XTRAIN_SIMT_FN const T* value(int b, int j, int kv_head) const { return v + keys.row(b, j, kv_head); }
  /// Begin of a head's values in [b, heads, own], and of a query's output in [b, own, heads, d].
  XTRAIN_SIMT_FN std::size_t of_head(int b, int head) const {
    return (static_cast<std::size_t>(b) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) *
               static_cast<std::size_t>(queries.own) +
           static_cast<std::size_t>(queries.at);
  }
  XTRAIN_SIMT_FN std::size_t output(int b, int i, int head) const {
    return (queries.row(b, i) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) * static_cast<std::size_t>(d);
  }
  XTRAIN_SIMT_FN float slope_of(int head) const { return slopes != nullptr ? slopes[head] * log2_e : 0.0f; }

  XTRAIN_SIMT_FN int before(int b) const { return queries.before != nullptr ? queries.before[b] : 0; }
  XTRAIN_SIMT_FN int position(int b, int i) const { return queries.first + before(b) + i; }
  /// Existing keys of this sequence.
  XTRAIN_SIMT_FN int key_count(int b) const {
    return queries.before != nullptr ? smaller(keys.count, queries.before[b] + queries.count) : keys.count;
  }
  /// First key visible to query i, and one past the last; nothing for a query beyond the end.
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

  /// Product q·k to score in powers of two, without ALiBi.
  template <bool Caps>
  XTRAIN_SIMT_FN float score(float product) const {
    if constexpr (Caps) {
      if (softcap > 0.0f) return softcap * tanh(product * scale / softcap) * log2_e;
    }
    return product * scale_in_powers;
  }
  /// Derivative of the softcap.
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
  /// 0 if p_ij is dropped, else 1 / (1 − probability). i, j: in the entire sequence.
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

/// Tile sizes for 255 registers and 99 KiB of shared memory.
template <class T, int D, bool Drops>
struct attention_tiles {
  static constexpr bool is_short = D <= 64, is_long = D > 128;
  static constexpr int threads = is_16_bits<T> || !is_long ? 128 : 64;
  static constexpr int rows = threads / warp_width * 16;  // of the owned side
  static constexpr int forward_keys = is_long || (!is_16_bits<T> && !is_short) ? 16 : !is_16_bits<T> || (Drops && !is_short) ? 32 : 64;
  static constexpr int backward_step = is_16_bits<T> && is_short ? 32 : 16;  // of the other side
  static constexpr int backward_stages = is_16_bits<T> && !is_long ? 2 : 1;  // its tiles: one in use, one in flight
  static constexpr int columns = is_16_bits<T> || !is_long ? D : D / 2;      // of a result in registers: others need another pass
  static constexpr int stride = D + wide<T>;                                 // 16 bytes more: eight rows lie in different banks
};

/// Keys visible to some query of a block; keys visible to all: [inner_from, inner_to), empty if reversed.
struct key_range {
  int from, to, inner_from, inner_to;

  /// Some query does not see some key of the tile; equal for all threads.
  XTRAIN_SIMT_FN bool is_edge(int first, int count) const { return first < inner_from || first + count > inner_to; }
};
/// Ranges over all threads, each with its row slots' queries.
template <int Warps>
XTRAIN_SIMT_FN void range_of_block(key_range& range, shared_array<int, 4 * Warps>& bounds) {
  XTRAIN_SIMT_UNROLL
  for (int mask = warp_width / 2; mask > 0; mask /= 2) {
    range.from = smaller(range.from, shuffle_xor(range.from, mask));
    range.to = larger(range.to, shuffle_xor(range.to, mask));
    range.inner_from = larger(range.inner_from, shuffle_xor(range.inner_from, mask));
    range.inner_to = smaller(range.inner_to, shuffle_xor(range.inner_to, mask));
  }
  if (lane() == 0) {
    bounds[warp()] = range.from, bounds[Warps + warp()] = range.to;
    bounds[2 * Warps + warp()] = range.inner_from, bounds[3 * Warps + warp()] = range.inner_to;
  }
  sync();
  XTRAIN_SIMT_UNROLL
  for (int w = 0; w < Warps; ++w) {
    range.from = smaller(range.from, bounds[w]), range.to = larger(range.to, bounds[Warps + w]);
    range.inner_from = larger(range.inner_from, bounds[2 * Warps + w]), range.inner_to = smaller(range.inner_to, bounds[3 * Warps + w]);
  }
}

/// A block's tile of queries: each lane's rows.
template <class T, int Threads>
struct own_queries {
  static constexpr int slots = tensor_layout::row_slots;
  int b, head, kv_head, first, k_count, offset;  // offset: the key at query i's position is i + offset
  int query[slots], low[slots], high[slots];     // per row slot
  key_range range;

  /// Later tiles, which see more keys, come first; heads that share keys are adjacent.
  XTRAIN_SIMT_FN own_queries(const attention_arguments<T>& all, shared_array<int, 4 * Threads / warp_width>& bounds) {
    constexpr int count = Threads / warp_width * 16;
    b = block_z(), head = block_x(), kv_head = all.kv_head_of(head);
    first = ((all.queries.count - 1) / count - block_y()) * count;
    k_count = all.key_count(b), offset = all.position(b, 0) - all.keys.first;
    range = {k_count, 0, 0, k_count};
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int slot = tensor_layout::row_slot(e), i = first + warp() * 16 + c_row(e);
      query[slot] = i, low[slot] = all.low(b, i), high[slot] = all.high(b, i);
      if (low[slot] < high[slot]) range.from = smaller(range.from, low[slot]), range.to = larger(range.to, high[slot]);
      range.inner_from = larger(range.inner_from, low[slot]), range.inner_to = smaller(range.inner_to, high[slot]);
    }
    range_of_block<Threads / warp_width>(range, bounds);
  }
  XTRAIN_SIMT_FN bool sees(int slot, int j) const { return j >= low[slot] && j < high[slot]; }
};

/// sum += A · Bᵀ: 16 rows of D columns by a tile's N rows.
///   a(x)   operand A of columns x … x + 15
template <class T, int D, int N, class A>
XTRAIN_SIMT_FN void multiply_by_rows(fragment_c (&sum)[N / 8], const A& a, const T* tile, int stride) {
  XTRAIN_SIMT_UNROLL_BY(D > 128 ? 2 : D / 16)  // long heads: all operands at once would exceed registers
  for (int x = 0; x < D; x += 16) {
    const fragment_a<T> a_x = a(x);
    XTRAIN_SIMT_UNROLL
    for (int y = 0; y < N / 16; ++y) {
      fragment_b<T> left, right;
      load_b_pair<T, true>(left, right, tile + y * 16 * stride + x, stride);
      multiply<T>(sum[2 * y], a_x, left);
      multiply<T>(sum[2 * y + 1], a_x, right);
    }
  }
}
/// sum += P · B: P, 16 × N, rounded to T; B: N rows of a tile.
template <class T, int N, int Columns>
XTRAIN_SIMT_FN void multiply_by_columns(fragment_c (&sum)[Columns / 8], const fragment_c (&p)[N / 8], const T* tile, int stride) {
  XTRAIN_SIMT_UNROLL
  for (int y = 0; y < N / 16; ++y) {
    const fragment_a<T> p_y = operand_of<T>(p[2 * y], p[2 * y + 1]);
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < Columns / 16; ++x) {
      fragment_b<T> left, right;
      load_b_pair<T, false>(left, right, tile + y * 16 * stride + x * 16, stride);
      multiply<T>(sum[2 * x], p_y, left);
      multiply<T>(sum[2 * x + 1], p_y, right);
    }
  }
}
/// Writes a warp's 16 rows, 16 bytes at a time.
///   stage         room for them, for this warp alone; still in use on return
///   value(e, x)   the lane's element e of columns x … x + 7
///   row(i)        row i's destination, or null
template <class T, int D, class Value, class Row>
XTRAIN_SIMT_FN void store_rows(T* stage, int stride, int d, bool aligned, const Value& value, const Row& row) {
  XTRAIN_SIMT_UNROLL
  for (int x = 0; x < D; x += 8) XTRAIN_SIMT_UNROLL
  for (int e = 0; e < 4; ++e) stage[c_row(e) * stride + x + c_column(e)] = rounded<T>(value(e, x));
  sync_warp();
  constexpr int width = wide<T>, pieces = D / width;
  for (int piece = lane(); piece < 16 * pieces; piece += warp_width) {
    const int i = piece / pieces, j = piece % pieces * width;
    T* const to = row(i);
    if (to == nullptr || j >= d) continue;
    if (aligned) {
      store<width>(to + j, load<width>(static_cast<const T*>(stage + i * stride + j)));
    } else {
      for (int e = 0; e < width && j + e < d; ++e) to[j + e] = stage[i * stride + j + e];
    }
  }
}

/// Arguments without queries, keys and values.
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
  all.scale = narrowed(k.scale), all.scale_in_powers = narrowed(k.scale) * log2_e, all.softcap = narrowed(k.softcap);
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
/// Keys and values in the queries' rows.
template <class T>
void take_keys_of_rows(attention_arguments<T>& all, const kernel::attention_shape& s) {
  all.k = all.q + s.key_offset(), all.v = all.q + s.value_offset();
  all.keys = {.count = all.t, .first = 0, .at = 0, .stride = s.row(), .head_stride = s.d, .sequence_stride = s.t * s.row()};
}
/// A block of queries; a block of keys and values in another matrix.
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

/// Calls f.template operator()<D, Drops, Caps>(). fp32, for checks, has one variant with run-time settings.
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

}  // namespace xtrain::simt
