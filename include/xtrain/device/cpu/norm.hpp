// Normalization: a row stays in L1 while it is summed and scaled.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/norm.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Σ_j of each batch of terms(j, count) over a row's channels, in four independent sums (one would be bound by the latency of additions), then across lanes.
template <class Arch, class A, std::size_t Sums, class Terms>
[[nodiscard]] XTRAIN_ALWAYS_INLINE std::array<A, Sums> sums_of(std::size_t c, Terms&& terms) {
  constexpr std::size_t w = simd::width<A, Arch>, chains = 4;
  simd::batch<A, Arch> sum[chains][Sums];
  XTRAIN_UNROLL for (std::size_t i = 0; i < chains; ++i) {
    XTRAIN_UNROLL for (std::size_t s = 0; s < Sums; ++s) sum[i][s] = simd::batch<A, Arch>(A{0});
  }
  const auto add = [&](std::size_t chain, std::size_t at, auto count) XTRAIN_LAMBDA_INLINE {
    const std::array<simd::batch<A, Arch>, Sums> more = terms(at, count);
    XTRAIN_UNROLL for (std::size_t s = 0; s < Sums; ++s) sum[chain][s] = sum[chain][s] + more[s];
  };
  std::size_t j = 0;
  for (; j + chains * w <= c; j += chains * w) {
    XTRAIN_UNROLL for (std::size_t i = 0; i < chains; ++i) add(i, j + i * w, std::integral_constant<std::size_t, w>{});
  }
  simd::for_each_vector<A, Arch>(j, c, [&](std::size_t at, auto count) XTRAIN_LAMBDA_INLINE { add(0, at, count); });
  std::array<A, Sums> total;
  XTRAIN_UNROLL for (std::size_t s = 0; s < Sums; ++s) total[s] = simd::sum((sum[0][s] + sum[1][s]) + (sum[2][s] + sum[3][s]));
  return total;
}
template <class Arch, class A, class Term>
[[nodiscard]] XTRAIN_ALWAYS_INLINE A sum_of(std::size_t c, Term&& term) {
  return sums_of<Arch, A, 1>(c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE { return std::array{term(j, count)}; })[0];
}

/// Rows per part: enough to stream, few enough that threads finish together.
[[nodiscard]] constexpr std::size_t rows_per_part(std::size_t row_bytes) {
  return std::max<std::size_t>(4, (std::size_t{1} << 16) / std::max<std::size_t>(1, row_bytes));
}

/// Maximum row ranges for sums over rows: summed separately, added in order.
inline constexpr std::size_t row_ranges = 16;
[[nodiscard]] constexpr std::size_t rows_per_range(std::size_t n) { return (n + row_ranges - 1) / row_ranges; }

template <class Arch, class T>
void rms_norm_rows(const cpu_stream& stream, const kernel::rms_norm<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, rows_per_part(k.c * sizeof(T)), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = k.x_nc.raw() + i * k.c;
      T* y = k.y_nc.raw() + i * k.c;
      const A squares = sum_of<Arch, A>(k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch x_j = simd::load<Arch>(x + j, count);
        return x_j * x_j;
      });
      const A rstd = A{1} / std::sqrt(squares / static_cast<A>(k.c) + static_cast<A>(k.epsilon));
      k.rstd_n.raw()[i] = rstd;
      const batch scale(rstd), offset(static_cast<A>(k.offset));
      simd::for_each_vector<A, Arch>(0, k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        __builtin_prefetch(x + k.c + j);  // next row
        simd::store(y + j, simd::load<Arch>(x + j, count) * scale * (offset + simd::load<Arch>(k.weight_c.raw() + j, count)), count);
      });
    }
  });
}

/// out_c += Σ over ranges of sums[range][c], in order.
template <class Arch, class A, class G>
void add_range_sums(std::size_t ranges, std::size_t c, const A* sums, std::size_t step, G* out) {
  simd::for_each_vector<A, Arch>(0, c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
    simd::batch<A, Arch> total(A{0});
    for (std::size_t r = 0; r < ranges; ++r) total = total + simd::load<Arch>(sums + r * step + j, count);
    simd::store(out + j, simd::load<Arch>(out + j, count) + total, count);
  });
}

template <class Arch, class T, class G>
void rms_norm_backward_rows(const cpu_stream& stream, const kernel::rms_norm_backward<host_memory, T, G>& k, std::byte* scratch) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const std::size_t per_range = rows_per_range(k.n);
  const bool weight_learns = !k.dweight_c.empty();
  const batch offset(static_cast<A>(k.offset));
  A* sums = reinterpret_cast<A*>(scratch);  // [ranges, c]
  stream.parallel_ranges(k.n, per_range, [&](std::size_t begin, std::size_t end) {
    A* dweight = sums + begin / per_range * k.c;
    if (weight_learns) std::fill_n(dweight, k.c, A{0});
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = k.x_nc.raw() + i * k.c;
      const T* dy = k.dy_nc.raw() + i * k.c;
      T* dx = k.dx_nc.raw() + i * k.c;
      const batch rstd(k.rstd_n.raw()[i]);
      // forward: y = x̂ · (offset + weight),  x̂ = x · rstd
      const A gx = sum_of<Arch, A>(k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch g = simd::load<Arch>(dy + j, count) * (offset + simd::load<Arch>(k.weight_c.raw() + j, count));
        return g * simd::load<Arch>(x + j, count) * rstd;
      });
      const batch mean_gx(gx / static_cast<A>(k.c));
      simd::for_each_vector<A, Arch>(0, k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch dy_j = simd::load<Arch>(dy + j, count);
        const batch xhat = simd::load<Arch>(x + j, count) * rstd;
        const batch g = dy_j * (offset + simd::load<Arch>(k.weight_c.raw() + j, count));
        simd::store(dx + j, simd::load<Arch>(dx + j, count) + rstd * (g - xhat * mean_gx), count);
        if (weight_learns) simd::store(dweight + j, simd::load<Arch>(dweight + j, count) + dy_j * xhat, count);
      });
    }
  });
  if (weight_learns) add_range_sums<Arch>((k.n + per_range - 1) / per_range, k.c, sums, k.c, k.dweight_c.raw());
}

template <class Arch, class T>
void head_norm_rows(const cpu_stream& stream, const kernel::head_norm<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, rows_per_part(k.row() * sizeof(T)), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = k.x_nr.raw() + i * k.row();
      T* y = k.y_nr.raw() + i * k.row();
      for (std::size_t head = 0; head < k.h + k.k; ++head, x += k.d, y += k.d) {
        const T* weight = head < k.h ? k.query_d.raw() : k.key_d.raw();
        const A squares = sum_of<Arch, A>(k.d, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
          const batch x_j = simd::load<Arch>(x + j, count);
          return x_j * x_j;
        });
        const A rstd = A{1} / std::sqrt(squares / static_cast<A>(k.d) + static_cast<A>(k.epsilon));
        k.rstd_nh.raw()[i * (k.h + k.k) + head] = rstd;
        const batch scale(rstd);
        simd::for_each_vector<A, Arch>(0, k.d, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
          simd::store(y + j, simd::load<Arch>(x + j, count) * scale * simd::load<Arch>(weight + j, count), count);
        });
      }
      std::copy_n(x, k.k * k.d, y);  // copies values
    }
  });
}

template <class Arch, class T, class G>
void head_norm_backward_rows(const cpu_stream& stream, const kernel::head_norm_backward<host_memory, T, G>& k, std::byte* scratch) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const std::size_t per_range = rows_per_range(k.n);
  const bool weights_learn = !k.dquery_d.empty();
  A* sums = reinterpret_cast<A*>(scratch);  // [ranges, 2, d]: queries' weight, keys' weight
  stream.parallel_ranges(k.n, per_range, [&](std::size_t begin, std::size_t end) {
    A* range_sums = sums + begin / per_range * 2 * k.d;
    if (weights_learn) std::fill_n(range_sums, 2 * k.d, A{0});
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = k.x_nr.raw() + i * k.row();
      const T* dy = k.dy_nr.raw() + i * k.row();
      T* dx = k.dx_nr.raw() + i * k.row();
      for (std::size_t head = 0; head < k.h + k.k; ++head, x += k.d, dy += k.d, dx += k.d) {
        const T* weight = head < k.h ? k.query_d.raw() : k.key_d.raw();
        A* dweight = head < k.h ? range_sums : range_sums + k.d;
        const batch rstd(k.rstd_nh.raw()[i * (k.h + k.k) + head]);
        // forward: y = x̂ · weight,  x̂ = x · rstd
        const A gx = sum_of<Arch, A>(k.d, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
          const batch g = simd::load<Arch>(dy + j, count) * simd::load<Arch>(weight + j, count);
          return g * simd::load<Arch>(x + j, count) * rstd;
        });
        const batch mean_gx(gx / static_cast<A>(k.d));
        simd::for_each_vector<A, Arch>(0, k.d, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
          const batch dy_j = simd::load<Arch>(dy + j, count);
          const batch xhat = simd::load<Arch>(x + j, count) * rstd;
          const batch g = dy_j * simd::load<Arch>(weight + j, count);
          simd::store(dx + j, rstd * (g - xhat * mean_gx), count);
          if (weights_learn) simd::store(dweight + j, simd::load<Arch>(dweight + j, count) + dy_j * xhat, count);
        });
      }
      if (dx != dy) std::copy_n(dy, k.k * k.d, dx);  // copies values
    }
  });
  if (!weights_learn) return;
  const std::size_t ranges = (k.n + per_range - 1) / per_range;
  add_range_sums<Arch>(ranges, k.d, sums, 2 * k.d, k.dquery_d.raw());
  add_range_sums<Arch>(ranges, k.d, sums + k.d, 2 * k.d, k.dkey_d.raw());
}

template <class Arch, class T>
void layer_norm_rows(const cpu_stream& stream, const kernel::layer_norm<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, rows_per_part(k.c * sizeof(T)), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = k.x_nc.raw() + i * k.c;
      T* y = k.y_nc.raw() + i * k.c;
      const A total = sum_of<Arch, A>(k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE { return simd::load<Arch>(x + j, count); });
      const A mean = total / static_cast<A>(k.c);
      // lanes after the row's end are zeros, whose deviation must not count
      const std::size_t whole = k.c / simd::width<A, Arch> * simd::width<A, Arch>;
      A squares = sum_of<Arch, A>(whole, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch deviation = simd::load<Arch>(x + j, count) - batch(mean);
        return deviation * deviation;
      });
      for (std::size_t j = whole; j < k.c; ++j) squares += (static_cast<A>(x[j]) - mean) * (static_cast<A>(x[j]) - mean);
      const A rstd = A{1} / std::sqrt(squares / static_cast<A>(k.c) + static_cast<A>(k.epsilon));
      k.mean_n.raw()[i] = mean;
      k.rstd_n.raw()[i] = rstd;
      simd::for_each_vector<A, Arch>(0, k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        __builtin_prefetch(x + k.c + j);
        const batch xhat = (simd::load<Arch>(x + j, count) - batch(mean)) * batch(rstd);
        const batch scaled = xhat * simd::load<Arch>(k.weight_c.raw() + j, count);
        simd::store(y + j, scaled + simd::load<Arch>(k.bias_c.raw() + j, count), count);
      });
    }
  });
}

template <class Arch, class T, class G>
void layer_norm_backward_rows(const cpu_stream& stream, const kernel::layer_norm_backward<host_memory, T, G>& k, std::byte* scratch) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const std::size_t per_range = rows_per_range(k.n);
  const bool weight_learns = !k.dweight_c.empty();
  const bool bias_learns = !k.dbias_c.empty();
  A* sums = reinterpret_cast<A*>(scratch);  // [ranges, 2, c]: weight, bias
  stream.parallel_ranges(k.n, per_range, [&](std::size_t begin, std::size_t end) {
    A* dweight = sums + begin / per_range * 2 * k.c;
    A* dbias = dweight + k.c;
    std::fill_n(dweight, 2 * k.c, A{0});
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = k.x_nc.raw() + i * k.c;
      const T* dy = k.dy_nc.raw() + i * k.c;
      T* dx = k.dx_nc.raw() + i * k.c;
      const batch mean(k.mean_n.raw()[i]);
      const batch rstd(k.rstd_n.raw()[i]);
      // forward: y = x̂ · weight + bias,  x̂ = (x − mean) · rstd
      const auto [g_sum, gx_sum] = sums_of<Arch, A, 2>(k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch g = simd::load<Arch>(dy + j, count) * simd::load<Arch>(k.weight_c.raw() + j, count);
        return std::array{g, g * (simd::load<Arch>(x + j, count) - mean) * rstd};
      });
      const batch mean_g(g_sum / static_cast<A>(k.c));
      const batch mean_gx(gx_sum / static_cast<A>(k.c));
      simd::for_each_vector<A, Arch>(0, k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const batch dy_j = simd::load<Arch>(dy + j, count);
        const batch xhat = (simd::load<Arch>(x + j, count) - mean) * rstd;
        const batch g = dy_j * simd::load<Arch>(k.weight_c.raw() + j, count);
        simd::store(dx + j, simd::load<Arch>(dx + j, count) + rstd * (g - mean_g - xhat * mean_gx), count);
        if (weight_learns) simd::store(dweight + j, simd::load<Arch>(dweight + j, count) + dy_j * xhat, count);
        if (bias_learns) simd::store(dbias + j, simd::load<Arch>(dbias + j, count) + dy_j, count);
      });
    }
  });
  const std::size_t ranges = (k.n + per_range - 1) / per_range;
  if (weight_learns) add_range_sums<Arch>(ranges, k.c, sums, 2 * k.c, k.dweight_c.raw());
  if (bias_learns) add_range_sums<Arch>(ranges, k.c, sums + k.c, 2 * k.c, k.dbias_c.raw());
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::rms_norm<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<8>(k);
  cpu_kernels::rms_norm_rows<simd::native>(stream, k);
}

template <class T, class G>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties&, const kernel::rms_norm_backward<host_memory, T, G>& k) {
  return k.dweight_c.empty() ? 0 : cpu_kernels::row_ranges * k.c * sizeof(accumulate_t<T>);
}
template <class T, class G>
void run_native(cpu_stream& stream, const kernel::rms_norm_backward<host_memory, T, G>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<9>(k);
  cpu_kernels::rms_norm_backward_rows<simd::native>(stream, k, scratch.raw());
}

template <class T>
void run_native(cpu_stream& stream, const kernel::head_norm<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  cpu_kernels::head_norm_rows<simd::native>(stream, k);
}

template <class T, class G>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties&, const kernel::head_norm_backward<host_memory, T, G>& k) {
  return k.dquery_d.empty() ? 0 : 2 * cpu_kernels::row_ranges * k.d * sizeof(accumulate_t<T>);
}
template <class T, class G>
void run_native(cpu_stream& stream, const kernel::head_norm_backward<host_memory, T, G>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<12>(k);
  cpu_kernels::head_norm_backward_rows<simd::native>(stream, k, scratch.raw());
}

template <class T>
void run_native(cpu_stream& stream, const kernel::layer_norm<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::layer_norm_rows<simd::native>(stream, k);
}

template <class T, class G>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties&, const kernel::layer_norm_backward<host_memory, T, G>& k) {
  return 2 * cpu_kernels::row_ranges * k.c * sizeof(accumulate_t<T>);
}
template <class T, class G>
void run_native(cpu_stream& stream, const kernel::layer_norm_backward<host_memory, T, G>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<10>(k);
  cpu_kernels::layer_norm_backward_rows<simd::native>(stream, k, scratch.raw());
}

}  // namespace xtrain
