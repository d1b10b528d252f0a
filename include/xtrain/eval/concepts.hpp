// What an evaluation is.
#pragma once

#include <cmath>
#include <cstddef>
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

/// Every row of the data once, in order. sum_of_losses(batch) runs a batch forth and gives the sum over its targets.
///   throws  data_error when no row has a target
template <class SumOfLosses>
[[nodiscard]] evaluation evaluate_rows(const loader& rows, SumOfLosses&& sum_of_losses) {
  evaluation found;
  double sum = 0;
  std::vector<host_batch> batches;
  for (std::size_t s = 0; s < rows.steps_per_epoch(); ++s) {
    rows.fill({0, s}, batches);
    for (const host_batch& batch : batches) {
      if (batch.target_count == 0) continue;
      sum += sum_of_losses(batch);
      found.targets += batch.target_count;
    }
  }
  require<data_error>(found.targets > 0, rows.data().source(), ": must hold targets to be evaluated on; every token is prompt");
  found.loss = sum / static_cast<double>(found.targets);
  found.perplexity = std::exp(found.loss);
  return found;
}

}  // namespace xtrain
