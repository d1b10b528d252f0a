// Fake quantization; threads share groups.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>

namespace xtrain {

namespace cpu_kernels {

/// work(first element, numbers) per group.
template <class Kernel, class Work>
void for_each_group(const cpu_stream& stream, const Kernel& k, Work&& work) {
  const std::size_t groups_at_once = std::max<std::size_t>(1, elements_per_part / std::max<std::size_t>(1, k.group));
  stream.parallel_ranges(k.n / k.group, groups_at_once, [&](std::size_t begin, std::size_t end) {
    for (std::size_t g = begin; g < end; ++g)
      k.format.of_values(k.x_n.raw() + g * k.group, k.group, [&](const auto& of_group) { work(g * k.group, of_group); });
  });
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::fake_quantize<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  cpu_kernels::for_each_group(stream, k, [&](std::size_t first, const auto& of_group) {
    const T* x = k.x_n.raw() + first;
    T* y = k.y_n.raw() + first;
    for (std::size_t i = 0; i < k.group; ++i) y[i] = static_cast<T>(of_group.rounded(static_cast<accumulate_t<T>>(x[i])));
  });
}

template <class T, class G>
void run_native(cpu_stream& stream, const kernel::fake_quantize_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  using sum = accumulate_t<G>;
  cpu_kernels::for_each_group(stream, k, [&](std::size_t first, const auto& of_group) {
    const T* x = k.x_n.raw() + first;
    const G* dy = k.dy_n.raw() + first;
    G* dx = k.dx_n.raw() + first;
    for (std::size_t i = 0; i < k.group; ++i) {
      const sum d = of_group.passes(static_cast<accumulate_t<T>>(x[i])) ? static_cast<sum>(dy[i]) : sum{0};
      dx[i] = static_cast<G>(k.accumulate ? static_cast<sum>(dx[i]) + d : d);
    }
  });
}

}  // namespace xtrain
