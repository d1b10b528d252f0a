// The entries of AscendCL's runtime that this device calls, as one table: filled from the user's CANN by name (load_npu_runtime), or by a fake that checks
// every call (testing/fake_ascend.hpp). Declarations are ours, from the public documentation; no header of CANN is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/library.hpp>

namespace xtrain {

/// A call of AscendCL or work on the NPU failed.
class npu_error : public error {
  using error::error;
};

/// Results of AscendCL's calls that are named here; the numbers are AscendCL's. 1xxxxx: the caller's fault, 2xxxxx: resources, 5xxxxx: the device's.
namespace npu_status {
inline constexpr int success = 0, invalid_parameter = 100000, not_initialized = 100001, repeated_initialization = 100002, stub_library = 100039,
                     runtime_parameter = 107000, invalid_device = 107001, no_context = 107002, wrong_context = 107003, address_unaligned = 107008,
                     thread_not_subscribed = 107012, callback_not_registered = 107015, invalid_handle = 107017, wait_timeout = 107019, task_timeout = 107020,
                     bad_allocation = 200000, not_supported = 207000, out_of_host_memory = 207001, out_of_memory = 207018, internal_error = 507000,
                     report_timeout = 507012, ai_core_timeout = 507014, ai_core_exception = 507015, ai_cpu_exception = 507018,
                     vector_core_exception = 507035, stream_timeout = 507046, event_timeout = 507047, driver_error = 507899;

[[nodiscard]] constexpr std::string_view text_of(int status) {
  switch (status) {
    case success: return "success";
    case invalid_parameter: return "invalid parameter";
    case not_initialized: return "AscendCL is not initialised";
    case repeated_initialization: return "AscendCL is initialised already";
    case stub_library: return "a stub of the library is loaded: LD_LIBRARY_PATH names a folder of stubs";
    case runtime_parameter: return "invalid parameter of the runtime";
    case invalid_device: return "there is no such device";
    case no_context: return "the thread has no context: no device was set in it";
    case wrong_context: return "the stream is of another context";
    case address_unaligned: return "an address is not aligned";
    case thread_not_subscribed: return "the thread is not subscribed to a stream";
    case callback_not_registered: return "no thread is subscribed to the stream";
    case invalid_handle: return "invalid handle";
    case wait_timeout: return "a wait took too long";
    case task_timeout: return "a task took too long";
    case bad_allocation: return "the host has no memory left";
    case not_supported: return "not supported";
    case out_of_host_memory: return "memory allocation failed";
    case out_of_memory: return "the device has no memory left";
    case internal_error: return "internal error of the runtime";
    case report_timeout: return "no callback in time";
    case ai_core_timeout: return "an AI core took too long";
    case ai_core_exception: return "exception of an AI core";
    case 507016: return "trap of an AI core";
    case 507017: return "an AI CPU took too long";
    case ai_cpu_exception: return "exception of an AI CPU";
    case 507034: return "a vector core took too long";
    case vector_core_exception: return "exception of a vector core";
    case 507036: return "trap of a vector core";
    case stream_timeout: return "waiting for a stream took too long";
    case event_timeout: return "waiting for an event took too long";
    case driver_error: return "error of the driver";
    default: return status >= 507042 && status <= 507045 ? "a core read or wrote outside its memory" : "see aclError in CANN's documentation";
  }
}
/// The call was not understood or is not offered: another way may do.
[[nodiscard]] constexpr bool is_refusal(int status) {
  return status == invalid_parameter || status == runtime_parameter || status == invalid_handle || status == not_supported;
}
[[nodiscard]] constexpr bool is_out_of_memory(int status) {
  return status == bad_allocation || status == out_of_host_memory || status == out_of_memory;
}
}  // namespace npu_status

/// Where a copy goes; the numbers are AscendCL's.
namespace npu_copy {
inline constexpr int host_to_host = 0, to_device = 1, to_host = 2, within = 3;
}

/// Handles are untyped. Every entry but two returns a status. Those that may be null are said to be optional.
struct npu_runtime {
  cann_version version{};
  std::string served_by{};  ///< file of the library

  int (*init)(const char* config) = nullptr;
  int (*device_count)(std::uint32_t* count) = nullptr;
  int (*set_device)(std::int32_t device) = nullptr;  ///< for this thread
  const char* (*soc_name)() = nullptr;
  int (*set_saturation)(std::int32_t mode) = nullptr;                    ///< optional. 1: overflow is infinity. Before streams are created
  int (*get_saturation)(std::int32_t* mode) = nullptr;                         ///< optional
  int (*set_system_option)(std::int32_t which, std::int64_t value) = nullptr;  ///< optional
  int (*memory_info)(std::int32_t kind, std::size_t* free, std::size_t* total) = nullptr;

  int (*allocate)(void** memory, std::size_t bytes, std::int32_t policy) = nullptr;  ///< no bytes: an error
  int (*release)(void* memory) = nullptr;                                            ///< does not wait: the memory must be idle
  int (*allocate_pinned)(void** memory, std::size_t bytes) = nullptr;
  int (*release_pinned)(void* memory) = nullptr;

  int (*create_stream)(void** stream) = nullptr;
  int (*destroy_stream)(void* stream) = nullptr;
  int (*synchronize_stream)(void* stream) = nullptr;
  int (*synchronize_stream_for)(void* stream, std::int32_t milliseconds) = nullptr;  ///< optional
  int (*abort_stream)(void* stream) = nullptr;  ///< optional: ends what it does, and discards what is queued
  int (*set_failure_mode)(void* stream, std::uint64_t mode) = nullptr;  ///< optional. 1: nothing that follows a failed task is done
  int (*create_event)(void** event, std::uint32_t flag) = nullptr;
  int (*destroy_event)(void* event) = nullptr;
  int (*record_event)(void* event, void* stream) = nullptr;
  int (*wait_event)(void* stream, void* event) = nullptr;
  int (*synchronize_event)(void* event) = nullptr;
  int (*synchronize_event_for)(void* event, std::int32_t milliseconds) = nullptr;  ///< optional
  int (*query_event)(void* event, std::int32_t* is_reached) = nullptr;

  int (*copy)(void* to, std::size_t capacity, const void* from, std::size_t bytes, std::int32_t kind, void* stream) = nullptr;
  int (*fill)(void* to, std::size_t capacity, std::int32_t value, std::size_t bytes, void* stream) = nullptr;

  // functions of the host in the order of a stream; all four or none
  int (*subscribe_thread)(std::uint64_t thread, void* stream) = nullptr;  ///< optional: that thread runs the stream's functions
  int (*unsubscribe_thread)(std::uint64_t thread, void* stream) = nullptr;
  int (*run_callbacks)(std::int32_t milliseconds) = nullptr;  ///< in that thread: waits for a function, and runs it
  int (*queue_callback)(void (*function)(void*), void* argument, std::int32_t blocks, void* stream) = nullptr;

  const char* (*recent_message)() = nullptr;  ///< optional. Of this thread, and forgets it; null: none
  [[nodiscard]] bool has_callbacks() const { return queue_callback != nullptr; }
};

/// Options and modes; the numbers are AscendCL's.
namespace npu_option {
inline constexpr std::int32_t deterministic = 0, infinity_on_overflow = 1, device_memory = 1, huge_pages_first = 0, blocks_stream = 1;
inline constexpr std::uint64_t stop_on_failure = 1;
inline constexpr std::uint32_t event_for_order = 1;
}

namespace detail {

/// f(entry, name in AscendCL, whether it must be there), for each.
template <class Runtime, class F>
void for_each_npu_entry(Runtime& all, F&& f) {
  f(all.init, "aclInit", true);
  f(all.device_count, "aclrtGetDeviceCount", true);
  f(all.set_device, "aclrtSetDevice", true);
  f(all.soc_name, "aclrtGetSocName", true);
  f(all.set_saturation, "aclrtSetDeviceSatMode", false);
  f(all.get_saturation, "aclrtGetDeviceSatMode", false);
  f(all.set_system_option, "aclrtSetSysParamOpt", false);
  f(all.memory_info, "aclrtGetMemInfo", true);
  f(all.allocate, "aclrtMalloc", true);
  f(all.release, "aclrtFree", true);
  f(all.allocate_pinned, "aclrtMallocHost", true);
  f(all.release_pinned, "aclrtFreeHost", true);
  f(all.create_stream, "aclrtCreateStream", true);
  f(all.destroy_stream, "aclrtDestroyStream", true);
  f(all.synchronize_stream, "aclrtSynchronizeStream", true);
  f(all.synchronize_stream_for, "aclrtSynchronizeStreamWithTimeout", false);
  f(all.abort_stream, "aclrtStreamAbort", false);
  f(all.set_failure_mode, "aclrtSetStreamFailureMode", false);
  f(all.create_event, "aclrtCreateEventExWithFlag", true);
  f(all.destroy_event, "aclrtDestroyEvent", true);
  f(all.record_event, "aclrtRecordEvent", true);
  f(all.wait_event, "aclrtStreamWaitEvent", true);
  f(all.synchronize_event, "aclrtSynchronizeEvent", true);
  f(all.synchronize_event_for, "aclrtSynchronizeEventWithTimeout", false);
  f(all.query_event, "aclrtQueryEventStatus", true);
  f(all.copy, "aclrtMemcpyAsync", true);
  f(all.fill, "aclrtMemsetAsync", true);
  f(all.subscribe_thread, "aclrtSubscribeReport", false);
  f(all.unsubscribe_thread, "aclrtUnSubscribeReport", false);
  f(all.run_callbacks, "aclrtProcessReport", false);
  f(all.queue_callback, "aclrtLaunchCallback", false);
  f(all.recent_message, "aclGetRecentErrMsg", false);
}

/// throws  memory_error, or npu_error with the call, the kernel if there is one, and what the runtime says
inline void require_npu(const npu_runtime& runtime, int status, std::string_view call, int device, std::string_view kernel = {}) {
  if (status == npu_status::success) [[likely]] return;
  const char* const message = runtime.recent_message == nullptr ? nullptr : runtime.recent_message();
  std::string said = message == nullptr ? "" : message;
  while (!said.empty() && (said.back() == '\n' || said.back() == ' ')) said.pop_back();
  const std::string where = concat("npu: ", call, kernel.empty() ? "" : " of kernel ", kernel, " on device ", device, " failed: ", npu_status::text_of(status),
                                   " (", status, ")", said.empty() ? "" : ": ", said, "; CANN's logs are in ~/ascend/log");
  if (npu_status::is_out_of_memory(status)) throw memory_error(where);
  throw npu_error(where);
}

}  // namespace detail

/// What became of loading AscendCL.
struct npu_runtime_found {
  npu_runtime runtime{};
  std::string why{};  ///< a sentence; empty: it is loaded
};

/// Loads libascendcl.so of the user's CANN. It stays loaded.
[[nodiscard]] inline npu_runtime_found load_npu_runtime(const char* name = "libascendcl.so") {
  npu_runtime_found found;
  const npu_library library = npu_library::open(name);
  if (!library) {
    found.why = concat("npu: CANN must be installed, and its environment set (source set_env.sh of the installation); ", library.why(),
                       "; see device/npu/README.md");
    return found;
  }
  found.runtime.served_by = library.file();
  found.runtime.version = cann_version::of_installation();
  std::string missing;
  detail::for_each_npu_entry(found.runtime, [&]<class F>(F*& entry, const char* entry_name, bool is_required) {
    entry = library.function<F>(entry_name);
    if (entry == nullptr && is_required) missing += concat(missing.empty() ? "" : ", ", entry_name);
  });
  npu_runtime& all = found.runtime;
  if (all.subscribe_thread == nullptr || all.unsubscribe_thread == nullptr || all.run_callbacks == nullptr) all.queue_callback = nullptr;
  if (!missing.empty())
    found.why = concat("npu: CANN must be a release with these functions: ", missing, "; ", library.file(), " of CANN ", all.version.text(), " has not");
  return found;
}

namespace detail {

/// Of this process: loaded when it is first asked for.
[[nodiscard]] inline const npu_runtime_found& npu_runtime_here() {
  static const npu_runtime_found found = load_npu_runtime();
  return found;
}

}  // namespace detail

}  // namespace xtrain
