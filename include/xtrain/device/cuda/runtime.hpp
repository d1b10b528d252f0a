// The entries of the CUDA runtime that this device calls, as a table: the toolkit's (toolkit_runtime.cuh), or a fake that checks every call
// (testing/fake_cuda.hpp). Programs need no header of the toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/simt/language/target.hpp>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace xtrain {

/// A failed call of the CUDA runtime or failed work on the GPU. After some GPU errors, every later call of the process fails.
class cuda_error : public error {
  using error::error;
};

/// Results of runtime calls with a sentence here; numbers are the runtime's.
namespace cuda_status {
inline constexpr int success = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3, invalid_configuration = 9, stub_library = 34,
                     driver_too_old = 35, devices_unavailable = 46, no_device = 100, no_kernel_image = 209, unsupported_ptx = 222, invalid_handle = 400,
                     not_ready = 600, illegal_address = 700, launch_failure = 719, driver_mismatch = 803, capture_unsupported = 900, capture_invalidated = 901;
}

/// A GPU vendor whose runtime has CUDA's entries, results and attributes under other names. Sources use CUDA's names; users read the vendor's.
struct gpu_vendor {
  std::string_view device = "cuda";  ///< begins messages, and the runtime's names
  std::string_view toolkit = "CUDA", driver_calls = "cu";
  std::string_view driver = "an NVIDIA driver", driver_library = "libcuda.so.1", gpu = "an NVIDIA GPU";
  std::string_view compiler = "nvcc", architecture = "sm_";
  bool has_other_libraries = true;  ///< cuBLASLt and cuDNN may exist

  [[nodiscard]] constexpr bool is_nvidia() const { return device == "cuda"; }
  /// Replaces CUDA's names by the vendor's: "cudaMalloc", "cuStreamWaitValue32", "CUDA_VISIBLE_DEVICES", "xtrain_add_cuda_kernels".
  [[nodiscard]] std::string named(std::string_view text) const {
    if (is_nvidia()) return std::string(text);
    std::string result;
    for (std::size_t i = 0; i < text.size();) {
      const std::string_view rest = text.substr(i);
      const bool is_driver_call = rest.starts_with("cu") && rest.size() > 2 && rest[2] >= 'A' && rest[2] <= 'Z' && (i == 0 || text[i - 1] == ' ');
      const std::string_view old = rest.starts_with("cuda") ? "cuda" : rest.starts_with("CUDA") ? "CUDA" : is_driver_call ? "cu" : "";
      result += old == "cuda" ? device : old == "CUDA" ? toolkit : old == "cu" ? driver_calls : rest.substr(0, 1);
      i += old.empty() ? 1 : old.size();
    }
    return result;
  }
};
inline constexpr gpu_vendor nvidia{};

struct cuda_launch {
  std::string_view kernel;
  const void* entry;            ///< toolkit: address of a __global__ function; fake: of a host_entry
  simt::grid_size grid;
  int threads;                  ///< of a block
  std::size_t shared_bytes;     ///< of a block
  const void* argument;         ///< the kernel's value, the only argument
  std::size_t argument_bytes;
};

using cuda_queue_handle = CUstream_st*;

/// Handles except streams are untyped. Every entry returns a status; result addresses come first, as in the runtime.
struct cuda_runtime {
  const gpu_vendor* vendor = &nvidia;
  std::string_view problem = "";   ///< why nothing can be called; empty: complete
  int version = 0;                 ///< compiled for: 1000 · major + 10 · minor
  const char* architectures = "";  ///< of the compiled kernels: "80 90"
  int warp_width = 32;             ///< of the compiled kernels; the GPU's is a multiple

  int (*driver_version)(int* version) = nullptr;  ///< 0: no driver; below 0: unknown
  int (*device_count)(int* count) = nullptr;
  int (*set_device)(int device) = nullptr;
  int (*device_name)(char* name, std::size_t bytes, int device) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;
  int (*probe_kernels)() = nullptr;  ///< whether the kernels have code for the current device
  int (*memory_info)(std::size_t* free, std::size_t* total) = nullptr;

  int (*allocate)(void** memory, std::size_t bytes) = nullptr;
  int (*release)(void* memory) = nullptr;
  int (*allocate_pinned)(void** memory, std::size_t bytes) = nullptr;  ///< for all devices, and mapped
  int (*release_pinned)(void* memory) = nullptr;
  int (*device_address)(void** address, void* pinned) = nullptr;

  int (*create_stream)(cuda_queue_handle* stream) = nullptr;  ///< does not wait for the default stream
  int (*destroy_stream)(cuda_queue_handle stream) = nullptr;
  int (*synchronize_stream)(cuda_queue_handle stream) = nullptr;
  int (*create_event)(void** event) = nullptr;  ///< without timing
  int (*create_timed_event)(void** event) = nullptr;
  int (*elapsed)(float* milliseconds, void* begin, void* end) = nullptr;  ///< between two timed events that the streams have reached
  int (*destroy_event)(void* event) = nullptr;
  int (*record_event)(void* event, cuda_queue_handle stream) = nullptr;
  int (*synchronize_event)(void* event) = nullptr;
  int (*query_event)(void* event) = nullptr;  ///< cuda_status::not_ready: not reached
  int (*wait_event)(cuda_queue_handle stream, void* event) = nullptr;
  int (*wait_value)(cuda_queue_handle stream, void* address, std::uint32_t least) = nullptr;  ///< until the word is >= least; null: unsupported by the driver

  int (*copy)(void* to, const void* from, std::size_t bytes, cuda_queue_handle stream) = nullptr;
  int (*fill_zero)(void* to, std::size_t bytes, cuda_queue_handle stream) = nullptr;
  int (*launch)(const cuda_launch& what, cuda_queue_handle stream) = nullptr;
  int (*load_kernel)(const cuda_launch& what) = nullptr;  ///< loads its code for the current device

  // null: no graphs
  int (*begin_capture)(cuda_queue_handle stream) = nullptr;  ///< thread-local mode: other threads' work is neither captured nor disturbed
  int (*end_capture)(cuda_queue_handle stream, void** graph) = nullptr;
  int (*destroy_graph)(void* graph) = nullptr;
  int (*instantiate)(void** executable, void* graph) = nullptr;
  int (*launch_graph)(void* executable, cuda_queue_handle stream) = nullptr;
  int (*destroy_executable)(void* executable) = nullptr;

  int (*last_error)() = nullptr;  ///< and clears it, unless it persists
  const char* (*error_name)(int status) = nullptr;
  const char* (*error_text)(int status) = nullptr;
};

/// Device attributes in use; numbers are the runtime's.
namespace cuda_attribute {
inline constexpr int warp_width = 10, multiprocessors = 16, architecture_major = 75, architecture_minor = 76, shared_bytes = 97;
}

namespace detail {

/// throws  memory_error, or cuda_error with the call, the kernel and the runtime's message
inline void require_cuda(const cuda_runtime& runtime, int status, std::string_view call, int device, std::string_view kernel = {}) {
  if (status == cuda_status::success) [[likely]] return;
  (void)runtime.last_error();
  const gpu_vendor& vendor = *runtime.vendor;
  const std::string where = concat(vendor.device, ": ", vendor.named(call), kernel.empty() ? "" : " of kernel ", kernel, " on device ", device, " failed: ",
                                   runtime.error_text(status), " (", runtime.error_name(status), ")");
  if (status == cuda_status::out_of_memory) throw memory_error(where);
  throw cuda_error(where);
}

}  // namespace detail

namespace cuda_kernels {

/// The toolkit's runtime, in the library that nvcc compiles.
[[nodiscard]] const cuda_runtime& runtime();

}  // namespace cuda_kernels

}  // namespace xtrain
