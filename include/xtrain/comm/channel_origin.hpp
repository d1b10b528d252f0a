// Which channels a transport sends on: models that share ranks are told apart by it.
#pragma once

#include <cstdint>

namespace xtrain {

/// A model sends on fewer channels than this, from its transport's channel 0 on.
inline constexpr std::uint32_t channels_of_a_model = 4096;

/// Where messages of a transport's channel 0 go. Wrappers and parts of a transport have its network.
struct channel_origin {
  const void* network = nullptr;  ///< null: one rank, no messages
  std::uint32_t first = 0;        ///< channel of the network

  /// Whether messages of two models could be taken for each other's.
  [[nodiscard]] bool overlaps(const channel_origin& other) const {
    if (network == nullptr || network != other.network) return false;
    return (first > other.first ? first - other.first : other.first - first) < channels_of_a_model;
  }
};

}  // namespace xtrain
