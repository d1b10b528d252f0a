#pragma once

#include <xtrain/device/kernel/grouped_matmul.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T, class C>
void run_kernel(reference_stream&, const kernel::matmul<host_memory, T, C>& k, scratch_span<host_memory>) {
  kernel::check_arity<14>(k);
  using acc = accumulate_t<T>;
  for (std::size_t i = 0; i < k.m; ++i) {
    for (std::size_t j = 0; j < k.n; ++j) {
      acc sum{0};
      for (std::size_t p = 0; p < k.k; ++p) {
        const auto a_ip = static_cast<acc>(k.a.data()[k.transpose_a ? p * k.lda + i : i * k.lda + p]);
        const auto b_pj = static_cast<acc>(k.b.data()[k.transpose_b ? j * k.ldb + p : p * k.ldb + j]);
        sum += a_ip * b_pj;
      }
      acc result = static_cast<acc>(k.alpha) * sum;
      if (!k.bias_n.empty()) result += static_cast<acc>(k.bias_n.data()[j]);
      C& c_ij = k.c.data()[i * k.ldc + j];
      c_ij = static_cast<C>(k.accumulate ? static_cast<acc>(c_ij) + result : result);
    }
  }
}

template <class T, class C>
void run_kernel(reference_stream& stream, const kernel::grouped_matmul<host_memory, T, C>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  kernel::for_each_product(k, [&](const kernel::matmul<host_memory, T, C>& product) { run_kernel(stream, product, scratch_span<host_memory>{}); });
}

template <class T, class G>
void run_kernel(reference_stream&, const kernel::column_sum<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  using acc = accumulate_t<T>;
  const auto x_nc = detail::strided_values<acc>(k.x_nc, k.n, k.c, k.stride);
  detail::store_added<1>(k.sum_c, xt::sum(x_nc, {0}));
}

}  // namespace xtrain
