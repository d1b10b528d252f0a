// Kernels compiled once, in a library, always optimized, independent of the program's own flags: a debug build that
// trains at full speed, and a program of several sources that does not compile them in each. The CMake function
// xtrain_add_cpu_kernels builds the library and defines XTRAIN_CPU_KERNELS for targets that link it; without it this header is not
// used.
#pragma once

#include <cstddef>
#include <string>

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

/// The loops of peak_loops.hpp, with the kernels' optimization and instructions: their rate is a fraction of these loops'.
struct compiled_peak_loops {
  [[nodiscard]] static double multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep);
  static void copy(const float* from, float* to, std::size_t count);
  [[nodiscard]] static float sum(const float* from, std::size_t count);
};

/// The vector instructions that the kernels were compiled for.
[[nodiscard]] std::string compiled_instructions();

}  // namespace cpu_kernels

}  // namespace xtrain
