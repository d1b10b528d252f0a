// Attention's backward: recomputes a tile's scores. A block owns queries (dq) or keys (dk, dv) and loops over tiles of the other side.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/device/simt/attention_tiles.hpp>
#include <xtrain/device/simt/language/sums.hpp>

namespace xtrain {

namespace simt {

/// delta_bht = Σ do · o per query and head, in the layout of lse; a warp each, Width neighbours per lane.
template <class T, int Width>
struct attention_delta {
  static constexpr int threads = 256;
  struct shared {};
  const T *o, *d_o;
  float* delta;
  attention_arguments<T> all;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const int each = block_x() * (threads / warp_width) + warp(), b = block_y(), i = each / all.heads, head = each % all.heads;
    if (i >= all.queries.count) return;  // the entire warp
    const T *const o_d = o + all.output(b, i, head), *const do_d = d_o + all.output(b, i, head);
    float sum = 0;
    XTRAIN_SIMT_UNROLL_BY(1)
    for (int j = lane() * Width; j < all.d; j += warp_width * Width) {
      const auto o_n = load<Width>(o_d + j), do_n = load<Width>(do_d + j);
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < Width; ++e) sum += widen(o_n.v[e]) * widen(do_n.v[e]);
    }
    sum = warp_sum(sum);
    if (lane() == 0) delta[all.of_head(b, head) + static_cast<std::size_t>(i)] = sum;
  }
};

/// Further operands. Gradients are laid out as queries, keys and values or, if Out is float, added to.
template <class T, class Out>
struct attention_gradients {
  static constexpr bool adds = !std::is_same_v<Out, T> || !is_16_bits<T>;
  const T* d_o;
  const float *lse, *delta;  // [b, heads, own]
  Out *dq, *dk, *dv;
  std::size_t dq_stride;
  key_places keys;  // of dk and dv
  bool accumulates, aligned;

  /// Writes a warp's 16 rows, columns first_column … first_column + Columns − 1.
  ///   stage   room for 16 rows of T, for this warp alone
  ///   to(i)   row i's destination, or null
  template <int Columns, class To>
  XTRAIN_SIMT_FN void write(const fragment_c (&sum)[Columns / 8], float scale, int first_column, int d, [[maybe_unused]] T* stage,
                            int stride, const To& to) const {
    if constexpr (adds) {
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        Out* const out = to(c_row(e));
        if (out == nullptr) continue;
        XTRAIN_SIMT_UNROLL
        for (int x = 0; x < Columns / 8; ++x) {
          const int j = first_column + x * 8 + c_column(e);
          if (j >= d) continue;
          const float value = scale * sum[x].r[e];
          out[j] = rounded<Out>(accumulates ? widen(out[j]) + value : value);
        }
      }
    } else {
      store_rows<T, Columns>(
          stage, stride, d, aligned, [&](int e, int x) { return scale * sum[x / 8].r[e]; }, to);
    }
  }
};

/// dq of a tile of queries, over tiles of keys and values.                       [Dao et al. 2022, section B.2]
template <class T, int D, bool Drops, bool Caps, class Out>
struct attention_dq {
  using tiles = attention_tiles<T, D, Drops>;
  static constexpr int threads = tiles::threads, queries = tiles::rows, keys = tiles::backward_step, stride = tiles::stride,
                       columns = tiles::columns;
  static constexpr int slots = tensor_layout::row_slots, stages = tiles::backward_stages;
  struct shared {
    shared_array<T, queries * stride> q, d_o;
    shared_array<T, stages * keys * stride> k, v;
    shared_array<int, 4 * threads / warp_width> bounds;
  };
  attention_arguments<T> all;
  attention_gradients<T, Out> gradients;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const own_queries<T, threads> own(all, s.bounds);
    const std::size_t of_head = all.of_head(own.b, own.head);
    const std::size_t o_row = static_cast<std::size_t>(all.heads) * static_cast<std::size_t>(all.d);
    const int rows = all.queries.count - own.first;
    copy_tile<T, queries, D, stride, threads>(s.q.at(0), all.query(own.b, own.first, own.head), all.q_stride, rows, all.d, all.aligned);
    copy_tile<T, queries, D, stride, threads>(s.d_o.at(0), gradients.d_o + all.output(own.b, own.first, own.head), o_row, rows, all.d,
                                              all.aligned);
    commit_copies();
    float lse[slots], delta[slots];
    XTRAIN_SIMT_UNROLL
    for (int r = 0; r < slots; ++r) {
      const bool exists = own.query[r] < all.queries.count;
      const std::size_t at = of_head + static_cast<std::size_t>(own.query[r]);
      lse[r] = exists ? gradients.lse[at] * log2_e : 0.0f;
      delta[r] = exists ? gradients.delta[at] : 0.0f;
    }
    for (int first_column = 0; first_column < D; first_column += columns) write_columns(s, own, lse, delta, first_column);
  }

 private:
  XTRAIN_SIMT_FN void write_columns(shared& s, const own_queries<T, threads>& own, const float (&lse)[slots], const float (&delta)[slots],
                                    int first_column) const {
    const int b = own.b, head = own.head, own_rows = warp() * 16, first_tile = own.range.from / keys,
              end_tile = (own.range.to + keys - 1) / keys;
    const auto fetch = [&](int tile, int stage) {
      const int k0 = tile * keys, rows = own.k_count - k0;
      copy_tile<T, keys, D, stride, threads>(s.k.at(stage * keys * stride), all.key(b, k0, own.kv_head), all.keys.stride, rows, all.d,
                                             all.aligned);
      copy_tile<T, keys, D, stride, threads>(s.v.at(stage * keys * stride), all.value(b, k0, own.kv_head), all.keys.stride, rows, all.d,
                                             all.aligned);
    };
    const float slope = all.slope_of(head);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    fragment_c dq[columns / 8];
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < columns / 8; ++x) set_zero(dq[x]);
    if (stages == 2 && first_tile < end_tile) fetch(first_tile, 0);
    commit_copies();
    for (int tile = first_tile; tile < end_tile; ++tile) {
      const int stage = (tile - first_tile) % stages, k0 = tile * keys;
      if (stages == 1) fetch(tile, 0);
      else if (tile + 1 < end_tile) fetch(tile + 1, 1 - stage);
      commit_copies();
      wait_for_copies<stages - 1>();
      sync();
      const T *const k_tile = s.k.at(stage * keys * stride), *const v_tile = s.v.at(stage * keys * stride);
      fragment_c score[keys / 8], dp[keys / 8];
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y) set_zero(score[y]), set_zero(dp[y]);
      multiply_by_rows<T, D, keys>(
          score, [&](int x) { return load_a<T>(s.q.at(own_rows * stride + x), stride); }, k_tile, stride);
      multiply_by_rows<T, D, keys>(
          dp, [&](int x) { return load_a<T>(s.d_o.at(own_rows * stride + x), stride); }, v_tile, stride);
      const bool is_edge = own.range.is_edge(k0, keys);
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < keys / 8; ++y) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int r = tensor_layout::row_slot(e), j = k0 + y * 8 + c_column(e);
        const float x = all.template score<Caps>(score[y].r[e]);
        float p = exp2(x - slope * static_cast<float>(own.query[r] + own.offset - j) - lse[r]);
        if (is_edge && !own.sees(r, j)) p = 0.0f;
        float dp_ij = dp[y].r[e];
        if constexpr (Drops) dp_ij *= all.kept_of(site, b, head, all.position(b, own.query[r]), all.keys.first + j);
        score[y].r[e] = p * (dp_ij - delta[r]) * all.template cap_slope<Caps>(x);
      }
      multiply_by_columns<T, keys, columns>(dq, score, k_tile + first_column, stride);
      sync();  // before the next copies replace these tiles
    }
    wait_for_copies<0>();
    sync();  // without tiles: all copies of q have arrived, which dq replaces
    gradients.template write<columns>(dq, all.scale, first_column, all.d, s.q.at(own_rows * stride), stride, [&](int i) -> Out* {
      const int query = own.first + own_rows + i;
      if (query >= all.queries.count) return nullptr;
      return gradients.dq + all.queries.row(b, query) * gradients.dq_stride +
             static_cast<std::size_t>(head) * static_cast<std::size_t>(all.d);
    });
  }
};

/// dk and dv of a tile of keys, over tiles of queries and do, per query head of the key's. Products are transposed: rows are keys.
///   WithK, WithV   which; both where registers hold them
template <class T, int D, bool Drops, bool Caps, class Out, bool WithK, bool WithV>
struct attention_dkv {
  using tiles = attention_tiles<T, D, Drops>;
  static constexpr int threads = tiles::threads, keys = tiles::rows, queries = tiles::backward_step, stride = tiles::stride,
                       columns = tiles::columns;
  static constexpr int stages = tiles::backward_stages;
  struct shared {
    shared_array<T, keys * stride> k, v;
    shared_array<T, stages * queries * stride> q, d_o;
    shared_array<int, stages * queries> low, high;
    shared_array<float, stages * queries> lse, delta;
  };
  attention_arguments<T> all;
  attention_gradients<T, Out> gradients;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int b = block_z(), kv_head = block_x(), k0 = block_y() * keys, rows = all.keys.count - k0;
    copy_tile<T, keys, D, stride, threads>(s.k.at(0), all.key(b, k0, kv_head), all.keys.stride, rows, all.d, all.aligned);
    copy_tile<T, keys, D, stride, threads>(s.v.at(0), all.value(b, k0, kv_head), all.keys.stride, rows, all.d, all.aligned);
    commit_copies();
    for (int first_column = 0; first_column < D; first_column += columns) write_columns(s, b, kv_head, k0, first_column);
  }

 private:
  /// A tile of queries of a head.
  struct place {
    int head, tile;
  };
  /// A query of the tile attends to a key of this block; equal for all threads.
  XTRAIN_SIMT_FN bool meets(int b, int q0, int k0) const {
    if (all.start == nullptr && all.end == nullptr) return true;  // the loop's bounds are exact
    bool sees = false;
    for (int i = lane(); i < queries; i += warp_width) sees = sees || (all.low(b, q0 + i) < k0 + keys && all.high(b, q0 + i) > k0);
    return warp_max(sees ? 1 : 0) != 0;
  }
  /// A query of the tile may not attend to some key of this block; equal for all threads.
  XTRAIN_SIMT_FN bool is_edge(int b, int q0, int k0) const {
    if (all.start != nullptr || all.end != nullptr) return true;
    return q0 + queries > all.queries.count || all.high(b, q0) < k0 + keys || all.low(b, q0 + queries - 1) > k0;
  }

  XTRAIN_SIMT_FN void write_columns(shared& s, int b, int kv_head, int k0, int first_column) const {
    const int q_count = all.queries.count, group = all.heads / all.kv_heads, own_rows = warp() * 16,
              offset = all.queries.first - all.keys.first;
    const std::size_t o_row = static_cast<std::size_t>(all.heads) * static_cast<std::size_t>(all.d);
    const random_site site = Drops ? site_of_step(all.random, all.inputs) : random_site{};
    // visible from these keys: queries from the first key's position on if causal, up to the last key's window
    const int first = all.end != nullptr ? 0 : larger(k0 - offset, 0) / queries;
    const int limit = all.end != nullptr || all.window == 0 ? q_count : smaller(q_count, k0 + keys - 1 + all.window - offset);
    const int end_head = first * queries < limit ? (kv_head + 1) * group : 0;
    const auto after = [&](place at) {
      do {
        if (++at.tile * queries >= limit) ++at.head, at.tile = first;
      } while (at.head < end_head && !meets(b, at.tile * queries, k0));
      return at;
    };
    const auto fetch = [&](const place& at, int stage) {
      const int q0 = at.tile * queries;
      copy_tile<T, queries, D, stride, threads>(s.q.at(stage * queries * stride), all.query(b, q0, at.head), all.q_stride, q_count - q0,
                                                all.d, all.aligned);
      copy_tile<T, queries, D, stride, threads>(s.d_o.at(stage * queries * stride), gradients.d_o + all.output(b, q0, at.head), o_row,
                                                q_count - q0, all.d, all.aligned);
      const std::size_t of_head = all.of_head(b, at.head);
      for (int i = thread(); i < queries; i += threads) {
        const bool exists = q0 + i < q_count;
        const int place_of = stage * queries + i;
        s.low[place_of] = all.low(b, q0 + i), s.high[place_of] = all.high(b, q0 + i);
        s.lse[place_of] = exists ? gradients.lse[of_head + static_cast<std::size_t>(q0 + i)] * log2_e : 0.0f;
        s.delta[place_of] = exists ? gradients.delta[of_head + static_cast<std::size_t>(q0 + i)] : 0.0f;
      }
    };
    fragment_c dk[WithK ? columns / 8 : 1], dv[WithV ? columns / 8 : 1];
    XTRAIN_SIMT_UNROLL
    for (int x = 0; x < columns / 8; ++x) {
      if constexpr (WithK) set_zero(dk[x]);
      if constexpr (WithV) set_zero(dv[x]);
    }
    place now = after({kv_head * group, first - 1});
    if (stages == 2 && now.head < end_head) fetch(now, 0);
    commit_copies();
    for (int number = 0; now.head < end_head; ++number) {
      const place next = after(now);
      const int stage = number % stages, q0 = now.tile * queries, at_stage = stage * queries;
      if (stages == 1) fetch(now, 0);
      else if (next.head < end_head) fetch(next, 1 - stage);
      commit_copies();
      wait_for_copies<stages - 1>();
      sync();
      const T *const q_tile = s.q.at(at_stage * stride), *const do_tile = s.d_o.at(at_stage * stride);
      fragment_c score[queries / 8], dp[queries / 8];
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < queries / 8; ++y) set_zero(score[y]), set_zero(dp[y]);
      multiply_by_rows<T, D, queries>(
          score, [&](int x) { return load_a<T>(s.k.at(own_rows * stride + x), stride); }, q_tile, stride);
      if constexpr (WithK)
        multiply_by_rows<T, D, queries>(
            dp, [&](int x) { return load_a<T>(s.v.at(own_rows * stride + x), stride); }, do_tile, stride);
      const float slope = all.slope_of(now.head);
      const bool hides = is_edge(b, q0, k0);
      XTRAIN_SIMT_UNROLL
      for (int y = 0; y < queries / 8; ++y) XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int j = k0 + own_rows + c_row(e), of_tile = y * 8 + c_column(e), i = q0 + of_tile;
        const float x = all.template score<Caps>(score[y].r[e]);
        float p = exp2(x - slope * static_cast<float>(i + offset - j) - s.lse[at_stage + of_tile]);
        if (hides && !(j >= s.low[at_stage + of_tile] && j < s.high[at_stage + of_tile])) p = 0.0f;
        const float kept = Drops ? all.kept_of(site, b, now.head, all.queries.first + i, all.keys.first + j) : 1.0f;
        if constexpr (WithK) dp[y].r[e] = p * (dp[y].r[e] * kept - s.delta[at_stage + of_tile]) * all.template cap_slope<Caps>(x);
        score[y].r[e] = p * kept;
      }
      if constexpr (WithV) multiply_by_columns<T, queries, columns>(dv, score, do_tile + first_column, stride);
      if constexpr (WithK) multiply_by_columns<T, queries, columns>(dk, dp, q_tile + first_column, stride);
      sync();  // before the next copies replace these tiles
      now = next;
    }
    wait_for_copies<0>();
    sync();  // without tiles: all copies of k and v have arrived, which results replace
    const auto row_of = [&](Out* all_rows) {
      return [=, this](int i) -> Out* {
        const int j = k0 + own_rows + i;
        return j < all.keys.count ? all_rows + gradients.keys.row(b, j, kv_head) : nullptr;
      };
    };
    if constexpr (WithK)
      gradients.template write<columns>(dk, all.scale, first_column, all.d, s.k.at(own_rows * stride), stride, row_of(gradients.dk));
    if constexpr (WithV)
      gradients.template write<columns>(dv, 1.0f, first_column, all.d, s.v.at(own_rows * stride), stride, row_of(gradients.dv));
  }
};

template <class Out, launches Stream, class T>
void launch_attention_backward(Stream& stream, const attention_arguments<T>& all, std::size_t b, bool drops, bool caps, const T* o,
                               attention_gradients<T, Out> gradients, float* delta) {
  const std::size_t number = static_cast<std::size_t>(all.queries.count) * static_cast<std::size_t>(all.heads);
  if (b * number == 0 || all.keys.count == 0) return;
  gradients.delta = delta;
  gradients.aligned = all.d % wide<Out> == 0 && all_aligned(gradients.dq, gradients.dk, gradients.dv);
  constexpr int width = 4;
  choose(all.d % width == 0 && all_aligned(o, gradients.d_o), [&](auto vectors) {
    stream.launch(attention_delta < T, decltype(vectors)::value ? width : 1 > {o, gradients.d_o, delta, all},
                  {blocks_of(number, 256 / warp_width), static_cast<int>(b), 1});
  });
  with_attention_variant<T>(static_cast<std::size_t>(all.d), drops, caps, [&]<int D, bool Drops, bool Caps>() {
    using dq = attention_dq<T, D, Drops, Caps, Out>;
    const auto tiles_of = [](int rows) { return blocks_of(static_cast<std::size_t>(rows), dq::queries); };
    const grid_size of_queries{all.heads, tiles_of(all.queries.count), static_cast<int>(b)};
    const grid_size of_keys{all.kv_heads, tiles_of(all.keys.count), static_cast<int>(b)};
    stream.launch(dq{all, gradients}, of_queries);
    if constexpr (D <= 128) {
      stream.launch(attention_dkv<T, D, Drops, Caps, Out, true, true>{all, gradients}, of_keys);
    } else {
      stream.launch(attention_dkv<T, D, Drops, Caps, Out, true, false>{all, gradients}, of_keys);
      stream.launch(attention_dkv<T, D, Drops, Caps, Out, false, true>{all, gradients}, of_keys);
    }
  });
}

/// Entire sequences.
template <launches Stream, class M, class T>
void launch_whole_backward(Stream& stream, const kernel::attention_backward<M, T>& k, scratch_span<M> scratch) {
  const auto& s = k.shape;
  auto all = attention_arguments_of<T>(k);
  take_keys_of_rows(all, s);
  all.aligned = all.aligned && is_aligned(k.do_bthd.raw());
  T* const dqkv = k.dqkv.raw();
  const attention_gradients<T, T> gradients{k.do_bthd.raw(),         k.lse_bht.raw(), nullptr,  dqkv,  dqkv + s.key_offset(),
                                            dqkv + s.value_offset(), s.row(),         all.keys, false, false};
  launch_attention_backward(stream, all, s.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), gradients, reinterpret_cast<float*>(scratch.raw()));
}

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention_backward<M, T>& k, scratch_span<M> scratch) {
  kernel::check_arity<15>(k);
  simt::launch_whole_backward(stream, k, scratch);
}
template <simt::of_simt_device P, class M, class T>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::attention_backward<M, T>& k) {
  return k.shape.b * k.shape.t * k.shape.h * sizeof(float);
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::attention_block_backward<M, T>& k, scratch_span<M> scratch) {
  kernel::check_arity<19>(k);
  const auto& s = k.shape;
  auto all = simt::attention_arguments_of<T>(k);
  simt::take_blocks(all, k);
  all.aligned = all.aligned && simt::is_aligned(k.do_bthd.raw());
  const simt::attention_gradients<T, float> gradients{
      k.do_bthd.raw(), k.lse_bht.raw(), nullptr, k.dq_bthd.raw(), k.dkv.raw(), k.dkv.raw() + s.k * s.d, s.h * s.d, all.keys, true, false};
  simt::launch_attention_backward(stream, all, s.b, k.dropout > 0.0, k.softcap > 0.0, k.o_bthd.raw(), gradients,
                                  reinterpret_cast<float*>(scratch.raw()));
}
template <simt::of_simt_device P, class M, class T>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::attention_block_backward<M, T>& k) {
  return k.shape.b * k.queries.own * k.shape.h * sizeof(float);
}

}  // namespace xtrain
