// Definitions of group.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/group.hpp>
#include <xtrain/core/library.hpp>

namespace xtrain {

XTRAIN_INLINE void group::barrier() {
  std::array<std::uint8_t, 1> nothing{};
  all_reduce(std::span<std::uint8_t>(nothing), reduction::largest);
}

XTRAIN_INLINE void group::all_reduce(std::span<double> values, reduction op) { all_reduce<double>(values, op); }

}  // namespace xtrain
