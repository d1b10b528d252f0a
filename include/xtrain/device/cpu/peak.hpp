// Measured peak of the processor: loops of only multiply-adds, and of only copies, on every thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <vector>

#include <xtrain/device/cpu/matrix_tiles.hpp>
#include <xtrain/device/cpu/packing.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Enough independent chains to hide the latency of a multiply-add. Returns the number of operations; `keep` prevents the
/// loop from being optimized away.
template <class Arch, class T>
[[nodiscard]] double multiply_add_chains(std::size_t rounds, float& keep) {
#ifdef XTRAIN_MATRIX_TILES
  if constexpr (std::is_same_v<T, bf16>)
    if (has_matrix_tiles()) return multiply_tiles_repeatedly(rounds);
#endif
  using U = unit<Arch, T>;
  using batch = simd::batch<float, Arch>;
  constexpr std::size_t chains = 12;
  batch sum[chains];
  XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = batch(static_cast<float>(c));
  // as the bits of bf16 pairs these are 1 and almost 0
  const batch a(1.0f), b(0.001f);
  for (std::size_t i = 0; i < rounds; ++i) {
    XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = simd::multiply_add_units<U>(a, b, sum[c]);
  }
  XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) keep += simd::sum(sum[c]);
  return 2.0 * chains * static_cast<double>(rounds * simd::width<float, Arch> * depth_of_unit<U>);
}

/// The best rate over growing repetition counts until `seconds` have passed: threads may take time to wake up.
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

}  // namespace cpu_kernels

/// Operations per second in products of T (float, bf16), all threads of the device together; takes about 50 ms. Where kernels are compiled apart
/// (xtrain_add_cpu_kernels, xtrain_add_cpu_levels, xtrain_add_library), so are the products: a program need not be optimized itself.
template <class T = float, class Context>
[[nodiscard]] double measure_peak(const Context& device) {
  const cpu_stream stream(device);
#ifdef XTRAIN_CPU_LEVELS
  (void)cpu_levels::chosen();  // reports an unsupported level here: tasks on an executor's threads must not throw
#endif
  return cpu_kernels::best_rate(0.05, [&] {
    std::atomic<double> operations{0};
    stream.parallel(stream.threads(), [&](std::size_t, std::size_t) {
      float keep = 0;
#ifdef XTRAIN_CPU_LEVELS
      const double done = cpu_levels::multiply_add_chains(std::is_same_v<T, bf16>, 100'000, keep);
#elif defined(XTRAIN_CPU_KERNELS)
      const double done = cpu_kernels::compiled_multiply_add_chains(std::is_same_v<T, bf16>, 100'000, keep);
#else
      const double done = cpu_kernels::multiply_add_chains<simd::native, T>(100'000, keep);
#endif
      operations.fetch_add(keep < 0 ? 0.0 : done);
    });
    return operations.load();
  });
}

/// Bytes per second of copying memory that exceeds all caches, reads and writes added; allocates 256 MiB.
template <class Context>
[[nodiscard]] double measure_bandwidth(const Context& device, double seconds = 0.4) {
  const cpu_stream stream(device);
  constexpr std::size_t bytes = std::size_t{128} << 20;
  std::vector<char> from(bytes, 1), to(bytes, 0);
  return cpu_kernels::best_rate(seconds, [&] {
    stream.parallel_ranges(bytes, std::size_t{1} << 20, [&](std::size_t begin, std::size_t end) {
      using batch = simd::batch<float, simd::native>;
      const float* const x = reinterpret_cast<const float*>(from.data());
      float* const y = reinterpret_cast<float*>(to.data());
      for (std::size_t i = begin / sizeof(float); i < end / sizeof(float); i += batch::size)
        batch::load_unaligned(x + i).store_unaligned(y + i);
    });
    return 2.0 * static_cast<double>(bytes);
  });
}

/// Bytes per second of reading memory that exceeds all caches; allocates 256 MiB.
template <class Context>
[[nodiscard]] double measure_read_bandwidth(const Context& device, double seconds = 0.4) {
  const cpu_stream stream(device);
  constexpr std::size_t count = std::size_t{1} << 26;
  const std::vector<float> from(count, 1.0f);
  std::atomic<float> kept{0};  // prevents the loop from being optimized away
  return cpu_kernels::best_rate(seconds, [&] {
    stream.parallel_ranges(count, std::size_t{1} << 18, [&](std::size_t begin, std::size_t end) {
      using batch = simd::batch<float, simd::native>;
      constexpr std::size_t chains = 4;
      batch sum[chains];
      XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = batch(0.0f);
      for (std::size_t i = begin; i + chains * batch::size <= end; i += chains * batch::size) {
        XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = sum[c] + batch::load_unaligned(from.data() + i + c * batch::size);
      }
      XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) kept.store(simd::sum(sum[c]), std::memory_order_relaxed);
    });
    return static_cast<double>(count * sizeof(float));
  });
}

}  // namespace xtrain
