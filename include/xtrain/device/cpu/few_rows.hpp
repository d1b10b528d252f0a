// Products with few rows (decoding): nothing is packed, every weight is read once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/cpu/tile.hpp>
#include <xtrain/device/kernel/matmul.hpp>

namespace xtrain::cpu_kernels {

/// c(i, j) = alpha · Σ_p x(i, p) w(j, p) (+ bias_j) (+ c)
inline constexpr std::size_t few_rows = 8;

/// Intel's prefetchers restart at every row and page: prefetching the next call's rows gains up to 20 % on Sapphire Rapids. On Zen 5 the instructions cost 5 to
/// 18 % for one row, but products of four rows are a fifth slower without them.
[[nodiscard]] inline bool one_row_is_prefetched_by_hardware() {
#ifdef __x86_64__
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

template <class Arch, std::size_t Rows, std::size_t Columns, bool Prefetch, class T, class C>
void dot_products(std::size_t k, const T* x, std::size_t ldx, const T* w, std::size_t ldw, C* c, std::size_t ldc,
                  const epilogue<accumulate_t<T>, T>& end) {
  using A = accumulate_t<T>;
  using U = unit<Arch, T>;
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t step = simd::width<A, Arch> * depth_of_unit<U>;
  batch sum[Rows][Columns];
  XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) { XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) sum[i][j] = batch(A{0}); }
  const auto load = [](const T* from, auto count) XTRAIN_LAMBDA_INLINE {
    if constexpr (std::is_same_v<U, simd::bf16_pair>) {
      if constexpr (!std::is_same_v<decltype(count), std::size_t>) {
        return simd::load_units<Arch>(reinterpret_cast<const simd::bf16_pair*>(from));
      } else {
        std::array<simd::bf16_pair, simd::width<A, Arch>> pairs{};
        std::memcpy(pairs.data(), from, count * sizeof(T));
        return simd::load_units<Arch>(pairs.data());
      }
    } else {
      return simd::load<Arch>(from, count);
    }
  };
  const auto add = [&](std::size_t p, auto count) XTRAIN_LAMBDA_INLINE {
    batch w_p[Columns];
    XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) {
      const T* const from = w + j * ldw + p;
      if constexpr (Prefetch) __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from) + Columns * ldw * sizeof(T)));
      w_p[j] = load(from, count);
    }
    XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
      const batch x_p = load(x + i * ldx + p, count);
      XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) sum[i][j] = simd::multiply_add_units<U>(x_p, w_p[j], sum[i][j]);
    }
  };
  std::size_t p = 0;
  for (; p + step <= k; p += step) add(p, std::integral_constant<std::size_t, step>{});
  if (p < k) add(p, k - p);
  XTRAIN_UNROLL for (std::size_t i = 0; i < Rows; ++i) {
    XTRAIN_UNROLL for (std::size_t j = 0; j < Columns; ++j) {
      A result = simd::sum(sum[i][j]) * end.alpha;
      if (end.bias != nullptr) result += static_cast<A>(end.bias[j]);
      C& out = c[i * ldc + j];
      out = static_cast<C>(end.add ? static_cast<A>(out) + result : result);
    }
  }
}

template <class Arch, std::size_t Rows, bool Prefetch, class T, class C>
void multiply_few_rows(std::size_t n, std::size_t k, const T* x, std::size_t ldx, const T* w, std::size_t ldw, C* c, std::size_t ldc,
                       epilogue<accumulate_t<T>, T> end) {
  constexpr std::size_t at_once = 4;  // rows of W: enough loads in flight
  const T* bias = end.bias;
  std::size_t j = 0;
  for (; j + at_once <= n; j += at_once) {
    if (bias != nullptr) end.bias = bias + j;
    dot_products<Arch, Rows, at_once, Prefetch>(k, x, ldx, w + j * ldw, ldw, c + j, ldc, end);
  }
  for (; j < n; ++j) {
    if (bias != nullptr) end.bias = bias + j;
    dot_products<Arch, Rows, 1, Prefetch>(k, x, ldx, w + j * ldw, ldw, c + j, ldc, end);
  }
}

template <class Arch, class T, class C>
void few_rows_product(const cpu_stream& stream, const kernel::matmul<host_memory, T, C>& k) {
  using A = accumulate_t<T>;
  const std::size_t grain = std::max<std::size_t>(4, (std::size_t{1} << 16) / std::max<std::size_t>(1, k.k) / 4 * 4);
  const auto some_columns = [&]<bool Prefetch>(std::size_t begin, std::size_t end, std::bool_constant<Prefetch>) {
    const epilogue<A, T> finish{static_cast<A>(k.alpha), k.bias_n.empty() ? nullptr : k.bias_n.raw() + begin, k.accumulate};
    const T* w = k.b.raw() + begin * k.ldb;
    for (std::size_t i = 0; i < k.m;) {
      const T* x = k.a.raw() + i * k.lda;
      C* c = k.c.raw() + i * k.ldc + begin;
      const std::size_t left = k.m - i;
      if (left >= 4) {
        multiply_few_rows<Arch, 4, true>(end - begin, k.k, x, k.lda, w, k.ldb, c, k.ldc, finish);
        i += 4;
      } else if (left >= 2) {
        multiply_few_rows<Arch, 2, true>(end - begin, k.k, x, k.lda, w, k.ldb, c, k.ldc, finish);
        i += 2;
      } else {
        multiply_few_rows<Arch, 1, Prefetch>(end - begin, k.k, x, k.lda, w, k.ldb, c, k.ldc, finish);
        i += 1;
      }
    }
  };
  if (one_row_is_prefetched_by_hardware())
    stream.parallel_ranges(k.n, grain, [&](std::size_t begin, std::size_t end) { some_columns(begin, end, std::false_type{}); });
  else stream.parallel_ranges(k.n, grain, [&](std::size_t begin, std::size_t end) { some_columns(begin, end, std::true_type{}); });
}

}  // namespace xtrain::cpu_kernels
