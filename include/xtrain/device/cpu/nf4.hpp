// NF4 dequantization: looks up both elements of a byte at once, then scales vectors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/nf4.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Both fractions per byte value.
template <class A>
[[nodiscard]] constexpr std::array<std::array<A, 2>, 256> level_pairs() {
  std::array<std::array<A, 2>, 256> pairs{};
  for (std::size_t byte = 0; byte < pairs.size(); ++byte)
    pairs[byte] = {static_cast<A>(nf4::levels[byte >> 4]), static_cast<A>(nf4::levels[byte & 15])};
  return pairs;
}

template <class Arch, class T>
void nf4_elements(const cpu_stream& stream, const kernel::dequantize_nf4<host_memory, T>& k) {
  using A = accumulate_t<T>;
  static constexpr auto pairs = level_pairs<A>();
  static_assert(elements_per_part % nf4::block == 0);
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    std::array<A, nf4::block> fraction;
    for (std::size_t first = begin; first < end; first += nf4::block) {
      const std::size_t count = std::min(nf4::block, end - first);
      const std::uint8_t* const code = k.code_n2.raw() + first / 2;
      for (std::size_t i = 0; i < (count + 1) / 2; ++i) std::copy_n(pairs[code[i]].data(), 2, fraction.data() + 2 * i);
      const simd::batch<A, Arch> scale(static_cast<A>(nf4::scale_of(first / nf4::block, k.scale_k.raw(), k.outer.raw())));
      simd::for_each_vector<A, Arch>(0, count, [&](std::size_t i, auto size) XTRAIN_LAMBDA_INLINE {
        simd::store(k.y_n.raw() + first + i, simd::load<Arch>(fraction.data() + i, size) * scale, size);
      });
    }
  });
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::dequantize_nf4<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  cpu_kernels::nf4_elements<simd::native>(stream, k);
}

}  // namespace xtrain
