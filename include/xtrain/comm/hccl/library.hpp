// The entries of HCCL that this library calls, as one table: filled from the user's CANN by name, or by a fake that checks every call
// (testing/fake_hccl.hpp). Declarations are ours, from the public documentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/library.hpp>

namespace xtrain {

/// Results of HCCL's calls; the numbers are HCCL's.
namespace hccl_status {
inline constexpr int success = 0, parameter = 1, null_pointer = 2, memory = 3, internal = 4, not_supported = 5, not_found = 6, unavailable = 7, timeout = 9,
                     runtime = 15, network = 19, again = 20, remote = 21, suspending = 22, out_of_memory = 24;

[[nodiscard]] constexpr std::string_view text_of(int status) {
  switch (status) {
    case success: return "success";
    case parameter: return "invalid parameter";
    case null_pointer: return "null address";
    case memory: return "memory error";
    case internal: return "internal error";
    case not_supported: return "not supported";
    case not_found: return "not found";
    case unavailable: return "unavailable";
    case timeout: return "a wait for another rank took too long";
    case runtime: return "error of AscendCL's runtime";
    case network: return "network error";
    case again: return "in use: to be called again";
    case remote: return "another rank has failed";
    case suspending: return "the communicator is suspended";
    case out_of_memory: return "the device has no memory left";
    default: return "see HcclResult in CANN's documentation";
  }
}
}  // namespace hccl_status
namespace hccl_type {
inline constexpr int int32 = 2, fp16 = 3, fp32 = 4, fp64 = 10, bf16 = 11;
}
namespace hccl_operation {
inline constexpr int sum = 0, largest = 2;
}

/// What identifies a communicator that is being made; the first rank sends it to the others.
struct hccl_root_info {
  char bytes[4108] = {};
};
/// One message of a batch.
struct hccl_message {
  std::int32_t kind = 0;  ///< 0: sent, 1: received
  void* data = nullptr;
  std::uint64_t elements = 0;
  std::int32_t type = 0;
  std::uint32_t rank = 0;
};

/// Handles are untyped. Every entry but one returns a status.
struct hccl_library {
  std::string served_by{};

  int (*get_root_info)(hccl_root_info* info) = nullptr;
  int (*comm_init)(std::uint32_t ranks, const hccl_root_info* info, std::uint32_t rank, void** comm) = nullptr;  ///< waits for the other ranks
  int (*comm_destroy)(void* comm) = nullptr;
  int (*comm_async_error)(void* comm, std::int32_t* status) = nullptr;  ///< optional
  const char* (*error_string)(int status) = nullptr;                    ///< optional

  int (*all_reduce)(void* from, void* to, std::uint64_t n, std::int32_t type, std::int32_t operation, void* comm, void* stream) = nullptr;
  int (*all_gather)(void* from, void* to, std::uint64_t part, std::int32_t type, void* comm, void* stream) = nullptr;
  int (*reduce_scatter)(void* from, void* to, std::uint64_t part, std::int32_t type, std::int32_t operation, void* comm, void* stream) = nullptr;
  int (*broadcast)(void* data, std::uint64_t n, std::int32_t type, std::uint32_t root, void* comm, void* stream) = nullptr;
  int (*send)(void* from, std::uint64_t n, std::int32_t type, std::uint32_t rank, void* comm, void* stream) = nullptr;
  int (*receive)(void* to, std::uint64_t n, std::int32_t type, std::uint32_t rank, void* comm, void* stream) = nullptr;
  int (*all_to_all)(const void* from, std::uint64_t part_sent, std::int32_t type_sent, const void* to, std::uint64_t part_received, std::int32_t type_received,
                    void* comm, void* stream) = nullptr;
  int (*batch)(hccl_message* messages, std::uint32_t count, void* comm, void* stream) = nullptr;
};

namespace detail {

/// f(entry of the table, its name in the library, whether it must be there), for each.
template <class Library, class F>
void for_each_hccl_entry(Library& all, F&& f) {
  f(all.get_root_info, "HcclGetRootInfo", true);
  f(all.comm_init, "HcclCommInitRootInfo", true);
  f(all.comm_destroy, "HcclCommDestroy", true);
  f(all.comm_async_error, "HcclGetCommAsyncError", false);
  f(all.error_string, "HcclGetErrorString", false);
  f(all.all_reduce, "HcclAllReduce", true);
  f(all.all_gather, "HcclAllGather", true);
  f(all.reduce_scatter, "HcclReduceScatter", true);
  f(all.broadcast, "HcclBroadcast", true);
  f(all.send, "HcclSend", true);
  f(all.receive, "HcclRecv", true);
  f(all.all_to_all, "HcclAlltoAll", true);
  f(all.batch, "HcclBatchSendRecv", true);
}

}  // namespace detail

/// Loads HCCL of the user's CANN. It stays loaded.
///   throws  config_error with a sentence when it cannot be loaded, or lacks a function
[[nodiscard]] inline hccl_library load_hccl(const char* name = "libhccl.so") {
  const npu_library library = npu_library::open(name);
  if (!library) fail<config_error>("hccl: CANN must be installed, and its environment set (source set_env.sh of the installation); ", library.why());
  hccl_library all;
  all.served_by = library.file();
  std::string missing;
  detail::for_each_hccl_entry(all, [&]<class F>(F*& entry, const char* entry_name, bool is_required) {
    entry = library.function<F>(entry_name);
    if (entry == nullptr && is_required) missing += concat(missing.empty() ? "" : ", ", entry_name);
  });
  if (!missing.empty())
    fail<config_error>("hccl: CANN must be a release with these functions: ", missing, "; ", library.file(), " of CANN ",
                       cann_version::of_installation().text(), " has not");
  return all;
}
/// Of this process: loaded when it is first asked for.
[[nodiscard]] inline const hccl_library& hccl_here() {
  static const hccl_library all = load_hccl();
  return all;
}

}  // namespace xtrain
