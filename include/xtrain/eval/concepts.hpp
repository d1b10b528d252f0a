// What an evaluation is.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/loader.hpp>

namespace xtrain {

/// What a model is judged by on held-out rows.
struct evaluation {
  double loss = 0;        ///< mean over all targets, natural logarithm
  double perplexity = 0;  ///< exp(loss)
  std::size_t targets = 0;
};

/// Every row of the data once, in order. sum_of_losses(batch) runs a batch forth and gives the sum over its targets; where ranks
/// share the rows, all_ranks(sums) adds numbers up over them.
///   throws  data_error when no row has a target
template <class SumOfLosses, class AllRanks>
[[nodiscard]] evaluation evaluate_rows(const loader& rows, SumOfLosses&& sum_of_losses, AllRanks&& all_ranks) {
  std::array<double, 2> sums{};  // losses, targets
  std::vector<host_batch> batches;
  for (std::size_t s = 0; s < rows.steps_per_epoch(); ++s) {
    rows.fill({0, s}, batches);
    for (const host_batch& batch : batches) {
      // a rank without targets runs along: the others may need its part of the weights
      if (batch.target_count == 0 && rows.config().ranks == 1) continue;
      sums[0] += sum_of_losses(batch);
      sums[1] += static_cast<double>(batch.target_count);
    }
  }
  all_ranks(std::span<double>(sums));
  require<data_error>(sums[1] > 0, rows.data().source(), ": must hold targets to be evaluated on; every token is prompt");
  const double loss = sums[0] / sums[1];
  return {.loss = loss, .perplexity = std::exp(loss), .targets = static_cast<std::size_t>(sums[1])};
}
template <class SumOfLosses>
[[nodiscard]] evaluation evaluate_rows(const loader& rows, SumOfLosses&& sum_of_losses) {
  return evaluate_rows(rows, std::forward<SumOfLosses>(sum_of_losses), [](std::span<double>) {});
}

}  // namespace xtrain
