// Kernels compiled once, in a library, always optimized, independent of the program's own flags: a debug build that
// trains at full speed, and a program of several sources that does not compile them in each. The CMake function
// xtrain_add_cpu_kernels builds the library and defines XTRAIN_CPU_KERNELS for targets that link it; without it this header is not
// used.
#pragma once

#include <cstddef>

#include <xtrain/device/cpu/kernel_list.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

struct cpu_properties;
class cpu_stream;

namespace cpu_kernels {

/// Declared here for every listed kernel; defined in cmake/cpu_kernels.cpp.
template <class Kernel>
struct compiled_once {
  static void run(cpu_stream& stream, const Kernel& kernel, scratch_span<host_memory> scratch);
  static std::size_t scratch_bytes(const cpu_properties& cpu, const Kernel& kernel);
};

/// multiply_add_chains of peak.hpp, with the kernels' optimization and instructions: their rate is a fraction of this one's.
[[nodiscard]] double compiled_multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep);

}  // namespace cpu_kernels

}  // namespace xtrain
