// The offload axis: which memory is kept outside the device.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

namespace clause {

template <class O>
concept offload_has_a_name = requires {
  { O::name } -> std::convertible_to<std::string_view>;
};

/// roles: what is kept outside the device's memory.
template <class O>
concept offload_says_what_moves = requires {
  { O::roles } -> std::convertible_to<memory_role_set>;
};

template <class O>
concept offload_has_settings = std::default_initializable<typename O::config>;

}  // namespace clause

/// A policy of the axis offload.
template <class O>
concept offload_policy = clause::offload_has_a_name<O> && clause::offload_says_what_moves<O> && clause::offload_has_settings<O>;

/// Everything is in the device's memory.
struct no_offload {
  static constexpr std::string_view name = "none";
  static constexpr memory_role_set roles{};
  struct config {};
};

/// Keeps the memory of the given roles in memory-mapped files; the system caches the most recently used pages. A run can then be larger
/// than its memory limit.  [Rajbhandari et al. 2021, "ZeRO-Infinity"]
///   offload_to_file<memory_role::optimizer>                                      accessed once per step
///   offload_to_file<memory_role::optimizer, memory_role::gradients, memory_role::weights, memory_role::stash>
template <memory_role... Roles>
struct offload_to_file {
  static_assert(sizeof...(Roles) > 0, "xtrain offload_to_file<Roles...>: must name a role of memory, e.g. memory_role::optimizer; see device/README.md");
  static constexpr std::string_view name = "to file";
  static constexpr memory_role_set roles{Roles...};
  struct config {
    std::string folder{};  ///< on the disk to be used; empty: TMPDIR, or /tmp if that is not set
  };
};

/// Keeps the memory of the given roles in pinned host memory, which the device's kernels address: for devices whose memory is not the host's.
///   offload_to_host<memory_role::optimizer>   each byte is read and written once per step, while the host and the device do nothing else with it
/// Weights and activations are read several times in a step, each time over the bus.
template <memory_role... Roles>
struct offload_to_host {
  static_assert(sizeof...(Roles) > 0, "xtrain offload_to_host<Roles...>: must name a role of memory, e.g. memory_role::optimizer; see device/README.md");
  static constexpr std::string_view name = "to host";
  static constexpr memory_role_set roles{Roles...};
  static constexpr bool keeps_on_host = true;
  struct config {};
};

/// What is not in the device's memory is in pinned memory of the host, not in files.
template <class Offload>
inline constexpr bool keeps_on_host = requires { Offload::keeps_on_host; };

static_assert(offload_policy<no_offload> && offload_policy<offload_to_file<memory_role::optimizer>> &&
              offload_policy<offload_to_host<memory_role::optimizer>>);

}  // namespace xtrain
