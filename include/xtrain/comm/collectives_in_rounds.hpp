// For many ranks: reduce-scatter by recursive halving, all-gather by recursive doubling (the same rounds backwards). In a round a rank exchanges with the
// ranks that differ in one digit.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/array_parts.hpp>
#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/halving_position.hpp>
#include <xtrain/comm/point_to_point.hpp>
#include <xtrain/comm/recursive_halving.hpp>
#include <xtrain/comm/reduce_parts.hpp>

namespace xtrain::detail {

inline constexpr std::size_t rounds_piece_bytes = 1U << 25;  // of all ranks' parts in the rounds at a time

/// Values of a rank's part per piece.
template <class Number>
[[nodiscard]] constexpr std::size_t length_of_pieces(std::size_t ranks, std::size_t part) {
  return std::clamp<std::size_t>(rounds_piece_bytes / sizeof(Number) / ranks, 1, part);
}

/// A round of a reduce-scatter.
///   from     read: this rank's values, in the piece's layout
///   arrived  written: received values, by rank
///   to       written: sums that this rank stores, in the same layout; may be `from`
///   sends    added to: sends still reading `from`
template <class In, class Sum>
void halve(point_to_point& ranks, const halving_position& position, const halving_round& round, const halving_range& range,
           std::span<const std::size_t> first, std::span<const In> from, std::span<In> arrived, std::span<Sum> to, reduction op,
           std::vector<pending_message>& sends) {
  const std::size_t mine = position.digit(round);
  const auto begin_of = [&](std::size_t i) { return first[range.begin + i * range.width]; };
  const std::size_t count = begin_of(mine + 1) - begin_of(mine);
  std::vector<pending_message> receives;
  std::vector<const In*> parts(round.ranks);
  const In* next = arrived.data();
  for (std::size_t i = 0; i < round.ranks; ++i) parts[i] = i == mine ? from.data() + begin_of(mine) : std::exchange(next, next + count);
  for (std::size_t i = 1; i < round.ranks; ++i) {
    const std::size_t other = (mine + i) % round.ranks;
    if (count > 0)
      receives.push_back(
          ranks.begin_receive(position.with_digit(round, other), arrived.subspan(static_cast<std::size_t>(parts[other] - arrived.data()), count)));
  }
  for (std::size_t i = 1; i < round.ranks; ++i) {
    const std::size_t other = (mine + i) % round.ranks, begin = begin_of(other), end = begin_of(other + 1);
    if (end > begin) sends.push_back(ranks.begin_send(position.with_digit(round, other), from.subspan(begin, end - begin)));
  }
  ranks.wait_all(receives);
  if (count > 0) reduce_parts(std::span<const In* const>(parts), to.subspan(begin_of(mine), count), op);
}

/// Recursive halving in pieces of rounds_piece_bytes. In each round a rank sends the parts of ranks that differ in the round's digit and adds what it
/// receives. 16-bit values travel unchanged in the first round, then in fp32.
///   mine   written: this rank's part of the reduction; at most `part` elements
template <class T>
void reduce_scatter_in_rounds(point_to_point& ranks, const halving_position& position, std::span<const T> whole, std::span<T> mine, std::size_t part,
                              reduction op) {
  using sum = typename accumulate_dtype<T>::type;
  constexpr bool is_exact = std::is_same_v<sum, T>;
  const recursive_halving& tree = position.tree();
  const std::size_t rank = ranks.rank(), size = ranks.size(), n = whole.size();
  const std::size_t length = length_of_pieces<sum>(size, part), other = position.beside();
  const bool begins_as_sums = is_exact || tree.aside() > 0;
  ranks.count_rounds(pieces_of_part(0, n, part, length) * tree.depth());
  ranks.takes_scratch(2 * std::min(n, length * size) * (sizeof(T) + (is_exact ? 0 : sizeof(sum))));
  if (!ranks.carries()) {
    if (position.is_aside()) return ranks.count({pieces_of_part(0, n, part, length), n * sizeof(T)});
    bool as_sums = begins_as_sums;
    for (const halving_round& round : tree.rounds()) {
      for (std::size_t i = 0; i < round.ranks; ++i)
        if (i != position.digit(round)) {
          const std::size_t residue = rank % round.stride + i * round.stride;
          ranks.count({pieces_of_part(residue, n, part, length),
                       position.numbers_of(residue, round.stride * round.ranks, n, part) * (as_sums ? sizeof(sum) : sizeof(T))});
        }
      as_sums = true;
    }
    if (other < size) ranks.count({pieces_of_part(other, n, part, length), size_of_part(other, n, part) * sizeof(T)});
    return;
  }
  const std::vector<halving_range> ranges = position.ranges_of_rounds();
  std::vector<std::size_t> first;
  std::vector<pending_message> sends;
  for (std::size_t begin = 0; begin < part && begin < n; begin += length) {
    position.lay_out(n, part, begin, length, first, [](std::size_t, std::size_t, std::size_t, std::size_t) {});
    const std::size_t total = first.back();
    std::size_t received = other < size ? total : 0;  // together
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      const halving_round& round = tree.rounds()[k];
      const std::size_t at = ranges[k].begin + position.digit(round) * ranges[k].width;
      received = std::max(received, (round.ranks - 1) * (first[at + ranges[k].width] - first[at]));
    }
    std::vector<T>& memory = ranks.scratch<T>(total + received);
    const std::span<T> values(memory.data(), total), arrived(memory.data() + total, received);
    position.lay_out(n, part, begin, length, first, [&](std::size_t, std::size_t from, std::size_t here, std::size_t count) {
      std::copy_n(whole.data() + from, count, values.data() + here);
    });
    const std::span<T> own = mine.subspan(std::min(begin, mine.size()), std::min(length, mine.size() - std::min(begin, mine.size())));
    if (position.is_aside()) {
      ranks.send(rank - tree.active(), std::span<const T>(values));
      if (!own.empty()) ranks.receive(rank - tree.active(), own);
      continue;
    }
    std::span<sum> sums, arrived_sums;
    if constexpr (is_exact) {
      sums = values;
      arrived_sums = arrived;
    } else {
      std::vector<sum>& more = ranks.scratch<sum>(total + received);
      sums = std::span<sum>(more.data(), total);
      arrived_sums = std::span<sum>(more.data() + total, received);
    }
    if (other < size) {
      ranks.receive(other, arrived.first(total));
      const std::array<const T*, 2> parts{values.data(), arrived.data()};
      reduce_parts(std::span<const T* const>(parts), sums, op);
    } else if (begins_as_sums && !is_exact) {
      std::transform(values.begin(), values.end(), sums.begin(), [](T value) { return static_cast<sum>(value); });
    }
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      const halving_round& round = tree.rounds()[k];
      if (k == 0 && !begins_as_sums) halve(ranks, position, round, ranges[k], first, std::span<const T>(values), arrived, sums, op, sends);
      else halve(ranks, position, round, ranges[k], first, std::span<const sum>(sums), arrived_sums, sums, op, sends);
    }
    const std::size_t at = position.own_part(ranges, first);
    const auto rounded = [](sum value) { return static_cast<T>(value); };
    std::transform(sums.begin() + static_cast<std::ptrdiff_t>(at), sums.begin() + static_cast<std::ptrdiff_t>(at + own.size()), own.begin(), rounded);
    if (other < size && begin < size_of_part(other, n, part)) {
      const std::size_t count = std::min(length, size_of_part(other, n, part) - begin);
      const std::span<const sum> theirs = sums.subspan(at + own.size(), count);
      std::transform(theirs.begin(), theirs.end(), values.begin() + static_cast<std::ptrdiff_t>(at + own.size()), rounded);
      ranks.send(other, std::span<const T>(values.subspan(at + own.size(), count)));
    }
    ranks.wait_all(sends);
    sends.clear();
  }
}

/// Recursive doubling in pieces of rounds_piece_bytes: a rank sends what it has gathered to ranks that differ in the round's digit. Part r of `values`
/// belongs to rank r.
template <class T>
void all_gather_in_rounds(point_to_point& ranks, const halving_position& position, std::span<T> values, std::size_t part) {
  const recursive_halving& tree = position.tree();
  const std::size_t rank = ranks.rank(), size = ranks.size(), n = values.size();
  const std::size_t length = length_of_pieces<T>(size, part), other = position.beside();
  const auto& rounds = tree.rounds();
  ranks.count_rounds(pieces_of_part(0, n, part, length) * tree.depth());
  ranks.takes_scratch(std::min(n, length * size) * sizeof(T));
  if (!ranks.carries()) {
    if (position.is_aside()) return ranks.count({pieces_of_part(rank, n, part, length), size_of_part(rank, n, part) * sizeof(T)});
    for (const halving_round& round : rounds) {
      const std::size_t all = round.stride * round.ranks, residue = rank % all, bytes = position.numbers_of(residue, all, n, part) * sizeof(T);
      ranks.count({(round.ranks - 1) * pieces_of_part(residue, n, part, length), (round.ranks - 1) * bytes});
    }
    if (other < size) ranks.count({pieces_of_part(0, n, part, length), n * sizeof(T)});
    return;
  }
  const std::vector<halving_range> ranges = position.ranges_of_rounds();
  std::vector<std::size_t> first;
  std::vector<pending_message> sends, receives;
  for (std::size_t begin = 0; begin < part && begin < n; begin += length) {
    position.lay_out(n, part, begin, length, first, [](std::size_t, std::size_t, std::size_t, std::size_t) {});
    const std::span<T> all(ranks.scratch<T>(first.back()).data(), first.back());
    const std::size_t held = size_of_part(rank, n, part);
    const std::span<const T> own =
        std::span<const T>(range_of_part(values, rank, part)).subspan(std::min(begin, held), std::min(length, held - std::min(begin, held)));
    if (position.is_aside()) {
      if (!own.empty()) ranks.send(rank - tree.active(), own);
      ranks.receive(rank - tree.active(), all);
    } else {
      const std::size_t at = position.own_part(ranges, first);
      std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
      if (other < size && begin < size_of_part(other, n, part))
        ranks.receive(other, all.subspan(at + own.size(), std::min(length, size_of_part(other, n, part) - begin)));
      for (std::size_t k = ranges.size(); k-- > 0;) {
        const halving_round& round = rounds[k];
        const std::size_t mine = position.digit(round);
        const auto block = [&](std::size_t i) {
          const std::size_t from = first[ranges[k].begin + i * ranges[k].width];
          return all.subspan(from, first[ranges[k].begin + (i + 1) * ranges[k].width] - from);
        };
        for (std::size_t i = 1; i < round.ranks; ++i) {
          const std::size_t from = (mine + i) % round.ranks;
          if (!block(from).empty()) receives.push_back(ranks.begin_receive(position.with_digit(round, from), block(from)));
        }
        for (std::size_t i = 1; i < round.ranks && !block(mine).empty(); ++i)
          sends.push_back(ranks.begin_send(position.with_digit(round, (mine + i) % round.ranks), std::span<const T>(block(mine))));
        ranks.wait_all(receives);
        receives.clear();
      }
      if (other < size) sends.push_back(ranks.begin_send(other, std::span<const T>(all)));
    }
    position.lay_out(n, part, begin, length, first, [&](std::size_t owner, std::size_t from, std::size_t here, std::size_t count) {
      if (owner != rank) std::copy_n(all.data() + here, count, values.data() + from);
    });
    ranks.wait_all(sends);
    sends.clear();
  }
}

}  // namespace xtrain::detail
