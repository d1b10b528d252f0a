// The two schedules of Fold3D, which overlaps gradient reduction with the remaining backward passes.              [Li et al. 2023]
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/interleaved.hpp>
#include <xtrain/parallel/schedule/messages.hpp>

namespace xtrain {

/// All in, all out: all micro-batches pass chunk 0, then chunk 1, ...; then backward, last chunk first. A finished chunk's gradient reduction overlaps the
/// remaining backwards. All activations stay saved until the forwards are over.
///   rows      sequences of each micro-batch; with fewer micro-batches than ranks every change of chunk is a bubble
[[nodiscard]] inline pipeline_schedule all_in_all_out_schedule(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
  pipeline_schedule schedule = empty_schedule("all_in_all_out", ranks, chunks, std::move(rows));
  for (auto& list : schedule.actions) {
    for (std::size_t chunk = 0; chunk < chunks; ++chunk)
      for (std::size_t i = 0; i < schedule.micro_batches(); ++i) list.push_back({action_kind::forward, i, chunk});
    for (std::size_t chunk = chunks; chunk-- > 0;)
      for (std::size_t i = 0; i < schedule.micro_batches(); ++i) list.push_back({action_kind::backward, i, chunk});
  }
  return with_messages(std::move(schedule));
}

/// First in, first out: same order as `interleaved_schedule`. Fold3D's overlap of messages with compute exists in every schedule here: sends do not block, and
/// a receive stands where its message is needed.
///   throws  config_error when micro-batches are not divisible by ranks
[[nodiscard]] inline pipeline_schedule fifo_schedule(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
  pipeline_schedule schedule = interleaved_schedule(ranks, chunks, std::move(rows));
  schedule.name = "fifo";
  return schedule;
}

}  // namespace xtrain
