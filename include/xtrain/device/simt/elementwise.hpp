// One pass over memory each.
#pragma once

#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/random.hpp>
#include <xtrain/device/simt/two_stage_sum.hpp>

namespace xtrain {

namespace simt {

template <class T>
struct add_op {
  const T* x;
  T* y;
  float factor;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const auto x_n = load<N>(x + i);
    auto y_n = load<N>(static_cast<const T*>(y + i));
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) y_n.v[e] = rounded<T>(widen(y_n.v[e]) + factor * widen(x_n.v[e]));
    store<N>(y + i, y_n);
  }
};

template <class From, class To>
struct cast_op {
  const From* x;
  To* y;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    const auto x_n = load<N>(x + i);
    vector_of<To, N> y_n;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) y_n.v[e] = rounded<To>(widen(x_n.v[e]));
    store<N>(y + i, y_n);
  }
};

/// A thread per vector of a row; rows in the grid's y, beyond 65535 in steps.
template <class T, int Width>
struct copy_rows_launch {
  static constexpr int threads = 256;
  struct shared {};
  const T* x;
  T* y;
  std::size_t rows, columns, x_stride, y_stride;
  int row_step;
  bool accumulate;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t j = thread_of_grid(threads) * Width;
    if (j >= columns) return;
    for (std::size_t row = static_cast<std::size_t>(block_y()); row < rows; row += static_cast<std::size_t>(row_step)) {
      const T* from = x + row * x_stride + j;
      T* to = y + row * y_stride + j;
      auto all = load<Width>(from);
      if (accumulate) {
        const auto old = load<Width>(static_cast<const T*>(to));
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < Width; ++e) all.v[e] = rounded<T>(widen(old.v[e]) + widen(all.v[e]));
      }
      store<Width>(to, all);
    }
  }
};

template <class T>
struct dropout_op {
  const T* x;
  T* y;
  std::size_t width, whole_width;
  float kept;
  std::uint32_t threshold;
  bool accumulate;
  random_site random;
  const kernel::step_inputs* inputs;

  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t first_of_rows) const {
    random_words words(site_of_step(random, inputs));
    const auto x_n = load<N>(x + i);
    vector_of<T, N> y_n{};
    if (accumulate) y_n = load<N>(static_cast<const T*>(y + i));
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const std::size_t element = first_of_rows + static_cast<std::size_t>(e);
      const std::size_t drawn = width == 0 ? element : element / width * whole_width + element % width;
      const float value = words.of(drawn) >= threshold ? widen(x_n.v[e]) * kept : 0.0f;
      y_n.v[e] = rounded<T>(accumulate ? widen(y_n.v[e]) + value : value);
    }
    store<N>(y + i, y_n);
  }
};

template <class T>
struct uniform_noise_op {
  T* y;
  float magnitude;
  random_site random;
  const kernel::step_inputs* inputs;
  template <int N>
  XTRAIN_SIMT_FN void at(std::size_t i, std::size_t) const {
    random_words words(site_of_step(random, inputs));
    auto y_n = load<N>(static_cast<const T*>(y + i));
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const float uniform = static_cast<float>(words.of(i + static_cast<std::size_t>(e)) >> 8) * 0x1p-23f - 1.0f;
      y_n.v[e] = rounded<T>(widen(y_n.v[e]) + magnitude * uniform);
    }
    store<N>(y + i, y_n);
  }
};

template <class T>
struct square_of {
  const T* x;
  XTRAIN_SIMT_FN double at(std::size_t i) const {
    const float value = widen(x[i]);
    return static_cast<double>(value * value);
  }
  /// In double: squares of gradients span more than a float's precision.
  template <int N>
  XTRAIN_SIMT_FN double of(std::size_t i) const {
    const auto x_n = load<N>(x + i);
    double sum = 0;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) {
      const float value = widen(x_n.v[e]);
      sum += static_cast<double>(value * value);
    }
    return sum;
  }
};

template <class M, class T>
void launch_dropout(launches auto& stream, const kernel::dropout<M, T>& k, row_range rows) {
  const dropout_op<T> op{k.x_n.raw(),
                         k.y_n.raw(),
                         k.width,
                         k.whole_width,
                         k.probability < 1.0 ? narrowed(1.0 / (1.0 - k.probability)) : 0.0f,
                         dropout_threshold(k.probability),
                         k.accumulate,
                         k.random,
                         k.inputs_1.raw()};
  launch_each<elements_of<T>>(stream, op, k.n, all_aligned(k.x_n.raw(), k.y_n.raw()), rows);
}

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::add<M, T>& k, scratch_span<M>) {
  kernel::check_arity<4>(k);
  simt::launch_each<simt::elements_of<T>>(stream, simt::add_op<T>{k.x_n.raw(), k.y_n.raw(), simt::narrowed(k.factor)}, k.n,
                                          simt::all_aligned(k.x_n.raw(), k.y_n.raw()));
}

template <simt::launches S, class M, class From, class To>
requires(simt::up_to_float<From>&& simt::up_to_float<To>) void run_kernel(S& stream, const kernel::cast<M, From, To>& k, scratch_span<M>) {
  kernel::check_arity<3>(k);
  constexpr int width = 8;
  simt::launch_each<width>(stream, simt::cast_op<From, To>{k.x_n.raw(), k.y_n.raw()}, k.n, simt::all_aligned(k.x_n.raw(), k.y_n.raw()));
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::copy_rows<M, T>& k, scratch_span<M>) {
  kernel::check_arity<7>(k);
  if (k.rows == 0 || k.columns == 0) return;
  constexpr int width = simt::elements_of<T>;
  const int row_step = static_cast<int>(std::min<std::size_t>(k.rows, 65535));
  const bool vectors =
      simt::all_aligned(k.x.raw(), k.y.raw()) && k.columns % width == 0 && k.x_stride % width == 0 && k.y_stride % width == 0;
  simt::choose(vectors, [&](auto wide) {
    constexpr int of_thread = decltype(wide)::value ? width : 1;
    stream.launch(
        simt::copy_rows_launch<T, of_thread>{k.x.raw(), k.y.raw(), k.rows, k.columns, k.x_stride, k.y_stride, row_step, k.accumulate},
        {simt::blocks_of(k.columns, 256 * of_thread), row_step, 1});
  });
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::dropout<M, T>& k, scratch_span<M>) {
  kernel::check_arity<9>(k);
  simt::launch_dropout(stream, k, {});
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::in_rows<kernel::dropout<M, T>, M>& k, scratch_span<M>) {
  simt::launch_dropout(stream, k.whole, {k.range_2.raw(), k.total == 0 ? 0 : k.whole.n / k.total});
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::uniform_noise<M, T>& k, scratch_span<M>) {
  kernel::check_arity<5>(k);
  const simt::uniform_noise_op<T> op{k.y_n.raw(), simt::narrowed(k.magnitude), k.random, k.inputs_1.raw()};
  simt::launch_each<simt::elements_of<T>>(stream, op, k.n, simt::all_aligned(k.y_n.raw()));
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::sum_of_squares<M, T>& k, scratch_span<M> scratch) {
  kernel::check_arity<3>(k);
  simt::launch_sum<simt::elements_of<T>>(stream, simt::square_of<T>{k.x_n.raw()}, k.n, simt::is_aligned(k.x_n.raw()), k.sum_1.raw(), false,
                                         scratch.raw());
}
template <simt::of_simt_device P, class M, class T>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::sum_of_squares<M, T>&) { return simt::sum_scratch_bytes; }

}  // namespace xtrain
