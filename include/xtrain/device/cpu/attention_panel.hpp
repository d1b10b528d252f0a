// A panel of queries and a worker's memory, of attention.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/random.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>

namespace xtrain::cpu_kernels {

/// Allocates from a worker's scratch memory, or only measures (null).
class scratch_allocator {
 public:
  explicit scratch_allocator(std::byte* memory) : memory_(memory) {}
  template <class X>
  [[nodiscard]] X* take(std::size_t n) {
    std::byte* const at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (n * sizeof(X) + 63) / 64 * 64;
    return reinterpret_cast<X*>(at);
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

/// A worker's memory, and block sizes.
template <class Arch, class T>
struct attention_work {
  using A = accumulate_t<T>;
  using U = unit<Arch, T>;
  /// Probabilities as matmul operands.
  using score = std::conditional_t<std::is_same_v<U, simd::bf16_pair>, T, A>;
  static constexpr std::size_t vector = simd::width<A, Arch>;
  static constexpr std::size_t queries = panel_columns<A, Arch>;
  static constexpr std::size_t keys = tile_rows<Arch> * (112 / tile_rows<Arch>);

  U *k_rows, *v_rows, *v_columns, *k_columns;  // a key/value head: row panels over all keys; column panels per block of keys
  U *q_panel, *do_panel;                       // [d, queries]
  U *q_lines, *do_lines;                       // panels of [queries, d]
  U* p_panel;                                  // [keys, queries]
  U* p_rows;                                   // panels of [keys, queries]
  A *scores, *dscores, *kept;                  // [keys, queries]
  A* steepness;                                // [keys, queries] derivative of the softcap
  score* rounded;                              // [keys, queries], for probabilities rounded before products
  A *sums, *turned;                            // [d, queries] o or dq; [queries, d]
  A *dk, *dv;                                  // [t, d]
  A *first, *now, *last;                       // [queries] first visible key, the query, last key
  A *largest, *total, *delta;                  // [queries] softmax statistics; Σ do · o
  std::size_t bytes;

  template <class Kernel>
  attention_work(std::byte* memory, const Kernel& k, std::size_t t, bool backward) {
    const std::size_t d = k.shape.d;
    bool drops = false;
    if constexpr (requires { k.dropout; }) drops = k.dropout > 0.0;
    scratch_allocator from(memory);
    const std::size_t blocks = (t + keys - 1) / keys, units = units_of<U>(d);
    const std::size_t panels_d = (d + queries - 1) / queries * queries;
    const auto only = [](bool needed, std::size_t n) { return needed ? n : 0; };
    k_rows = from.take<U>(t * units);
    v_rows = from.take<U>(only(backward, t * units));
    v_columns = from.take<U>(only(!backward, blocks * d * units_of<U>(keys)));
    k_columns = from.take<U>(only(backward, blocks * d * units_of<U>(keys)));
    q_panel = from.take<U>(units * queries);
    do_panel = from.take<U>(only(backward, units * queries));
    q_lines = from.take<U>(only(backward, units_of<U>(queries) * panels_d));
    do_lines = from.take<U>(only(backward, units_of<U>(queries) * panels_d));
    p_panel = from.take<U>(only(!std::is_same_v<U, A>, units_of<U>(keys) * queries));
    p_rows = from.take<U>(only(backward, keys * units_of<U>(queries)));
    scores = from.take<A>(keys * queries);
    dscores = from.take<A>(only(backward, keys * queries));
    kept = from.take<A>(only(drops, keys * queries));
    steepness = from.take<A>(only(backward && k.softcap != 0.0, keys * queries));
    rounded = from.take<score>(only(!std::is_same_v<score, A>, keys * queries));
    sums = from.take<A>(d * queries);
    turned = from.take<A>(queries * d);
    dk = from.take<A>(only(backward, t * d));
    dv = from.take<A>(only(backward, t * d));
    first = from.take<A>(queries);
    now = from.take<A>(queries);
    last = from.take<A>(queries);
    largest = from.take<A>(queries);
    total = from.take<A>(queries);
    delta = from.take<A>(queries);
    bytes = from.used();
  }
};

/// In sequences of `seq_length` tokens. With a cache, positions count from its first key.
struct attention_ranges {
  kernel::position_block queries{}, keys{};
  std::size_t seq_length = 0;
  std::size_t cached = 0;
};
template <class T>
[[nodiscard]] attention_ranges ranges_of(const kernel::attention<host_memory, T>& k, std::size_t keys) {
  const std::size_t t = k.shape.t;
  return {{t, 0, 0, t}, {keys, 0, 0, keys}, t, keys - t};
}
template <class T>
[[nodiscard]] attention_ranges ranges_of(const kernel::attention_backward<host_memory, T>& k) {
  const std::size_t t = k.shape.t;
  return {{t, 0, 0, t}, {t, 0, 0, t}, t, 0};
}
/// Block kernels have ranges.
template <class Kernel>
[[nodiscard]] attention_ranges ranges_of(const Kernel& k, std::size_t = 0) {
  return {k.queries, k.keys, k.shape.t, 0};
}

/// Rows of sums, overwritten or added to.
template <class To, bool Adds>
struct sum_rows {
  To* first;
  std::size_t step;

  template <class Arch, class A>
  void put(std::size_t i, const A* sums, std::size_t d) const {
    To* const to = first + i * step;
    simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      auto sum = simd::load<Arch>(sums + c, count);
      if constexpr (Adds) sum = sum + simd::load<Arch>(to + c, count);
      simd::store(to + c, sum, count);
    });
  }
};

/// A panel of a head's queries: operands, and visible keys per query.
template <class Arch, class T, class Kernel>
struct attention_panel {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  using work_type = attention_work<Arch, T>;
  using U = typename work_type::U;
  static constexpr std::size_t width = work_type::queries, w = work_type::vector;

  const Kernel& kernel;
  const work_type& work;
  const attention_ranges ranges;
  std::size_t b, h, i0;
  std::size_t key_count;
  std::size_t queries;         // fewer than `width` in the last panel; further lanes compute on zeros
  std::size_t first_key = 0;   // first key visible to any query
  std::size_t last_first = 0;  // from here on, the start masks no query
  std::size_t first_end = 0;   // up to here (exclusive), the end masks no query
  std::size_t last_end = 0;    // one past the last key visible to any query; 0: none

  attention_panel(const Kernel& k, const work_type& memory, const attention_ranges& of, std::size_t row, std::size_t head,
                  std::size_t first_query)
      : kernel(k), work(memory), ranges(of), b(row), h(head), i0(first_query), key_count(of.keys.count),
        queries(std::min(width, of.queries.count - first_query)) {
    first_key = first_end = key_count;
    const auto among_keys = [&](std::size_t seen) { return std::clamp(seen, ranges.keys.first, ranges.keys.end()) - ranges.keys.first; };
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t position = ranges.queries.first + i0 + std::min(i, queries - 1);
      const std::size_t of_row = b * ranges.seq_length + position, now = ranges.cached + position;
      const std::size_t sample = k.start_bt.empty() ? 0 : static_cast<std::size_t>(k.start_bt.raw()[of_row]);
      const std::size_t first = among_keys(kernel::first_seen(sample, k.window, now));
      const std::size_t end = among_keys(kernel::end_seen(k.end_bt.raw(), of_row, now));
      if (first < end) {
        first_key = std::min(first_key, first);
        last_end = std::max(last_end, end);
      }
      last_first = std::max(last_first, first);
      first_end = std::min(first_end, end);
      work.first[i] = static_cast<A>(first);
      work.now[i] = static_cast<A>(now) - static_cast<A>(ranges.keys.first);
      work.last[i] = static_cast<A>(end) - A{1};
    }
  }

  [[nodiscard]] strided<T> q() const {
    return {kernel.qkv.raw() + ranges.queries.row_of(b, i0) * kernel.shape.row() + h * kernel.shape.d, kernel.shape.row(), 1};
  }
  /// Offset of the panel's first query in outputs; index of its query i in per-query, per-head arrays.
  [[nodiscard]] std::size_t output() const { return (ranges.queries.row_of(b, i0) * kernel.shape.h + h) * kernel.shape.d; }
  [[nodiscard]] std::size_t of_head(std::size_t i) const { return ranges.queries.row_of(b, kernel.shape.h, h, i0 + i); }

  /// visit(j0, keys) for visible blocks; keys is rounded up to entire tile rows, as far as they exist.
  template <class Visit>
  XTRAIN_ALWAYS_INLINE void each_block(Visit&& visit) const {
    for (std::size_t j0 = first_key / work_type::keys * work_type::keys; j0 < last_end; j0 += work_type::keys) {
      const std::size_t there = std::min(work_type::keys, key_count - j0);
      visit(j0, std::min(there, product_plan::round_up(last_end - j0, tile_rows<Arch>)));
    }
  }

  /// chosen(block index) holds for a visible block.
  template <class Chosen>
  [[nodiscard]] bool sees_block(Chosen&& chosen) const {
    for (std::size_t j0 = first_key / work_type::keys * work_type::keys; j0 < last_end; j0 += work_type::keys)
      if (chosen(j0 / work_type::keys)) return true;
    return false;
  }

  /// Scores become softcap · tanh(score / softcap), if there is a softcap.
  ///   steepness   written: the derivative; null: unwanted
  void cap(std::size_t keys, A* scores, A* steepness = nullptr) const {
    if (kernel.softcap == 0.0) return;
    const batch bound(static_cast<A>(kernel.softcap)), one(A{1});
    for (std::size_t i = 0; i < keys * width; i += w) {
      const batch capped = xsimd::tanh(batch::load_unaligned(scores + i) / bound);
      (bound * capped).store_unaligned(scores + i);
      if (steepness != nullptr) (one - capped * capped).store_unaligned(steepness + i);
    }
  }

  /// Adds ALiBi; masked scores become −infinity.
  void mask(std::size_t j0, std::size_t keys, A* scores) const {
    const bool sloped = !kernel.slope_h.empty();
    if (!sloped && j0 + keys <= first_end && last_first <= j0) return;
    const batch nothing(-std::numeric_limits<A>::infinity()), slope(sloped ? static_cast<A>(kernel.slope_h.raw()[h]) : A{0});
    for (std::size_t v = 0; v < width; v += w) {
      const batch first = batch::load_unaligned(work.first + v), last = batch::load_unaligned(work.last + v);
      const batch now = batch::load_unaligned(work.now + v);
      for (std::size_t j = 0; j < keys; ++j) {
        A* const line = scores + j * width + v;
        const batch key(static_cast<A>(j0 + j));
        batch score = batch::load_unaligned(line);
        if (sloped) score = simd::multiply_add(slope, key - now, score);
        xsimd::select((key >= first) && (key <= last), score, nothing).store_unaligned(line);
      }
    }
  }

  /// Dropout factors of a block, with the reference's random words.
  void draw(std::size_t j0, std::size_t keys) const {
    const kernel::attention_shape& s = kernel.shape;
    const std::uint32_t threshold = dropout_threshold(kernel.dropout);
    const A factor = kernel.dropout < 1.0 ? static_cast<A>(1.0 / (1.0 - kernel.dropout)) : A{0};
    random_site site = kernel::random_of(kernel);
    site.first = 0;
    std::array<std::uint32_t, words_at_once> words;
    for (std::size_t i = 0; i < queries; ++i) {
      const std::size_t position = ranges.queries.first + i0 + i;
      const std::uint64_t element =
          (s.head_of_all(kernel.random.first + b, h) * ranges.seq_length + position) * ranges.seq_length + ranges.keys.first + j0;
      for (std::size_t j = 0; j < keys; j += words_at_once) {
        random_words(site, element + j, words);
        for (std::size_t word = 0; word < std::min(words_at_once, keys - j); ++word)
          work.kept[(j + word) * width + i] = words[word] >= threshold ? factor : A{0};
      }
    }
    for (std::size_t j = 0; j < keys; ++j) std::fill(work.kept + j * width + queries, work.kept + (j + 1) * width, A{0});
  }

  /// The block as matmul operand: rounded for 16-bit pair products.
  const typename work_type::score* rounded(const A* block, std::size_t keys) const {
    if constexpr (std::is_same_v<typename work_type::score, A>) {
      return block;
    } else {
      for (std::size_t i = 0; i < keys * width; i += w) simd::store(work.rounded + i, batch::load_unaligned(block + i));
      return work.rounded;
    }
  }
  /// A block as panel of B: units of keys by queries.
  const U* panel_of(const typename work_type::score* block, std::size_t keys) const {
    if constexpr (std::is_same_v<U, typename work_type::score>) {
      return block;
    } else {
      pack_panel<Arch, width>(strided<typename work_type::score>{block, 1, width}, width, keys, work.p_panel, width);
      return work.p_panel;
    }
  }

  /// Sums [d, queries] to rows of d.
  void turn_sums() const {
    const std::size_t d = kernel.shape.d;
    pack_panel<Arch, width>(strided<A>{work.sums, width, 1}, d, width, work.turned, d);
  }
  template <class To, bool Adds>
  void put_sums(const sum_rows<To, Adds>& to) const {
    turn_sums();
    for (std::size_t i = 0; i < queries; ++i) to.template put<Arch>(i, work.turned + i * kernel.shape.d, kernel.shape.d);
  }
};
/// A key/value head's keys and values. With a cache, the last t belong to the queries' tokens.
template <class T>
struct attention_keys {
  strided<T> keys, values;
  std::size_t count;
};

/// For kernels over entire sequences and for block kernels.
template <class T, class Kernel>
[[nodiscard]] attention_keys<T> keys_of(const Kernel& k, std::size_t b, std::size_t group) {
  const kernel::attention_shape& s = k.shape;
  if constexpr (requires { k.kv; }) {
    const T* const row = k.kv.raw() + k.keys.row_of(b, 0) * 2 * s.k * s.d + group * s.d;
    return {{row, 2 * s.k * s.d, 1}, {row + s.k * s.d, 2 * s.k * s.d, 1}, k.keys.count};
  } else {
    const T* const row = k.qkv.raw() + b * s.t * s.row() + group * s.d;
    return {{row + s.key_offset(), s.row(), 1}, {row + s.value_offset(), s.row(), 1}, s.t};
  }
}

}  // namespace xtrain::cpu_kernels
