// Attention in blocks of queries against blocks of keys: scores of one block live in the nearest cache, blocks above the
// diagonal (or before a packed sample begins) are never touched. [Dao et al. 2022; Rabe & Staats 2021]
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/random.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/attention.hpp>

namespace xtrain {

namespace cpu_kernels {

inline constexpr std::size_t queries_per_block = 56;  // four tiles of fourteen rows
inline constexpr std::size_t keys_per_block = 128;

/// A small product on one thread: packs and multiplies. C is always the sums' type.
///   c (+)= alpha · a · b,  b_transposed(j, p) = b(p, j)
template <class Arch, class A, class TA, class TB>
void block_product(std::size_t m, std::size_t n, std::size_t k, A alpha, const strided<TA>& a, const strided<TB>& b_transposed, A* c,
                   std::size_t ldc, bool add, A* packed) {
  constexpr std::size_t columns = panel_columns<A, Arch>;
  A* packed_a = packed;
  A* packed_b = packed + product_scratch<A>::round_up(m * k, 16);
  for (std::size_t i = 0; i < m;) {
    const std::size_t rows = next_panel_rows<Arch>(m - i);
    pack_panel<Arch>(strided<TA>{a.at(i, 0), a.row, a.column}, rows, k, packed_a + i * k, rows);
    i += rows;
  }
  for (std::size_t j = 0; j < n; j += columns)
    pack_panel<Arch>(strided<TB>{b_transposed.at(j, 0), b_transposed.row, b_transposed.column}, std::min(columns, n - j), k,
                     packed_b + j * k, columns);
  multiply_packed<Arch, A, A, A>(m, n, k, packed_a, packed_b, c, ldc, {alpha, nullptr, add});
}

/// One worker's scratch memory.
template <class A>
struct attention_scratch {
  static constexpr std::size_t q = queries_per_block;
  static constexpr std::size_t k = keys_per_block;
  A* scores;   // [q, k] probabilities of a block
  A* dscores;  // [q, k] their gradients
  A* factors;  // [q, k] what dropout multiplies them with
  A* packed;   // panels of one product
  A* sums;     // forward: o [q, d], the rows' maxima and denominators; backward: dq, dk, dv [t, d] and D [t]

  static std::size_t sums_size(std::size_t t, std::size_t d, bool backward) { return backward ? 3 * t * d + t : q * (d + 2); }
  static std::size_t packed_size(std::size_t d) {
    const std::size_t widest = std::max(k, d);
    return product_scratch<A>::round_up(widest * widest, 64) + widest * product_scratch<A>::round_up(widest, widest_panel) + 64;
  }
  static std::size_t bytes(std::size_t t, std::size_t d, bool backward) {
    return product_scratch<A>::round_up((3 * q * k + packed_size(d) + sums_size(t, d, backward)) * sizeof(A), 64);
  }
  attention_scratch(std::byte* memory, std::size_t d)
      : scores(reinterpret_cast<A*>(memory)), dscores(scores + q * k), factors(dscores + q * k), packed(factors + q * k),
        sums(packed + packed_size(d)) {}
};

/// What one task needs to know of a batch row: where its heads are and what each query may see.
template <class A, class T, class Kernel>
struct attention_row {
  const Kernel& kernel;
  std::size_t b;

  [[nodiscard]] const kernel::attention_shape& shape() const { return kernel.shape; }
  /// Rows of t vectors of d numbers: `column` numbers into each row of qkv.
  [[nodiscard]] strided<T> part(std::size_t column, std::size_t first_row) const {
    return {kernel.qkv.raw() + (b * shape().t + first_row) * shape().row() + column, shape().row(), 1};
  }
  [[nodiscard]] std::size_t start(std::size_t query) const {
    return kernel.start_bt.empty() ? 0 : static_cast<std::size_t>(kernel.start_bt.raw()[b * shape().t + query]);
  }
  /// The first key block that any query from i0 on in its block can see.
  [[nodiscard]] std::size_t first_key(std::size_t i0, std::size_t queries) const {
    std::size_t first = start(i0);
    for (std::size_t i = 1; i < queries; ++i) first = std::min(first, start(i0 + i));
    return first / keys_per_block * keys_per_block;
  }
  /// Dropout's factors of queries i0 …, keys j0 …: the same words as the reference draws.
  void dropout_factors(std::size_t h, std::size_t i0, std::size_t queries, std::size_t j0, std::size_t keys, A* factors) const {
    const std::uint32_t threshold = dropout_threshold(kernel.dropout);
    const A kept = kernel.dropout < 1.0 ? static_cast<A>(1.0 / (1.0 - kernel.dropout)) : A{0};
    const random_site site{kernel.random.seed, kernel.random.step, kernel.random.site, 0};
    std::array<std::uint32_t, words_at_once> words;
    for (std::size_t i = 0; i < queries; ++i) {
      const std::uint64_t element = (((kernel.random.first + b) * shape().h + h) * shape().t + i0 + i) * shape().t + j0;
      for (std::size_t j = 0; j < keys; j += words_at_once) {
        random_words(site, element + j, words);
        for (std::size_t w = 0; w < std::min(words_at_once, keys - j); ++w)
          factors[i * keys_per_block + j + w] = words[w] >= threshold ? kept : A{0};
      }
    }
  }
};

/// A block's scores become exp(score − shift), and zero where a query may not see a key. Returns nothing; row sums go to
/// row(i, sum) and the shift of a row comes from shift(i, largest score of the row in this block).
template <class Arch, class A, class Row, class Shift, class Sum>
XTRAIN_INLINE void exponentiate_block(const Row& row, std::size_t i0, std::size_t queries, std::size_t j0, std::size_t keys, A* scores,
                                      Shift&& shift, Sum&& sum) {
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t w = simd::width<A, Arch>;
  const A nothing = -std::numeric_limits<A>::infinity();
  const std::size_t padded = (keys + w - 1) / w * w;  // rows have room for keys_per_block, a multiple of every width
  for (std::size_t i = 0; i < queries; ++i) {
    A* line = scores + i * keys_per_block;
    const std::size_t seen_from = row.start(i0 + i);
    const std::size_t seen_to = i0 + i + 1;  // one behind the last
    for (std::size_t j = 0; j < padded && j0 + j < seen_from; ++j) line[j] = nothing;
    for (std::size_t j = seen_to > j0 ? std::min(seen_to - j0, keys) : 0; j < padded; ++j) line[j] = nothing;
    batch most(nothing);
    for (std::size_t j = 0; j < padded; j += w) most = xsimd::max(most, batch::load_unaligned(line + j));
    const A row_shift = shift(i, simd::largest(most));
    batch total(A{0});
    for (std::size_t j = 0; j < padded; j += w) {
      const batch p = xsimd::exp(batch::load_unaligned(line + j) - batch(row_shift));
      p.store_unaligned(line + j);
      total = total + p;
    }
    sum(i, simd::sum(total));
  }
}

template <class Arch, class T>
void attend_block(const kernel::attention<host_memory, T>& k, std::size_t b, std::size_t h, std::size_t i0, std::byte* memory) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const kernel::attention_shape& s = k.shape;
  const attention_row<A, T, kernel::attention<host_memory, T>> row{k, b};
  const attention_scratch<A> scratch(memory, s.d);
  const std::size_t queries = std::min(queries_per_block, s.t - i0);
  const std::size_t group = h / (s.h / s.k);
  A* o = scratch.sums;                           // [queries, d]
  A* largest = o + queries_per_block * s.d;      // [queries]
  A* denominator = largest + queries_per_block;  // [queries]
  std::fill_n(o, queries * s.d, A{0});
  std::fill_n(largest, queries, -std::numeric_limits<A>::infinity());
  std::fill_n(denominator, queries, A{0});
  for (std::size_t j0 = row.first_key(i0, queries); j0 < i0 + queries; j0 += keys_per_block) {
    const std::size_t keys = std::min(keys_per_block, i0 + queries - j0);
    block_product<Arch>(queries, keys, s.d, static_cast<A>(k.scale), row.part(h * s.d, i0), row.part(s.key_offset() + group * s.d, j0),
                        scratch.scores, keys_per_block, false, scratch.packed);
    // the running maximum may grow with this block: what was summed so far shrinks to it
    exponentiate_block<Arch, A>(
        row, i0, queries, j0, keys, scratch.scores,
        [&](std::size_t i, A block_largest) XTRAIN_LAMBDA_INLINE {
          const A now = std::max(largest[i], block_largest);
          if (now == -std::numeric_limits<A>::infinity()) return A{0};  // nothing seen yet
          const A shrink = std::exp(largest[i] - now);
          if (shrink != A{1}) {
            denominator[i] *= shrink;
            A* o_i = o + i * s.d;
            simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
              simd::store(o_i + c, simd::load<Arch>(o_i + c, count) * batch(shrink), count);
            });
          }
          largest[i] = now;
          return now;
        },
        [&](std::size_t i, A total) XTRAIN_LAMBDA_INLINE { denominator[i] += total; });
    if (k.dropout > 0.0) {
      row.dropout_factors(h, i0, queries, j0, keys, scratch.factors);
      for (std::size_t i = 0; i < queries; ++i)
        for (std::size_t j = 0; j < keys; ++j) scratch.scores[i * keys_per_block + j] *= scratch.factors[i * keys_per_block + j];
    }
    const strided<T> v = row.part(s.value_offset() + group * s.d, j0);
    block_product<Arch>(queries, s.d, keys, A{1}, strided<A>{scratch.scores, keys_per_block, 1}, strided<T>{v.data, 1, v.row}, o, s.d, true,
                        scratch.packed);
  }
  for (std::size_t i = 0; i < queries; ++i) {
    const batch scale(A{1} / denominator[i]);
    T* out = k.o_bthd.raw() + ((b * s.t + i0 + i) * s.h + h) * s.d;
    simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      simd::store(out + c, simd::load<Arch>(o + i * s.d + c, count) * scale, count);
    });
    k.lse_bht.raw()[(b * s.h + h) * s.t + i0 + i] = largest[i] + std::log(denominator[i]);
  }
}

/// The backward of all heads that share one key/value head: only this task adds to that head's dk and dv.
template <class Arch, class T>
void attend_backward_group(const kernel::attention_backward<host_memory, T>& k, std::size_t b, std::size_t group, std::byte* memory) {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  const kernel::attention_shape& s = k.shape;
  const attention_row<A, T, kernel::attention_backward<host_memory, T>> row{k, b};
  const attention_scratch<A> scratch(memory, s.d);
  A* dq = scratch.sums;          // [t, d] of one head
  A* dk = dq + s.t * s.d;        // [t, d]
  A* dv = dk + s.t * s.d;        // [t, d]
  A* weighted = dv + s.t * s.d;  // [t]: D_i = Σ do_i · o_i
  const auto write = [&](const A* from, std::size_t column) {
    for (std::size_t i = 0; i < s.t; ++i) {
      T* to = k.dqkv.raw() + (b * s.t + i) * s.row() + column;
      simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(to + c, simd::load<Arch>(from + i * s.d + c, count), count);
      });
    }
  };
  std::fill_n(dk, 2 * s.t * s.d, A{0});
  const std::size_t heads = s.h / s.k;
  for (std::size_t h = group * heads; h < (group + 1) * heads; ++h) {
    const std::size_t o_row = s.h * s.d;
    const T* o = k.o_bthd.raw() + b * s.t * o_row + h * s.d;
    const T* dout = k.do_bthd.raw() + b * s.t * o_row + h * s.d;
    const A* lse = k.lse_bht.raw() + (b * s.h + h) * s.t;
    for (std::size_t i = 0; i < s.t; ++i) {
      batch sum(A{0});
      simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
        sum = sum + simd::load<Arch>(o + i * o_row + c, count) * simd::load<Arch>(dout + i * o_row + c, count);
      });
      weighted[i] = simd::sum(sum);
    }
    std::fill_n(dq, s.t * s.d, A{0});
    for (std::size_t i0 = 0; i0 < s.t; i0 += queries_per_block) {
      const std::size_t queries = std::min(queries_per_block, s.t - i0);
      const strided<T> q = row.part(h * s.d, i0);
      const strided<T> dout_i{dout + i0 * o_row, o_row, 1};
      for (std::size_t j0 = row.first_key(i0, queries); j0 < i0 + queries; j0 += keys_per_block) {
        const std::size_t keys = std::min(keys_per_block, i0 + queries - j0);
        const strided<T> k_j = row.part(s.key_offset() + group * s.d, j0);
        const strided<T> v_j = row.part(s.value_offset() + group * s.d, j0);
        A* p = scratch.scores;
        A* dp = scratch.dscores;
        // forward: p = exp(scale · q kᵀ − lse)
        block_product<Arch>(queries, keys, s.d, static_cast<A>(k.scale), q, k_j, p, keys_per_block, false, scratch.packed);
        exponentiate_block<Arch, A>(
            row, i0, queries, j0, keys, p, [&](std::size_t i, A) XTRAIN_LAMBDA_INLINE { return lse[i0 + i]; }, [](std::size_t, A) {});
        // forward: o = (p · kept) v
        block_product<Arch>(queries, keys, s.d, A{1}, dout_i, v_j, dp, keys_per_block, false, scratch.packed);
        const bool drops = k.dropout > 0.0;
        if (drops) row.dropout_factors(h, i0, queries, j0, keys, scratch.factors);
        for (std::size_t i = 0; i < queries; ++i) {
          A* p_i = p + i * keys_per_block;
          A* dp_i = dp + i * keys_per_block;
          const A* kept = scratch.factors + i * keys_per_block;
          const batch d_i(weighted[i0 + i]), scale(static_cast<A>(k.scale));
          simd::for_each_vector<A, Arch>(0, keys, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
            const batch p_ij = simd::load<Arch>(p_i + j, count);
            batch dp_ij = simd::load<Arch>(dp_i + j, count);
            if (drops) {
              const batch kept_ij = simd::load<Arch>(kept + j, count);
              dp_ij = dp_ij * kept_ij;
              simd::store(p_i + j, p_ij * kept_ij, count);
            }
            simd::store(dp_i + j, scale * p_ij * (dp_ij - d_i), count);
          });
        }
        block_product<Arch>(keys, s.d, queries, A{1}, strided<A>{p, 1, keys_per_block}, strided<T>{dout_i.data, 1, dout_i.row},
                            dv + j0 * s.d, s.d, true, scratch.packed);
        block_product<Arch>(keys, s.d, queries, A{1}, strided<A>{dp, 1, keys_per_block}, strided<T>{q.data, 1, q.row}, dk + j0 * s.d, s.d,
                            true, scratch.packed);
        block_product<Arch>(queries, s.d, keys, A{1}, strided<A>{dp, keys_per_block, 1}, strided<T>{k_j.data, 1, k_j.row}, dq + i0 * s.d,
                            s.d, true, scratch.packed);
      }
    }
    write(dq, h * s.d);
  }
  write(dk, s.key_offset() + group * s.d);
  write(dv, s.value_offset() + group * s.d);
}

/// One query against the cache of its key/value head. `scores` holds one number per cache place.
template <class Arch, class T, class A>
void attend_cache(std::size_t seen, std::size_t d, A scale, const T* q, const T* keys, const T* values, A* scores, A* sums, T* o) {
  using batch = simd::batch<A, Arch>;
  A largest = -std::numeric_limits<A>::infinity();
  for (std::size_t j = 0; j < seen; ++j) {
    batch dot(A{0});
    simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      dot = simd::multiply_add(simd::load<Arch>(q + c, count), simd::load<Arch>(keys + j * d + c, count), dot);
    });
    scores[j] = simd::sum(dot) * scale;
    largest = std::max(largest, scores[j]);
  }
  A total{0};
  std::fill_n(sums, d, A{0});
  for (std::size_t j = 0; j < seen; ++j) {
    const A p = std::exp(scores[j] - largest);
    total += p;
    simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      simd::store(sums + c, simd::multiply_add(batch(p), simd::load<Arch>(values + j * d + c, count), simd::load<Arch>(sums + c, count)),
                  count);
    });
  }
  simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
    simd::store(o + c, simd::load<Arch>(sums + c, count) * batch(A{1} / total), count);
  });
}

template <class Arch, class T>
void attend_cache_group(const kernel::cached_attention<host_memory, T>& k, std::size_t b, std::size_t group, std::byte* memory) {
  using A = accumulate_t<T>;
  const kernel::attention_shape& s = k.shape;
  A* scores = reinterpret_cast<A*>(memory);
  A* sums = scores + k.capacity;
  const auto before = static_cast<std::size_t>(k.length_b.raw()[b]);
  const std::size_t cache = (b * s.k + group) * k.capacity * s.d;
  for (std::size_t i = 0; i < s.t; ++i) {
    const T* new_row = k.qkv.raw() + (b * s.t + i) * s.row() + group * s.d;
    std::copy_n(new_row + s.key_offset(), s.d, k.k_cache.raw() + cache + (before + i) * s.d);
    std::copy_n(new_row + s.value_offset(), s.d, k.v_cache.raw() + cache + (before + i) * s.d);
  }
  const std::size_t heads = s.h / s.k;
  for (std::size_t i = 0; i < s.t; ++i)
    for (std::size_t h = group * heads; h < (group + 1) * heads; ++h)
      attend_cache<Arch>(before + i + 1, s.d, static_cast<A>(k.scale), k.qkv.raw() + (b * s.t + i) * s.row() + h * s.d,
                         k.k_cache.raw() + cache, k.v_cache.raw() + cache, scores, sums, k.o_bthd.raw() + ((b * s.t + i) * s.h + h) * s.d);
}

}  // namespace cpu_kernels

template <class T>
[[nodiscard]] std::size_t scratch_bytes(const cpu_properties& cpu, const kernel::attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_scratch<accumulate_t<T>>::bytes(k.shape.t, k.shape.d, false);
}
template <class T>
void run_kernel(cpu_stream& stream, const kernel::attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  const std::size_t blocks = (k.shape.t + cpu_kernels::queries_per_block - 1) / cpu_kernels::queries_per_block;
  const std::size_t bytes = cpu_kernels::attention_scratch<accumulate_t<T>>::bytes(k.shape.t, k.shape.d, false);
  stream.parallel(k.shape.b * k.shape.h * blocks, [&](std::size_t part, std::size_t worker) {
    const std::size_t block = blocks - 1 - part % blocks;  // the longest first
    const std::size_t head = part / blocks;
    cpu_kernels::attend_block<simd::native>(k, head / k.shape.h, head % k.shape.h, block * cpu_kernels::queries_per_block,
                                            scratch.raw() + worker * bytes);
  });
}

template <class T>
[[nodiscard]] std::size_t scratch_bytes(const cpu_properties& cpu, const kernel::attention_backward<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_scratch<accumulate_t<T>>::bytes(k.shape.t, k.shape.d, true);
}
template <class T>
void run_kernel(cpu_stream& stream, const kernel::attention_backward<host_memory, T>& k, scratch_span<host_memory> scratch) {
  const std::size_t bytes = cpu_kernels::attention_scratch<accumulate_t<T>>::bytes(k.shape.t, k.shape.d, true);
  stream.parallel(k.shape.b * k.shape.k, [&](std::size_t part, std::size_t worker) {
    cpu_kernels::attend_backward_group<simd::native>(k, part / k.shape.k, part % k.shape.k, scratch.raw() + worker * bytes);
  });
}

template <class T>
[[nodiscard]] std::size_t scratch_bytes(const cpu_properties& cpu, const kernel::cached_attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::product_scratch<accumulate_t<T>>::round_up((k.capacity + k.shape.d) * sizeof(accumulate_t<T>), 64);
}
template <class T>
void run_kernel(cpu_stream& stream, const kernel::cached_attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  const std::size_t bytes = cpu_kernels::product_scratch<accumulate_t<T>>::round_up((k.capacity + k.shape.d) * sizeof(accumulate_t<T>), 64);
  stream.parallel(k.shape.b * k.shape.k, [&](std::size_t part, std::size_t worker) {
    cpu_kernels::attend_cache_group<simd::native>(k, part / k.shape.k, part % k.shape.k, scratch.raw() + worker * bytes);
  });
}

}  // namespace xtrain
