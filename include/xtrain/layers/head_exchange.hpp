#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>

namespace xtrain {

/// From [own tokens, all heads] to [all tokens, own heads], and back. [Jacobs et al. 2023, "DeepSpeed Ulysses", section 3]
///
/// Each of n ranks sends (n − 1)/n of its array in a layer's four exchanges: queries, keys and values; outputs; both gradients. k < n key/value heads are
/// each sent to n/k ranks; gradients are summed in rank order, rounded to compute at every addition.
template <class Recipe>
class head_exchange {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using matrix = matrix_view<compute, memory>;
  using in_matrix = matrix_view<const compute, memory>;

  /// throws config_error when the heads are not divisible
  head_exchange(const context_shard& shard, std::size_t heads, std::size_t kv_heads, std::size_t head_dim)
      : shard_(shard), all_heads_(heads), all_kv_heads_(kv_heads), d_(head_dim) {
    require<config_error>(heads % shard.ranks == 0, "context: heads must be divisible by the ", shard.ranks, " context-parallel ranks; given ",
                          heads);
    require<config_error>(kv_heads % shard.ranks == 0 || shard.ranks % kv_heads == 0, "context: the ", shard.ranks,
                          " context-parallel ranks must be a multiple of the key/value heads, or the key/value heads of the ranks; given ", kv_heads);
  }

  /// The pass has a shard of the tokens; unsharded sequences need no exchange.
  [[nodiscard]] bool is_needed(const pass<Recipe>& p) const {
    if constexpr (!has_context_parallel<Recipe>) return false;
    else return shard_.is_sharded() && p.batch.is_part();
  }

  // this rank's attention
  [[nodiscard]] std::size_t heads() const { return all_heads_ / shard_.ranks; }
  [[nodiscard]] std::size_t kv_heads() const { return all_kv_heads_ < shard_.ranks ? 1 : all_kv_heads_ / shard_.ranks; }
  [[nodiscard]] std::size_t first_head() const { return shard_.rank * heads(); }

  /// Queries, keys and values, or an array as wide as outputs.
  ///   own [b·t, all heads] read; whole [b·sequence length, own heads] written
  void to_whole_sequences(pass<Recipe>& p, in_matrix own, matrix whole) const {
    const auto scope = p.scope();
    const std::size_t num_tokens = own.shape(0), width = whole.shape(1);
    const auto sent = p.temporary(shard_.ranks * num_tokens, width);
    for_each_part(width, [&](const columns& part) {
      ops::copy_rows(p, own.columns(part.first, part.count), sent.rows(part.rank * num_tokens, num_tokens).columns(part.in_rank, part.count));
    });
    const auto received = p.batch.b == 1 ? whole : p.temporary(shard_.ranks * num_tokens, width);  // ranks' tokens, in rank order
    exchange(p, sent, received);
    if (p.batch.b == 1) return;
    for (std::size_t rank = 0; rank < shard_.ranks; ++rank)
      ops::copy_rows(p, by_rows(p, received.rows(rank * num_tokens, num_tokens)), tokens_of_rank(p, whole, rank));
  }

  /// Reverse of to_whole_sequences.
  ///   whole [b·sequence length, own heads] read; own [b·t, all heads] written
  void reduce_scatter(pass<Recipe>& p, in_matrix whole, matrix own) const {
    const auto scope = p.scope();
    const std::size_t num_tokens = own.shape(0), width = whole.shape(1);
    const auto received = p.temporary(shard_.ranks * num_tokens, width);
    if (p.batch.b == 1) {
      exchange(p, whole, received);
    } else {
      const auto sent = p.temporary(shard_.ranks * num_tokens, width);
      for (std::size_t rank = 0; rank < shard_.ranks; ++rank)
        ops::copy_rows(p, tokens_of_rank(p, whole, rank), by_rows(p, sent.rows(rank * num_tokens, num_tokens)));
      exchange(p, sent, received);
    }
    for_each_part(width, [&](const columns& part) {
      ops::copy_rows(p, received.rows(part.rank * num_tokens, num_tokens).columns(part.in_rank, part.count), own.columns(part.first, part.count),
                     part.is_copy ? ops::result::is_added : ops::result::replaces);
    });
  }

 private:
  /// Columns of queries, keys or values of a rank's heads, in rows with all heads and in the rank's rows.
  struct columns {
    std::size_t rank = 0, first = 0, in_rank = 0, count = 0;
    bool is_copy = false;  // a previous rank has the same
  };
  /// Per rank: queries, keys and values; only queries if rows are no wider.
  template <class Work>
  void for_each_part(std::size_t width, Work&& work) const {
    const std::size_t q = heads() * d_, kv = kv_heads() * d_, copies = all_kv_heads_ < shard_.ranks ? shard_.ranks / all_kv_heads_ : 1;
    for (std::size_t rank = 0; rank < shard_.ranks; ++rank) {
      work(columns{rank, rank * q, 0, q});
      if (width == q) continue;
      const std::size_t key = all_heads_ * d_ + rank / copies * kv, value = key + all_kv_heads_ * d_;
      work(columns{rank, key, q, kv, rank % copies != 0});
      work(columns{rank, value, q + kv, kv, rank % copies != 0});
    }
  }

  /// A sequence as one row.
  template <class Matrix>
  [[nodiscard]] static Matrix by_rows(const pass<Recipe>& p, const Matrix& x) {
    return x.template reshaped<2>({p.batch.b, x.size() / p.batch.b});
  }
  template <class Matrix>
  [[nodiscard]] Matrix tokens_of_rank(const pass<Recipe>& p, const Matrix& whole, std::size_t rank) const {
    const std::size_t count = p.batch.t * whole.shape(1);
    return by_rows(p, whole).columns(rank * count, count);
  }
  void exchange(pass<Recipe>& p, in_matrix from, matrix to) const {
    if constexpr (has_context_parallel<Recipe>) p.internal.parallel.context().all_to_all(p.stream, from.span(), to.span());
  }

  context_shard shard_;
  std::size_t all_heads_, all_kv_heads_, d_;
};

}  // namespace xtrain
