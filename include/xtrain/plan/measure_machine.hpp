// Measures the host.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/cpu/peak.hpp>
#include <xtrain/plan/machine.hpp>

namespace xtrain {

/// All threads of an opened cpu as one device: peak multiply-adds and memory bandwidth. Takes 0.5 s and 256 MiB.
///   departs   fp64 and fp16 products are not measured: 0
template <class Context>
[[nodiscard]] machine measure_machine(const Context& on) {
  return {.name = "cpu",
          .fp32 = measure_peak<float>(on),
          .bf16 = measure_peak<bf16>(on),
          .memory_bandwidth = measure_bandwidth(on),
          .memory = on.memory_limit()};
}

}  // namespace xtrain
