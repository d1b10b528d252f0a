// Denominators of a step's mean loss.
#pragma once

#include <array>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/objective/concepts.hpp>

namespace xtrain::detail {

/// Number of losses, tokens and sequence labels in the batches.
template <class Objective>
[[nodiscard]] std::array<double, 3> count_all(const typename Objective::config& settings, std::span<const batch_view> batches) {
  std::array<double, 3> counts{};
  for (const batch_view& batch : batches) {
    for (const token label : batch.labels) counts[2] += label >= 0 ? 1 : 0;
    counts[0] += count_losses<Objective>(settings, batch);
    counts[1] += static_cast<double>(batch.token_count);
  }
  return counts;
}

struct mean_over {
  double targets = 0, labels = 0;
};
[[nodiscard]] inline mean_over mean_of(const std::array<double, 3>& counts) {
  return {counts[0] > 0 ? counts[0] : counts[2], counts[2]};  // there may be only sequence labels
}

}  // namespace xtrain::detail
