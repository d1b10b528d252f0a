// What the processor could do at most: a loop of nothing but multiply-adds on every thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>

#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Enough independent chains to hide the latency of a multiply-add. The result keeps the loop alive.
template <class Arch>
[[nodiscard]] float multiply_add_chains(std::size_t rounds) {
  using batch = simd::batch<float, Arch>;
  constexpr std::size_t chains = 12;
  batch sum[chains];
  XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = batch(static_cast<float>(c));
  const batch a(0.999f), b(0.001f);
  for (std::size_t i = 0; i < rounds; ++i) {
    XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) sum[c] = simd::multiply_add(sum[c], a, b);
  }
  float total = 0;
  XTRAIN_UNROLL for (std::size_t c = 0; c < chains; ++c) total += simd::sum(sum[c]);
  return total;
}

}  // namespace cpu_kernels

/// fp32 operations per second, all threads of the device together: the best of a few runs, some 20 ms.
template <class Context>
[[nodiscard]] double measure_peak(const Context& device) {
  using clock = std::chrono::steady_clock;
  const cpu_stream stream(device);
  constexpr std::size_t rounds = 200'000;
  std::atomic<float> sink{0};
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = clock::now();
    stream.parallel(stream.threads(), [&](std::size_t, std::size_t) {
      sink.store(cpu_kernels::multiply_add_chains<simd::native>(rounds), std::memory_order_relaxed);
    });
    const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
    const double operations = 2.0 * 12 * static_cast<double>(rounds * simd::width<float, simd::native> * stream.threads());
    best = std::max(best, operations / seconds);
  }
  return best;
}

}  // namespace xtrain
