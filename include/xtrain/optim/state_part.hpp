#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// An optimizer shows such an array as visit(name, span, part_of); part_of(entry) returns a state_part. Checkpoints store it by parameter, with a shape that
/// does not depend on the number of ranks.
///   weights   one element per weight, for arrays that leave parameters out: elements first … first + count - 1 of this rank's (tensor-parallel) shard, as
///             store.piece_of(entry)
///   same      equal bits on every rank with the parameter: row and column factors of a matrix
///   shards    data-parallel ranks have ranges of the array. The first `skipped` elements of a range are also on a preceding rank, with equal bits. Not for
///             tensor-parallel shards
struct state_part {
  enum class kind : std::uint8_t { weights, same, shards };

  kind is = kind::same;
  std::vector<std::size_t> shape{};  ///< in files; empty: nothing for this parameter
  std::size_t first = 0;             ///< this rank has elements first … first + count - 1 of the array in files,
  std::size_t at = 0, count = 0;     ///< from index `at` of this rank's array on
  std::size_t skipped = 0;

  [[nodiscard]] std::size_t whole_size() const {
    std::size_t product = 1;
    for (const std::size_t dim : shape) product *= dim;
    return shape.empty() ? 0 : product;
  }

  /// An array with one element per weight of some parameters.
  template <class Store>
  [[nodiscard]] static state_part weights_of(const Store& store, const typename Store::entry& entry, std::size_t at) {
    const auto own = store.piece_of(entry);
    return {.is = kind::weights, .shape = entry.spec.whole_shape(), .first = own.first, .at = at, .count = own.count};
  }
};

}  // namespace xtrain
