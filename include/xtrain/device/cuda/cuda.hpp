// The device `cuda`: an NVIDIA GPU. Its kernels are those of device/simt/, compiled by nvcc.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/device/capture.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/cuda/context.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/pinned_memory.hpp>
#if defined(XTRAIN_CUDA_KERNELS) || defined(__NVCC__)
#include <xtrain/device/cuda/compiled.hpp>
#else
#include <xtrain/device/cuda/host_launch.hpp>
#endif
#ifdef __NVCC__
#include <xtrain/device/cuda/toolkit_runtime.cuh>
#endif

namespace xtrain {

/// Policy for `using device`.
struct cuda {
  static constexpr std::string_view name = "cuda";
  using memory = cuda_memory;
  using properties = cuda_properties;
  using config = cuda_config;
  using context = cuda_context;
  using stream = cuda_stream;

  /// Whether this process can use a GPU; asks the driver.
  [[nodiscard]] static bool is_available() { return why_unavailable().empty(); }
  /// A sentence; empty if a GPU can be used.
  [[nodiscard]] static std::string why_unavailable() { return detail::why_no_cuda(detail::cuda_runtime_here()); }
};

static_assert(device<cuda> && clause::device_has_dry_run<cuda> && clause::device_captures_work<cuda> && clause::device_has_pinned_memory<cuda> &&
              clause::device_runs_host_functions<cuda>);

namespace cuda_kernels {

#if defined(XTRAIN_CUDA_KERNELS) || defined(__NVCC__)
template <class Kernel>
concept available = listed<Kernel>;
#else
template <class Kernel>
concept available = requires(cuda_launcher& launcher, const Kernel& kernel, scratch_span<cuda_memory> scratch) { run_kernel(launcher, kernel, scratch); };
#endif

}  // namespace cuda_kernels

template <std::derived_from<cuda_stream> Stream, class Kernel>
requires cuda_kernels::available<Kernel>
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<cuda_memory> scratch) {
  if (!stream.begin_kernel(kernel)) return;
#if defined(XTRAIN_CUDA_KERNELS) || defined(__NVCC__)
  cuda_kernels::compiled<Kernel>::run(stream, kernel, scratch);
#else
  cuda_launcher launcher(stream);
  run_kernel(launcher, kernel, scratch);
#endif
}

template <class Kernel>
requires cuda_kernels::available<Kernel>
[[nodiscard]] std::size_t scratch_bytes(const cuda_properties& device, const Kernel& kernel) {
#if defined(XTRAIN_CUDA_KERNELS) || defined(__NVCC__)
  return cuda_kernels::compiled<Kernel>::scratch_bytes(device, kernel);
#else
  return scratch_bytes(cuda_launcher::properties{device}, kernel);
#endif
}

}  // namespace xtrain
