// The entries of libmusart that device/musa/runtime.hpp names, as CUDA's: compiled with the shim, so that a wrong name does not link.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include <xtrain/device/cuda/launch.cuh>
#include <xtrain/device/musa/musa.hpp>

// of what mcc is to compile
template struct xtrain::cuda_kernels::compiled<xtrain::kernel::add<xtrain::cuda_memory, float>>;

namespace {

/// The entry of CUDA's runtime, of the name with cuda for musa.
void* entry_of(std::string_view name) {
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

}  // namespace

/// Opens the device `musa` on CUDA's runtime, where there is an NVIDIA GPU, and adds numbers there.
int main() {
  using namespace xtrain;
  const cuda_runtime table = xtrain::detail::make_musa_runtime(&entry_of, &musa_kernels::library());
  if (!table.problem.empty()) return std::printf("%s\n", std::string(table.problem).c_str()), 1;
  if (const std::string missing = xtrain::detail::the_musa_loaded().missing; missing != "musaGraphInstantiate")
    return std::printf("missing: %s\n", missing.c_str()), 1;
  if (const std::string why = xtrain::detail::why_no_gpu(&table, moore_threads); !why.empty()) return std::printf("%s\n", why.c_str()), 0;
  const musa_context on(musa_config{.device = 0, .runtime = &table});
  std::printf("%s\n", on.description().c_str());
  const buffer<musa> x(on, 400, memory_role::other);
  float host[100];
  for (int i = 0; i < 100; ++i) host[i] = static_cast<float>(i);
  cuda_stream stream(on);
  stream.copy_from_host(x.as<float>().raw(), host, 400);
  run_kernel(stream, kernel::add<cuda_memory, float>{.n = 100, .x_n = x.as<float>(), .y_n = x.as<float>()}, {});
  stream.copy_to_host(host, x.as<float>().raw(), 400);
  stream.synchronize();
  return host[99] == 198 ? 0 : 1;
}
