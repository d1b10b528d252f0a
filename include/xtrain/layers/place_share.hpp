// Which places of every row a rank has, where ranks share rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>

namespace xtrain {

/// Ranks have equally many places: neighbouring ranks neighbouring ones, or of a row that is folded in the middle what lies on one another:
/// of 2n chunks rank i of n has i and 2n − 1 − i, so that causal attention is as much work for all.
struct place_share {
  std::size_t rank = 0, ranks = 1;
  bool folds = false;

  struct range {
    std::size_t begin = 0, count = 0;
  };

  [[nodiscard]] bool divides() const { return ranks > 1; }
  /// How many chunks a row is cut into.
  [[nodiscard]] std::size_t chunks() const { return folds && divides() ? 2 * ranks : ranks; }
  /// How many places of a row of t this rank has.
  ///   throws  shape_error when t is not divisible
  [[nodiscard]] std::size_t count_of(std::size_t t) const {
    require<shape_error>(t % chunks() == 0, "context: places of a row must be divisible by ", chunks() == ranks ? "the " : "twice the ", ranks,
                         " ranks that share it; given ", t);
    return t / ranks;
  }
  /// This rank's places of a row of t, in order. There is a second range where a row is folded; else it is empty.
  ///   throws  shape_error when t is not divisible
  [[nodiscard]] std::array<range, 2> ranges_of(std::size_t t) const {
    const std::size_t count = count_of(t);
    if (chunks() == ranks) return {range{rank * count, count}, range{t, 0}};
    const std::size_t chunk = t / chunks();
    return {range{rank * chunk, chunk}, range{(chunks() - 1 - rank) * chunk, chunk}};
  }
};

/// What a strategy's state says where rows are folded and keys go round: its type, so that only such recipes compile what that takes.
struct ring_share : place_share {
  ring_share(std::size_t own_rank, std::size_t all_ranks) : place_share{own_rank, all_ranks, true} {}
};

/// The recipe's strategy may let ranks share rows: its state says how.
template <class Recipe>
inline constexpr bool shares_rows =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.places(); };

/// It does, and lets keys and values go round among them.
template <class Recipe>
inline constexpr bool sends_keys_round = [] {
  using state = typename Recipe::parallel::template state<typename Recipe::device>;
  if constexpr (shares_rows<Recipe>) return std::is_same_v<std::remove_cvref_t<decltype(std::declval<const state&>().places())>, ring_share>;
  else return false;
}();

/// What a strategy's state says of it; all places where it says nothing.
template <class State>
[[nodiscard]] place_share places_of(const State& state) {
  if constexpr (requires { state.places(); }) return state.places();
  else return {};
}

/// This rank's places, cut out of arrays of whole rows. Memory for them is taken once.
class own_places {
 public:
  /// For so many arrays of up to `places` places of whole rows.
  own_places(const place_share& share, std::size_t arrays, std::size_t places) : share_(share) {
    if (share.divides()) values_.reserve(arrays * (places / share.ranks));
  }

  [[nodiscard]] const place_share& share() const { return share_; }

  /// What was cut is forgotten.
  void begin() { values_.clear(); }
  /// Of every row of t places this rank's; the array itself where it has them all. Valid until begin().
  [[nodiscard]] std::span<const token> cut(std::span<const token> whole, std::size_t t) {
    if (!share_.divides() || whole.empty()) return whole;
    const auto own = share_.ranges_of(t);
    const std::size_t first = values_.size();
    for (std::size_t row = 0; row < whole.size(); row += t) {
      for (const auto& range : own) {
        const auto places = whole.subspan(row + range.begin, range.count);
        values_.insert(values_.end(), places.begin(), places.end());
      }
    }
    return std::span<const token>(values_).subspan(first);
  }

 private:
  place_share share_;
  std::vector<token> values_;
};

}  // namespace xtrain
