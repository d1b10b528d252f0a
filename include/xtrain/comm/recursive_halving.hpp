// Which ranks exchange what, round by round, when a collective among many ranks is made of few messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace xtrain {

/// One round: ranks whose number differs in one digit only exchange with one another. `ranks` is the digit's base, `stride` its weight.
struct halving_round {
  std::size_t ranks = 1, stride = 1;
};

/// Recursive halving for reductions, recursive doubling for gathers.            [Thakur, Rabenseifner & Gropp 2005, sections 4.1 and 4.4]
/// A rank's number is written in a mixed base, the prime factors of the number of ranks, the smallest first. In each round of a
/// reduce-scatter a rank exchanges with those that differ in one digit, and is left with 1/base of what it had; an all-gather goes through
/// the same rounds backwards. Neighbouring ranks come first, with most of the data: where they are on one node, the node adds up before
/// anything leaves it.
///   order of a sum   the tree of these rounds, each digit's ranks in ascending order: it follows from the number of ranks alone
///   departs          up to `most_direct` ranks are one round, in which each sends to each; numbers with a prime factor above `widest` leave
///                    as few ranks as possible aside (`aside()`): rank active() + i gives what it has to rank i first, and gets its result from it
class recursive_halving {
 public:
  static constexpr std::size_t most_direct = 8, widest = 31;

  explicit recursive_halving(std::size_t ranks) : ranks_(ranks), active_(ranks) {
    while (!factor(active_)) --active_;
  }

  [[nodiscard]] std::size_t ranks() const { return ranks_; }
  /// Ranks that take part in all rounds, a prefix of all.
  [[nodiscard]] std::size_t active() const { return active_; }
  [[nodiscard]] std::size_t aside() const { return ranks_ - active_; }
  [[nodiscard]] const std::vector<halving_round>& rounds() const { return rounds_; }
  /// Each sends to each, once.
  [[nodiscard]] bool is_direct() const { return rounds_.size() <= 1 && aside() == 0; }
  /// Messages' latencies that a collective waits for one after the other.
  [[nodiscard]] std::size_t depth() const { return rounds_.size() + (aside() > 0 ? 2 : 0); }

  /// The active rank at a position of the order in which every round's parts are contiguous: the first round's digit counts most.
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
    if (n <= most_direct && n == ranks_) {
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
