// Kernels compiled once in a library, always optimized. xtrain_add_cpu_kernels (CMake) builds it and defines XTRAIN_CPU_KERNELS for its users; only then this
// header is used.
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

/// For listed kernels; defined in cmake/cpu_kernels.cpp.
template <class Kernel>
struct compiled_once {
  static void run(cpu_stream& stream, const Kernel& kernel, scratch_span<host_memory> scratch);
  static std::size_t scratch_bytes(const cpu_properties& cpu, const Kernel& kernel);
};

/// peak_loops.hpp with the kernels' optimization and instructions, for comparable rates.
struct compiled_peak_loops {
  [[nodiscard]] static double multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep);
  static void copy(const float* from, float* to, std::size_t count);
  [[nodiscard]] static float sum(const float* from, std::size_t count);
};

/// Vector instructions of the compiled kernels.
[[nodiscard]] std::string compiled_instructions();

}  // namespace cpu_kernels

}  // namespace xtrain
