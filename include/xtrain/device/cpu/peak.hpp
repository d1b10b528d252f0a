// Measured peaks of the processor on all threads: multiply-adds, copies, reads.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/cpu/stream.hpp>
#if !defined(XTRAIN_CPU_LEVELS) && !defined(XTRAIN_CPU_KERNELS)
#include <xtrain/device/cpu/peak_loops.hpp>
#endif

namespace xtrain {

namespace cpu_kernels {

/// peak_loops.hpp, compiled as the program's kernels.
#ifdef XTRAIN_CPU_LEVELS
using peak_loops = cpu_levels::peak_loops;
#elif defined(XTRAIN_CPU_KERNELS)
using peak_loops = compiled_peak_loops;
#else
using peak_loops = peak_loops_here;
#endif

/// Best rate over growing repetitions for `seconds`: threads may wake up slowly.
template <class Work>
[[nodiscard]] double best_rate(double seconds, Work&& work) {
  using clock = std::chrono::steady_clock;
  const auto begin = clock::now();
  double best = 0;
  while (std::chrono::duration<double>(clock::now() - begin).count() < seconds) {
    const auto start = clock::now();
    const double amount = work();
    best = std::max(best, amount / std::chrono::duration<double>(clock::now() - start).count());
  }
  return best;
}

/// Reports an unsupported level before measuring: executor tasks must not throw.
inline void require_kernels() {
#ifdef XTRAIN_CPU_LEVELS
  (void)cpu_levels::chosen();
#endif
}

}  // namespace cpu_kernels

/// Operations per second in products of T (float, bf16) on all threads, in about 50 ms. Loops are compiled like the kernels (xtrain_add_cpu_kernels,
/// xtrain_add_cpu_levels, xtrain_add_library): the program need not be optimized.
template <class T = float, class Context>
[[nodiscard]] double measure_peak(const Context& device) {
  const cpu_stream stream(device);
  cpu_kernels::require_kernels();
  return cpu_kernels::best_rate(0.05, [&] {
    std::atomic<double> operations{0};
    stream.parallel(stream.threads(), [&](std::size_t, std::size_t) {
      float keep = 0;
      const double done = cpu_kernels::peak_loops::multiply_add_chains(std::is_same_v<T, bf16>, 100'000, keep);
      operations.fetch_add(keep < 0 ? 0.0 : done);
    });
    return operations.load();
  });
}

/// Bytes per second of copying memory beyond all caches, reads plus writes; allocates 256 MiB.
template <class Context>
[[nodiscard]] double measure_bandwidth(const Context& device, double seconds = 0.4) {
  const cpu_stream stream(device);
  cpu_kernels::require_kernels();
  constexpr std::size_t count = std::size_t{1} << 25;
  const std::vector<float> from(count, 1.0f);
  std::vector<float> to(count, 0.0f);
  return cpu_kernels::best_rate(seconds, [&] {
    stream.parallel_ranges(count, std::size_t{1} << 18, [&](std::size_t begin, std::size_t end) {
      cpu_kernels::peak_loops::copy(from.data() + begin, to.data() + begin, end - begin);
    });
    return 2.0 * static_cast<double>(count * sizeof(float));
  });
}

/// Bytes per second of reading memory beyond all caches; allocates 256 MiB.
template <class Context>
[[nodiscard]] double measure_read_bandwidth(const Context& device, double seconds = 0.4) {
  const cpu_stream stream(device);
  cpu_kernels::require_kernels();
  constexpr std::size_t count = std::size_t{1} << 26;
  const std::vector<float> from(count, 1.0f);
  std::atomic<float> kept{0};  // prevents removal of the loop
  return cpu_kernels::best_rate(seconds, [&] {
    stream.parallel_ranges(count, std::size_t{1} << 18, [&](std::size_t begin, std::size_t end) {
      kept.store(cpu_kernels::peak_loops::sum(from.data() + begin, end - begin), std::memory_order_relaxed);
    });
    return static_cast<double>(count * sizeof(float));
  });
}

}  // namespace xtrain
