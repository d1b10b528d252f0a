#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/messages.hpp>

namespace xtrain {

/// 1F1B with deferred weight gradients: W of rank r lags r micro-batches behind B, fills the bubbles, and catches up while the pipeline drains. No rank saves
/// more micro-batches than the first rank of one_forward_one_backward.
///                                                                        [Qi et al. 2023, ZB-H1]
///   rows      sequences of each micro-batch
[[nodiscard]] inline pipeline_schedule zero_bubble_schedule(std::size_t ranks, std::vector<std::size_t> rows) {
  pipeline_schedule schedule = empty_schedule("zero_bubble", ranks, 1, std::move(rows));
  const std::size_t count = schedule.micro_batches();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto& list = schedule.actions[rank];
    const std::size_t ahead = std::min(ranks - rank - 1, count);
    for (std::size_t i = 0; i < ahead; ++i) list.push_back({action_kind::forward, i});
    for (std::size_t i = 0; i < count; ++i) {
      if (i + ahead < count) list.push_back({action_kind::forward, i + ahead});
      list.push_back({action_kind::backward_input, i});
      if (i >= rank) list.push_back({action_kind::backward_weight, i - rank});
    }
    for (std::size_t i = count - std::min(rank, count); i < count; ++i) list.push_back({action_kind::backward_weight, i});
  }
  return with_messages(std::move(schedule));
}

}  // namespace xtrain
