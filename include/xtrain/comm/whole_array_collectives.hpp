// All-reduce or broadcast of few values, and reduction to one rank: all values take part in every round.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/halving_position.hpp>
#include <xtrain/comm/point_to_point.hpp>
#include <xtrain/comm/recursive_halving.hpp>
#include <xtrain/comm/reduce_parts.hpp>

namespace xtrain::detail {

inline constexpr std::size_t max_whole_bytes = 4096;  // up to here faster than twice the rounds

/// A round of a reduction. `only`: the rank that gets the sums, unless `everybody`.
template <class T>
void reduce_digits(point_to_point& ranks, const halving_position& position, const halving_round& round, std::span<const T> own, std::span<T> others,
                   std::span<T> result, reduction op, bool everybody, std::size_t only, std::size_t count_of_dry = ~std::size_t{0}) {
  const std::size_t n = count_of_dry == ~std::size_t{0} ? own.size() : count_of_dry, mine = position.digit(round);
  if (!ranks.carries()) return ranks.count_each(everybody ? round.ranks - 1 : only == ranks.rank() ? 0 : 1, n * sizeof(T));
  std::vector<pending_message> receives, sends;
  if (!everybody && only != ranks.rank()) return ranks.send(only, own);
  for (std::size_t i = 1; i < round.ranks; ++i) {
    const std::size_t other = (mine + i) % round.ranks;
    receives.push_back(ranks.begin_receive(position.with_digit(round, other), others.subspan(other * n, n)));
  }
  for (std::size_t i = 1; i < round.ranks && everybody; ++i)
    sends.push_back(ranks.begin_send(position.with_digit(round, (mine + i) % round.ranks), own));
  ranks.wait_all(receives);
  ranks.wait_all(sends);  // the result may overwrite them
  std::vector<const T*> parts(round.ranks);
  for (std::size_t i = 0; i < round.ranks; ++i) parts[i] = i == mine ? own.data() : others.data() + i * n;
  reduce_parts(std::span<const T* const>(parts), result, op);
}

/// In place; with `root`, only the root gets the result.
template <class T>
void reduce_whole(point_to_point& ranks, const halving_position& position, std::span<T> values, reduction op, std::size_t root = ~std::size_t{0}) {
  using sum = typename accumulate_dtype<T>::type;
  const recursive_halving& tree = position.tree();
  const bool everybody = root == ~std::size_t{0};
  const std::size_t rank = ranks.rank(), size = ranks.size(), n = values.size(), target = everybody ? 0 : root % tree.active();
  ranks.count_rounds(tree.depth());
  std::size_t widest = 1;
  for (const halving_round& round : tree.rounds()) widest = std::max(widest, round.ranks);
  ranks.takes_scratch(n * (tree.is_direct() ? widest * sizeof(T) : (widest + 1) * sizeof(sum)));
  if (tree.is_direct()) {  // unconverted
    const std::size_t only = everybody ? rank : root;
    const std::span<T> all(ranks.scratch<T>(n * widest));
    reduce_digits(ranks, position, tree.rounds()[0], std::span<const T>(values), all, values, op, everybody, only);
    return;
  }
  std::vector<sum>& memory = ranks.scratch<sum>(n * (widest + 1));
  const std::span<sum> acc = ranks.some(memory, 0, n), others = ranks.some(memory, n, n * widest);
  if (ranks.carries()) std::transform(values.begin(), values.end(), acc.begin(), [](T value) { return static_cast<sum>(value); });
  const auto finish = [&] {
    if (ranks.carries()) std::transform(acc.begin(), acc.end(), values.begin(), [](sum value) { return static_cast<T>(value); });
  };
  if (position.is_aside()) {
    ranks.send_some(rank - tree.active(), acc, n);
    if (!everybody && root != rank) return;
    ranks.receive(rank - tree.active(), acc);
    return finish();
  }
  if (const std::size_t other = position.beside(); other < size) {
    ranks.receive(other, others.first(ranks.carries() ? n : 0));
    const std::array<const sum*, 2> parts{acc.data(), others.data()};
    if (ranks.carries()) reduce_parts(std::span<const sum* const>(parts), acc, op);
  }
  for (const halving_round& round : tree.rounds()) {
    const std::size_t wanted = everybody ? position.digit(round) : target / round.stride % round.ranks;
    reduce_digits(ranks, position, round, std::span<const sum>(acc), others, acc, op, everybody, position.with_digit(round, wanted), n);
    if (wanted != position.digit(round)) return;
  }
  if (const std::size_t other = position.beside(); other < size && (everybody || other == root)) {
    ranks.send_some(other, acc, n);
    if (!everybody) return;
  }
  finish();
}

/// Down a binomial tree.
template <class T>
void broadcast_whole(point_to_point& ranks, const halving_position& position, std::span<T> values, std::size_t root) {
  const std::size_t rank = ranks.rank(), size = ranks.size();
  if (position.tree().is_direct()) {
    ranks.count_rounds(1);
    if (rank != root) return ranks.receive(root, values);
    const auto sends = ranks.to_all_others([&](std::size_t to) { return ranks.begin_send(to, std::span<const T>(values)); });
    return ranks.wait_all(sends);
  }
  const std::size_t from_root = (rank + size - root) % size;
  ranks.count_rounds(static_cast<std::size_t>(std::bit_width(size - 1)));
  std::size_t bit = 1;
  for (; bit < size && (from_root & bit) == 0; bit *= 2) {
  }
  if (from_root != 0) ranks.receive((rank + size - bit) % size, values);
  std::vector<pending_message> sends;
  for (bit /= 2; bit > 0; bit /= 2)
    if (from_root + bit < size) sends.push_back(ranks.begin_send((rank + bit) % size, std::span<const T>(values)));
  ranks.wait_all(sends);
}

}  // namespace xtrain::detail
