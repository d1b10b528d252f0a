// MCCL, Moore Threads' collectives, as those of a run on musa: NCCL's code over a library with other names. It has no all-to-all and no calls that do not
// wait for other ranks when a communicator is made. Not run: no library was at hand; the declarations are NCCL's, by the rule of the names.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <xtrain/comm/nccl/nccl.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/musa/musa.hpp>

namespace xtrain {

namespace detail {

/// The table over entries that find(name) gives, or null.
///   throws  config_error with what is missing
template <class Find>
[[nodiscard]] nccl_library make_mccl(Find&& find, std::string_view file) {
  nccl_library all;
  all.name = "mccl";
  std::string missing;
  const auto set = [&]<class F>(F*& entry, std::string_view name, bool must_be_there) {
    const std::string own = all.named(std::string(name));
    entry = reinterpret_cast<F*>(find(own.c_str()));
    if (entry == nullptr && must_be_there) missing += concat(missing.empty() ? "" : ", ", own);
  };
  for_each_nccl_entry(all, [&]<class F>(F*& entry, std::string_view name) {
    set(entry, name, name != "ncclCommInitRankConfig" && name != "ncclCommFinalize" && name != "ncclGetLastError" && name != "ncclGetVersion");
  });
  set(all.comm_init_rank, "ncclCommInitRank", true);
  all.comm_init_rank_config = nullptr;  // its structure is NCCL's own
  require<config_error>(missing.empty(), "mccl: MCCL must have the entries that are called; ", file, " lacks ", missing);
  return all;
}

}  // namespace detail

/// Loads MCCL. It stays loaded.
///   throws  config_error with a sentence
[[nodiscard]] inline nccl_library load_mccl(const char* file = "libmccl.so") {
  void* const loaded = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) {
    const char* const why = ::dlerror();
    fail<config_error>("mccl: MCCL must be installed where the loader finds it; ", file, " cannot be loaded: ", why == nullptr ? "no reason given" : why);
  }
  return detail::make_mccl([loaded](const char* name) { return ::dlsym(loaded, name); }, file);
}

/// This process's.
///   throws  config_error
[[nodiscard]] inline const nccl_library& mccl_here() {
  static const nccl_library all = load_mccl();
  return all;
}

/// The same ranks, with MCCL's collectives, as with_nccl.
///   throws  config_error with a sentence when MCCL is not installed, or not made for the GPU
[[nodiscard]] inline std::shared_ptr<transport> with_mccl(std::shared_ptr<transport> network, const musa_context& device, const nccl_options& options = {}) {
  constexpr int first_with_mccl = 22;
  require<config_error>(device.properties().architecture >= first_with_mccl, "mccl: the GPU must be mp_22 (S4000) or newer; it is mp_",
                        device.properties().architecture, " (S80, S3000), for which there is no MCCL; messages can go through the host");
  nccl_options with = options;
  if (with.library == nullptr && !device.is_dry_run()) with.library = &mccl_here();
  return with_nccl(std::move(network), static_cast<const cuda_context&>(device), with);
}
/// For a program that names no vendor.
[[nodiscard]] inline std::shared_ptr<transport> with_nccl(std::shared_ptr<transport> network, const musa_context& device, const nccl_options& options = {}) {
  return with_mccl(std::move(network), device, options);
}

}  // namespace xtrain
