// All-to-all of parts of any length, and exchange of ranges of rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <xtrain/comm/point_to_point.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// Rows of an array, and their receiver or sender.
struct message_part {
  std::size_t rank = 0, first = 0, count = 0;
};

namespace detail {

/// `sends[i]` elements of `from` go to rank i; `receives[i]` elements of `to` come from it, in sequence.
///   throws  shape_error
template <class T>
void all_to_all(point_to_point& ranks, std::span<const T> from, std::span<const std::size_t> sends, std::span<T> to,
                std::span<const std::size_t> receives) {
  const std::size_t rank = ranks.rank(), size = ranks.size();
  const auto total = [](std::span<const std::size_t> counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); };
  require<shape_error>(sends.size() == size && receives.size() == size && total(sends) == from.size() && total(receives) == to.size() &&
                           sends[rank] == receives[rank],
                       "group: lengths of parts must be given for ", size, " ranks and add up to what is sent and received");
  if (size > 1) ranks.count({0, 0, 1, 1});
  std::vector<pending_message> all;
  const auto first = [&](std::span<const std::size_t> counts, std::size_t i) { return total(counts.subspan(0, i)); };
  for (std::size_t i = 0; i < size; ++i)
    if (i != rank && receives[i] != 0) all.push_back(ranks.begin_receive(i, to.subspan(first(receives, i), receives[i])));
  for (std::size_t i = 0; i < size; ++i)
    if (i != rank && sends[i] != 0) all.push_back(ranks.begin_send(i, from.subspan(first(sends, i), sends[i])));
  if (ranks.carries()) {
    const auto mine = from.subspan(first(sends, rank), sends[rank]);
    std::copy(mine.begin(), mine.end(), to.begin() + static_cast<std::ptrdiff_t>(first(receives, rank)));
  }
  ranks.wait_all(all);
}

/// throws shape_error when the part's rank is not in the group, or it lies outside an array of `elements`
inline void require_in(const point_to_point& ranks, const message_part& part, std::size_t elements, std::size_t length) {
  const std::size_t rows = elements / std::max<std::size_t>(length, 1);
  require<shape_error>(part.rank < ranks.size() && part.first <= rows && part.count <= rows - part.first, "group: a part must be one of ", ranks.size(),
                       " ranks' and in an array of ", rows, " rows; given rank ", part.rank, ", row ", part.first, " and ", part.count, " rows");
}

/// throws shape_error when a part is outside its array
inline void require_parts(const point_to_point& ranks, std::span<const message_part> sends, std::size_t sent, std::span<const message_part> receives,
                          std::size_t received, std::size_t length) {
  for (const message_part& part : sends) require_in(ranks, part, sent, length);
  for (const message_part& part : receives) require_in(ranks, part, received, length);
}
/// copy(part sent, part received) for parts that this rank sends to itself, in list order.
///   throws  shape_error when sends and receives do not match
template <class Copy>
void for_own_parts(const point_to_point& ranks, std::span<const message_part> sends, std::span<const message_part> receives, Copy&& copy) {
  const std::size_t rank = ranks.rank();
  auto mine = receives.begin();
  for (const message_part& part : sends) {
    if (part.rank != rank) continue;
    mine = std::find_if(mine, receives.end(), [&](const message_part& other) { return other.rank == rank; });
    require<shape_error>(mine != receives.end() && mine->count == part.count, "group: rank ", rank, " must receive what it sends to itself; ",
                         part.count, " rows");
    copy(part, *mine);
    ++mine;
  }
}

/// See group::exchange.
template <class T>
void exchange(point_to_point& ranks, std::span<const T> from, std::span<const message_part> sends, std::span<T> to,
              std::span<const message_part> receives, std::size_t length) {
  const std::size_t rank = ranks.rank();
  require_parts(ranks, sends, from.size(), receives, to.size(), length);
  if (ranks.size() > 1) ranks.count({0, 0, 1, 1});
  std::vector<pending_message> all;
  for (const message_part& part : receives)
    if (part.rank != rank && part.count != 0) all.push_back(ranks.begin_receive(part.rank, to.subspan(part.first * length, part.count * length)));
  for (const message_part& part : sends)
    if (part.rank != rank && part.count != 0) all.push_back(ranks.begin_send(part.rank, from.subspan(part.first * length, part.count * length)));
  if (ranks.carries())
    for_own_parts(ranks, sends, receives, [&](const message_part& part, const message_part& place) {
      const T* const own = from.data() + part.first * length;
      T* const there = to.data() + place.first * length;
      if (own != there) std::copy_n(own, part.count * length, there);  // in place, other ranks are reading it
    });
  ranks.wait_all(all);
}

}  // namespace detail

}  // namespace xtrain
