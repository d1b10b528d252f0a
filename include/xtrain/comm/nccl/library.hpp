// The entries of NCCL that this library calls, as a table: of libnccl.so.2, loaded on first use, or of a fake that checks every call
// (testing/fake_nccl.hpp). Not linked: a program compiles without NCCL and its headers, and reports its absence at run time; NCCL keeps this interface for all
// versions 2.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/runtime.hpp>

struct ncclComm;  // ncclComm_t is a pointer to it

namespace xtrain {

using nccl_handle = ncclComm*;

/// Results of NCCL's calls; the numbers are NCCL's.
namespace nccl_status {
inline constexpr int success = 0, unhandled_cuda_error = 1, system_error = 2, internal_error = 3, invalid_argument = 4, invalid_usage = 5, remote_error = 6,
                     in_progress = 7;
}
namespace nccl_type {
inline constexpr int int32 = 2, fp16 = 6, fp32 = 7, fp64 = 8, bf16 = 9;
}
namespace nccl_operation {
inline constexpr int sum = 0, largest = 2;
}

struct nccl_unique_id {
  char bytes[128] = {};
};
/// The fields of NCCL 2.14; later libraries use defaults for others.
struct nccl_config {
  std::size_t bytes = sizeof(nccl_config);
  unsigned mark = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;  ///< calls return nccl_status::in_progress instead of waiting for other ranks
};

/// Every entry but two returns a status.
struct nccl_library {
  static constexpr int least_version = 21400;  ///< the first with non-blocking calls
  std::string_view name = "nccl";              ///< begins messages, and the library's names

  /// Replaces NCCL's names by this library's: MCCL's are mcclX.
  [[nodiscard]] std::string named(std::string text) const {
    for (std::size_t at = 0; name != "nccl" && (at = text.find("nccl", at)) != std::string::npos; at += name.size()) text.replace(at, 4, name);
    return text;
  }

  int (*get_version)(int* version) = nullptr;
  int (*get_unique_id)(nccl_unique_id* id) = nullptr;
  int (*comm_init_rank_config)(nccl_handle* made, int ranks, nccl_unique_id id, int rank, nccl_config* config) = nullptr;
  int (*comm_init_rank)(nccl_handle* made, int ranks, nccl_unique_id id, int rank) = nullptr;  ///< fallback: waits for the other ranks
  int (*comm_get_async_error)(nccl_handle comm, int* status) = nullptr;
  int (*comm_finalize)(nccl_handle comm) = nullptr;  ///< may be null, as get_last_error
  int (*comm_destroy)(nccl_handle comm) = nullptr;
  int (*comm_abort)(nccl_handle comm) = nullptr;
  const char* (*get_error_string)(int status) = nullptr;
  const char* (*get_last_error)(nccl_handle comm) = nullptr;

  int (*all_reduce)(const void* from, void* to, std::size_t elements, int type, int operation, nccl_handle comm, cuda_queue_handle stream) = nullptr;
  int (*all_gather)(const void* from, void* to, std::size_t part, int type, nccl_handle comm, cuda_queue_handle stream) = nullptr;
  int (*reduce_scatter)(const void* from, void* to, std::size_t part, int type, int operation, nccl_handle comm, cuda_queue_handle stream) = nullptr;
  int (*broadcast)(const void* from, void* to, std::size_t elements, int type, int root, nccl_handle comm, cuda_queue_handle stream) = nullptr;
  int (*send)(const void* from, std::size_t elements, int type, int rank, nccl_handle comm, cuda_queue_handle stream) = nullptr;
  int (*receive)(void* to, std::size_t elements, int type, int rank, nccl_handle comm, cuda_queue_handle stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
};

namespace detail {

/// f(entry of the table, its name in the library), for each.
template <class Library, class F>
void for_each_nccl_entry(Library& all, F&& f) {
  f(all.get_version, "ncclGetVersion");
  f(all.get_unique_id, "ncclGetUniqueId");
  f(all.comm_init_rank_config, "ncclCommInitRankConfig");
  f(all.comm_get_async_error, "ncclCommGetAsyncError");
  f(all.comm_finalize, "ncclCommFinalize");
  f(all.comm_destroy, "ncclCommDestroy");
  f(all.comm_abort, "ncclCommAbort");
  f(all.get_error_string, "ncclGetErrorString");
  f(all.get_last_error, "ncclGetLastError");
  f(all.all_reduce, "ncclAllReduce");
  f(all.all_gather, "ncclAllGather");
  f(all.reduce_scatter, "ncclReduceScatter");
  f(all.broadcast, "ncclBroadcast");
  f(all.send, "ncclSend");
  f(all.receive, "ncclRecv");
  f(all.group_start, "ncclGroupStart");
  f(all.group_end, "ncclGroupEnd");
}

[[nodiscard]] inline std::string nccl_version_text(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace detail

/// Loads NCCL. It stays loaded.
///   throws  config_error with a sentence when it cannot be loaded, or is too old
[[nodiscard]] inline nccl_library load_nccl(const char* file = "libnccl.so.2") {
  void* const loaded = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const why = ::dlerror();
    fail<config_error>("nccl: NCCL must be installed where the loader finds it (Debian's libnccl2, or NVIDIA's); ", file, " cannot be loaded: ",
                       why == nullptr ? "no reason given" : why);
  }
  nccl_library all;
  int version = 0;
  const auto too_old = [&](const char* lacks) {
    fail<config_error>("nccl: NCCL must be ", detail::nccl_version_text(nccl_library::least_version), " or later; ", file, " is ",
                       version == 0 ? std::string("of an unknown version") : detail::nccl_version_text(version), lacks);
  };
  detail::for_each_nccl_entry(all, [&]<class F>(F*& entry, const char* name) {
    entry = reinterpret_cast<F*>(::dlsym(loaded, name));
    if (entry == nullptr) too_old(concat(" and has no ", name).c_str());
    if constexpr (std::is_same_v<F, int(int*)>)
      if (entry(&version) != nccl_status::success || version < nccl_library::least_version) too_old("");
  });
  return all;
}

/// This process's.
///   throws  config_error
[[nodiscard]] inline const nccl_library& nccl_here() {
  static const nccl_library all = load_nccl();
  return all;
}

}  // namespace xtrain
