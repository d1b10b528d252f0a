// The declarations of device/musa/runtime.hpp beside CUDA's header: each entry takes and returns what CUDA's of that name does.
#include <cuda_runtime_api.h>

#include <type_traits>

#include <xtrain/device/musa/runtime.hpp>

namespace {

/// Passed in the same way: both addresses, or both numbers of the same size, or both structures of the same size.
template <class A, class B>
inline constexpr bool is_passed_alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> && std::is_class_v<A> == std::is_class_v<B>;
template <class A, class B>
inline constexpr bool is_called_alike = false;
template <class A, class... AArguments, class B, class... BArguments>
requires(sizeof...(AArguments) == sizeof...(BArguments)) inline constexpr bool is_called_alike<A (*)(AArguments...), B (*)(BArguments...)> =
    is_passed_alike<A, B> && (is_passed_alike<AArguments, BArguments> && ...);

#define XTRAIN_ALIKE(entry, x) static_assert(is_called_alike<decltype(xtrain::detail::musa_entries::entry), decltype(&x)>);
XTRAIN_ALIKE(get_device_count, cudaGetDeviceCount)
XTRAIN_ALIKE(set_device, cudaSetDevice)
XTRAIN_ALIKE(device_get_attribute, cudaDeviceGetAttribute)
XTRAIN_ALIKE(mem_get_info, cudaMemGetInfo)
XTRAIN_ALIKE(free, cudaFree)
XTRAIN_ALIKE(free_host, cudaFreeHost)
XTRAIN_ALIKE(stream_create_with_flags, cudaStreamCreateWithFlags)
XTRAIN_ALIKE(stream_destroy, cudaStreamDestroy)
XTRAIN_ALIKE(stream_synchronize, cudaStreamSynchronize)
XTRAIN_ALIKE(stream_wait_event, cudaStreamWaitEvent)
XTRAIN_ALIKE(event_destroy, cudaEventDestroy)
XTRAIN_ALIKE(event_synchronize, cudaEventSynchronize)
XTRAIN_ALIKE(event_query, cudaEventQuery)
XTRAIN_ALIKE(memcpy_async, cudaMemcpyAsync)
XTRAIN_ALIKE(memset_async, cudaMemsetAsync)
XTRAIN_ALIKE(get_last_error, cudaGetLastError)
XTRAIN_ALIKE(get_error_name, cudaGetErrorName)
XTRAIN_ALIKE(get_error_string, cudaGetErrorString)
XTRAIN_ALIKE(driver_get_version, cudaDriverGetVersion)
XTRAIN_ALIKE(runtime_get_version, cudaRuntimeGetVersion)
XTRAIN_ALIKE(stream_begin_capture, cudaStreamBeginCapture)
XTRAIN_ALIKE(stream_end_capture, cudaStreamEndCapture)
XTRAIN_ALIKE(graph_instantiate_with_flags, cudaGraphInstantiateWithFlags)
XTRAIN_ALIKE(graph_launch, cudaGraphLaunch)
XTRAIN_ALIKE(graph_destroy, cudaGraphDestroy)
XTRAIN_ALIKE(graph_exec_destroy, cudaGraphExecDestroy)
XTRAIN_ALIKE(event_record, cudaEventRecord)
XTRAIN_ALIKE(launch_kernel, cudaLaunchKernel)
XTRAIN_ALIKE(malloc, cudaMalloc)
XTRAIN_ALIKE(host_alloc, cudaHostAlloc)
XTRAIN_ALIKE(host_get_device_pointer, cudaHostGetDevicePointer)
XTRAIN_ALIKE(event_create, cudaEventCreate)
XTRAIN_ALIKE(event_create_with_flags, cudaEventCreateWithFlags)
XTRAIN_ALIKE(event_elapsed_time, cudaEventElapsedTime)
XTRAIN_ALIKE(get_device_properties, cudaGetDeviceProperties)
XTRAIN_ALIKE(func_get_attributes, cudaFuncGetAttributes)
#undef XTRAIN_ALIKE

}  // namespace
