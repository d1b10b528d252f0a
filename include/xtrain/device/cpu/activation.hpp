// Activation functions, vectorized.
#pragma once

#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/activation.hpp>

namespace xtrain {

namespace cpu_kernels {

inline constexpr std::size_t elements_per_part = std::size_t{1} << 14;
/// In elements: the hardware prefetcher stops at page boundaries.
inline constexpr std::size_t elements_ahead = 512;
inline constexpr double gelu_slope = 0.79788456080286535588;  // sqrt(2/π)
inline constexpr double gelu_cubic = 0.044715;
inline constexpr double root_half = 0.70710678118654752440;    // 1/√2
inline constexpr double normal_peak = 0.39894228040143267794;  // 1/√(2π)

template <class Arch, class T>
void gelu_elements(const cpu_stream& stream, const kernel::gelu_tanh<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const batch slope(static_cast<A>(gelu_slope)), cubic(static_cast<A>(gelu_cubic)), one(A{1}), minus_two(A{-2});
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      __builtin_prefetch(k.x_n.raw() + i + elements_ahead);
      const batch x = simd::load<Arch>(k.x_n.raw() + i, count);
      const batch u = slope * (x + cubic * x * x * x);
      // (1 + tanh u) / 2 = 1 / (1 + exp(−2u))
      simd::store(k.y_n.raw() + i, x / (one + simd::exp(minus_two * u)), count);
    });
  });
}

template <class Arch, class T>
void gelu_backward_elements(const cpu_stream& stream, const kernel::gelu_tanh_backward<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const batch slope(static_cast<A>(gelu_slope)), cubic(static_cast<A>(gelu_cubic)), three_cubic(static_cast<A>(3.0 * gelu_cubic));
  const batch one(A{1}), two(A{2}), minus_two(A{-2});
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      __builtin_prefetch(k.x_n.raw() + i + elements_ahead);
      const batch x = simd::load<Arch>(k.x_n.raw() + i, count);
      const batch dy = simd::load<Arch>(k.dy_n.raw() + i, count);
      // forward: y = x · s,  s = 1 / (1 + exp(−2u))
      const batch s = one / (one + simd::exp(minus_two * slope * (x + cubic * x * x * x)));
      const batch du = slope * (one + three_cubic * x * x);
      simd::store(k.dx_n.raw() + i, dy * (s + two * x * s * (one - s) * du), count);
    });
  });
}

/// Normal distribution function (1 + erf(x/√2)) / 2.
template <class Arch, class A>
[[nodiscard]] XTRAIN_ALWAYS_INLINE simd::batch<A, Arch> normal_below(const simd::batch<A, Arch>& x) {
  using batch = simd::batch<A, Arch>;
  return batch(A(0.5)) * (batch(A{1}) + xsimd::erf(x * batch(static_cast<A>(root_half))));
}

template <class Arch, class T>
void gelu_erf_elements(const cpu_stream& stream, const kernel::gelu_erf<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      const batch x = simd::load<Arch>(k.x_n.raw() + i, count);
      simd::store(k.y_n.raw() + i, x * normal_below<Arch>(x), count);
    });
  });
}

template <class Arch, class T>
void gelu_erf_backward_elements(const cpu_stream& stream, const kernel::gelu_erf_backward<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const batch peak(static_cast<A>(normal_peak)), minus_half(A(-0.5));
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      const batch x = simd::load<Arch>(k.x_n.raw() + i, count);
      const batch dy = simd::load<Arch>(k.dy_n.raw() + i, count);
      // forward: y = x · cdf(x)
      simd::store(k.dx_n.raw() + i, dy * (normal_below<Arch>(x) + x * peak * simd::exp(minus_half * x * x)), count);
    });
  });
}

template <class Arch, class T>
void tanh_elements(const cpu_stream& stream, const kernel::tanh<host_memory, T>& k) {
  using A = accumulate_t<T>;
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      simd::store(k.y_n.raw() + i, xsimd::tanh(simd::load<Arch>(k.x_n.raw() + i, count)), count);
    });
  });
}

template <class Arch, class T>
void tanh_backward_elements(const cpu_stream& stream, const kernel::tanh_backward<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      const batch y = simd::load<Arch>(k.y_n.raw() + i, count);
      simd::store(k.dx_n.raw() + i, simd::load<Arch>(k.dy_n.raw() + i, count) * (batch(A{1}) - y * y), count);
    });
  });
}

template <class Arch, class T>
void softcap_elements(const cpu_stream& stream, const kernel::softcap<host_memory, T>& k) {
  using A = accumulate_t<T>;
  const simd::batch<A, Arch> cap(static_cast<A>(k.cap));
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      simd::store(k.y_n.raw() + i, cap * xsimd::tanh(simd::load<Arch>(k.x_n.raw() + i, count) / cap), count);
    });
  });
}

template <class Arch, class T>
void softcap_backward_elements(const cpu_stream& stream, const kernel::softcap_backward<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const batch cap(static_cast<A>(k.cap));
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      const batch part = simd::load<Arch>(k.y_n.raw() + i, count) / cap;
      simd::store(k.d_n.raw() + i, simd::load<Arch>(k.d_n.raw() + i, count) * (batch(A{1}) - part * part), count);
    });
  });
}

template <class Arch, class T>
void swiglu_rows(const cpu_stream& stream, const kernel::swiglu<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* gate = k.gate_up_n2f.raw() + i * 2 * k.f;
      const T* up = gate + k.f;
      T* y = k.y_nf.raw() + i * k.f;
      simd::for_each_vector<A, Arch>(0, k.f, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        __builtin_prefetch(gate + 2 * k.f + j);  // next row
        __builtin_prefetch(up + 2 * k.f + j);
        const batch g = simd::load<Arch>(gate + j, count);
        simd::store(y + j, g / (batch(A{1}) + simd::exp(-g)) * simd::load<Arch>(up + j, count), count);
      });
    }
  });
}

template <class Arch, class T>
void swiglu_backward_rows(const cpu_stream& stream, const kernel::swiglu_backward<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const batch one(A{1});
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* gate = k.gate_up_n2f.raw() + i * 2 * k.f;
      const T* up = gate + k.f;
      const T* dy = k.dy_nf.raw() + i * k.f;
      T* dgate = k.dgate_up_n2f.raw() + i * 2 * k.f;
      T* dup = dgate + k.f;
      simd::for_each_vector<A, Arch>(0, k.f, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch g = simd::load<Arch>(gate + j, count);
        const batch dy_j = simd::load<Arch>(dy + j, count);
        const batch up_j = simd::load<Arch>(up + j, count);
        // forward: y = g · s · up,  s = 1 / (1 + exp(−g))
        const batch s = one / (one + simd::exp(-g));
        simd::store(dgate + j, dy_j * up_j * s * (one + g * (one - s)), count);
        simd::store(dup + j, dy_j * g * s, count);
      });
    }
  });
}

template <class Arch, class T>
void geglu_rows(const cpu_stream& stream, const kernel::geglu<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const batch slope(static_cast<A>(gelu_slope)), cubic(static_cast<A>(gelu_cubic)), one(A{1}), minus_two(A{-2});
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* gate = k.gate_up_n2f.raw() + i * 2 * k.f;
      const T* up = gate + k.f;
      T* y = k.y_nf.raw() + i * k.f;
      simd::for_each_vector<A, Arch>(0, k.f, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        __builtin_prefetch(gate + 2 * k.f + j);
        __builtin_prefetch(up + 2 * k.f + j);
        const batch g = simd::load<Arch>(gate + j, count);
        // (1 + tanh u) / 2 = 1 / (1 + exp(−2u))
        const batch gelu = g / (one + simd::exp(minus_two * slope * (g + cubic * g * g * g)));
        simd::store(y + j, gelu * simd::load<Arch>(up + j, count), count);
      });
    }
  });
}

template <class Arch, class T>
void geglu_backward_rows(const cpu_stream& stream, const kernel::geglu_backward<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const batch slope(static_cast<A>(gelu_slope)), cubic(static_cast<A>(gelu_cubic)), three_cubic(static_cast<A>(3.0 * gelu_cubic));
  const batch one(A{1}), two(A{2}), minus_two(A{-2});
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* gate = k.gate_up_n2f.raw() + i * 2 * k.f;
      const T* up = gate + k.f;
      const T* dy = k.dy_nf.raw() + i * k.f;
      T* dgate = k.dgate_up_n2f.raw() + i * 2 * k.f;
      T* dup = dgate + k.f;
      simd::for_each_vector<A, Arch>(0, k.f, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch g = simd::load<Arch>(gate + j, count);
        const batch dy_j = simd::load<Arch>(dy + j, count);
        const batch up_j = simd::load<Arch>(up + j, count);
        // forward: y = g · s · up,  s = 1 / (1 + exp(−2u))
        const batch s = one / (one + simd::exp(minus_two * slope * (g + cubic * g * g * g)));
        const batch du = slope * (one + three_cubic * g * g);
        simd::store(dgate + j, dy_j * up_j * (s + two * g * s * (one - s) * du), count);
        simd::store(dup + j, dy_j * g * s, count);
      });
    }
  });
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::gelu_tanh<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  cpu_kernels::gelu_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::gelu_tanh_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::gelu_backward_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::gelu_erf<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  cpu_kernels::gelu_erf_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::gelu_erf_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::gelu_erf_backward_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::tanh<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  cpu_kernels::tanh_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::tanh_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::tanh_backward_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::softcap<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::softcap_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::softcap_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::softcap_backward_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::swiglu<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::swiglu_rows<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::swiglu_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  cpu_kernels::swiglu_backward_rows<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::geglu<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::geglu_rows<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::geglu_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  cpu_kernels::geglu_backward_rows<simd::native>(stream, k);
}

}  // namespace xtrain
