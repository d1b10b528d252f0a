// Which places of every row a rank has, where ranks share rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>

namespace xtrain {

/// Neighbouring ranks have neighbouring places, equally many.
struct place_share {
  std::size_t rank = 0, ranks = 1;

  struct range {
    std::size_t begin = 0, count = 0;
  };

  [[nodiscard]] bool divides() const { return ranks > 1; }
  /// This rank's places of a row of t.
  ///   throws  shape_error when t is not divisible
  [[nodiscard]] range of(std::size_t t) const {
    require<shape_error>(t % ranks == 0, "context: places of a row must be divisible by the ", ranks, " ranks that share it; given ", t);
    return {rank * (t / ranks), t / ranks};
  }
};

/// The recipe's strategy may let ranks share rows: its state says how.
template <class Recipe>
inline constexpr bool shares_rows =
    requires(const typename Recipe::parallel::template state<typename Recipe::device>& state) { state.places(); };

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
    const auto own = share_.of(t);
    const std::size_t first = values_.size();
    for (std::size_t row = 0; row < whole.size(); row += t) {
      const auto places = whole.subspan(row + own.begin, own.count);
      values_.insert(values_.end(), places.begin(), places.end());
    }
    return std::span<const token>(values_).subspan(first);
  }

 private:
  place_share share_;
  std::vector<token> values_;
};

}  // namespace xtrain
