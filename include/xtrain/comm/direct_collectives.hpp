// For few ranks: reduce-scatter and all-gather by direct messages, sums in rank order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/comm/array_parts.hpp>
#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/point_to_point.hpp>
#include <xtrain/comm/reduce_parts.hpp>

namespace xtrain::detail {

inline constexpr std::size_t direct_piece_bytes = 1U << 20;  // smaller messages cost time, larger ones scratch memory

/// Reduces part r (at most `part` elements) to rank r, into `mine`, in pieces.
template <class T>
void reduce_scatter_directly(point_to_point& ranks, std::span<const T> whole, std::span<T> mine, std::size_t part, reduction op) {
  const std::size_t size = ranks.size(), rank = ranks.rank();
  const std::size_t piece = std::max(direct_piece_bytes, 4 * direct_piece_bytes / size) / sizeof(T);
  ranks.count_rounds((part + piece - 1) / piece);
  ranks.takes_scratch(std::min(piece, size_of_part(rank, whole.size(), part)) * size * sizeof(T));
  if (!ranks.carries()) {
    for (std::size_t to = 0; to < size; ++to)
      if (to != rank) ranks.count({pieces_of_part(to, whole.size(), part, piece), size_of_part(to, whole.size(), part) * sizeof(T)});
    return;
  }
  std::vector<const T*> parts(size);
  for (std::size_t begin = 0; begin < part; begin += piece) {
    const auto piece_of = [&](std::size_t owner) {
      const std::span<const T> theirs = range_of_part(whole, owner, part);
      const std::size_t first = std::min(begin, theirs.size());
      return theirs.subspan(first, std::min(piece, theirs.size() - first));
    };
    const std::span<const T> own = piece_of(rank);
    std::vector<T>& all = ranks.scratch<T>(own.size() * size);
    const auto receives = ranks.to_all_others([&](std::size_t from) {
      return own.empty() ? nullptr : ranks.begin_receive(from, std::span<T>(all).subspan(from * own.size(), own.size()));
    });
    const auto sends = ranks.to_all_others([&](std::size_t to) {
      const std::span<const T> theirs = piece_of(to);
      return theirs.empty() ? nullptr : ranks.begin_send(to, theirs);
    });
    ranks.wait_all(receives);
    for (std::size_t r = 0; r < size; ++r) parts[r] = r == rank ? own.data() : all.data() + r * own.size();
    if (!own.empty()) reduce_parts(std::span<const T* const>(parts), mine.subspan(begin, own.size()), op);
    ranks.wait_all(sends);
  }
}

/// Rank r sends part r of `values` to every rank but `except`, which has it.
template <class T>
void all_gather_directly(point_to_point& ranks, std::span<T> values, std::size_t part, std::size_t except = ~std::size_t{0}) {
  const std::size_t size = ranks.size(), rank = ranks.rank();
  ranks.count_rounds(1);
  const std::span<T> own = range_of_part(values, rank, part);
  if (!ranks.carries()) return own.empty() ? void() : ranks.count_each(size - 1 - (except < size && except != rank ? 1 : 0), own.size_bytes());
  const auto receives = ranks.to_all_others([&](std::size_t from) {
    const std::span<T> theirs = range_of_part(values, from, part);
    return theirs.empty() || rank == except ? nullptr : ranks.begin_receive(from, theirs);
  });
  const auto sends = ranks.to_all_others(
      [&](std::size_t to) { return own.empty() || to == except ? nullptr : ranks.begin_send(to, std::span<const T>(own)); });
  ranks.wait_all(receives);
  ranks.wait_all(sends);
}

}  // namespace xtrain::detail
