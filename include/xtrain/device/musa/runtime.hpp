// The entries of Moore Threads' MUSA runtime under the table that the device `cuda` calls. They are found by name in libmusart, which is loaded: a program
// needs no header of the MUSA toolkit. The declarations are ours, by the rule that MUSA's entry musaX has the arguments, results and numbers of CUDA's cudaX.
// Not run: no library and no GPU of this maker was at hand.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/runtime.hpp>

namespace xtrain {

/// What messages about MUSA say.
inline constexpr gpu_vendor moore_threads{.device = "musa",
                                          .toolkit = "MUSA",
                                          .driver_calls = "mu",
                                          .driver = "Moore Threads' driver",
                                          .driver_library = "libmusa.so",
                                          .gpu = "a Moore Threads GPU",
                                          .compiler = "mcc",
                                          .architecture = "mp_",
                                          .has_other_libraries = false};

/// What the library that mcc compiles says about its kernels (launch_musa.cuh).
struct musa_kernel_library {
  const char* architectures;  ///< "22,31"
  int warp_width;
  const void* probed;  ///< a kernel
};

namespace detail {

/// dim3
struct musa_dimensions {
  unsigned x = 1, y = 1, z = 1;
};

/// The runtime's entries, as they are called. The last ones of a line may be missing.
struct musa_entries {
  int (*get_device_count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*get_device_properties)(void*, int) = nullptr;
  int (*device_get_attribute)(int*, int, int) = nullptr;
  int (*mem_get_info)(std::size_t*, std::size_t*) = nullptr;
  int (*malloc)(void**, std::size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*host_alloc)(void**, std::size_t, unsigned) = nullptr;
  int (*free_host)(void*) = nullptr;
  int (*stream_create_with_flags)(cuda_queue_handle*, unsigned) = nullptr;
  int (*stream_destroy)(cuda_queue_handle) = nullptr;
  int (*stream_synchronize)(cuda_queue_handle) = nullptr;
  int (*stream_wait_event)(cuda_queue_handle, void*, unsigned) = nullptr;
  int (*event_create)(void**) = nullptr;
  int (*event_create_with_flags)(void**, unsigned) = nullptr;
  int (*event_destroy)(void*) = nullptr;
  int (*event_record)(void*, cuda_queue_handle) = nullptr;
  int (*event_synchronize)(void*) = nullptr;
  int (*event_query)(void*) = nullptr;
  int (*event_elapsed_time)(float*, void*, void*) = nullptr;
  int (*memcpy_async)(void*, const void*, std::size_t, int, cuda_queue_handle) = nullptr;
  int (*memset_async)(void*, int, std::size_t, cuda_queue_handle) = nullptr;
  int (*launch_kernel)(const void*, musa_dimensions, musa_dimensions, void**, std::size_t, cuda_queue_handle) = nullptr;
  int (*get_last_error)() = nullptr;
  const char* (*get_error_name)(int) = nullptr;
  const char* (*get_error_string)(int) = nullptr;

  // may be missing
  int (*driver_get_version)(int*) = nullptr;
  int (*runtime_get_version)(int*) = nullptr;
  int (*host_get_device_pointer)(void**, void*, unsigned) = nullptr;
  int (*func_get_attributes)(void*, const void*) = nullptr;
  int (*stream_begin_capture)(cuda_queue_handle, int) = nullptr;
  int (*stream_end_capture)(cuda_queue_handle, void**) = nullptr;
  int (*graph_instantiate_with_flags)(void**, void*, unsigned long long) = nullptr;
  /// Of three arguments in newer versions, of five in older ones: five zeros are right for both.
  int (*graph_instantiate)(void**, void*, unsigned long long, void*, std::size_t) = nullptr;
  int (*graph_launch)(void*, cuda_queue_handle) = nullptr;
  int (*graph_destroy)(void*) = nullptr;
  int (*graph_exec_destroy)(void*) = nullptr;
};

/// f(entry, its name in the library, whether it must be there), for each.
template <class F>
void for_each_musa_entry(musa_entries& all, F&& f) {
  f(all.get_device_count, "musaGetDeviceCount", true);
  f(all.set_device, "musaSetDevice", true);
  f(all.get_device_properties, "musaGetDeviceProperties", true);
  f(all.device_get_attribute, "musaDeviceGetAttribute", true);
  f(all.mem_get_info, "musaMemGetInfo", true);
  f(all.malloc, "musaMalloc", true);
  f(all.free, "musaFree", true);
  f(all.host_alloc, "musaHostAlloc", true);
  f(all.free_host, "musaFreeHost", true);
  f(all.stream_create_with_flags, "musaStreamCreateWithFlags", true);
  f(all.stream_destroy, "musaStreamDestroy", true);
  f(all.stream_synchronize, "musaStreamSynchronize", true);
  f(all.stream_wait_event, "musaStreamWaitEvent", true);
  f(all.event_create, "musaEventCreate", true);
  f(all.event_create_with_flags, "musaEventCreateWithFlags", true);
  f(all.event_destroy, "musaEventDestroy", true);
  f(all.event_record, "musaEventRecord", true);
  f(all.event_synchronize, "musaEventSynchronize", true);
  f(all.event_query, "musaEventQuery", true);
  f(all.event_elapsed_time, "musaEventElapsedTime", true);
  f(all.memcpy_async, "musaMemcpyAsync", true);
  f(all.memset_async, "musaMemsetAsync", true);
  f(all.launch_kernel, "musaLaunchKernel", true);
  f(all.get_last_error, "musaGetLastError", true);
  f(all.get_error_name, "musaGetErrorName", true);
  f(all.get_error_string, "musaGetErrorString", true);
  f(all.driver_get_version, "musaDriverGetVersion", false);
  f(all.runtime_get_version, "musaRuntimeGetVersion", false);
  f(all.host_get_device_pointer, "musaHostGetDevicePointer", false);
  f(all.func_get_attributes, "musaFuncGetAttributes", false);
  f(all.stream_begin_capture, "musaStreamBeginCapture", false);
  f(all.stream_end_capture, "musaStreamEndCapture", false);
  f(all.graph_instantiate_with_flags, "musaGraphInstantiateWithFlags", false);
  f(all.graph_instantiate, "musaGraphInstantiate", false);
  f(all.graph_launch, "musaGraphLaunch", false);
  f(all.graph_destroy, "musaGraphDestroy", false);
  f(all.graph_exec_destroy, "musaGraphExecDestroy", false);
}

/// Of this process: the table's entries have no other argument to find them by.
struct musa_loaded {
  musa_entries entries{};
  const void* probed = nullptr;
  std::string file{}, problem{}, missing{};  ///< missing: entries that may be missing, and are
};
[[nodiscard]] inline musa_loaded& the_musa_loaded() {
  static musa_loaded one;
  return one;
}
[[nodiscard]] inline const musa_entries& musa_calls() { return the_musa_loaded().entries; }

/// The table over entries that find(name) gives, or null.
///   kernels  null: the program has none
template <class Find>
[[nodiscard]] cuda_runtime make_musa_runtime(Find&& find, const musa_kernel_library* kernels) {
  musa_loaded& loaded = the_musa_loaded();
  loaded = {};
  std::string lacks;
  for_each_musa_entry(loaded.entries, [&]<class F>(F*& entry, const char* name, bool must_be_there) {
    entry = reinterpret_cast<F*>(find(name));
    if (entry != nullptr) return;
    std::string& to = must_be_there ? lacks : loaded.missing;
    to += concat(to.empty() ? "" : ", ", name);
  });
  cuda_runtime all;
  all.vendor = &moore_threads;
  if (kernels != nullptr) {
    all.architectures = kernels->architectures;
    all.warp_width = kernels->warp_width;
    loaded.probed = kernels->probed;
  }
  if (!lacks.empty()) {
    loaded.problem = concat("the MUSA runtime must have the entries that are called; it lacks ", lacks);
    all.problem = loaded.problem;
    return all;
  }
  if (loaded.entries.runtime_get_version == nullptr || loaded.entries.runtime_get_version(&all.version) != cuda_status::success) all.version = -1;
  all.driver_version = [](int* version) {
    *version = -1;
    return musa_calls().driver_get_version == nullptr ? 0 : musa_calls().driver_get_version(version);
  };
  all.device_count = [](int* count) { return musa_calls().get_device_count(count); };
  all.set_device = [](int device) { return musa_calls().set_device(device); };
  all.device_name = [](char* name, std::size_t bytes, int device) {
    // the name comes first; how large the structure is depends on the version
    std::array<char, 16384> properties{};
    const int status = musa_calls().get_device_properties(properties.data(), device);
    std::strncpy(name, properties.data(), bytes - 1);
    return status;
  };
  all.device_attribute = [](int* value, int attribute, int device) { return musa_calls().device_get_attribute(value, attribute, device); };
  all.probe_kernels = [] {
    const void* const probed = the_musa_loaded().probed;
    std::array<char, 4096> attributes{};  // a structure of which nothing is read
    return probed == nullptr || musa_calls().func_get_attributes == nullptr ? 0 : musa_calls().func_get_attributes(attributes.data(), probed);
  };
  all.memory_info = [](std::size_t* free, std::size_t* total) { return musa_calls().mem_get_info(free, total); };
  all.allocate = [](void** memory, std::size_t bytes) { return musa_calls().malloc(memory, bytes); };
  all.release = [](void* memory) { return musa_calls().free(memory); };
  all.allocate_pinned = [](void** memory, std::size_t bytes) {
    constexpr unsigned portable = 1, mapped = 2;
    return musa_calls().host_alloc(memory, bytes, portable | mapped);
  };
  all.release_pinned = [](void* memory) { return musa_calls().free_host(memory); };
  all.device_address = [](void** address, void* pinned) {
    constexpr int not_supported = 801;
    return musa_calls().host_get_device_pointer == nullptr ? not_supported : musa_calls().host_get_device_pointer(address, pinned, 0);
  };
  all.create_stream = [](cuda_queue_handle* stream) { return musa_calls().stream_create_with_flags(stream, 1); };  // that does not wait for the default one
  all.destroy_stream = [](cuda_queue_handle stream) { return musa_calls().stream_destroy(stream); };
  all.synchronize_stream = [](cuda_queue_handle stream) { return musa_calls().stream_synchronize(stream); };
  all.create_event = [](void** event) { return musa_calls().event_create_with_flags(event, 2); };  // without timing
  all.create_timed_event = [](void** event) { return musa_calls().event_create(event); };
  all.elapsed = [](float* milliseconds, void* begin, void* end) { return musa_calls().event_elapsed_time(milliseconds, begin, end); };
  all.destroy_event = [](void* event) { return musa_calls().event_destroy(event); };
  all.record_event = [](void* event, cuda_queue_handle stream) { return musa_calls().event_record(event, stream); };
  all.synchronize_event = [](void* event) { return musa_calls().event_synchronize(event); };
  all.query_event = [](void* event) { return musa_calls().event_query(event); };
  all.wait_event = [](cuda_queue_handle stream, void* event) { return musa_calls().stream_wait_event(stream, event, 0); };
  // no wait_value: whether the driver's entry for it works is not known, and a stream that waits for ever is worse than a host that waits
  all.copy = [](void* to, const void* from, std::size_t bytes, cuda_queue_handle stream) {
    constexpr int either_way = 4;  // musaMemcpyDefault
    return musa_calls().memcpy_async(to, from, bytes, either_way, stream);
  };
  all.fill_zero = [](void* to, std::size_t bytes, cuda_queue_handle stream) { return musa_calls().memset_async(to, 0, bytes, stream); };
  all.launch = [](const cuda_launch& what, cuda_queue_handle stream) {
    void* arguments[] = {const_cast<void*>(what.argument)};
    const musa_dimensions blocks{static_cast<unsigned>(what.grid.x), static_cast<unsigned>(what.grid.y), static_cast<unsigned>(what.grid.z)};
    return musa_calls().launch_kernel(what.entry, blocks, {static_cast<unsigned>(what.threads), 1, 1}, arguments, what.shared_bytes, stream);
  };
  all.load_kernel = [](const cuda_launch& what) {
    std::array<char, 4096> attributes{};
    return musa_calls().func_get_attributes == nullptr ? 0 : musa_calls().func_get_attributes(attributes.data(), what.entry);
  };
  const musa_entries& calls = loaded.entries;
  const bool can_instantiate = calls.graph_instantiate_with_flags != nullptr || calls.graph_instantiate != nullptr;
  if (calls.stream_begin_capture != nullptr && calls.stream_end_capture != nullptr && can_instantiate && calls.graph_launch != nullptr &&
      calls.graph_destroy != nullptr && calls.graph_exec_destroy != nullptr) {
    all.begin_capture = [](cuda_queue_handle stream) { return musa_calls().stream_begin_capture(stream, 1); };  // thread-local mode
    all.end_capture = [](cuda_queue_handle stream, void** graph) { return musa_calls().stream_end_capture(stream, graph); };
    all.destroy_graph = [](void* graph) { return musa_calls().graph_destroy(graph); };
    all.instantiate = [](void** executable, void* graph) {
      return musa_calls().graph_instantiate_with_flags != nullptr ? musa_calls().graph_instantiate_with_flags(executable, graph, 0)
                                                                  : musa_calls().graph_instantiate(executable, graph, 0, nullptr, 0);
    };
    all.launch_graph = [](void* executable, cuda_queue_handle stream) { return musa_calls().graph_launch(executable, stream); };
    all.destroy_executable = [](void* executable) { return musa_calls().graph_exec_destroy(executable); };
  }
  all.last_error = [] { return musa_calls().get_last_error(); };
  all.error_name = [](int status) { return musa_calls().get_error_name(status); };
  all.error_text = [](int status) { return musa_calls().get_error_string(status); };
  return all;
}

/// Loads libmusart; it stays loaded. If the program, or a library of it, has it already, that one is used.
[[nodiscard]] inline cuda_runtime load_musa_runtime(const musa_kernel_library* kernels) {
  void* library = ::dlsym(RTLD_DEFAULT, "musaGetErrorString") != nullptr ? RTLD_DEFAULT : nullptr;
  std::string file = library == nullptr ? "" : "the program's", why;
  for (const char* const name : {"libmusart.so", "libmusart.so.5", "libmusart.so.4"}) {
    if (!file.empty()) break;
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) file = name;
    else if (const char* const said = ::dlerror(); said != nullptr && why.empty()) why = said;
  }
  if (file.empty()) {
    the_musa_loaded() = {};
    the_musa_loaded().problem = concat("the MUSA runtime must be installed where the loader finds it; libmusart.so, .so.5 and .so.4 cannot be loaded: ", why);
    cuda_runtime none;
    none.vendor = &moore_threads;
    none.problem = the_musa_loaded().problem;
    return none;
  }
  cuda_runtime all = make_musa_runtime([library](const char* name) { return ::dlsym(library, name); }, kernels);
  the_musa_loaded().file = file;
  return all;
}

}  // namespace detail

namespace musa_kernels {

/// In the library that mcc compiles.
[[nodiscard]] const musa_kernel_library& library();

}  // namespace musa_kernels

}  // namespace xtrain
