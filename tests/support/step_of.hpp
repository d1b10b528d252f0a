// Arguments of an optimizer step, for tests on the cpu device.
#pragma once

#include <cstdint>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/optim/concepts.hpp>

namespace xtrain::testing {

/// The step must end with the full expression: `scalars` may be temporary.
[[nodiscard]] inline optimizer_step<cpu> step_of(const kernel::step_scalars& scalars, std::uint32_t number = 1, std::uint64_t seed = 0) {
  return {.scalars = span_of(&scalars, 1), .number = number, .seed = seed};
}

}  // namespace xtrain::testing
