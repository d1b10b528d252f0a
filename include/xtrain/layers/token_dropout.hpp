// Dropout on a shard of tokens: random numbers do not depend on the rank.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/core/random.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/expert_load.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::detail {

/// x: consecutive tokens of this rank from `first` on, in ranges of unsharded sequences (context parallelism).
///   at.first         element index of the batch's first sequence
///   whole_channels   see pass::dropout
template <class Device, class T>
void dropout_of_ranges(execution<Device>& on, const device_batch<Device>& batch, matrix_view<const T, typename Device::memory> x, std::size_t first,
                       double probability, const random_site& at, matrix_view<T, typename Device::memory> y, ops::result write_mode,
                       std::size_t whole_channels) {
  const std::size_t c = whole_channels == 0 ? x.shape(1) : whole_channels, last = first + x.shape(0);
  std::size_t begin = 0;  // in this rank's tokens
  for (std::size_t sequence = 0; sequence < batch.b; ++sequence) {
    for (const auto& range : batch.own_ranges) {
      const std::size_t end = begin + range.count, from = std::max(begin, first), to = std::min(end, last);
      if (from < to) {
        random_site here = at;
        here.first += (sequence * batch.whole_t + range.begin + from - begin) * c;
        ops::dropout(on, x.rows(from - first, to - from), probability, here, y.rows(from - first, to - from), write_mode, whole_channels);
      }
      begin = end;
    }
  }
}

/// Dispatched rows draw their source rank's random numbers. Adjacent ranks have equally many consecutive sequences.
template <class Device, class T>
void dropout_of_dispatched(execution<Device>& on, const dispatched_rows& origin, matrix_view<const T, typename Device::memory> x, double probability,
                           random_site at, std::size_t elements_of_rank, matrix_view<T, typename Device::memory> y, ops::result write_mode) {
  at.first -= origin.rank * elements_of_rank;
  std::size_t begin = 0;  // of the rank's rows, in the expert's
  for (std::size_t rank = 0; rank < origin.ranks; ++rank, at.first += elements_of_rank) {
    const std::size_t end = begin + origin.counts[rank];
    const std::size_t first = std::max(begin, origin.first), last = std::min(end, origin.first + x.shape(0));
    if (first < last) {
      random_site here = at;
      here.first += (first - begin) * x.shape(1);
      ops::dropout(on, x.rows(first - origin.first, last - first), probability, here, y.rows(first - origin.first, last - first), write_mode);
    }
    begin = end;
  }
}

}  // namespace xtrain::detail
