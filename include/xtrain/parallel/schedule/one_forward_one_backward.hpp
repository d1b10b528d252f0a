#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/messages.hpp>

namespace xtrain {

/// 1F1B: a rank starts with as many forwards as there are ranks after it, then alternates. Same bubble as gpipe; rank r saves ranks - r micro-batches
/// instead of all.
///                                                                                    [Narayanan et al. 2021, section 2.2.1]
///   rows      sequences of each micro-batch; they may differ, see variable_micro_batch.hpp
[[nodiscard]] inline pipeline_schedule one_forward_one_backward_schedule(std::size_t ranks, std::vector<std::size_t> rows) {
  pipeline_schedule schedule = empty_schedule("one_forward_one_backward", ranks, 1, std::move(rows));
  const std::size_t count = schedule.micro_batches();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto& list = schedule.actions[rank];
    const std::size_t ahead = std::min(ranks - rank - 1, count);
    for (std::size_t i = 0; i < ahead; ++i) list.push_back({action_kind::forward, i});
    for (std::size_t i = 0; i < count; ++i) {
      if (i + ahead < count) list.push_back({action_kind::forward, i + ahead});
      list.push_back({action_kind::backward, i});
    }
  }
  return with_messages(std::move(schedule));
}

}  // namespace xtrain
