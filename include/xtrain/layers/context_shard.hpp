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

/// Equally many tokens per rank: consecutive, or if `folds`, chunks i and 2n − 1 − i of 2n on rank i of n: balances causal attention.
struct context_shard {
  std::size_t rank = 0, ranks = 1;
  bool folds = false;

  struct range {
    std::size_t begin = 0, count = 0;
  };

  [[nodiscard]] bool is_sharded() const { return ranks > 1; }
  [[nodiscard]] std::size_t chunks() const { return folds && is_sharded() ? 2 * ranks : ranks; }
  /// This rank's tokens of a sequence of length t.
  ///   throws  shape_error when t is not divisible
  [[nodiscard]] std::size_t count_of(std::size_t t) const {
    require<shape_error>(t % chunks() == 0, "context: tokens of a sequence must be divisible by ", chunks() == ranks ? "the " : "twice the ", ranks,
                         " context-parallel ranks; given ", t);
    return t / ranks;
  }
  /// This rank's tokens in order; the second range is empty unless `folds`.
  ///   throws  shape_error when t is not divisible
  [[nodiscard]] std::array<range, 2> ranges_of(std::size_t t) const {
    const std::size_t count = count_of(t);
    if (chunks() == ranks) return {range{rank * count, count}, range{t, 0}};
    const std::size_t chunk = t / chunks();
    return {range{rank * chunk, chunk}, range{(chunks() - 1 - rank) * chunk, chunk}};
  }
};

/// A ring strategy's shard; a separate type, so that only its recipes compile ring attention.
struct ring_shard : context_shard {
  ring_shard(std::size_t own_rank, std::size_t all_ranks) : context_shard{own_rank, all_ranks, true} {}
};

/// The strategy's state has sequence_shard(): context parallelism.
template <class Recipe>
inline constexpr bool has_context_parallel =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.sequence_shard(); };

/// Context parallelism with circulating keys and values.
template <class Recipe>
inline constexpr bool has_ring_attention = [] {
  using state = typename Recipe::parallel::template state<typename Recipe::device>;
  if constexpr (has_context_parallel<Recipe>) return std::is_same_v<std::remove_cvref_t<decltype(std::declval<const state&>().sequence_shard())>, ring_shard>;
  else return false;
}();

/// The state's context-parallel shard; all tokens without one.
template <class State>
[[nodiscard]] context_shard context_shard_of(const State&) {
  return {};
}
template <class State>
requires requires(const State& state) { state.sequence_shard(); }
[[nodiscard]] context_shard context_shard_of(const State& state) {
  return state.sequence_shard();
}

/// Copies this rank's tokens out of unsharded arrays. Memory is allocated once.
class local_tokens {
 public:
  /// `arrays` arrays of up to `num_tokens` unsharded tokens.
  local_tokens(const context_shard& shard, std::size_t arrays, std::size_t num_tokens) : shard_(shard) {
    if (shard.is_sharded()) values_.reserve(arrays * (num_tokens / shard.ranks));
  }

  [[nodiscard]] const context_shard& shard() const { return shard_; }

  /// Discards results of cut().
  void begin() { values_.clear(); }
  /// This rank's tokens of sequences of length t, or the array itself. Valid until begin().
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
