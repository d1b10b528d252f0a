#pragma once

#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

[[nodiscard]] constexpr bool inside(token index, std::size_t size) { return index >= 0 && static_cast<std::size_t>(index) < size; }

}  // namespace detail

template <class T>
void run_kernel(reference_stream&, const kernel::embedding<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<T>;
  for (std::size_t i = 0; i < k.n; ++i) {
    const token row = k.index_n.data()[i] - k.first;
    for (std::size_t j = 0; j < k.c; ++j) {
      const acc looked_up =
          detail::inside(row, k.v) ? static_cast<acc>(k.table_vc.data()[static_cast<std::size_t>(row) * k.c + j]) * static_cast<acc>(k.scale) : acc{0};
      T& y = k.y_nc.data()[i * k.c + j];
      y = static_cast<T>(k.accumulate ? static_cast<acc>(y) + looked_up : looked_up);
    }
  }
}

template <class T, class G>
void run_kernel(reference_stream&, const kernel::embedding_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<T>;
  for (std::size_t i = 0; i < k.n; ++i) {
    const token row = k.index_n.data()[i] - k.first;
    if (k.index_n.data()[i] == k.padding || !detail::inside(row, k.v)) continue;
    for (std::size_t j = 0; j < k.c; ++j) {
      G& dtable = k.dtable_vc.data()[static_cast<std::size_t>(row) * k.c + j];
      dtable = static_cast<G>(static_cast<acc>(dtable) + static_cast<acc>(k.dy_nc.data()[i * k.c + j]) * static_cast<acc>(k.scale));
    }
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::rotary<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  using acc = accumulate_t<T>;
  const std::size_t half = k.d / 2;
  for (std::size_t i = 0; i < k.n; ++i) {
    const token position = k.position_n.data()[i];
    if (!detail::inside(position, k.positions)) continue;
    for (std::size_t head = 0; head < k.heads; ++head) {
      for (std::size_t j = 0; j < half; ++j) {
        const std::size_t angle = static_cast<std::size_t>(position) * k.d + j;
        const auto cosine = static_cast<acc>(k.cos_sin_pd.data()[angle]);
        const auto sine = static_cast<acc>(k.inverse ? -k.cos_sin_pd.data()[angle + half] : k.cos_sin_pd.data()[angle + half]);
        T& first = k.x.data()[i * k.stride + head * k.head_stride + j];
        T& second = k.x.data()[i * k.stride + head * k.head_stride + j + half];
        const auto a = static_cast<acc>(first);
        const auto b = static_cast<acc>(second);
        first = static_cast<T>(a * cosine - b * sine);
        second = static_cast<T>(b * cosine + a * sine);
      }
    }
  }
}

}  // namespace xtrain
