// Recursive halving and doubling: which ranks exchange what in each round of a collective, so that it takes few messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace xtrain {

/// One round: ranks that differ in one digit exchange. `ranks` is the base of the digit, `stride` its weight.
struct halving_round {
  std::size_t ranks = 1, stride = 1;
};

/// Recursive halving for reductions, recursive doubling for gathers.            [Thakur, Rabenseifner & Gropp 2005, sections 4.1 and 4.4]
/// Ranks are written in a mixed base, the prime factors of the number of ranks, smallest first. In each round of a reduce-scatter a rank
/// exchanges with those that differ in one digit, and keeps 1/base of its data; an all-gather goes through the same rounds backwards.
/// Neighboring ranks come first, with most of the data: where they share a node, the node reduces before it sends to others.
///   order of sums   the tree of these rounds, the ranks of each digit in ascending order: it depends on the number of ranks alone
///   departs         up to `max_direct` ranks take one round, in which each sends to each. Where a prime factor is above `widest`, as few ranks
///                   as possible are set aside: rank active() + i first sends its data to rank i, and last gets its result from it
class recursive_halving {
 public:
  static constexpr std::size_t max_direct = 8, widest = 31;

  explicit recursive_halving(std::size_t ranks) : ranks_(ranks), active_(ranks) {
    while (!factor(active_)) --active_;
  }

  [[nodiscard]] std::size_t ranks() const { return ranks_; }
  /// Ranks that take part in the rounds: the first ones.
  [[nodiscard]] std::size_t active() const { return active_; }
  [[nodiscard]] std::size_t aside() const { return ranks_ - active_; }
  [[nodiscard]] const std::vector<halving_round>& rounds() const { return rounds_; }
  /// One round, in which each sends to each.
  [[nodiscard]] bool is_direct() const { return rounds_.size() <= 1 && aside() == 0; }
  /// Latencies of a collective, one after the other.
  [[nodiscard]] std::size_t depth() const { return rounds_.size() + (aside() > 0 ? 2 : 0); }

  /// The active ranks in the order in which what is sent in a round is contiguous: the digit of the first round is the most significant.
  [[nodiscard]] std::size_t rank_at(std::size_t position) const {
    std::size_t rank = 0, below = active_;
    for (const halving_round& round : rounds_) {
      below /= round.ranks;
      rank += position / below * round.stride;
      position %= below;
    }
    return rank;
  }

 private:
  /// False: one of its prime factors is too large.
  [[nodiscard]] bool factor(std::size_t n) {
    rounds_.clear();
    if (n <= 1) return true;
    if (n <= max_direct && n == ranks_) {
      rounds_.push_back({n, 1});
      return true;
    }
    std::size_t stride = 1;
    for (std::size_t base = 2; base <= widest && n > 1; ++base)
      for (; n % base == 0; n /= base) {
        rounds_.push_back({base, stride});
        stride *= base;
      }
    return n == 1;
  }

  std::size_t ranks_, active_;
  std::vector<halving_round> rounds_{};
};

}  // namespace xtrain
