#pragma once

#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T>
void run_kernel(reference_stream&, const kernel::add<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  using acc = accumulate_t<T>;
  detail::store_added<1>(k.y_n, static_cast<acc>(k.factor) * detail::values<acc>(k.x_n, k.n));
}

template <class T>
void run_kernel(reference_stream&, const kernel::copy_rows<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  using acc = accumulate_t<T>;
  for (std::size_t row = 0; row < k.rows; ++row)
    for (std::size_t column = 0; column < k.columns; ++column) {
      const T x = k.x.data()[row * k.x_stride + column];
      T& y = k.y.data()[row * k.y_stride + column];
      y = k.accumulate ? static_cast<T>(static_cast<acc>(y) + static_cast<acc>(x)) : x;
    }
}

template <class From, class To>
void run_kernel(reference_stream&, const kernel::cast<host_memory, From, To>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  detail::store<1>(k.y_n, detail::values<accumulate_t<From>>(k.x_n, k.n));
}

template <class T>
void run_kernel(reference_stream&, const kernel::dropout<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<T>;
  const std::uint32_t threshold = dropout_threshold(k.probability);
  const acc scale = k.probability < 1.0 ? static_cast<acc>(1.0 / (1.0 - k.probability)) : acc{0};
  const random_site random = kernel::random_of(k);
  array<acc, 1> kept = detail::values<acc>(k.x_n, k.n);
  for (std::size_t i = 0; i < k.n; ++i) kept(i) = random_word(random, k.drawn(i)) >= threshold ? kept(i) * scale : acc{0};
  if (k.accumulate) {
    detail::store_added<1>(k.y_n, kept);
  } else {
    detail::store<1>(k.y_n, kept);
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::uniform_noise<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  using acc = accumulate_t<T>;
  const random_site random = kernel::random_of(k);
  array<acc, 1> noise = detail::values<acc>(k.y_n, k.n);
  for (std::size_t i = 0; i < k.n; ++i)
    noise(i) = static_cast<acc>(k.magnitude) * (static_cast<acc>(random_word(random, i) >> 8) * static_cast<acc>(0x1p-23) - acc{1});
  detail::store_added<1>(k.y_n, noise);
}

template <class T>
void run_kernel(reference_stream&, const kernel::sum_of_squares<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<3>(k);
  double sum = 0.0;
  for (std::size_t i = 0; i < k.n; ++i) {
    const auto x = static_cast<accumulate_t<T>>(k.x_n.data()[i]);
    sum += static_cast<double>(x * x);
  }
  k.sum_1.data()[0] = sum;
}

}  // namespace xtrain
