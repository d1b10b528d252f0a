// Recursive halving and doubling: partners per round of a collective.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace xtrain {

/// Ranks that differ in one digit exchange; `ranks`: the digit's base, `stride`: its weight.
struct halving_round {
  std::size_t ranks = 1, stride = 1;
};

/// Recursive halving for reductions, doubling for gathers.            [Thakur, Rabenseifner & Gropp 2005, sections 4.1 and 4.4]
/// Ranks are written in a mixed base of the prime factors of their number, smallest first. In a round of a reduce-scatter a rank exchanges with ranks that
/// differ in one digit and keeps 1/base of its data; an all-gather runs backwards. Neighbors come first, with most data: a node reduces before it
/// sends to others.
///   order of sums   the tree of rounds, each digit ascending: depends only on the number of ranks
///   departs         up to `max_direct` ranks take one round of direct messages. For a prime factor above `widest`, as few ranks as possible are set aside:
///                   rank active() + i first sends its data to rank i, and last gets its result from it
class recursive_halving {
 public:
  static constexpr std::size_t max_direct = 8, widest = 31;

  explicit recursive_halving(std::size_t ranks) : ranks_(ranks), active_(ranks) {
    while (!factor(active_)) --active_;
  }

  [[nodiscard]] std::size_t ranks() const { return ranks_; }
  /// Ranks in the rounds: the first.
  [[nodiscard]] std::size_t active() const { return active_; }
  [[nodiscard]] std::size_t aside() const { return ranks_ - active_; }
  [[nodiscard]] const std::vector<halving_round>& rounds() const { return rounds_; }
  /// One round of direct messages.
  [[nodiscard]] bool is_direct() const { return rounds_.size() <= 1 && aside() == 0; }
  /// Successive latencies of a collective.
  [[nodiscard]] std::size_t depth() const { return rounds_.size() + (aside() > 0 ? 2 : 0); }

  /// Active ranks in an order that makes a round's data contiguous: the first round's digit is most significant.
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
  /// False: a prime factor is too large.
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
