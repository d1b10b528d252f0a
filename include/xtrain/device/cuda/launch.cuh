// Compiles the kernels of device/simt/ by nvcc or mcc, and launches them: for the library of xtrain_add_cuda_kernels or xtrain_add_musa_kernels, or for a
// program in one source. XTRAIN_MUSA_KERNELS: for MUSA.
#pragma once

#if defined(XTRAIN_MUSA_KERNELS)
#include <musa_runtime.h>
#else
#include <cuda_runtime.h>
#endif

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/device/cuda/attend.hpp>
#include <xtrain/device/cuda/compiled.hpp>
#include <xtrain/device/cuda/multiply.hpp>
#include <xtrain/device/cuda/stream.hpp>
#if defined(XTRAIN_MUSA_KERNELS)
#include <xtrain/device/musa/toolkit.cuh>
#else
#include <xtrain/device/cuda/toolkit_runtime.cuh>
#endif
#include <xtrain/device/simt/kernels.hpp>

namespace xtrain {

namespace cuda_kernels {

/// Minimum resident blocks per multiprocessor, which limits registers per thread. Without any value, nvcc 13.0 spills registers of kernels that could have 255.
template <class Kernel>
inline constexpr int blocks_at_once = 1;
template <class Kernel>
requires(Kernel::blocks_at_once > 0) inline constexpr int blocks_at_once<Kernel> = Kernel::blocks_at_once;

// an argument without a copy in a thread's local memory
#if defined(XTRAIN_MUSA_KERNELS)
#define XTRAIN_GRID_CONSTANT
#else
#define XTRAIN_GRID_CONSTANT __grid_constant__
#endif

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, blocks_at_once<Kernel>) entry(const XTRAIN_GRID_CONSTANT Kernel kernel) {
  extern __shared__ __align__(128) unsigned char shared[];
  kernel(*reinterpret_cast<typename Kernel::shared*>(shared));
}

/// Shared memory of a block: default, and maximum on request on every GPU from sm_80 on.
inline constexpr std::size_t shared_bytes_unasked = 48U << 10, most_shared_bytes = 99U << 10;

/// Requests shared memory for a kernel's blocks, once per GPU.
///   name   of the library's kernel, for messages
template <class Kernel>
void ask_for_shared_memory(std::string_view name) {
  static std::atomic<std::uint64_t> asked{0};  // a bit for each of the first 64 GPUs
  int gpu = 0;
  const auto& all = toolkit();
  xtrain::detail::require_cuda(all.runtime(), all.current_device(&gpu), "cudaGetDevice", gpu, name);
  const std::uint64_t bit = gpu < 64 ? std::uint64_t{1} << gpu : 0;
  if ((asked.load(std::memory_order_relaxed) & bit) != 0) return;
  constexpr int bytes = sizeof(typename Kernel::shared);
  xtrain::detail::require_cuda(all.runtime(), all.allow_shared_memory(reinterpret_cast<const void*>(&entry<Kernel>), bytes), "cudaFuncSetAttribute", gpu, name);
  asked.fetch_or(bit, std::memory_order_relaxed);
}

template <class Kernel>
concept is_in_simt = requires(cuda_launcher& launcher, const Kernel& kernel, scratch_span<cuda_memory> scratch) {
  run_kernel(launcher, kernel, scratch);
};

template <class Kernel>
void compiled<Kernel>::run(cuda_stream& stream, const Kernel& kernel, scratch_span<cuda_memory> scratch) {
  static_assert(is_in_simt<Kernel>, "cuda: a listed kernel must be in device/simt/");
  cuda_launcher launcher(stream);
  run_kernel(launcher, kernel, scratch);
}
template <class Kernel>
std::size_t compiled<Kernel>::scratch_bytes(const cuda_properties&, const Kernel& kernel) {
  using xtrain::scratch_bytes;
  return scratch_bytes(cuda_launcher::properties{}, kernel);
}

}  // namespace cuda_kernels

template <class Kernel>
void cuda_launcher::launch(const Kernel& kernel, simt::grid_size grid) {
  constexpr std::size_t shared_bytes = sizeof(typename Kernel::shared);
  static_assert(shared_bytes <= cuda_kernels::most_shared_bytes, "cuda: a block must share at most 99 KiB");
  static_assert(Kernel::threads <= 1024 && Kernel::threads % simt::warp_width == 0,
                "cuda: a block must have whole warps, and at most 1024 threads");
  if constexpr (shared_bytes > cuda_kernels::shared_bytes_unasked) cuda_kernels::ask_for_shared_memory<Kernel>(stream_->last_kernel());
  stream_->launch({.kernel = stream_->last_kernel(),
                   .entry = reinterpret_cast<const void*>(&cuda_kernels::entry<Kernel>),
                   .grid = grid,
                   .threads = Kernel::threads,
                   .shared_bytes = shared_bytes,
                   .argument = &kernel,
                   .argument_bytes = sizeof kernel});
}

}  // namespace xtrain
