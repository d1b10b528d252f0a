// Addition, conversion, dropout, uniform noise, sum of squares.
#pragma once

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/random.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/elementwise.hpp>

namespace xtrain {

namespace cpu_kernels {

template <class Arch, class T>
void add_elements(const cpu_stream& stream, const kernel::add<host_memory, T>& k) {
  using A = accumulate_t<T>;
  const simd::batch<A, Arch> factor(static_cast<A>(k.factor));
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      T* y = k.y_n.raw() + i;
      simd::store(y, simd::multiply_add(factor, simd::load<Arch>(k.x_n.raw() + i, count), simd::load<Arch>(y, count)), count);
    });
  });
}

template <class Arch, class T>
void copy_all_rows(const cpu_stream& stream, const kernel::copy_rows<host_memory, T>& k) {
  using A = accumulate_t<T>;
  const std::size_t rows_at_once = std::max<std::size_t>(1, elements_per_part / std::max<std::size_t>(1, k.columns));
  stream.parallel_ranges(k.rows, rows_at_once, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      const T* x = k.x.raw() + row * k.x_stride;
      T* y = k.y.raw() + row * k.y_stride;
      if (!k.accumulate) {
        std::copy_n(x, k.columns, y);
        continue;
      }
      simd::for_each_vector<A, Arch>(0, k.columns, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(y + i, simd::load<Arch>(y + i, count) + simd::load<Arch>(x + i, count), count);
      });
    }
  });
}

template <class Arch, class From, class To>
void cast_elements(const cpu_stream& stream, const kernel::cast<host_memory, From, To>& k) {
  using A = accumulate_t<From>;
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    if constexpr (std::is_same_v<A, accumulate_t<To>>) {
      simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(k.y_n.raw() + i, simd::load<Arch>(k.x_n.raw() + i, count), count);
      });
    } else {
      for (std::size_t i = begin; i < end; ++i) k.y_n.raw()[i] = static_cast<To>(static_cast<A>(k.x_n.raw()[i]));
    }
  });
}

template <class Arch, class T>
void drop_elements(const cpu_stream& stream, const kernel::dropout<host_memory, T>& k) {
  using A = accumulate_t<T>;
  const std::uint32_t threshold = dropout_threshold(k.probability);
  const A kept = k.probability < 1.0 ? static_cast<A>(1.0 / (1.0 - k.probability)) : A{0};
  const random_site random = kernel::random_of(k);
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    std::array<std::uint32_t, words_at_once> words;
    std::array<A, words_at_once> factor;
    std::size_t next = end;
    for (std::size_t first = begin; first < end; first = next) {
      next = std::min(end, first + words_at_once);
      if (k.width != 0) next = std::min(next, (first / k.width + 1) * k.width);  // consecutive within a row
      random_words(random, k.drawn(first), words);
      for (std::size_t i = 0; i < words_at_once; ++i) factor[i] = words[i] >= threshold ? kept : A{0};
      const T* x = k.x_n.raw() + first;
      T* y = k.y_n.raw() + first;
      simd::for_each_vector<A, Arch>(0, next - first, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
        auto result = simd::load<Arch>(x + i, count) * simd::load<Arch>(factor.data() + i, count);
        if (k.accumulate) result = result + simd::load<Arch>(y + i, count);
        simd::store(y + i, result, count);
      });
    }
  });
}

template <class Arch, class T>
void add_noise(const cpu_stream& stream, const kernel::uniform_noise<host_memory, T>& k) {
  using A = accumulate_t<T>;
  const simd::batch<A, Arch> magnitude(static_cast<A>(k.magnitude));
  const random_site random = kernel::random_of(k);
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    std::array<std::uint32_t, words_at_once> words;
    std::array<A, words_at_once> noise;
    for (std::size_t first = begin; first < end; first += words_at_once) {
      random_words(random, first, words);
      for (std::size_t i = 0; i < words_at_once; ++i) noise[i] = static_cast<A>(words[i] >> 8) * static_cast<A>(0x1p-23) - A{1};
      T* y = k.y_n.raw() + first;
      simd::for_each_vector<A, Arch>(0, std::min(end - first, words_at_once), [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(y + i, simd::multiply_add(magnitude, simd::load<Arch>(noise.data() + i, count), simd::load<Arch>(y + i, count)), count);
      });
    }
  });
}

/// Sums of 4096 squares in accumulate are added in double.
template <class Arch, class T>
void square_elements(const cpu_stream& stream, const kernel::sum_of_squares<host_memory, T>& k, double* sums) {
  using A = accumulate_t<T>;
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    constexpr std::size_t chunk = 4096;
    double total = 0.0;
    for (std::size_t first = begin; first < end; first += chunk) {
      simd::batch<A, Arch> sum(A{0});
      simd::for_each_vector<A, Arch>(first, std::min(end, first + chunk), [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
        const auto x = simd::load<Arch>(k.x_n.raw() + i, count);
        sum = simd::multiply_add(x, x, sum);
      });
      total += static_cast<double>(simd::sum(sum));
    }
    sums[begin / elements_per_part] = total;
  });
  double total = 0.0;
  for (std::size_t part = 0; part * elements_per_part < k.n; ++part) total += sums[part];
  *k.sum_1.raw() = total;
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::add<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  cpu_kernels::add_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::copy_rows<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  cpu_kernels::copy_all_rows<simd::native>(stream, k);
}
template <class From, class To>
void run_native(cpu_stream& stream, const kernel::cast<host_memory, From, To>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  cpu_kernels::cast_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::dropout<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::drop_elements<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::uniform_noise<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  cpu_kernels::add_noise<simd::native>(stream, k);
}
template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties&, const kernel::sum_of_squares<host_memory, T>& k) {
  return (k.n / cpu_kernels::elements_per_part + 1) * sizeof(double);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::sum_of_squares<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<3>(k);
  cpu_kernels::square_elements<simd::native>(stream, k, reinterpret_cast<double*>(scratch.raw()));
}

}  // namespace xtrain
