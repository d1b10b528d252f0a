// The kernels of the cpu device, once, for the vector instructions of this compilation. Compiled by xtrain_add_cpu_levels with
// XTRAIN_CPU_LEVEL set to a level's name; everything but the functions defined here is made local to the object afterwards,
// so that no other part of the program ever runs these instructions.
#undef XTRAIN_CPU_LEVELS
#undef XTRAIN_CPU_KERNELS
#define XTRAIN_KERNELS_APART
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/levels.hpp>
#include <xtrain/device/cpu/peak_loops.hpp>

namespace xtrain::cpu_levels {

template <level Level, class Kernel>
void at_level<Level, Kernel>::run(cpu_stream& stream, const Kernel& kernel, scratch_span<host_memory> scratch) {
  run_native(stream, kernel, scratch);
}
template <level Level, class Kernel>
std::size_t at_level<Level, Kernel>::scratch_bytes(const cpu_properties& cpu, const Kernel& kernel) {
  return scratch_bytes_here(cpu, kernel);
}
template <level Level>
std::string facts<Level>::instructions() {
  return cpu_kernels::instructions();
}
template <level Level>
double facts<Level>::multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep) {
  return cpu_kernels::peak_loops_here::multiply_add_chains(of_bf16, rounds, keep);
}
template <level Level>
void facts<Level>::copy(const float* from, float* to, std::size_t count) {
  cpu_kernels::peak_loops_here::copy(from, to, count);
}
template <level Level>
float facts<Level>::sum(const float* from, std::size_t count) {
  return cpu_kernels::peak_loops_here::sum(from, count);
}

#define XTRAIN_DEFINE(...) template struct at_level<level::XTRAIN_CPU_LEVEL, __VA_ARGS__>;
XTRAIN_CPU_KERNEL_LIST(XTRAIN_DEFINE)
template struct facts<level::XTRAIN_CPU_LEVEL>;

}  // namespace xtrain::cpu_levels
