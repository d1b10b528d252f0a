// What mcc alone reads beside the kernels: the toolkit's entries that a launch calls, and what the library of kernels says about itself. The table of the
// other entries is runtime.hpp's.
#pragma once

#include <musa_runtime.h>

#include <xtrain/device/musa/runtime.hpp>
#include <xtrain/device/simt/language/target.hpp>

namespace xtrain {

namespace detail {

/// Asked whether the kernels have code for a GPU.
template <int>
__global__ void probed_on_musa() {}

}  // namespace detail

namespace musa_kernels {

#define XTRAIN_MUSA_TEXT_OF(...) #__VA_ARGS__
#define XTRAIN_MUSA_TEXT(...) XTRAIN_MUSA_TEXT_OF(__VA_ARGS__)
#ifndef XTRAIN_MUSA_ARCHITECTURES
#define XTRAIN_MUSA_ARCHITECTURES unknown
#endif

/// In every part of the library; the linker keeps one.
[[gnu::weak]] const musa_kernel_library& library() {
  static const musa_kernel_library one{.architectures = XTRAIN_MUSA_TEXT(XTRAIN_MUSA_ARCHITECTURES),
                                       .warp_width = simt::warp_width,
                                       .probed = reinterpret_cast<const void*>(&xtrain::detail::probed_on_musa<0>)};
  return one;
}

}  // namespace musa_kernels

namespace cuda_kernels {

/// What launch.cuh calls beside the table.
struct toolkit_calls {
  /// For messages.
  [[nodiscard]] static const cuda_runtime& runtime() {
    static const cuda_runtime one = [] {
      cuda_runtime all;
      all.vendor = &moore_threads;
      all.last_error = []() -> int { return musaGetLastError(); };
      all.error_name = [](int status) { return musaGetErrorName(static_cast<musaError_t>(status)); };
      all.error_text = [](int status) { return musaGetErrorString(static_cast<musaError_t>(status)); };
      return all;
    }();
    return one;
  }
  [[nodiscard]] static int current_device(int* gpu) { return musaGetDevice(gpu); }
  [[nodiscard]] static int allow_shared_memory(const void* entry, int bytes) {
    return musaFuncSetAttribute(entry, musaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  }
};
[[nodiscard]] inline toolkit_calls toolkit() { return {}; }

}  // namespace cuda_kernels

}  // namespace xtrain
