// Norms: a warp per row up to 1024 channels, else a block. Vectorized rows are read once and stay in registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/device/simt/column_sum.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain {

namespace simt {

inline constexpr int norm_threads = 256, norm_vectors = 4;
inline constexpr int most_norm_blocks = 256;

/// Division of rows of T among a block's threads.
///   RowThreads   threads per row: a warp, or the block
///   Vectors      vectors per thread; 0: single elements, read as often as needed
template <class T, int RowThreads, int Vectors>
struct norm_rows {
  static constexpr int width = Vectors == 0 ? 1 : elements_of<T>;
  static constexpr int rows_of_block = norm_threads / RowThreads;
  static constexpr int most_channels = RowThreads * Vectors * width;

  XTRAIN_SIMT_FN static int row_thread() { return thread() % RowThreads; }
  XTRAIN_SIMT_FN static std::size_t row_of_block() { return static_cast<std::size_t>(thread() / RowThreads); }

  /// Over a row's threads, for each.
  template <class Shared>
  XTRAIN_SIMT_FN static float sum(float value, Shared& s) {
    if constexpr (RowThreads == warp_width) return warp_sum(value);
    else return block_sum<norm_threads>(value, s.parts);
  }
  template <class Shared>
  XTRAIN_SIMT_FN static void sums(float& a, float& b, Shared& s) {
    if constexpr (RowThreads == warp_width) a = warp_sum(a), b = warp_sum(b);
    else block_sums<norm_threads>(a, b, s.parts, s.more_parts);
  }
  /// f(vector's number, first channel) per vector of this thread.
  template <class F>
  XTRAIN_SIMT_FN static void each(int c, F&& f) {
    if constexpr (Vectors == 0) {
      for (int j = row_thread(); j < c; j += RowThreads) f(0, j);
    } else {
      XTRAIN_SIMT_UNROLL
      for (int v = 0; v < Vectors; ++v) {
        const int j = (v * RowThreads + row_thread()) * width;
        if (j < c) f(v, j);
      }
    }
  }
};

struct norm_shared {
  warp_parts<float, norm_threads> parts, more_parts;
};

/// Calls f with norm_rows for c channels.
///   vectors   all rows are aligned
template <class T, class F>
void with_norm_rows(std::size_t c, bool vectors, F&& f) {
  if (!vectors || c > static_cast<std::size_t>(norm_rows<T, norm_threads, norm_vectors>::most_channels)) f(norm_rows<T, norm_threads, 0>{});
  else if (c > static_cast<std::size_t>(norm_rows<T, warp_width, norm_vectors>::most_channels))
    f(norm_rows<T, norm_threads, norm_vectors>{});
  else f(norm_rows<T, warp_width, norm_vectors>{});
}

/// rms_norm, or layer_norm with Centered.
template <class T, class Rows, bool Centered>
struct norm_forward {
  static constexpr int threads = norm_threads;
  using shared = norm_shared;
  const T *x, *weight, *bias;
  T* y;
  float *mean, *rstd;
  std::size_t n;
  int c;
  float epsilon, offset;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const std::size_t row = static_cast<std::size_t>(block_x()) * Rows::rows_of_block + Rows::row_of_block();
    const bool exists = row < n;  // warps without a row continue: barriers are for all
    const T* const x_c = x + (exists ? row : 0) * static_cast<std::size_t>(c);
    constexpr int width = Rows::width;
    constexpr bool keeps = Rows::most_channels != 0;
    vector_of<T, width> kept[keeps ? norm_vectors : 1];
    float m = 0, squares = 0;
    Rows::each(c, [&](int v, int j) {
      const auto x_n = load<width>(x_c + j);
      if constexpr (keeps) kept[v] = x_n;
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < width; ++e) {
        if constexpr (Centered) m += widen(x_n.v[e]);
        else squares += widen(x_n.v[e]) * widen(x_n.v[e]);
      }
    });
    if constexpr (Centered) {
      m = Rows::sum(m, s) / static_cast<float>(c);
      Rows::each(c, [&](int v, int j) {
        vector_of<T, width> x_n;
        if constexpr (keeps) x_n = kept[v];
        else x_n = load<width>(x_c + j);
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < width; ++e) {
          const float deviation = widen(x_n.v[e]) - m;
          squares += deviation * deviation;
        }
      });
    }
    const float r = 1.0f / sqrt(Rows::sum(squares, s) / static_cast<float>(c) + epsilon);
    if (!exists) return;
    T* const y_c = y + row * static_cast<std::size_t>(c);
    Rows::each(c, [&](int v, int j) {
      vector_of<T, width> x_n, b{}, y_n;
      if constexpr (keeps) x_n = kept[v];
      else x_n = load<width>(x_c + j);
      const auto w = load<width>(weight + j);
      if constexpr (Centered) b = load<width>(bias + j);
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < width; ++e) {
        const float hat = (widen(x_n.v[e]) - m) * r;
        y_n.v[e] = rounded<T>(Centered ? hat * widen(w.v[e]) + widen(b.v[e]) : hat * (offset + widen(w.v[e])));
      }
      store<width>(y_c + j, y_n);
    });
    if (Rows::row_thread() == 0) {
      rstd[row] = r;
      if constexpr (Centered) mean[row] = m;
    }
  }
};

/// dx, and per block sums over rows of dy · x̂ (dweight) and dy (dbias): part_bc, bias_part_bc. A thread has the same channels in every row and adds in
/// registers; warps are added in order.
///   part   null: no sums
template <class T, class Rows, bool Centered>
struct norm_backward {
  static constexpr int threads = norm_threads, blocks_at_once = Centered ? 1 : 2, width = Rows::width,
                       vectors = Rows::most_channels == 0 ? 1 : norm_vectors;
  static constexpr bool keeps = Rows::most_channels != 0;
  static constexpr int sum_rows = Rows::rows_of_block;
  struct shared : norm_shared {
    shared_array<float, (keeps && sum_rows > 1) ? sum_rows * Rows::most_channels : 1> sums;
  };
  const T *x, *weight, *dy;
  const float *mean, *rstd;
  T* dx;
  float *part, *bias_part;
  std::size_t n;
  int c;
  float offset;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const std::size_t step = static_cast<std::size_t>(blocks_x()) * sum_rows;
    float sum[vectors][width], bias_sum[vectors][width];
    XTRAIN_SIMT_UNROLL
    for (int v = 0; v < vectors; ++v) XTRAIN_SIMT_UNROLL
    for (int e = 0; e < width; ++e) sum[v][e] = 0, bias_sum[v][e] = 0;
    const std::size_t first = static_cast<std::size_t>(block_x()) * sum_rows;
    for (std::size_t of_block = first; of_block < n; of_block += step) {
      const std::size_t row = of_block + Rows::row_of_block();
      const bool exists = row < n;
      const std::size_t at = (exists ? row : 0) * static_cast<std::size_t>(c);
      vector_of<T, width> x_kept[vectors], dy_kept[vectors];
      const float r = rstd[exists ? row : 0];
      float m = 0;
      if constexpr (Centered) m = mean[exists ? row : 0];
      float g_sum = 0, gx_sum = 0;
      Rows::each(c, [&](int v, int j) {
        const auto x_n = load<width>(x + at + j), dy_n = load<width>(dy + at + j), w = load<width>(weight + j);
        if constexpr (keeps) x_kept[v] = x_n, dy_kept[v] = dy_n;
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < width; ++e) {
          const float hat = (widen(x_n.v[e]) - m) * r, g = widen(dy_n.v[e]) * (offset + widen(w.v[e]));
          if constexpr (Centered) g_sum += g;
          gx_sum += g * hat;
        }
      });
      if constexpr (Centered) Rows::sums(g_sum, gx_sum, s);
      else gx_sum = Rows::sum(gx_sum, s);
      const float g_mean = g_sum / static_cast<float>(c), gx_mean = gx_sum / static_cast<float>(c);
      if (!exists) continue;  // its warp alone; a block with one row has it
      Rows::each(c, [&](int v, int j) {
        vector_of<T, width> x_n, dy_n;
        if constexpr (keeps) x_n = x_kept[v], dy_n = dy_kept[v];
        else x_n = load<width>(x + at + j), dy_n = load<width>(dy + at + j);
        const auto w = load<width>(weight + j);
        auto dx_n = load<width>(static_cast<const T*>(dx + at + j));
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < width; ++e) {
          const float hat = (widen(x_n.v[e]) - m) * r, d = widen(dy_n.v[e]);
          const float change = d * (offset + widen(w.v[e])) - (Centered ? g_mean : 0.0f) - hat * gx_mean;
          dx_n.v[e] = rounded<T>(widen(dx_n.v[e]) + r * change);
          if constexpr (keeps) {
            sum[v][e] += d * hat;
            if constexpr (Centered) bias_sum[v][e] += d;
          }
        }
        store<width>(dx + at + j, dx_n);
      });
    }
    if constexpr (keeps) {
      if (part != nullptr) write(sum, part, s);
      if constexpr (Centered) {
        if (bias_part != nullptr) write(bias_sum, bias_part, s);
      }
    }
  }

 private:
  XTRAIN_SIMT_FN void write(const float (&sum)[vectors][width], float* parts_bc, shared& s) const {
    float* const part_c = parts_bc + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(c);
    if constexpr (sum_rows == 1) {
      Rows::each(c, [&](int v, int j) {
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < width; ++e) part_c[j + e] = sum[v][e];
      });
    } else {
      sync();
      Rows::each(c, [&](int v, int j) {
        XTRAIN_SIMT_UNROLL
        for (int e = 0; e < width; ++e) s.sums[static_cast<int>(Rows::row_of_block()) * Rows::most_channels + j + e] = sum[v][e];
      });
      sync();
      for (int j = thread(); j < c; j += threads) {
        float total = 0;
        XTRAIN_SIMT_UNROLL
        for (int w = 0; w < sum_rows; ++w) total += s.sums[w * Rows::most_channels + j];
        part_c[j] = total;
      }
    }
  }
};

/// dy · x̂, whose column sums are dweight: for rows not in registers.
template <class T, bool Centered>
struct weight_gradient_term {
  const T *x, *dy;
  const float *mean, *rstd;
  std::size_t c;
  template <int N>
  XTRAIN_SIMT_FN vector_of<float, N> of(std::size_t i, std::size_t j) const {
    const auto x_n = load<N>(x + i * c + j), dy_n = load<N>(dy + i * c + j);
    float m = 0;
    if constexpr (Centered) m = mean[i];
    vector_of<float, N> values;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) values.v[e] = widen(dy_n.v[e]) * (widen(x_n.v[e]) - m) * rstd[i];
    return values;
  }
};

/// Parts of dweight and dbias, or of column sums.
[[nodiscard]] constexpr std::size_t norm_scratch_bytes(std::size_t n, std::size_t c, bool centered) {
  const std::size_t blocks = std::max<std::size_t>(most_row_groups, std::min<std::size_t>(n, most_norm_blocks));
  return blocks * c * sizeof(float) * (centered ? 2 : 1);
}

template <bool Centered, class T, launches Stream>
void launch_norm(Stream& stream, std::size_t n, std::size_t c, const T* x, const T* weight, const T* bias, T* y, float* mean, float* rstd,
                 double epsilon, double offset) {
  if (n == 0) return;
  with_norm_rows<T>(c, all_aligned(x, weight, bias, y) && c % elements_of<T> == 0, [&]<class Rows>(Rows) {
    stream.launch(
        norm_forward<T, Rows, Centered>{x, weight, bias, y, mean, rstd, n, static_cast<int>(c), narrowed(epsilon), narrowed(offset)},
        {blocks_of(n, Rows::rows_of_block), 1, 1});
  });
}

template <bool Centered, class T, class G, launches Stream>
void launch_norm_backward(Stream& stream, std::size_t n, std::size_t c, const T* x, const T* weight, const T* dy, const float* mean,
                          const float* rstd, T* dx, G* dweight, G* dbias, double offset, void* scratch) {
  if (n == 0) return;
  with_norm_rows<T>(c, all_aligned(x, weight, dy, static_cast<const T*>(dx)) && c % elements_of<T> == 0, [&]<class Rows>(Rows) {
    const int blocks = std::min(blocks_of(n, Rows::rows_of_block), most_norm_blocks);
    auto* const part = static_cast<float*>(scratch);
    float* const bias_part = part + static_cast<std::size_t>(blocks) * c;
    constexpr bool keeps = Rows::most_channels != 0;
    stream.launch(
        norm_backward<T, Rows, Centered>{x, weight, dy, mean, rstd, dx, keeps && dweight != nullptr ? part : nullptr,
                                         keeps && dbias != nullptr ? bias_part : nullptr, n, static_cast<int>(c), narrowed(offset)},
        {blocks, 1, 1});
    if constexpr (keeps) {
      if (dweight != nullptr) stream.launch(add_column_parts<G>{part, dweight, c, blocks}, {blocks_of(c, 256), 1, 1});
      if (dbias != nullptr) stream.launch(add_column_parts<G>{bias_part, dbias, c, blocks}, {blocks_of(c, 256), 1, 1});
    } else {
      if (dweight != nullptr)
        launch_column_sum<1>(stream, weight_gradient_term<T, Centered>{x, dy, mean, rstd, c}, n, c, false, dweight, scratch);
      if (dbias != nullptr) launch_column_sum<1>(stream, element_term<T>{dy, c}, n, c, false, dbias, scratch);
    }
  });
}

// ---- query and key heads ----

/// A warp per head of a row: h query heads, k key heads; value heads are copied. dx may alias dy.
template <class T, bool Backward, int Width>
struct head_norm_launch {
  static constexpr int threads = 256, heads_of_block = threads / warp_width;
  struct shared {};
  const T *x, *query, *key, *dy;
  T* y;  // or dx
  std::conditional_t<Backward, const float, float>* rstd;
  int h, k, d;
  float epsilon;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const auto i = static_cast<std::size_t>(block_x());
    const int head = block_y() * heads_of_block + warp(), heads = h + 2 * k;
    if (head >= heads) return;  // the entire warp
    const std::size_t at = (i * static_cast<std::size_t>(heads) + static_cast<std::size_t>(head)) * static_cast<std::size_t>(d);
    const T *const x_d = x + at, *const dy_d = dy + (Backward ? at : 0);
    T* const y_d = y + at;
    if (head >= h + k) {
      each([&](int j) { store<Width>(y_d + j, load<Width>((Backward ? dy_d : x_d) + j)); });
      return;
    }
    const T* const weight = head < h ? query : key;
    auto* const rstd_at = rstd + i * static_cast<std::size_t>(h + k) + static_cast<std::size_t>(head);
    float sum = 0;  // of x², or of dy · weight · x̂
    float r = 0;
    if constexpr (Backward) r = *rstd_at;
    each([&](int j) {
      const auto x_n = load<Width>(x_d + j);
      vector_of<T, Width> dy_n{}, w{};
      if constexpr (Backward) dy_n = load<Width>(dy_d + j), w = load<Width>(weight + j);
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < Width; ++e) {
        if constexpr (Backward) sum += widen(dy_n.v[e]) * widen(w.v[e]) * widen(x_n.v[e]) * r;
        else sum += widen(x_n.v[e]) * widen(x_n.v[e]);
      }
    });
    const float mean = warp_sum(sum) / static_cast<float>(d);
    if constexpr (!Backward) {
      r = 1.0f / sqrt(mean + epsilon);
      if (lane() == 0) *rstd_at = r;
    }
    each([&](int j) {
      const auto x_n = load<Width>(x_d + j), w = load<Width>(weight + j);
      vector_of<T, Width> dy_n{}, y_n;
      if constexpr (Backward) dy_n = load<Width>(dy_d + j);
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < Width; ++e) {
        const float hat = widen(x_n.v[e]) * r;
        y_n.v[e] = rounded<T>(Backward ? r * (widen(dy_n.v[e]) * widen(w.v[e]) - hat * mean) : hat * widen(w.v[e]));
      }
      store<Width>(y_d + j, y_n);
    });
  }

 private:
  /// f(first element) per vector of this lane.
  template <class F>
  XTRAIN_SIMT_FN void each(F&& f) const {
    for (int j = lane() * Width; j < d; j += warp_width * Width) f(j);
  }
};
/// Vectors of 4 elements: 32 lanes hold a head of 128.
template <bool Backward, launches Stream, class T, class R>
void launch_head_norm(Stream& stream, std::size_t n, std::size_t h, std::size_t k, std::size_t d, const T* x, const T* query, const T* key,
                      const T* dy, T* y, R* rstd, double epsilon) {
  constexpr int width = 4;
  choose(d % width == 0 && all_aligned(x, query, key, dy, static_cast<const T*>(y)), [&](auto vectors) {
    using launch = head_norm_launch<T, Backward, decltype(vectors)::value ? width : 1>;
    stream.launch(launch{x, query, key, dy, y, rstd, static_cast<int>(h), static_cast<int>(k), static_cast<int>(d), narrowed(epsilon)},
                  {static_cast<int>(n), blocks_of(h + 2 * k, launch::heads_of_block), 1});
  });
}

/// dy · x̂ of heads: row i of the sum is head i mod `heads` of row i / heads.
template <class T>
struct head_gradient_term {
  const T *x, *dy;
  const float* rstd;
  unsigned heads;  // for 32-bit division
  std::size_t first, h_and_k, row, d;
  template <int N>
  XTRAIN_SIMT_FN vector_of<float, N> of(std::size_t i, std::size_t j) const {
    const unsigned number = static_cast<unsigned>(i) / heads;
    const std::size_t head = first + static_cast<unsigned>(i) % heads, at = number * row + head * d + j;
    const auto x_n = load<N>(x + at), dy_n = load<N>(dy + at);
    const float r = rstd[number * h_and_k + head];
    vector_of<float, N> values;
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < N; ++e) values.v[e] = widen(dy_n.v[e]) * widen(x_n.v[e]) * r;
    return values;
  }
};

}  // namespace simt

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::rms_norm<M, T>& k, scratch_span<M>) {
  kernel::check_arity<8>(k);
  simt::launch_norm<false, T>(stream, k.n, k.c, k.x_nc.raw(), k.weight_c.raw(), static_cast<const T*>(nullptr), k.y_nc.raw(),
                              static_cast<float*>(nullptr), k.rstd_n.raw(), k.epsilon, k.offset);
}
template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::layer_norm<M, T>& k, scratch_span<M>) {
  kernel::check_arity<9>(k);
  simt::launch_norm<true, T>(stream, k.n, k.c, k.x_nc.raw(), k.weight_c.raw(), k.bias_c.raw(), k.y_nc.raw(), k.mean_n.raw(), k.rstd_n.raw(),
                             k.epsilon, 0.0);
}
template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::rms_norm_backward<M, T, G>& k,
                                                                      scratch_span<M> scratch) {
  kernel::check_arity<9>(k);
  simt::launch_norm_backward<false>(stream, k.n, k.c, k.x_nc.raw(), k.weight_c.raw(), k.dy_nc.raw(), static_cast<const float*>(nullptr),
                                    k.rstd_n.raw(), k.dx_nc.raw(), k.dweight_c.raw(), static_cast<G*>(nullptr), k.offset, scratch.raw());
}
template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::layer_norm_backward<M, T, G>& k,
                                                                      scratch_span<M> scratch) {
  kernel::check_arity<10>(k);
  simt::launch_norm_backward<true>(stream, k.n, k.c, k.x_nc.raw(), k.weight_c.raw(), k.dy_nc.raw(), k.mean_n.raw(), k.rstd_n.raw(),
                                   k.dx_nc.raw(), k.dweight_c.raw(), k.dbias_c.raw(), 0.0, scratch.raw());
}
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::rms_norm_backward<M, T, G>& k) {
  return simt::norm_scratch_bytes(k.n, k.c, false);
}
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::layer_norm_backward<M, T, G>& k) {
  return simt::norm_scratch_bytes(k.n, k.c, true);
}

template <simt::launches S, class M, class T>
requires simt::up_to_float<T>
void run_kernel(S& stream, const kernel::head_norm<M, T>& k, scratch_span<M>) {
  kernel::check_arity<10>(k);
  if (k.n == 0) return;
  simt::launch_head_norm<false>(stream, k.n, k.h, k.k, k.d, k.x_nr.raw(), k.query_d.raw(), k.key_d.raw(), static_cast<const T*>(nullptr),
                                k.y_nr.raw(), k.rstd_nh.raw(), k.epsilon);
}
template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::head_norm_backward<M, T, G>& k,
                                                                      scratch_span<M> scratch) {
  kernel::check_arity<12>(k);
  if (k.n == 0) return;
  require<config_error>(k.n * k.h < std::size_t{1} << 32, "head_norm: a pass must have less than 2^32 heads on this device; given ", k.n,
                        " rows of ", k.h);
  const auto sum = [&](std::size_t heads, std::size_t first, G* dweight) {  // before dx, which may replace dy
    const simt::head_gradient_term<T> term{k.x_nr.raw(), k.dy_nr.raw(), k.rstd_nh.raw(), static_cast<unsigned>(heads),
                                           first,        k.h + k.k,     k.row(),         k.d};
    simt::launch_column_sum<simt::elements_of<T>>(stream, term, k.n * heads, k.d, simt::all_aligned(k.x_nr.raw(), k.dy_nr.raw()), dweight,
                                                  scratch.raw());
  };
  if (!k.dquery_d.empty()) {
    sum(k.h, 0, k.dquery_d.raw());
    sum(k.k, k.h, k.dkey_d.raw());
  }
  simt::launch_head_norm<true>(stream, k.n, k.h, k.k, k.d, k.x_nr.raw(), k.query_d.raw(), k.key_d.raw(), k.dy_nr.raw(), k.dx_nr.raw(),
                               k.rstd_nh.raw(), 0.0);
}
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::head_norm_backward<M, T, G>& k) { return simt::column_scratch_bytes(k.d); }

}  // namespace xtrain
