// The device `cuda`: an NVIDIA GPU, with the kernels of device/simt/ compiled by nvcc.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/device/capture.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/cuda/attend.hpp>
#include <xtrain/device/cuda/context.hpp>
#include <xtrain/device/cuda/cublaslt/products.hpp>
#include <xtrain/device/cuda/cudnn/attentions.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/device/prepared_kernels.hpp>
#if defined(XTRAIN_CUDA_KERNELS) || defined(XTRAIN_MUSA_KERNELS) || defined(__NVCC__) || defined(__MUSACC__)
#define XTRAIN_CUDA_COMPILED 1
#include <xtrain/device/cuda/compiled.hpp>
#else
#include <xtrain/device/cuda/host_launch.hpp>
#endif
#if defined(__NVCC__) && !defined(XTRAIN_MUSA_KERNELS)
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
  [[nodiscard]] static std::string why_unavailable() { return detail::why_no_gpu(detail::cuda_runtime_here(), nvidia); }
};

static_assert(device<cuda> && clause::device_has_dry_run<cuda> && clause::device_captures_work<cuda> && clause::device_has_pinned_memory<cuda> &&
              clause::device_runs_host_functions<cuda> && clause::device_marks_host_failures<cuda> && clause::device_prepares_kernels<cuda>);

namespace cuda_kernels {

#ifdef XTRAIN_CUDA_COMPILED
template <class Kernel>
concept available = listed<Kernel>;
#else
template <class Kernel>
concept available = requires(cuda_launcher& launcher, const Kernel& kernel, scratch_span<cuda_memory> scratch) { run_kernel(launcher, kernel, scratch); };
#endif

/// A kernel whose products another library may compute.
template <class Kernel>
inline constexpr bool multiplies = false;
template <class T, class C>
inline constexpr bool multiplies<kernel::matmul<cuda_memory, T, C>> = true;
template <class T, class G>
inline constexpr bool multiplies<kernel::linear_cross_entropy<cuda_memory, T, G>> = true;

/// Scratch bytes of another library for a kernel; 0 for our kernels.
template <class Kernel>
[[nodiscard]] std::size_t library_scratch_bytes(const cuda_properties& device, const Kernel& kernel) {
  if constexpr (xtrain::detail::attention_elsewhere<Kernel>::is_possible) {
    const auto shape = xtrain::detail::attention_elsewhere<Kernel>::shape_of(kernel);
    const std::size_t bytes = shape && device.attention_workspace != 0 ? cudnn_workspace_bytes(*shape, device.architecture) : 0;
    return bytes <= device.attention_workspace ? bytes : 0;
  } else {
    return multiplies<Kernel> ? device.product_workspace : 0;
  }
}
/// Added to a kernel's scratch, with alignment.
template <class Kernel>
[[nodiscard]] std::size_t more_scratch_bytes(const cuda_properties& device, const Kernel& kernel) {
  const std::size_t bytes = library_scratch_bytes(device, kernel);
  return bytes == 0 ? 0 : bytes + 255;
}
template <class Kernel>
[[nodiscard]] bool has_library(cuda_stream& stream) {
  if constexpr (xtrain::detail::attention_elsewhere<Kernel>::is_possible) return xtrain::detail::attentions_of(stream) != nullptr;
  else return xtrain::detail::products_of(stream) != nullptr;
}

template <class Kernel>
void launch(cuda_stream& stream, const Kernel& kernel, scratch_span<cuda_memory> scratch) {
  if constexpr (multiplies<Kernel> || xtrain::detail::attention_elsewhere<Kernel>::is_possible) {
    const std::size_t more = more_scratch_bytes(stream.properties(), kernel);
    stream.set_workspace({});
    if (has_library<Kernel>(stream) && more != 0 && scratch.size() >= more) {
      const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(scratch.raw()) + scratch.size() - more + 255;
      stream.set_workspace({reinterpret_cast<void*>(end / 256 * 256), more - 255});
      scratch = scratch.subspan(0, scratch.size() - more);
    }
  }
#ifdef XTRAIN_CUDA_COMPILED
  compiled<Kernel>::run(stream, kernel, scratch);
#else
  cuda_launcher launcher(stream);
  run_kernel(launcher, kernel, scratch);
#endif
}

}  // namespace cuda_kernels

template <std::derived_from<cuda_stream> Stream, class Kernel>
requires cuda_kernels::available<Kernel>
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<cuda_memory> scratch) {
  if (stream.begin_kernel(kernel)) cuda_kernels::launch(static_cast<cuda_stream&>(stream), kernel, scratch);
}

template <class Kernel>
requires cuda_kernels::available<Kernel>
[[nodiscard]] std::size_t scratch_bytes(const cuda_properties& device, const Kernel& kernel) {
  const std::size_t more = cuda_kernels::more_scratch_bytes(device, kernel);
#ifdef XTRAIN_CUDA_COMPILED
  return more + cuda_kernels::compiled<Kernel>::scratch_bytes(device, kernel);
#else
  return more + scratch_bytes(cuda_launcher::properties{}, kernel);
#endif
}

template <class Kernel>
void cuda_stream::prepare(const Kernel& kernel) {
  refuse_in_capture("a kernel was prepared");
  enter();
  last_kernel_ = Kernel::name;
  is_preparing_ = true;
  try {
    // scratch address that is never accessed
    auto* const nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{256});
    cuda_kernels::launch(*this, kernel, span_of<std::byte, cuda_memory>(nowhere, scratch_bytes(properties(), kernel)));
  } catch (...) {
    is_preparing_ = false;
    throw;
  }
  is_preparing_ = false;
}

}  // namespace xtrain
