// What a mixture of experts keeps for a whole pass: the load of its experts, and where the rows come from that an expert works on.
#pragma once

#include <array>
#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// More experts than any published model has; a layer counts the tokens of each on the host, where a step must not allocate.
inline constexpr std::size_t max_experts = 512;

/// Load of the experts of each layer, without padding, for the load-balancing loss. Each layer writes its own row; when all have, the gradient
/// of that loss is known: it is the same for every token of the batch that is not padding, and every layer.
template <class Device, class T>
struct expert_load {
  matrix_view<token, typename Device::memory> count_le{};
  matrix_view<accumulate_t<T>, typename Device::memory> probability_le{};  // summed over tokens
  vector_view<accumulate_t<T>, typename Device::memory> dprobability_e{};

  [[nodiscard]] bool exists() const { return count_le.exists(); }
};

/// Rows that the ranks dispatched to one expert, in rank order; a layer works on those from `first` on.
struct dispatched_rows {
  std::array<std::size_t, max_experts> counts{};
  std::size_t ranks = 0, rank = 0, first = 0;  // ranks = 0: rows are this rank's own
};

}  // namespace xtrain
