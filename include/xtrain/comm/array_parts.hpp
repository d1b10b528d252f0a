// An array in equal parts per rank; the last may be shorter or empty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace xtrain::detail {

/// Elements per rank for n.
[[nodiscard]] constexpr std::size_t length_of_parts(std::size_t n, std::size_t ranks) { return (n + ranks - 1) / ranks; }

/// A rank's part; `part`: elements per rank.
template <class T>
[[nodiscard]] std::span<T> range_of_part(std::span<T> whole, std::size_t rank, std::size_t part) {
  const std::size_t begin = std::min(whole.size(), rank * part);
  return whole.subspan(begin, std::min(part, whole.size() - begin));
}
/// Its elements, for n.
[[nodiscard]] constexpr std::size_t size_of_part(std::size_t rank, std::size_t n, std::size_t part) {
  return std::min(part, n - std::min(n, rank * part));
}
/// Its messages of at most `piece` elements.
[[nodiscard]] constexpr std::size_t pieces_of_part(std::size_t rank, std::size_t n, std::size_t part, std::size_t piece) {
  return (size_of_part(rank, n, part) + piece - 1) / piece;
}

}  // namespace xtrain::detail
