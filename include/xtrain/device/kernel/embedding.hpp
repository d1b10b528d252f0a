// Token and position embeddings.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// y row i = or += scale · table row index[i] − first; indices outside [first, first + v) give zeros: under tensor parallelism ranks have shards of rows.
///   index_n    read      int32
///   table_vc   read
///   y_nc       written, or updated with accumulate; rounded once
template <class Memory, class T>
struct embedding {
  static constexpr std::string_view name = "embedding";
  template <class M>
  using on = embedding<M, T>;

  std::size_t n = 0, v = 0, c = 0;
  token first = 0;
  double scale = 1.0;
  bool accumulate = false;
  read<token, Memory> index_n{};
  read<T, Memory> table_vc{};
  updated<T, Memory> y_nc{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.c, s.first, s.scale, s.accumulate, s.index_n, s.table_vc, s.y_nc);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n) * static_cast<double>(c); }
};

/// dtable row index[i] − first += scale · dy row i, in the order of i for any number of threads.
///   index_n, dy_nc   read; indices outside [first, first + v) or equal to `padding` are skipped
///   dtable_vc        updated   row by row in G
template <class Memory, class T, class G = T>
struct embedding_backward {
  static constexpr std::string_view name = "embedding_backward";
  template <class M>
  using on = embedding_backward<M, T, G>;

  std::size_t n = 0, v = 0, c = 0;
  token first = 0;
  token padding = -1;
  double scale = 1.0;
  read<token, Memory> index_n{};
  read<T, Memory> dy_nc{};
  updated<G, Memory> dtable_vc{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.c, s.first, s.padding, s.scale, s.index_n, s.dy_nc, s.dtable_vc);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n) * static_cast<double>(c); }
};

/// Rotary position embedding, half-rotated as in Hugging Face's LLaMA: element i of a head rotates with i + d/2.           [Su et al. 2021, eq. 34]
///   x               updated   in place: the first d elements of the first `heads` heads of n rows; others are untouched
///   stride          between rows; head_stride: between heads
///   position_n      read      row of the table; outside [0, positions): no rotation
///   cos_sin_pd      read      [positions, d]: d/2 cosines, then d/2 sines
///   inverse         the opposite angle: the backward
template <class Memory, class T>
struct rotary {
  static constexpr std::string_view name = "rotary";
  template <class M>
  using on = rotary<M, T>;

  std::size_t n = 0, heads = 0, d = 0, stride = 0, head_stride = 0, positions = 0;
  bool inverse = false;
  read<token, Memory> position_n{};
  read<float, Memory> cos_sin_pd{};
  updated<T, Memory> x{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.heads, s.d, s.stride, s.head_stride, s.positions, s.inverse, s.position_n, s.cos_sin_pd, s.x);
  }
  [[nodiscard]] constexpr double operations() const {
    return 3.0 * static_cast<double>(n) * static_cast<double>(heads) * static_cast<double>(d);
  }
};

}  // namespace xtrain::kernel
