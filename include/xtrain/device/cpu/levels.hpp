// One program for several processors: kernels compiled per set of vector instructions, chosen at startup. xtrain_add_cpu_levels (CMake) compiles them and
// defines XTRAIN_CPU_LEVELS for its users; only then this header is used.
#pragma once

#if defined(__x86_64__)

#include <cpuid.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cpu/kernel_list.hpp>
#include <xtrain/device/host.hpp>

namespace xtrain {

struct cpu_properties;
class cpu_stream;

namespace cpu_levels {

/// Each includes the previous.
enum class level : int { baseline, avx2, avx512, avx512_bf16 };
inline constexpr std::array<std::string_view, 4> names{"baseline", "avx2", "avx512", "avx512_bf16"};

/// A kernel at a level, defined in that level's compilation.
template <class Kernel>
struct functions {
  void (*run)(cpu_stream&, const Kernel&, scratch_span<host_memory>);
  std::size_t (*scratch_bytes)(const cpu_properties&, const Kernel&);
};
template <level Level, class Kernel>
struct at_level {
  static void run(cpu_stream& stream, const Kernel& kernel, scratch_span<host_memory> scratch);
  static std::size_t scratch_bytes(const cpu_properties& cpu, const Kernel& kernel);
};
/// A level's other functions.
template <level Level>
struct facts {
  static std::string instructions();
  static double multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep);
  static void copy(const float* from, float* to, std::size_t count);
  static float sum(const float* from, std::size_t count);
};

namespace detail {

/// By CPUID: features, and registers that the operating system saves.
[[nodiscard]] inline level highest() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return level::baseline;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1U << 29)) == 0) return level::baseline;  // F16C
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512cd"))
    return level::avx2;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) == 0 || (a & (1U << 5)) == 0) return level::avx512;  // AVX512-BF16
  return level::avx512_bf16;
}

[[nodiscard]] inline level choose() {
  const level most = highest();
  const char* const asked = std::getenv("XTRAIN_CPU_LEVEL");
  if (asked == nullptr || *asked == '\0') return most;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] != asked) continue;
    require<config_error>(i <= static_cast<std::size_t>(most), "XTRAIN_CPU_LEVEL: must be a level that this processor has, at most '",
                          names[static_cast<std::size_t>(most)], "'; given '", asked, "'");
    return static_cast<level>(i);
  }
  fail<config_error>("XTRAIN_CPU_LEVEL: must be baseline, avx2, avx512 or avx512_bf16; given '", asked, "'");
}

}  // namespace detail

/// The processor's highest, or XTRAIN_CPU_LEVEL of the environment.
///   throws  config_error when that is unknown or unsupported
[[nodiscard]] inline level chosen() {
  static const level once = detail::choose();
  return once;
}

template <class Kernel>
[[nodiscard]] const functions<Kernel>& functions_of() {
  static constexpr std::array<functions<Kernel>, 4> all{
      {{&at_level<level::baseline, Kernel>::run, &at_level<level::baseline, Kernel>::scratch_bytes},
       {&at_level<level::avx2, Kernel>::run, &at_level<level::avx2, Kernel>::scratch_bytes},
       {&at_level<level::avx512, Kernel>::run, &at_level<level::avx512, Kernel>::scratch_bytes},
       {&at_level<level::avx512_bf16, Kernel>::run, &at_level<level::avx512_bf16, Kernel>::scratch_bytes}}};
  return all[static_cast<std::size_t>(chosen())];
}

/// "avx512bw with bf16 products and tiles"
[[nodiscard]] inline std::string instructions() {
  constexpr std::array<std::string (*)(), 4> all{&facts<level::baseline>::instructions, &facts<level::avx2>::instructions,
                                                      &facts<level::avx512>::instructions, &facts<level::avx512_bf16>::instructions};
  return all[static_cast<std::size_t>(chosen())]();
}
/// peak_loops.hpp at the chosen level.
struct peak_loops {
  [[nodiscard]] static double multiply_add_chains(bool of_bf16, std::size_t rounds, float& keep) {
    constexpr std::array<double (*)(bool, std::size_t, float&), 4> all{
        &facts<level::baseline>::multiply_add_chains, &facts<level::avx2>::multiply_add_chains, &facts<level::avx512>::multiply_add_chains,
        &facts<level::avx512_bf16>::multiply_add_chains};
    return all[static_cast<std::size_t>(chosen())](of_bf16, rounds, keep);
  }
  static void copy(const float* from, float* to, std::size_t count) {
    constexpr std::array<void (*)(const float*, float*, std::size_t), 4> all{&facts<level::baseline>::copy, &facts<level::avx2>::copy,
                                                                             &facts<level::avx512>::copy, &facts<level::avx512_bf16>::copy};
    all[static_cast<std::size_t>(chosen())](from, to, count);
  }
  [[nodiscard]] static float sum(const float* from, std::size_t count) {
    constexpr std::array<float (*)(const float*, std::size_t), 4> all{&facts<level::baseline>::sum, &facts<level::avx2>::sum,
                                                                      &facts<level::avx512>::sum, &facts<level::avx512_bf16>::sum};
    return all[static_cast<std::size_t>(chosen())](from, count);
  }
};

}  // namespace cpu_levels

}  // namespace xtrain

#elif defined(XTRAIN_CPU_LEVELS)
#error "xtrain levels: they are the instruction sets of x86-64 processors; elsewhere compile the program for its processor; see device/README.md"
#endif
