// Embedding look-up, its backward (scatter-add), rotary embedding.
#pragma once

#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/embedding.hpp>

namespace xtrain {

namespace cpu_kernels {

[[nodiscard]] constexpr bool in_table(token index, std::size_t size) { return index >= 0 && static_cast<std::size_t>(index) < size; }

/// In table rows: one is too late.
inline constexpr std::size_t table_rows_ahead = 3;

/// The hardware prefetcher cannot predict the next row.
template <class T>
void prefetch_row(const T* table, token index, std::size_t size, std::size_t c, std::size_t begin, std::size_t end) {
  if (!in_table(index, size)) return;
  const char* const row = reinterpret_cast<const char*>(table + static_cast<std::size_t>(index) * c);
  for (std::size_t byte = begin * sizeof(T); byte < end * sizeof(T); byte += 64) __builtin_prefetch(row + byte);
}

template <class Arch, class T>
void embed_rows(const cpu_stream& stream, const kernel::embedding<host_memory, T>& k) {
  using A = accumulate_t<T>;
  const simd::batch<A, Arch> scale(static_cast<A>(k.scale));
  stream.parallel_ranges(k.n, 16, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const token index = k.index_n.raw()[i] - k.first;
      if (i + table_rows_ahead < end) prefetch_row(k.table_vc.raw(), k.index_n.raw()[i + table_rows_ahead] - k.first, k.v, k.c, 0, k.c);
      T* y = k.y_nc.raw() + i * k.c;
      if (!in_table(index, k.v)) {
        if (!k.accumulate) std::fill_n(y, k.c, T{});
        continue;
      }
      const T* row = k.table_vc.raw() + static_cast<std::size_t>(index) * k.c;
      if (!k.accumulate && k.scale == 1.0) {
        std::copy_n(row, k.c, y);
        continue;
      }
      simd::for_each_vector<A, Arch>(0, k.c, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const auto scaled = simd::load<Arch>(row + j, count) * scale;
        simd::store(y + j, k.accumulate ? simd::load<Arch>(y + j, count) + scaled : scaled, count);
      });
    }
  });
}

/// Threads split channels: no shared writes, rows in order.
template <class Arch, class T, class G>
void scatter_rows(const cpu_stream& stream, const kernel::embedding_backward<host_memory, T, G>& k) {
  using A = accumulate_t<T>;
  const std::size_t share = (k.c + stream.threads() - 1) / stream.threads();
  const simd::batch<A, Arch> scale(static_cast<A>(k.scale));
  stream.parallel_ranges(k.c, std::max<std::size_t>(128, (share + 31) / 32 * 32), [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < k.n; ++i) {
      const token index = k.index_n.raw()[i] - k.first;
      if (i + table_rows_ahead < k.n) prefetch_row<G>(k.dtable_vc.raw(), k.index_n.raw()[i + table_rows_ahead] - k.first, k.v, k.c, begin, end);
      if (k.index_n.raw()[i] == k.padding || !in_table(index, k.v)) continue;
      const T* dy = k.dy_nc.raw() + i * k.c;
      G* row = k.dtable_vc.raw() + static_cast<std::size_t>(index) * k.c;
      simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(row + j, simd::load<Arch>(row + j, count) + simd::load<Arch>(dy + j, count) * scale, count);
      });
    }
  });
}

template <class Arch, class T>
void rotate_rows(const cpu_stream& stream, const kernel::rotary<host_memory, T>& k) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const std::size_t half = k.d / 2;
  const batch direction(k.inverse ? A{-1} : A{1});
  const auto as_sum_type = [](const float* from, auto count) XTRAIN_LAMBDA_INLINE {
    if constexpr (std::is_same_v<A, float>) {
      return simd::load<Arch>(from, count);
    } else {
      std::array<A, simd::width<A, Arch>> lanes{};
      for (std::size_t i = 0; i < count; ++i) lanes[i] = static_cast<A>(from[i]);
      return batch::load_unaligned(lanes.data());
    }
  };
  stream.parallel_ranges(k.n, 8, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const token position = k.position_n.raw()[i];
      if (!in_table(position, k.positions)) continue;
      const float* cosines = k.cos_sin_pd.raw() + static_cast<std::size_t>(position) * k.d;
      const float* sines = cosines + half;
      for (std::size_t h = 0; h < k.heads; ++h) {
        T* first = k.x.raw() + i * k.stride + h * k.head_stride;
        T* second = first + half;
        simd::for_each_vector<A, Arch>(0, half, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
          const batch cosine = as_sum_type(cosines + j, count);
          const batch sine = as_sum_type(sines + j, count) * direction;
          const batch a = simd::load<Arch>(first + j, count);
          const batch b = simd::load<Arch>(second + j, count);
          simd::store(first + j, a * cosine - b * sine, count);
          simd::store(second + j, b * cosine + a * sine, count);
        });
      }
    }
  });
}

}  // namespace cpu_kernels

template <class T>
void run_native(cpu_stream& stream, const kernel::embedding<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::embed_rows<simd::native>(stream, k);
}
template <class T, class G>
void run_native(cpu_stream& stream, const kernel::embedding_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::scatter_rows<simd::native>(stream, k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::rotary<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  cpu_kernels::rotate_rows<simd::native>(stream, k);
}

}  // namespace xtrain
