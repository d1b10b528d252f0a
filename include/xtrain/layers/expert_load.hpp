#pragma once

#include <array>
#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// More than any published model; counts on the host must not allocate in a step.
inline constexpr std::size_t max_experts = 512;

/// Load per layer without padding, for the load-balancing loss. Each layer writes its row; then the loss's gradient is known, equal for all layers and
/// tokens except padding.
template <class Device, class T>
struct expert_load {
  matrix_view<token, typename Device::memory> count_le{};
  matrix_view<accumulate_t<T>, typename Device::memory> probability_le{};  // summed over tokens
  vector_view<accumulate_t<T>, typename Device::memory> dprobability_e{};

  [[nodiscard]] bool exists() const { return count_le.exists(); }
};

/// Rows dispatched to an expert, in rank order; a layer works on rows from `first` on.
struct dispatched_rows {
  std::array<std::size_t, max_experts> counts{};
  std::size_t ranks = 0, rank = 0, first = 0;  // ranks = 0: this rank's rows
};

}  // namespace xtrain
