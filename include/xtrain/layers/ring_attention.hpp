#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <xtrain/comm/ring_shift.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/attention_block.hpp>
#include <xtrain/ops/elementwise.hpp>

namespace xtrain {

/// In each of n turns, a rank computes attention of its queries over its current keys and values and merges the result, while keys and values travel to the
/// next rank. [Liu et al. 2023, "Ring attention with blockwise transformers"]
///
/// A sequence has 2n chunks; rank i has i and 2n − 1 − i. Under a causal mask two of four pairs of chunks are visible in every turn: ranks are balanced.
/// [Brandon et al. 2023, "Striped attention", section 3; Llama team 2024, section 3.3.2]
///
/// Gradients of keys and values follow one rank behind, end on their owner, and are in the accumulate dtype: rounded once. Transfers overlap with independent
/// compute.
template <class Recipe>
class ring_attention {
 public:
  using device = typename Recipe::device;
  using compute = typename pass<Recipe>::compute;
  using sum = accumulate_t<compute>;
  using memory = typename pass<Recipe>::memory;
  using matrix = matrix_view<compute, memory>;
  using in_matrix = matrix_view<const compute, memory>;
  using settings_type = ops::attention_settings<device>;

  explicit ring_attention(const context_shard& shard) : shard_(shard) {}

  /// The pass has a shard of the tokens.
  [[nodiscard]] bool is_needed(const pass<Recipe>& p) const { return shard_.is_sharded() && p.batch.is_part(); }

  /// s.t: this rank's tokens.
  ///   qkv [b·t, row] read, rotated; o [b·t, h·d], lse [b·h·t] written
  void forward(pass<Recipe>& p, ops::attention_shape s, const settings_type& settings, in_matrix qkv, matrix o, vector_view<sum, memory> lse) const {
    const auto scope = p.scope();
    s.t = p.batch.whole_t;
    const auto o_sums = sums_of(p, o);
    travelling<compute> keys(p, o.shape(0), 2 * s.k * s.d, 0);
    ops::copy_rows(p, qkv.columns(s.key_offset(), 2 * s.k * s.d), keys.here);
    for (std::size_t turn = 0; turn < shard_.ranks; ++turn) {
      if (turn + 1 < shard_.ranks) keys.begin(p);
      for_each_block(p, settings, turn, [&](const ops::attention_blocks& blocks, bool first) {
        ops::attention_block(p, s, blocks, turn == 0 && first, settings, qkv, keys.here, p.batch.starts_n, o_sums, lse);
      });
      if (turn + 1 < shard_.ranks) keys.finish(p);
    }
    round(p, o_sums, o);
  }

  /// dqkv [b·t, row] written
  void backward(pass<Recipe>& p, ops::attention_shape s, const settings_type& settings, in_matrix qkv, in_matrix o, vector_view<sum, memory> lse,
                in_matrix d_o, matrix dqkv) const {
    const auto scope = p.scope();
    s.t = p.batch.whole_t;
    const std::size_t n = o.shape(0), width = 2 * s.k * s.d;
    const auto dq = zeros(p, n, s.h * s.d), down = zeros(p, n, width);  // of queries; of own keys by own queries
    travelling<compute> keys(p, n, width, 0);
    travelling<sum> gradients(p, n, width, 1);  // of other ranks' keys
    const auto made = zeros(p, n, width);    // this rank's part
    // forward: attention over the keys, merged
    const auto merged_backward = [&](const ops::attention_blocks& blocks, matrix_view<sum, memory> dkv) {
      ops::attention_block_backward(p, s, blocks, settings, qkv, keys.here, p.batch.starts_n, o, lse, d_o, dq, dkv);
    };
    // own keys: diagonal blocks while the first keys travel, the rest while the last gradients do
    const auto own_backward = [&](bool diagonal) {
      ops::copy_rows(p, qkv.columns(s.key_offset(), width), keys.here);
      if (diagonal) keys.begin(p);
      for_each_block(p, settings, 0, [&](const ops::attention_blocks& blocks, bool) {
        if ((blocks.queries == blocks.keys) == diagonal) merged_backward(blocks, down);
      });
      if (diagonal) keys.finish(p);
    };
    own_backward(true);
    for (std::size_t turn = 1; turn < shard_.ranks; ++turn) {
      if (turn + 1 < shard_.ranks) keys.begin(p);
      if (turn > 1) fill_zero(p.stream, made.span());
      for_each_block(p, settings, turn, [&](const ops::attention_blocks& blocks, bool) { merged_backward(blocks, made); });
      // forward: keys came from the previous rank; so does its part of their gradients
      if (turn > 1) {
        gradients.finish(p);
        ops::add(p, matrix_view<const sum, memory>(made), gradients.here);
      } else {
        ops::copy(p, matrix_view<const sum, memory>(made), gradients.here);
      }
      gradients.begin(p);
      if (turn + 1 < shard_.ranks) keys.finish(p);
    }
    own_backward(false);
    gradients.finish(p);  // from the keys' last rank to their owner
    ops::add(p, matrix_view<const sum, memory>(gradients.here), down);
    round(p, dq, dqkv.columns(0, s.h * s.d));
    round(p, down, dqkv.columns(s.key_offset(), width));
  }

 private:
  /// What this rank has, and the receive buffer.
  template <class T>
  struct travelling {
    matrix_view<T, memory> here, coming;
    ring_shift<T, memory> shift;

    /// `number`: differs between arrays in flight
    travelling(pass<Recipe>& p, std::size_t rows, std::size_t columns, std::size_t number)
        : here(p.workspace.template take<T>(rows * columns), {rows, columns}), coming(p.workspace.template take<T>(rows * columns), {rows, columns}),
          shift(number) {}

    void begin(pass<Recipe>& p) {
      shift.begin(p.stream, p.internal.parallel.context(), device_span<const T, memory>(here.span()), coming.span());
    }
    void finish(pass<Recipe>& p) {
      shift.finish(p.stream);
      std::swap(here, coming);
    }
  };

  /// work(blocks, first block of these queries?) for pairs of this rank's query chunks and the turn's key chunks, unless fully masked.
  template <class Work>
  void for_each_block(const pass<Recipe>& p, const settings_type& settings, std::size_t turn, Work&& work) const {
    context_shard owner = shard_;
    owner.rank = (shard_.rank + shard_.ranks - turn) % shard_.ranks;
    std::size_t query_at = 0;
    for (const context_shard::range& queries : shard_.ranges_of(p.batch.whole_t)) {
      std::size_t key_at = 0;
      bool first = true;
      for (const context_shard::range& keys : owner.ranges_of(p.batch.whole_t)) {
        const ops::attention_blocks blocks{{p.batch.t, query_at, queries.begin, queries.count}, {p.batch.t, key_at, keys.begin, keys.count}};
        key_at += keys.count;
        if (!ops::may_see(blocks, settings.window, settings.end_bt.exists())) continue;
        work(blocks, std::exchange(first, false));
      }
      query_at += queries.count;
    }
  }

  [[nodiscard]] static matrix_view<sum, memory> temporary_sums(pass<Recipe>& p, std::size_t rows, std::size_t columns) {
    return {p.workspace.template take<sum>(rows * columns), {rows, columns}};
  }
  [[nodiscard]] static matrix_view<sum, memory> zeros(pass<Recipe>& p, std::size_t rows, std::size_t columns) {
    const auto made = temporary_sums(p, rows, columns);
    fill_zero(p.stream, made.span());
    return made;
  }
  /// x itself if compute is the accumulate dtype.
  [[nodiscard]] static matrix_view<sum, memory> sums_of(pass<Recipe>& p, matrix x) {
    if constexpr (std::is_same_v<sum, compute>) return x;
    else return temporary_sums(p, x.shape(0), x.shape(1));
  }
  /// y = x, rounded once; y may be columns of a wider matrix, or x itself
  static void round(pass<Recipe>& p, matrix_view<sum, memory> x, matrix y) {
    if constexpr (std::is_same_v<sum, compute>) {
      if (x.data().raw() != y.data().raw()) ops::copy_rows(p, matrix_view<const sum, memory>(x), y);
    } else {
      if (y.dense()) return ops::cast(p, x.span(), y.span());
      const auto scope = p.scope();
      const auto rounded = p.temporary(x.shape(0), x.shape(1));
      ops::cast(p, x.span(), rounded.span());
      ops::copy_rows(p, in_matrix(rounded), y);
    }
  }

  context_shard shard_;
};

}  // namespace xtrain
