// Sums of columns: of groups of rows, then of the groups, in an order that depends on the number of rows alone.
#pragma once

#include <cstddef>

#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain {

namespace simt {

inline constexpr std::size_t most_row_groups = 64;

/// part_gc = column sums per group of `rows` rows. term.of<N>(i, j): N neighbours of row i from column j on, as floats.
template <class Term, int Width>
struct column_parts {
  static constexpr int threads = 256, row_threads = 32, row_lanes = threads / row_threads, columns = row_threads * Width;
  struct shared {
    shared_array<float, row_lanes * columns> sums;
  };
  Term term;
  float* part;
  std::size_t n, c, rows;
  const token* range;  // first row and number of rows; null: all n

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const int column = thread() % row_threads * Width, row_lane = thread() / row_threads;
    const std::size_t j = static_cast<std::size_t>(block_x()) * columns + static_cast<std::size_t>(column);
    std::size_t first = 0, all = n;
    if (range != nullptr) first = static_cast<std::size_t>(range[0]), all = static_cast<std::size_t>(range[1]);
    const std::size_t begin = static_cast<std::size_t>(block_y()) * rows, end = smaller(begin + rows, all);
    float sum[Width];
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < Width; ++e) sum[e] = 0;
    if (j < c) {
      for (std::size_t i = begin + static_cast<std::size_t>(row_lane); i < end; i += row_lanes) {
        const auto values = term.template of<Width>(first + i, j);
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < Width; ++e) sum[e] += values.v[e];
      }
    }
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < Width; ++e) s.sums[row_lane * columns + column + e] = sum[e];
    sync();
    for (int k = thread(); k < columns; k += threads) {
      const std::size_t at = static_cast<std::size_t>(block_x()) * columns + static_cast<std::size_t>(k);
      if (at >= c) break;
      float total = 0;
      XTRAIN_SIMT_UNROLL
      for (int r = 0; r < row_lanes; ++r) total += s.sums[r * columns + k];
      part[static_cast<std::size_t>(block_y()) * c + at] = total;
    }
  }
};

/// sum_c += a column's parts, rounded once.
template <class G>
struct add_column_parts {
  static constexpr int threads = 256;
  struct shared {};
  const float* part;
  G* sum;
  std::size_t c;
  int groups;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t j = thread_of_grid(threads);
    if (j >= c) return;
    float total = 0;
    for (int g = 0; g < groups; ++g) total += part[static_cast<std::size_t>(g) * c + j];
    sum[j] = rounded<G>(widen(sum[j]) + total);
  }
};

[[nodiscard]] constexpr std::size_t column_scratch_bytes(std::size_t c) { return most_row_groups * c * sizeof(float); }

/// sum_c += columns of term; `scratch` has column_scratch_bytes(c).
template <int Width, launches Stream, class Term, class G>
void launch_column_sum(Stream& stream, const Term& term, std::size_t n, std::size_t c, bool vectors, G* sum, void* scratch,
                       const token* range = nullptr) {
  if (n == 0 || c == 0) return;
  auto* const part = static_cast<float*>(scratch);
  const std::size_t rows = parts_of(parts_of(n, most_row_groups), 8) * 8;
  const int groups = blocks_of(n, rows);
  choose(vectors && c % Width == 0, [&](auto wide) {
    constexpr int width = decltype(wide)::value ? Width : 1;
    stream.launch(column_parts<Term, width>{term, part, n, c, rows, range},
                  {blocks_of(c, static_cast<std::size_t>(32 * width)), groups, 1});
  });
  stream.launch(add_column_parts<G>{part, sum, c, groups}, {blocks_of(c, 256), 1, 1});
}

/// The elements of a matrix.
template <class T>
struct element_term {
  const T* x;
  std::size_t stride;
  template <int N>
  XTRAIN_SIMT_FN vector_of<float, N> of(std::size_t i, std::size_t j) const {
    const auto x_n = load<N>(x + i * stride + j);
    vector_of<float, N> values;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) values.v[e] = widen(x_n.v[e]);
    return values;
  }
};

template <launches Stream, class M, class T, class G>
void launch_column_sum_of(Stream& stream, const kernel::column_sum<M, T, G>& k, void* scratch, const token* range) {
  const bool vectors = is_aligned(k.x_nc.raw()) && k.stride % elements_of<T> == 0;
  launch_column_sum<elements_of<T>>(stream, element_term<T>{k.x_nc.raw(), k.stride}, k.n, k.c, vectors, k.sum_c.raw(), scratch, range);
}

}  // namespace simt

template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::column_sum<M, T, G>& k,
                                                                      scratch_span<M> scratch) {
  kernel::check_arity<5>(k);
  simt::launch_column_sum_of(stream, k, scratch.raw(), nullptr);
}
template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::in_rows<kernel::column_sum<M, T, G>, M>& k,
                                                                      scratch_span<M> scratch) {
  simt::launch_column_sum_of(stream, k.whole, scratch.raw(), k.range_2.raw());
}
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::column_sum<M, T, G>& k) { return simt::column_scratch_bytes(k.c); }
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::in_rows<kernel::column_sum<M, T, G>, M>& k) {
  return simt::column_scratch_bytes(k.whole.c);
}

}  // namespace xtrain
