#pragma once

#include <xtrain/device/kernel/nf4.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T>
void run_kernel(reference_stream&, const kernel::dequantize_nf4<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint8_t both = k.code_n2.data()[i / 2];
    const float level = nf4::levels[i % 2 == 0 ? both >> 4 : both & 15];
    k.y_n.data()[i] = static_cast<T>(level * nf4::scale_of(i / nf4::block, k.scale_k.raw(), k.outer.raw()));
  }
}

}  // namespace xtrain
