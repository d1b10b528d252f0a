// A rank's position in recursive halving: partners per round, and the layout of parts in scratch memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/comm/array_parts.hpp>
#include <xtrain/comm/recursive_halving.hpp>

namespace xtrain::detail {

/// A rank's positions before a round: from `begin` on, `width` per digit value.
struct halving_range {
  std::size_t begin, width;
};

class halving_position {
 public:
  halving_position(std::size_t rank, std::size_t ranks) : rank_(rank), tree_(ranks) {}

  [[nodiscard]] const recursive_halving& tree() const { return tree_; }

  [[nodiscard]] std::size_t digit(const halving_round& round) const { return rank_ / round.stride % round.ranks; }
  /// The rank that differs only in this digit.
  [[nodiscard]] std::size_t with_digit(const halving_round& round, std::size_t value) const {
    return rank_ - digit(round) * round.stride + value * round.stride;
  }
  [[nodiscard]] bool is_aside() const { return rank_ >= tree_.active(); }
  /// The rank set aside that sends to this one; ~0: none.
  [[nodiscard]] std::size_t beside() const { return tree_.active() + rank_ < tree_.ranks() ? tree_.active() + rank_ : ~std::size_t{0}; }

  /// Layout of a piece in scratch memory: parts in the order of recursive_halving::rank_at, each followed by its set-aside rank's, so that a round's data is
  /// contiguous. Calls visit(owner, first in the whole, first here, count) per non-empty part.
  ///   first   written: begins of positions, and the end
  template <class Visit>
  void lay_out(std::size_t n, std::size_t part, std::size_t begin, std::size_t length, std::vector<std::size_t>& first, Visit&& visit) const {
    first.clear();
    std::size_t here = 0;
    const auto add = [&](std::size_t owner) {
      const std::size_t from = std::min(n, owner * part + begin), until = std::min({n, (owner + 1) * part, owner * part + begin + length});
      if (until > from) visit(owner, from, here, until - from);
      here += until > from ? until - from : 0;
    };
    for (std::size_t position = 0; position < tree_.active(); ++position) {
      const std::size_t owner = tree_.rank_at(position);
      first.push_back(here);
      add(owner);
      if (owner + tree_.active() < tree_.ranks()) add(owner + tree_.active());
    }
    first.push_back(here);
  }
  /// Before each round; empty for a rank set aside.
  [[nodiscard]] std::vector<halving_range> ranges_of_rounds() const {
    std::vector<halving_range> ranges;
    if (is_aside()) return ranges;
    std::size_t begin = 0, width = tree_.active();
    for (const halving_round& round : tree_.rounds()) {
      width /= round.ranks;
      ranges.push_back({begin, width});
      begin += digit(round) * width;
    }
    return ranges;
  }
  /// Begin of this rank's part after the last round; the set-aside rank's follows.
  ///   ranges, first   of ranges_of_rounds() and lay_out()
  [[nodiscard]] std::size_t own_part(const std::vector<halving_range>& ranges, const std::vector<std::size_t>& first) const {
    return first[ranges.empty() ? 0 : ranges.back().begin + digit(tree_.rounds().back()) * ranges.back().width];
  }

  /// Values of active ranks that are `residue` modulo `stride`, with set-aside ranks: counts rounds of a dry run in closed form.
  [[nodiscard]] std::size_t numbers_of(std::size_t residue, std::size_t stride, std::size_t n, std::size_t part) const {
    const std::size_t whole = n / part, rest = n % part, active = tree_.active();
    const auto below = [&](std::size_t limit) { return limit > residue ? (limit - residue - 1) / stride + 1 : 0; };
    std::size_t parts = below(std::min(whole, active)), more = whole < active && whole % stride == residue ? rest : 0;
    if (whole > active) parts += below(std::min(whole - active, tree_.aside()));
    if (whole >= active && whole < tree_.ranks() && (whole - active) % stride == residue) more += rest;
    return parts * part + more;
  }

 private:
  std::size_t rank_;
  recursive_halving tree_;
};

}  // namespace xtrain::detail
