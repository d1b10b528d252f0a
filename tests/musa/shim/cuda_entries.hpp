// The entries of libmusart that device/musa/runtime.hpp names, as CUDA's: a wrong name does not compile, or does not link.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string_view>

/// The entry of CUDA's runtime, of the name with cuda for musa.
inline void* entry_of(std::string_view name) {
#define XTRAIN_ENTRY(x) \
  if (name == "musa" #x) return reinterpret_cast<void*>(&cuda##x);
  XTRAIN_ENTRY(GetDeviceCount)
  XTRAIN_ENTRY(SetDevice)
  XTRAIN_ENTRY(DeviceGetAttribute)
  XTRAIN_ENTRY(MemGetInfo)
  XTRAIN_ENTRY(Free)
  XTRAIN_ENTRY(FreeHost)
  XTRAIN_ENTRY(StreamCreateWithFlags)
  XTRAIN_ENTRY(StreamDestroy)
  XTRAIN_ENTRY(StreamSynchronize)
  XTRAIN_ENTRY(StreamWaitEvent)
  XTRAIN_ENTRY(EventDestroy)
  XTRAIN_ENTRY(EventSynchronize)
  XTRAIN_ENTRY(EventQuery)
  XTRAIN_ENTRY(MemcpyAsync)
  XTRAIN_ENTRY(MemsetAsync)
  XTRAIN_ENTRY(GetLastError)
  XTRAIN_ENTRY(GetErrorName)
  XTRAIN_ENTRY(GetErrorString)
  XTRAIN_ENTRY(DriverGetVersion)
  XTRAIN_ENTRY(RuntimeGetVersion)
  XTRAIN_ENTRY(StreamEndCapture)
  XTRAIN_ENTRY(StreamBeginCapture)
  XTRAIN_ENTRY(GraphInstantiateWithFlags)
  XTRAIN_ENTRY(GraphLaunch)
  XTRAIN_ENTRY(GraphDestroy)
  XTRAIN_ENTRY(GraphExecDestroy)
#undef XTRAIN_ENTRY
  // those that are templates or overloaded for C++ too
  if (name == "musaMalloc") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(void**, std::size_t)>(&cudaMalloc));
  if (name == "musaHostAlloc") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(void**, std::size_t, unsigned)>(&cudaHostAlloc));
  if (name == "musaHostGetDevicePointer")
    return reinterpret_cast<void*>(static_cast<cudaError_t (*)(void**, void*, unsigned)>(&cudaHostGetDevicePointer));
  if (name == "musaEventCreate") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(cudaEvent_t*)>(&cudaEventCreate));
  if (name == "musaEventCreateWithFlags") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(cudaEvent_t*, unsigned)>(&cudaEventCreateWithFlags));
  if (name == "musaEventRecord") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(cudaEvent_t, cudaStream_t)>(&cudaEventRecord));
  if (name == "musaEventElapsedTime") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(float*, cudaEvent_t, cudaEvent_t)>(&cudaEventElapsedTime));
  if (name == "musaGetDeviceProperties") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(cudaDeviceProp*, int)>(&cudaGetDeviceProperties));
  if (name == "musaLaunchKernel")
    return reinterpret_cast<void*>(static_cast<cudaError_t (*)(const void*, dim3, dim3, void**, std::size_t, cudaStream_t)>(&cudaLaunchKernel));
  if (name == "musaFuncGetAttributes") return reinterpret_cast<void*>(static_cast<cudaError_t (*)(cudaFuncAttributes*, const void*)>(&cudaFuncGetAttributes));
  return nullptr;
}
