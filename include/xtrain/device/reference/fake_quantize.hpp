#pragma once

#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T>
void run_kernel(reference_stream&, const kernel::fake_quantize<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  using acc = accumulate_t<T>;
  for (std::size_t begin = 0; begin < k.n; begin += k.group)
    k.format.of_values(k.x_n.raw() + begin, k.group, [&](const auto& of_group) {
      for (std::size_t i = begin; i < begin + k.group; ++i) k.y_n.data()[i] = static_cast<T>(of_group.rounded(static_cast<acc>(k.x_n.data()[i])));
    });
}

template <class T, class G>
void run_kernel(reference_stream&, const kernel::fake_quantize_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  using acc = accumulate_t<T>;
  using sum = accumulate_t<G>;
  for (std::size_t begin = 0; begin < k.n; begin += k.group)
    k.format.of_values(k.x_n.raw() + begin, k.group, [&](const auto& of_group) {
      for (std::size_t i = begin; i < begin + k.group; ++i) {
        const sum d = of_group.passes(static_cast<acc>(k.x_n.data()[i])) ? static_cast<sum>(k.dy_n.data()[i]) : sum{0};
        k.dx_n.data()[i] = static_cast<G>(k.accumulate ? static_cast<sum>(k.dx_n.data()[i]) + d : d);
      }
    });
}

}  // namespace xtrain
