#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/messages.hpp>

namespace xtrain {

/// All forwards, then all backwards: the reference for other schedules.
///                                                                                          [Huang et al. 2019]
///   rows      sequences of each micro-batch
///   departs   backwards run in the order of the forwards: gradients are summed in the order of a single rank
[[nodiscard]] inline pipeline_schedule gpipe_schedule(std::size_t ranks, std::vector<std::size_t> rows) {
  pipeline_schedule schedule = empty_schedule("gpipe", ranks, 1, std::move(rows));
  for (auto& list : schedule.actions)
    for (const action_kind kind : {action_kind::forward, action_kind::backward})
      for (std::size_t i = 0; i < schedule.micro_batches(); ++i) list.push_back({kind, i});
  return with_messages(std::move(schedule));
}

}  // namespace xtrain
