// Common machines, from public data sheets and the usual network of eight-device nodes.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/plan/machine.hpp>

namespace xtrain {

namespace detail {

inline constexpr double tera = 1e12, giga = 1e9, microsecond = 1e-6;
inline constexpr std::size_t gib = std::size_t{1} << 30;

}  // namespace detail

/// NVIDIA A100 SXM, 80 GB; NVLink 3, a 200 Gbit/s adapter per device (DGX A100).
[[nodiscard]] inline machine a100() {
  using namespace detail;
  return {.name = "a100",
          .fp64 = 19.5 * tera,
          .fp32 = 19.5 * tera,
          .bf16 = 312 * tera,
          .fp16 = 312 * tera,
          .memory_bandwidth = 2039 * giga,
          .memory = 80 * gib,
          .devices_per_node = 8,
          .inside = {300 * giga, 3 * microsecond},
          .between = {25 * giga, 5 * microsecond},
          .launch = 3 * microsecond};
}

/// NVIDIA H100 SXM, 80 GB; NVLink 4, a 400 Gbit/s adapter per device (DGX H100).
[[nodiscard]] inline machine h100() {
  using namespace detail;
  return {.name = "h100",
          .fp64 = 67 * tera,
          .fp32 = 67 * tera,
          .bf16 = 989 * tera,
          .fp16 = 989 * tera,
          .memory_bandwidth = 3350 * giga,
          .memory = 80 * gib,
          .devices_per_node = 8,
          .inside = {450 * giga, 3 * microsecond},
          .between = {50 * giga, 5 * microsecond},
          .launch = 3 * microsecond};
}

/// NVIDIA H200 SXM: an H100 with other memory.
[[nodiscard]] inline machine h200() {
  machine m = h100();
  m.name = "h200";
  m.memory_bandwidth = 4800 * detail::giga;
  m.memory = 141'000'000'000;
  return m;
}

/// Ascend 910B, 64 GB; HCCS to seven neighbors, a 200 Gbit/s adapter per device (Atlas 800T A2). Sources differ: 256 to 400 TFLOP/s in fp16, 0.8 to
/// 1.6 TB/s.
[[nodiscard]] inline machine ascend_910b() {
  using namespace detail;
  return {.name = "910b",
          .fp32 = 78 * tera,
          .bf16 = 313 * tera,
          .fp16 = 313 * tera,
          .memory_bandwidth = 1600 * giga,
          .memory = 64 * gib,
          .communicator = gib * 400 / 1024,  // HCCL's default: HCCL_BUFFSIZE, twice
          .devices_per_node = 8,
          .inside = {196 * giga, 10 * microsecond},
          .between = {25 * giga, 10 * microsecond},
          .launch = 5 * microsecond};
}

/// Moore Threads MTT S4000, 48 GB; MTLink 1.0. Network unpublished; assumed: a 100 Gbit/s adapter per device.
[[nodiscard]] inline machine mtt_s4000() {
  using namespace detail;
  return {.name = "s4000",
          .fp32 = 25 * tera,
          .bf16 = 100 * tera,
          .fp16 = 100 * tera,
          .memory_bandwidth = 768 * giga,
          .memory = 48 * gib,
          .devices_per_node = 8,
          .inside = {120 * giga, 10 * microsecond},
          .between = {12.5 * giga, 10 * microsecond},
          .launch = 5 * microsecond};
}

/// throws config_error for an unknown name
[[nodiscard]] inline machine machine_named(std::string_view name) {
  for (const machine& one : {a100(), h100(), h200(), ascend_910b(), mtt_s4000()})
    if (one.name == name) return one;
  fail<config_error>("machine: must be a100, h100, h200, 910b or s4000; given ", name);
}

}  // namespace xtrain
