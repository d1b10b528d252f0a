// Kernels that can be compiled separately: once (compiled_once.hpp) or per processor level (levels.hpp).
#pragma once

#include <xtrain/device/host.hpp>
#include <xtrain/device/kernel/kernel_list.hpp>

namespace xtrain::cpu_kernels {

/// Unlisted kernels are compiled with the program and need kernels.hpp.
template <class Kernel>
inline constexpr bool listed = false;

#define XTRAIN_CPU_KERNEL_LIST(X) XTRAIN_KERNEL_LIST(X, host_memory)
#define XTRAIN_LIST(...) \
  template <>            \
  inline constexpr bool listed<__VA_ARGS__> = true;
XTRAIN_CPU_KERNEL_LIST(XTRAIN_LIST)
#undef XTRAIN_LIST

}  // namespace xtrain::cpu_kernels
