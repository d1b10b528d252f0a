// Which tokens of every sequence a rank has under context parallelism.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// Every rank has equally many tokens: consecutive ones, or if `folds`, chunks i and 2n − 1 − i of 2n on rank i of n,
/// so that causal attention is balanced.
struct context_shard {
  std::size_t rank = 0, ranks = 1;
  bool folds = false;

  struct range {
    std::size_t begin = 0, count = 0;
  };

  [[nodiscard]] bool is_sharded() const { return ranks > 1; }
  /// The number of chunks that a sequence is split into.
  [[nodiscard]] std::size_t chunks() const { return folds && is_sharded() ? 2 * ranks : ranks; }
  /// The number of tokens of a sequence of length t on this rank.
  ///   throws  shape_error when t is not divisible
  [[nodiscard]] std::size_t count_of(std::size_t t) const {
    require<shape_error>(t % chunks() == 0, "context: tokens of a sequence must be divisible by ", chunks() == ranks ? "the " : "twice the ", ranks,
                         " context-parallel ranks; given ", t);
    return t / ranks;
  }
  /// This rank's tokens of a sequence of length t, in order. The second range is empty unless `folds`.
  ///   throws  shape_error when t is not divisible
  [[nodiscard]] std::array<range, 2> ranges_of(std::size_t t) const {
    const std::size_t count = count_of(t);
    if (chunks() == ranks) return {range{rank * count, count}, range{t, 0}};
    const std::size_t chunk = t / chunks();
    return {range{rank * chunk, chunk}, range{(chunks() - 1 - rank) * chunk, chunk}};
  }
};

/// Returned by the state of a ring strategy: a type of its own, so that only such recipes compile ring attention.
struct ring_shard : context_shard {
  ring_shard(std::size_t own_rank, std::size_t all_ranks) : context_shard{own_rank, all_ranks, true} {}
};

/// The recipe's parallel strategy may have context parallelism: its state has sequence_shard().
template <class Recipe>
inline constexpr bool has_context_parallel =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.sequence_shard(); };

/// It has ring context parallelism: keys and values circulate among the ranks.
template <class Recipe>
inline constexpr bool has_ring_attention = [] {
  using state = typename Recipe::parallel::template state<typename Recipe::device>;
  if constexpr (has_context_parallel<Recipe>) return std::is_same_v<std::remove_cvref_t<decltype(std::declval<const state&>().sequence_shard())>, ring_shard>;
  else return false;
}();

/// The context-parallel shard of a strategy's state; all tokens if it has none.
template <class State>
[[nodiscard]] context_shard context_shard_of(const State&) {
  return {};
}
template <class State>
requires requires(const State& state) { state.sequence_shard(); }
[[nodiscard]] context_shard context_shard_of(const State& state) {
  return state.sequence_shard();
}

/// Copies this rank's tokens out of arrays of whole sequences. Memory is allocated once.
class local_tokens {
 public:
  /// For `arrays` arrays of up to `num_tokens` tokens of whole sequences.
  local_tokens(const context_shard& shard, std::size_t arrays, std::size_t num_tokens) : shard_(shard) {
    if (shard.is_sharded()) values_.reserve(arrays * (num_tokens / shard.ranks));
  }

  [[nodiscard]] const context_shard& shard() const { return shard_; }

  /// Discards previous results of cut().
  void begin() { values_.clear(); }
  /// This rank's tokens of every sequence of length t; the array itself if it is not sharded. Valid until begin().
  [[nodiscard]] std::span<const token> cut(std::span<const token> whole, std::size_t t) {
    if (!shard_.is_sharded() || whole.empty()) return whole;
    const auto own = shard_.ranges_of(t);
    const std::size_t first = values_.size();
    for (std::size_t row = 0; row < whole.size(); row += t) {
      for (const auto& range : own) {
        const auto tokens = whole.subspan(row + range.begin, range.count);
        values_.insert(values_.end(), tokens.begin(), tokens.end());
      }
    }
    return std::span<const token>(values_).subspan(first);
  }

 private:
  context_shard shard_;
  std::vector<token> values_;
};

}  // namespace xtrain
