// The device `npu`: an Ascend NPU, by AscendCL and CANN's operators, which are found by name at run time.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/npu/context.hpp>
#include <xtrain/device/npu/host_kernels.hpp>
#include <xtrain/device/npu/kernels.hpp>
#include <xtrain/device/npu/stream.hpp>
#include <xtrain/device/pinned_memory.hpp>

namespace xtrain {

/// Policy for `using device`.
struct npu {
  static constexpr std::string_view name = "npu";
  using memory = npu_memory;
  using properties = npu_properties;
  using config = npu_config;
  using context = npu_context;
  using stream = npu_stream;

  /// Whether this process can use an NPU; asks the driver.
  [[nodiscard]] static bool is_available() { return why_unavailable().empty(); }
  /// A sentence; empty if an NPU can be used.
  [[nodiscard]] static std::string why_unavailable() { return detail::why_no_npu(nullptr); }
};

static_assert(device<npu> && clause::device_has_dry_run<npu> && clause::device_has_pinned_memory<npu> && clause::device_runs_host_functions<npu> &&
              clause::device_marks_host_failures<npu>);

/// A kernel without operators: overloads for one kernel are preferred.
template <std::same_as<npu_stream> Stream, class Kernel>
requires npu_kernel_runs_on_host<Kernel>
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<npu_memory>) {
  if (stream.begin_kernel(kernel)) stream.run_on_host(kernel);
}

}  // namespace xtrain
