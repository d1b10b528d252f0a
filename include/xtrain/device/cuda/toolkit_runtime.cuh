// The toolkit's CUDA runtime as the device's table: in the library that nvcc compiles, or in a program of one .cu file.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <xtrain/device/cuda/runtime.hpp>

namespace xtrain::cuda_kernels {

namespace detail {

template <int>
__global__ void probed() {}

#define XTRAIN_CUDA_TEXT_OF(...) #__VA_ARGS__
#define XTRAIN_CUDA_TEXT(...) XTRAIN_CUDA_TEXT_OF(__VA_ARGS__)

/// A function of the driver, without linking the driver; null if absent.
template <class F>
[[nodiscard]] F* of_driver(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result) != cudaSuccess) (void)cudaGetLastError();
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<F*>(found) : nullptr;
}
/// Loads a kernel; drivers older than CUDA 12.4 load it with its attributes.
[[nodiscard]] inline auto load_function() {
  static auto* const load = of_driver<CUresult(CUfunction)>("cuFuncLoad", 12040);
  return load;
}

[[nodiscard]] inline cuda_runtime make_runtime() {
  cuda_runtime all;
  all.version = CUDART_VERSION;
#ifdef __CUDA_ARCH_LIST__
  all.architectures = XTRAIN_CUDA_TEXT(__CUDA_ARCH_LIST__);
#endif
  all.driver_version = [](int* version) -> int { return cudaDriverGetVersion(version); };
  all.device_count = [](int* count) -> int { return cudaGetDeviceCount(count); };
  all.set_device = [](int device) -> int { return cudaSetDevice(device); };
  all.device_name = [](char* name, std::size_t bytes, int device) -> int {
    cudaDeviceProp properties{};
    const int status = cudaGetDeviceProperties(&properties, device);
    std::strncpy(name, properties.name, bytes - 1);
    return status;
  };
  all.device_attribute = [](int* value, int attribute, int device) -> int {
    return cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device);
  };
  all.probe_kernels = []() -> int {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, probed<0>);
  };
  all.memory_info = [](std::size_t* free, std::size_t* total) -> int { return cudaMemGetInfo(free, total); };
  all.allocate = [](void** memory, std::size_t bytes) -> int { return cudaMalloc(memory, bytes); };
  all.release = [](void* memory) -> int { return cudaFree(memory); };
  all.allocate_pinned = [](void** memory, std::size_t bytes) -> int { return cudaHostAlloc(memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped); };
  all.release_pinned = [](void* memory) -> int { return cudaFreeHost(memory); };
  all.device_address = [](void** address, void* pinned) -> int { return cudaHostGetDevicePointer(address, pinned, 0); };
  all.create_stream = [](cuda_queue_handle* stream) -> int { return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking); };
  all.destroy_stream = [](cuda_queue_handle stream) -> int { return cudaStreamDestroy(stream); };
  all.synchronize_stream = [](cuda_queue_handle stream) -> int { return cudaStreamSynchronize(stream); };
  all.create_event = [](void** event) -> int { return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming); };
  all.create_timed_event = [](void** event) -> int { return cudaEventCreate(reinterpret_cast<cudaEvent_t*>(event)); };
  all.elapsed = [](float* milliseconds, void* begin, void* end) -> int {
    return cudaEventElapsedTime(milliseconds, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end));
  };
  all.destroy_event = [](void* event) -> int { return cudaEventDestroy(static_cast<cudaEvent_t>(event)); };
  all.record_event = [](void* event, cuda_queue_handle stream) -> int { return cudaEventRecord(static_cast<cudaEvent_t>(event), stream); };
  all.synchronize_event = [](void* event) -> int { return cudaEventSynchronize(static_cast<cudaEvent_t>(event)); };
  all.query_event = [](void* event) -> int { return cudaEventQuery(static_cast<cudaEvent_t>(event)); };
  all.wait_event = [](cuda_queue_handle stream, void* event) -> int { return cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(event), 0); };
  all.copy = [](void* to, const void* from, std::size_t bytes, cuda_queue_handle stream) -> int {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  };
  all.fill_zero = [](void* to, std::size_t bytes, cuda_queue_handle stream) -> int { return cudaMemsetAsync(to, 0, bytes, stream); };
  all.launch = [](const cuda_launch& what, cuda_queue_handle stream) -> int {
    void* arguments[] = {const_cast<void*>(what.argument)};
    const dim3 blocks(static_cast<unsigned>(what.grid.x), static_cast<unsigned>(what.grid.y), static_cast<unsigned>(what.grid.z));
    return cudaLaunchKernel(what.entry, blocks, dim3(static_cast<unsigned>(what.threads)), arguments, what.shared_bytes, stream);
  };
  all.load_kernel = [](const cuda_launch& what) -> int {
    cudaFuncAttributes attributes{};
    const int status = cudaFuncGetAttributes(&attributes, what.entry);
    cudaFunction_t function = nullptr;
    if (status != cudaSuccess || load_function() == nullptr) return status;
    const int found = cudaGetFuncBySymbol(&function, what.entry);
    return found != cudaSuccess ? found : static_cast<int>(load_function()(reinterpret_cast<CUfunction>(function)));
  };
  all.begin_capture = [](cuda_queue_handle stream) -> int { return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); };
  all.end_capture = [](cuda_queue_handle stream, void** graph) -> int { return cudaStreamEndCapture(stream, reinterpret_cast<cudaGraph_t*>(graph)); };
  all.destroy_graph = [](void* graph) -> int { return cudaGraphDestroy(static_cast<cudaGraph_t>(graph)); };
  all.instantiate = [](void** executable, void* graph) -> int {
    return cudaGraphInstantiateWithFlags(reinterpret_cast<cudaGraphExec_t*>(executable), static_cast<cudaGraph_t>(graph), 0);
  };
  all.launch_graph = [](void* executable, cuda_queue_handle stream) -> int { return cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), stream); };
  all.destroy_executable = [](void* executable) -> int { return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable)); };
  all.last_error = []() -> int { return cudaGetLastError(); };
  all.error_name = [](int status) { return cudaGetErrorName(static_cast<cudaError_t>(status)); };
  all.error_text = [](int status) { return cudaGetErrorString(static_cast<cudaError_t>(status)); };
  return all;
}

}  // namespace detail

/// In every part of the library; the linker keeps one copy.
[[gnu::weak]] const cuda_runtime& runtime() {
  static const cuda_runtime all = [] {
    cuda_runtime with = detail::make_runtime();
    static auto* const wait_value = detail::of_driver<CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWaitValue32", 12000);
    if (wait_value != nullptr)
      with.wait_value = [](cuda_queue_handle stream, void* address, std::uint32_t least) -> int {
        // a driver's status has the runtime's number
        return static_cast<int>(wait_value(stream, reinterpret_cast<CUdeviceptr>(address), least, CU_STREAM_WAIT_VALUE_GEQ));
      };
    return with;
  }();
  return all;
}

/// What launch.cuh calls besides the table.
struct toolkit_calls {
  [[nodiscard]] static const cuda_runtime& runtime() { return cuda_kernels::runtime(); }
  [[nodiscard]] static int current_device(int* gpu) { return cudaGetDevice(gpu); }
  [[nodiscard]] static int allow_shared_memory(const void* entry, int bytes) {
    return cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  }
};
[[nodiscard]] inline toolkit_calls toolkit() { return {}; }

}  // namespace xtrain::cuda_kernels
