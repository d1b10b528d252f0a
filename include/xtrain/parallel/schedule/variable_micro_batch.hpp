// Micro-batches of different sizes: small ones fill and drain the pipeline, large ones run while it is full.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>

namespace xtrain {

/// AscendSpeed's lists for its "optimized pipeline", named after --manual-mbs: 64 sequences in 16 micro-batches for 4 ranks, 96 in 24 for 8.
///   throws  config_error for other numbers of ranks
[[nodiscard]] inline std::vector<std::size_t> manual_micro_batches(std::size_t ranks) {
  require<config_error>(ranks == 4 || ranks == 8, "manual_micro_batches: lists exist for 4 and 8 ranks; given ", ranks);
  if (ranks == 4) return {1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 3, 2};
  return {1, 2, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 4, 4, 3, 3, 3, 2};
}

/// one_forward_one_backward with micro-batches of given sizes.
///   rows          sequences of each micro-batch: as many entries, and as many sequences in total, as with equal micro-batches
///   step_rows     sequences of a step, on one data-parallel rank
///   micro_batch   sequences of an equal micro-batch
///   throws        config_error when the list has another length or sum
[[nodiscard]] inline pipeline_schedule variable_micro_batch_schedule(std::size_t ranks, std::vector<std::size_t> rows,
                                                                     std::size_t step_rows, std::size_t micro_batch) {
  std::size_t sum = 0;
  for (const std::size_t size : rows) sum += size;
  require<config_error>(micro_batch > 0 && step_rows % micro_batch == 0, "variable_micro_batch: the global batch size (", step_rows,
                        ") must be divisible by a micro-batch's (", micro_batch, ")");
  require<config_error>(rows.size() == step_rows / micro_batch && sum == step_rows, "variable_micro_batch: ", step_rows / micro_batch,
                        " micro-batches must have ", step_rows, " sequences together; given ", rows.size(), " with ", sum);
  pipeline_schedule schedule = one_forward_one_backward_schedule(ranks, std::move(rows));
  schedule.name = "variable_micro_batch";
  return schedule;
}

}  // namespace xtrain
