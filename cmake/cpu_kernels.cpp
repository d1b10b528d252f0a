// The kernels of the cpu device, once. Compiled by xtrain_add_cpu_kernels.
#undef XTRAIN_CPU_LEVELS
#undef XTRAIN_CPU_KERNELS
#define XTRAIN_KERNELS_APART
#include <xtrain/device/cpu/compiled_once.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/peak_loops.hpp>

namespace xtrain::cpu_kernels {

template <class Kernel>
void compiled_once<Kernel>::run(cpu_stream& stream, const Kernel& kernel, scratch_span<host_memory> scratch) {
  run_native(stream, kernel, scratch);
}
template <class Kernel>
std::size_t compiled_once<Kernel>::scratch_bytes(const cpu_properties& cpu, const Kernel& kernel) {
  return scratch_bytes_here(cpu, kernel);
}

double compiled_peak_loops::multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep) {
  return peak_loops_here::multiply_add_chains(of_bf16, rounds, keep);
}
void compiled_peak_loops::copy(const float* from, float* to, std::size_t count) { peak_loops_here::copy(from, to, count); }
float compiled_peak_loops::sum(const float* from, std::size_t count) { return peak_loops_here::sum(from, count); }

std::string compiled_instructions() { return instructions(); }

#define XTRAIN_DEFINE(...) template struct compiled_once<__VA_ARGS__>;
XTRAIN_CPU_KERNEL_LIST(XTRAIN_DEFINE)

}  // namespace xtrain::cpu_kernels
