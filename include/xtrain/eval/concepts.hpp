// Evaluations.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/sentence_loader.hpp>

namespace xtrain {

/// Result on held-out sequences.
struct evaluation {
  double loss = 0;        ///< mean over targets, natural logarithm
  double perplexity = 0;  ///< exp(loss)
  std::size_t targets = 0;
};

/// Evaluates every sequence once, in order. sum_of_losses(batch) runs a forward pass and sums its count(batch) losses; all_ranks(sums) all-reduces over
/// data-parallel ranks.
///   throws  data_error when no sequence has a target
template <class SumOfLosses, class AllRanks, class Count>
[[nodiscard]] evaluation evaluate_batches(const loader& rows, SumOfLosses&& sum_of_losses, AllRanks&& all_ranks, Count&& count) {
  std::array<double, 2> sums{};  // losses, targets
  std::vector<host_batch> batches;
  for (std::size_t s = 0; s < rows.steps_per_epoch(); ++s) {
    rows.fill({0, s}, batches);
    for (const host_batch& batch : batches) {
      // a rank without targets runs the pass: others may need its weight shard
      if (batch.target_count == 0 && rows.config().ranks == 1) continue;
      sums[0] += sum_of_losses(batch);
      sums[1] += count(batch);
    }
  }
  all_ranks(std::span<double>(sums));
  require<data_error>(sums[1] > 0, rows.data().source(), ": must hold labels to evaluate on; every token belongs to a prompt");
  const double loss = sums[0] / sums[1];
  return {.loss = loss, .perplexity = std::exp(loss), .targets = static_cast<std::size_t>(sums[1])};
}
template <class SumOfLosses>
[[nodiscard]] evaluation evaluate_batches(const loader& rows, SumOfLosses&& sum_of_losses) {
  return evaluate_batches(
      rows, std::forward<SumOfLosses>(sum_of_losses), [](std::span<double>) {},
      [](const host_batch& batch) { return static_cast<double>(batch.target_count); });
}

/// For bidirectional encoders: mean over masked tokens + mean over sequence labels. sum_of_losses(batch, label_weight) multiplies label losses by
/// label_weight.
///   throws  data_error when there is neither a masked token nor a sequence label
template <class SumOfLosses, class AllRanks>
[[nodiscard]] evaluation evaluate_sentences(const sentence_loader& rows, SumOfLosses&& sum_of_losses, AllRanks&& all_ranks) {
  std::vector<host_batch> batches;
  const auto for_each_batch = [&](auto&& visit) {
    for (std::size_t s = 0; s < rows.steps_per_epoch(); ++s) {
      rows.fill({0, s}, batches);
      for (const host_batch& batch : batches) visit(batch);
    }
  };
  std::array<double, 2> counts{};  // masked tokens, sequence labels: needed before weighting losses
  for_each_batch([&](const host_batch& batch) {
    counts[0] += static_cast<double>(batch.target_count);
    for (const token label : batch.labels) counts[1] += label >= 0 ? 1 : 0;
  });
  all_ranks(std::span<double>(counts));
  const double targets = counts[0] > 0 ? counts[0] : counts[1];
  require<data_error>(targets > 0, rows.data().source(), ": must hold masked tokens or labels to evaluate on; it has neither");
  const double label_weight = counts[1] > 0 ? targets / counts[1] : 0.0;
  std::array<double, 1> sum{};
  for_each_batch([&](const host_batch& batch) { sum[0] += sum_of_losses(batch, label_weight); });
  all_ranks(std::span<double>(sum));
  const double loss = sum[0] / targets;
  return {.loss = loss, .perplexity = std::exp(loss), .targets = static_cast<std::size_t>(targets)};
}

}  // namespace xtrain
