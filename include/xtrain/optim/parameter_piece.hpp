#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// The elements of one trained parameter that this rank steps; may be empty with sharded optimizer state.
struct parameter_piece {
  std::size_t entry = 0;  ///< index in store.entries()
  std::size_t first = 0;  ///< index of its first element in this rank's (tensor-parallel) shard of the parameter
  parameter_slice run{};
};

/// Pieces of all trained parameters on this rank, in declaration order: equal on all ranks with the same parameters.
template <class Store>
[[nodiscard]] std::vector<parameter_piece> pieces_of(const Store& store) {
  std::vector<parameter_piece> pieces;
  for (std::size_t i = 0; i < store.entries().size(); ++i) {
    const auto& entry = store.entries()[i];
    if (!entry.spec.trainable || !entry.is_here) continue;
    const auto own = store.piece_of(entry);
    parameter_slice run{.kept = own.kept};
    if (own.count > 0) {
      run.begin = entry.offset + own.first;
      run.end = run.begin + own.count;
      // a run ends only between parameters
      const auto& runs = store.parameter_slices();
      const auto found = std::find_if(runs.begin(), runs.end(), [&](const parameter_slice& r) { return r.begin <= run.begin && run.end <= r.end; });
      require<config_error>(found != runs.end(), "optimizer: parameter '", entry.spec.name, "' must be in one run of the store");
      run.element = found->element + (run.begin - found->begin);
      run.decays = found->decays;
      run.learning_rate_factor = found->learning_rate_factor;
    }
    pieces.push_back({.entry = i, .first = own.first, .run = run});
  }
  return pieces;
}

/// Calls visit(offset, n, row, first) for the part of a piece in each row range of the shard: elements offset … offset + n - 1, which begin in row `row` of the
/// unsharded matrix, at element `first` of this rank's columns.
template <class Visit>
void for_each_row_range(const parameter_spec& spec, std::size_t piece_first, std::size_t piece_count, Visit&& visit) {
  const std::size_t columns = spec.shape[1];
  std::size_t here = 0;
  const auto range = [&](std::size_t begin, std::size_t count) {
    const std::size_t from = std::max(piece_first, here * columns), to = std::min(piece_first + piece_count, (here + count) * columns);
    if (from < to) visit(from - piece_first, to - from, begin + (from / columns - here), from % columns);
    here += count;
  };
  if (spec.cut.rows.empty()) return range(0, spec.shape[0]);
  for (const row_range& rows : spec.cut.rows) range(rows.begin, rows.count);
}

}  // namespace xtrain
