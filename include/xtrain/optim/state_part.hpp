// What an optimizer array has for one parameter, where this is not one element for each weight that this rank steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// An optimizer shows such an array as visit(name, span, part_of), where part_of(entry) returns a state_part. In a checkpoint the array is
/// stored by parameter, with a shape that does not depend on the number of ranks.
///   weights   one element per weight: elements first … first + count - 1 of this rank's (tensor-parallel) shard of the parameter are those of
///             store.piece_of(entry). For arrays that leave some parameters out
///   same      every rank that has the parameter has the whole array, with the same bits: row and column factors of a matrix
///   shards    the data-parallel ranks have ranges of the array. The first `skipped` elements of a range are also on a rank with a
///             preceding shard, with the same bits. Not for tensor-parallel shards
struct state_part {
  enum class kind : std::uint8_t { weights, same, shards };

  kind is = kind::same;
  std::vector<std::size_t> shape{};  ///< in files; empty: the array has nothing for this parameter
  std::size_t first = 0;             ///< this rank has elements first … first + count - 1 of the array in files,
  std::size_t at = 0, count = 0;     ///< from index `at` of its own array on
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
