// Output head and cross-entropy in chunks of rows: a chunk's logits, in scratch memory, are overwritten by their gradient and used by two products before the
// next chunk.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <xtrain/device/cpu/embedding.hpp>
#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/loss.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Rows per chunk: enough to amortize reading and packing the head's weight, with bounded memory. Chunks are equal: a short one would read the entire weight
/// for few rows. 16-bit products are bound by memory traffic: a quarter more rows pay.
template <class T>
[[nodiscard]] constexpr std::size_t largest_loss_chunk(std::size_t v) {
  constexpr std::size_t max_rows = sizeof(T) == 2 ? 350 : 280, fewest_rows = 56;  // entire tiles of 14 rows
  constexpr std::size_t max_logits = max_rows * 50304;
  return std::clamp(max_logits / std::max<std::size_t>(1, v), fewest_rows, max_rows);
}
template <class T>
[[nodiscard]] constexpr std::size_t loss_chunk(std::size_t n, std::size_t v) {
  const std::size_t most = largest_loss_chunk<T>(v);
  const std::size_t chunks = (n + most - 1) / most;
  return chunks <= 1 ? n : (n + chunks - 1) / chunks;
}
/// dx is summed over vocabulary slices: packed slices of dlogits stay small.
inline constexpr std::size_t vocabulary_slice = 8192;

/// A chunk's products and scratch offsets. Rows of dlogits start with rows of logits.
template <class T, class G>
struct loss_products {
  using A = accumulate_t<T>;
  static constexpr bool narrow = !std::is_same_v<T, A>;

  std::size_t row;  // stride of dlogits, in T
  kernel::matmul<host_memory, T, A> logits;
  kernel::matmul<host_memory, T, A> dx;  // per slice
  kernel::matmul<host_memory, T, G> dweight;
  kernel::column_sum<host_memory, T, G> dbias;
  std::size_t dx_at, rest_at;

  loss_products(const kernel::linear_cross_entropy<host_memory, T, G>& k, std::size_t rows)
      : row(k.v * (sizeof(A) / sizeof(T))), logits{.m = rows, .n = k.v, .k = k.c, .lda = k.c, .ldb = k.c, .ldc = k.v, .transpose_b = true},
        dx{.m = rows, .n = k.c, .k = std::min(k.v, vocabulary_slice), .lda = row, .ldb = k.c, .ldc = k.c},
        dweight{.m = k.v, .n = k.c, .k = rows, .lda = row, .ldb = k.c, .ldc = k.c, .transpose_a = true, .accumulate = true},
        dbias{.n = rows, .c = k.v, .stride = row} {
    const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
    dx_at = aligned(rows * k.v * sizeof(A));
    rest_at = dx_at + (narrow && k.with_gradient ? aligned(rows * k.c * sizeof(A)) : 0);
  }
};

/// What a row's cross-entropy depends on besides logits.
struct cross_entropy_settings {
  bool with_gradient = false;
  double gradient_scale = 1.0, z_loss = 0.0, label_smoothing = 0.0, log_z_loss = 0.0, softcap = 0.0;
};

/// For label smoothing.
template <class Arch, class A>
[[nodiscard]] A sum_of_logits(std::size_t v, const A* logits) {
  constexpr std::size_t w = simd::width<A, Arch>;
  const std::size_t whole = v / w * w;
  simd::batch<A, Arch> sums(A{0});
  for (std::size_t j = 0; j < whole; j += w) sums = sums + simd::load<Arch>(logits + j);
  A sum = simd::sum(sums);
  for (std::size_t j = whole; j < v; ++j) sum += logits[j];
  return sum;
}

/// logits = cap · tanh(logits / cap)
template <class Arch, class A>
void cap_logits(std::size_t v, A cap, A* logits) {
  const simd::batch<A, Arch> bound(cap);
  simd::for_each_vector<A, Arch>(0, v, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
    simd::store(logits + j, bound * xsimd::tanh(simd::load<Arch>(logits + j, count) / bound), count);
  });
}

/// A row's softmax and loss; the gradient, if wanted, overwrites the logits, in T.
template <class Arch, class T, class A>
[[nodiscard]] A cross_entropy_row(std::size_t v, token target, A token_weight, const cross_entropy_settings& settings, A* logits) {
  using batch = simd::batch<A, Arch>;
  const bool with_gradient = settings.with_gradient;
  const double z_loss = settings.z_loss, label_smoothing = settings.label_smoothing;
  if (!in_table(target, v) || token_weight == A{0}) {
    if (with_gradient) std::memset(logits, 0, v * sizeof(T));
    return A{0};
  }
  constexpr std::size_t w = simd::width<A, Arch>;
  const std::size_t whole = v / w * w;
  const A cap = static_cast<A>(settings.softcap);
  if (cap != A{0}) cap_logits<Arch>(v, cap, logits);
  batch most(logits[0]);
  for (std::size_t j = 0; j < whole; j += w) most = xsimd::max(most, simd::load<Arch>(logits + j));
  A largest = simd::largest(most);
  for (std::size_t j = whole; j < v; ++j) largest = std::max(largest, logits[j]);
  const A at_target = logits[target];
  const std::size_t peak = z_loss == 0.0 || !with_gradient ? 0 : static_cast<std::size_t>(std::find(logits, logits + v, largest) - logits);
  const A kept = static_cast<A>(1.0 - label_smoothing), spread = static_cast<A>(label_smoothing / static_cast<double>(v));
  const A mean = label_smoothing == 0.0 ? A{0} : sum_of_logits<Arch>(v, logits) / static_cast<A>(v) - largest;
  // stored for the gradient: exponentials, or with a softcap logits, for its derivative
  const bool keeps_exponentials = with_gradient && cap == A{0};
  batch sums(A{0});
  for (std::size_t j = 0; j < whole; j += w) {
    const batch p = simd::exp(simd::load<Arch>(logits + j) - batch(largest));
    if (keeps_exponentials) p.store_unaligned(logits + j);
    sums = sums + p;
  }
  A sum = simd::sum(sums);
  for (std::size_t j = whole; j < v; ++j) {
    const A p = std::exp(logits[j] - largest);
    if (keeps_exponentials) logits[j] = p;
    sum += p;
  }
  // NaN reaches the loss through the sum
  const A z = static_cast<A>(z_loss);
  A loss = std::log(sum) - kept * (at_target - largest) - static_cast<A>(label_smoothing) * mean + z * largest * largest;
  const A log_z = static_cast<A>(settings.log_z_loss), lse = largest + std::log(sum);
  if (log_z != A{0}) loss += log_z * lse * lse;
  if (with_gradient) {
    // forward: loss = token_weight · (lse − kept · logits[target] − spread · Σ logits + z · largest² + log_z · lse²), lse = logsumexp(logits);
    // logits = cap · tanh(raw / cap) with a softcap
    const auto slope_of = [&](auto logit) { return decltype(logit)(A{1}) - logit / decltype(logit)(cap) * (logit / decltype(logit)(cap)); };
    const A stretch = A{1} + A{2} * log_z * lse;  // factor on the softmax; 1 without log_z
    const A gradient = static_cast<A>(settings.gradient_scale) * token_weight;
    const batch scale(gradient * stretch / sum), shift(-(gradient * spread));  // without smoothing −0, which changes no bits
    // unread logits follow written gradients: T is no wider than a logit
    auto* const dlogits = reinterpret_cast<std::byte*>(logits);
    std::array<T, 256> some;
    for (std::size_t j = 0; j < v; j += some.size()) {
      const std::size_t size = std::min(some.size(), v - j);
      simd::for_each_vector<A, Arch>(0, size, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
        const batch kept_value = simd::load<Arch>(logits + j + i, count);
        if (cap == A{0}) return simd::store(some.data() + i, simd::multiply_add(kept_value, scale, shift), count);
        const batch dlogit = simd::multiply_add(simd::exp(kept_value - batch(largest)), scale, shift);
        simd::store(some.data() + i, dlogit * slope_of(kept_value), count);
      });
      std::memcpy(dlogits + j * sizeof(T), some.data(), size * sizeof(T));
    }
    const auto put = [&](std::size_t j, A value, A logit) {
      const auto rounded = static_cast<T>(cap == A{0} ? value : value * slope_of(logit));
      std::memcpy(dlogits + j * sizeof(T), &rounded, sizeof(T));
    };
    const A pull = A{2} * z * largest;
    const bool same = z_loss != 0.0 && peak == static_cast<std::size_t>(target);
    put(static_cast<std::size_t>(target), gradient * (std::exp(at_target - largest) * stretch / sum - kept - spread + (same ? pull : A{0})), at_target);
    if (z_loss != 0.0 && !same && peak < v) put(peak, gradient * (stretch / sum - spread + pull), largest);
  }
  return token_weight * loss;
}

}  // namespace cpu_kernels

template <class T, class G>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::linear_cross_entropy<host_memory, T, G>& k) {
  // for the largest chunk of up to n rows: n rows may have smaller chunks than fewer rows
  const cpu_kernels::loss_products<T, G> products(k, std::min(k.n, cpu_kernels::largest_loss_chunk<T>(k.v)));
  std::size_t product = native_scratch_bytes(cpu, products.logits);
  if (k.with_gradient) product = std::max({product, native_scratch_bytes(cpu, products.dx), native_scratch_bytes(cpu, products.dweight)});
  return products.rest_at + product;
}

template <class T, class G>
void run_native(cpu_stream& stream, const kernel::linear_cross_entropy<host_memory, T, G>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<19>(k);
  using products_type = cpu_kernels::loss_products<T, G>;
  using A = accumulate_t<T>;
  const std::size_t chunk = cpu_kernels::loss_chunk<T>(k.n, k.v);
  const products_type whole(k, chunk);
  const auto weight_of = [&](std::size_t i) { return k.token_weight_n.empty() ? A{1} : k.token_weight_n.raw()[i]; };
  const cpu_kernels::cross_entropy_settings settings{k.with_gradient, kernel::gradient_scale_of(k), k.z_loss, k.label_smoothing, k.log_z_loss,
                                                     k.softcap};
  A* const logits = reinterpret_cast<A*>(scratch.raw());
  const T* const dlogits = reinterpret_cast<const T*>(scratch.raw());
  const auto rest = scratch.subspan(whole.rest_at, scratch.size() - whole.rest_at);
  for (std::size_t first = 0; first < k.n; first += chunk) {
    const std::size_t rows = std::min(chunk, k.n - first);
    products_type products(k, rows);
    products.logits.a = k.x_nc.subspan(first * k.c, rows * k.c);
    products.logits.b = k.weight_vc;
    products.logits.bias_n = k.bias_v;
    products.logits.c = span_of(logits, rows * k.v);
    run_native(stream, products.logits, rest);
    stream.parallel_ranges(rows, 4, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        k.loss_n.raw()[first + i] =
            cpu_kernels::cross_entropy_row<simd::native, T>(k.v, k.target_n.raw()[first + i], weight_of(first + i), settings, logits + i * k.v);
    });
    if (!k.with_gradient) continue;
    // forward: logits = x · weightᵀ + bias
    T* const dx = k.dx_nc.raw() + first * k.c;
    A* dx_sums = nullptr;
    if constexpr (products_type::narrow) dx_sums = reinterpret_cast<A*>(scratch.raw() + whole.dx_at);
    else dx_sums = dx;
    products.dx.c = span_of(dx_sums, rows * k.c);
    for (std::size_t from = 0; from < k.v; from += cpu_kernels::vocabulary_slice) {
      products.dx.k = std::min(cpu_kernels::vocabulary_slice, k.v - from);
      products.dx.a = span_of(dlogits + from, (rows - 1) * products.row + products.dx.k);
      products.dx.b = k.weight_vc.subspan(from * k.c, products.dx.k * k.c);
      products.dx.accumulate = from != 0;
      run_native(stream, products.dx, rest);
    }
    if constexpr (products_type::narrow) {
      stream.parallel_ranges(rows * k.c, 4096, [&](std::size_t begin, std::size_t end) {
        simd::for_each_vector<A, simd::native>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
          simd::store(dx + i, simd::load<simd::native>(dx_sums + i, count), count);
        });
      });
    }
    if (!k.dbias_v.empty()) {
      products.dbias.x_nc = span_of(dlogits, (rows - 1) * products.row + k.v);
      products.dbias.sum_c = k.dbias_v;
      run_native(stream, products.dbias, rest);
    }
    if (k.dweight_vc.empty()) continue;
    products.dweight.a = span_of(dlogits, (rows - 1) * products.row + k.v);
    products.dweight.b = k.x_nc.subspan(first * k.c, rows * k.c);
    products.dweight.c = k.dweight_vc;
    run_native(stream, products.dweight, rest);
  }
}

}  // namespace xtrain
