#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/messages.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>

namespace xtrain {

/// 1F1B over chunks: groups of `ranks` micro-batches pass chunk 0, then 1, ..., and back from the last to 0. Bubble: one stage per rank's, divided by chunks;
/// messages: multiplied by chunks.
///                                                                        [Narayanan et al. 2021, section 2.2.2]
///   rows      sequences of each micro-batch
///   throws    config_error when micro-batches are not divisible by ranks
[[nodiscard]] inline pipeline_schedule interleaved_schedule(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
  pipeline_schedule schedule = empty_schedule("interleaved", ranks, chunks, std::move(rows));
  require<config_error>(schedule.micro_batches() % ranks == 0, schedule.name, ": micro-batches (", schedule.micro_batches(),
                        ") must be divisible by ranks (", ranks, ")");
  if (chunks == 1) return one_forward_one_backward_schedule(ranks, std::move(schedule.rows));

  const std::size_t count = schedule.micro_batches() * chunks;  // forwards of a rank
  const std::size_t group = ranks * chunks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto& list = schedule.actions[rank];
    const auto forward = [&](std::size_t i) { list.push_back({action_kind::forward, i / group * ranks + i % ranks, i % group / ranks}); };
    const auto backward = [&](std::size_t i) {
      list.push_back({action_kind::backward, i / group * ranks + i % ranks, chunks - 1 - i % group / ranks});
    };
    const std::size_t ahead = std::min(2 * (ranks - rank - 1) + (chunks - 1) * ranks, count);
    for (std::size_t i = 0; i < ahead; ++i) forward(i);
    for (std::size_t i = 0; i < count; ++i) {
      if (i + ahead < count) forward(i + ahead);
      backward(i);
    }
  }
  return with_messages(std::move(schedule));
}

}  // namespace xtrain
