// Head and cross-entropy in chunks of rows: logits of one chunk live in scratch memory, become their own gradient in
// place, and are used up by two products before the next chunk.
#pragma once

#include <cmath>

#include <xtrain/device/cpu/embedding.hpp>
#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/loss.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Rows of logits at once: enough that reading the head's weight is paid for, few enough that n rows cost no memory. The
/// chunks of n rows are alike, because a last one of a few rows would read the whole weight for little.
[[nodiscard]] constexpr std::size_t loss_chunk(std::size_t n) {
  constexpr std::size_t most = 140;  // ten tiles of fourteen rows
  const std::size_t chunks = (n + most - 1) / most;
  return chunks <= 1 ? n : std::min(most, (n + chunks - 1) / chunks);
}

template <class T, class G>
struct loss_products {
  using A = accumulate_t<T>;
  kernel::matmul<host_memory, T, A> logits;
  kernel::matmul<host_memory, T, T> dx;
  kernel::matmul<host_memory, T, G> dweight;

  loss_products(const kernel::linear_cross_entropy<host_memory, T, G>& k, std::size_t rows)
      : logits{.m = rows, .n = k.v, .k = k.c, .lda = k.c, .ldb = k.c, .ldc = k.v, .transpose_b = true},
        dx{.m = rows, .n = k.c, .k = k.v, .lda = k.v, .ldb = k.c, .ldc = k.c},
        dweight{.m = k.v, .n = k.c, .k = rows, .lda = k.v, .ldb = k.c, .ldc = k.c, .transpose_a = true, .accumulate = true} {}
};

/// Softmax, loss and gradient of one row of logits. Where T is the logits' type the gradient replaces them.
template <class Arch, class T, class A>
[[nodiscard]] A cross_entropy_row(std::size_t v, token target, bool with_gradient, double gradient_scale, const A* logits, T* dlogits) {
  using batch = simd::batch<A, Arch>;
  if (!in_table(target, v)) {
    if (with_gradient) std::fill_n(dlogits, v, T{});
    return A{0};
  }
  constexpr std::size_t w = simd::width<A, Arch>;
  const std::size_t whole = v / w * w;
  batch most(logits[0]);
  for (std::size_t j = 0; j < whole; j += w) most = xsimd::max(most, simd::load<Arch>(logits + j));
  A largest = simd::largest(most);
  for (std::size_t j = whole; j < v; ++j) largest = std::max(largest, logits[j]);
  batch sums(A{0});
  for (std::size_t j = 0; j < whole; j += w) sums = sums + simd::exp(simd::load<Arch>(logits + j) - batch(largest));
  A sum = simd::sum(sums);
  for (std::size_t j = whole; j < v; ++j) sum += std::exp(logits[j] - largest);
  // a NaN among the logits reaches the loss through the sum, whatever the maximum made of it
  const A loss = std::log(sum) - (logits[target] - largest);
  if (with_gradient) {
    // forward: loss = logsumexp(logits) − logits[target]
    const A at_target = logits[target];
    const batch scale(static_cast<A>(gradient_scale) / sum);
    simd::for_each_vector<A, Arch>(0, v, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
      simd::store(dlogits + j, simd::exp(simd::load<Arch>(logits + j, count) - batch(largest)) * scale, count);
    });
    dlogits[target] = static_cast<T>(static_cast<A>(gradient_scale) * (std::exp(at_target - largest) / sum - A{1}));
  }
  return loss;
}

}  // namespace cpu_kernels

template <class T, class G>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::linear_cross_entropy<host_memory, T, G>& k) {
  const std::size_t rows = cpu_kernels::loss_chunk(k.n);
  const cpu_kernels::loss_products<T, G> products(k, rows);
  std::size_t product = native_scratch_bytes(cpu, products.logits);
  if (k.with_gradient) product = std::max({product, native_scratch_bytes(cpu, products.dx), native_scratch_bytes(cpu, products.dweight)});
  const std::size_t logits = rows * k.v * sizeof(accumulate_t<T>);
  const std::size_t dlogits = k.with_gradient && sizeof(T) != sizeof(accumulate_t<T>) ? rows * k.v * sizeof(T) : 0;
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  return aligned(logits) + aligned(dlogits) + product;
}

template <class T, class G>
void run_native(cpu_stream& stream, const kernel::linear_cross_entropy<host_memory, T, G>& k, scratch_span<host_memory> scratch) {
  using A = accumulate_t<T>;
  constexpr bool in_place = std::is_same_v<T, A>;
  const std::size_t chunk = cpu_kernels::loss_chunk(k.n);
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  A* logits = reinterpret_cast<A*>(scratch.raw());
  std::size_t used = aligned(chunk * k.v * sizeof(A));
  T* dlogits = reinterpret_cast<T*>(in_place ? scratch.raw() : scratch.raw() + used);
  if (!in_place && k.with_gradient) used += aligned(chunk * k.v * sizeof(T));
  const auto rest = scratch.subspan(used, scratch.size() - used);
  for (std::size_t first = 0; first < k.n; first += chunk) {
    const std::size_t rows = std::min(chunk, k.n - first);
    cpu_kernels::loss_products<T, G> products(k, rows);
    products.logits.a = k.x_nc.subspan(first * k.c, rows * k.c);
    products.logits.b = k.weight_vc;
    products.logits.c = span_of(logits, rows * k.v);
    run_native(stream, products.logits, rest);
    stream.parallel_ranges(rows, 4, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        k.loss_n.raw()[first + i] = cpu_kernels::cross_entropy_row<simd::native, T>(k.v, k.target_n.raw()[first + i], k.with_gradient,
                                                                                    k.gradient_scale, logits + i * k.v, dlogits + i * k.v);
    });
    if (!k.with_gradient) continue;
    // forward: logits = x · weightᵀ
    products.dx.a = span_of(static_cast<const T*>(dlogits), rows * k.v);
    products.dx.b = k.weight_vc;
    products.dx.c = k.dx_nc.subspan(first * k.c, rows * k.c);
    run_native(stream, products.dx, rest);
    if (k.dweight_vc.empty()) continue;
    products.dweight.a = span_of(static_cast<const T*>(dlogits), rows * k.v);
    products.dweight.b = k.x_nc.subspan(first * k.c, rows * k.c);
    products.dweight.c = k.dweight_vc;
    run_native(stream, products.dweight, rest);
  }
}

}  // namespace xtrain
