// The arguments of an optimizer step, for tests of optimizers on the cpu device.
#pragma once

#include <cstdint>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/optim/concepts.hpp>

namespace xtrain::testing {

/// The step must be over when the full expression ends: `scalars` may be a temporary object.
[[nodiscard]] inline optimizer_step<cpu> step_of(const kernel::step_scalars& scalars, std::uint32_t number = 1, std::uint64_t seed = 0) {
  return {.scalars = span_of(&scalars, 1), .number = number, .seed = seed};
}

}  // namespace xtrain::testing
