// Attention: a panel of queries at a time over blocks of keys. Scores are transposed (keys as rows, queries as columns): per-query work stays in a vector lane,
// and probabilities are a packed operand. Fully masked blocks are skipped.
// [Dao et al. 2022; Rabe & Staats 2021]
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/random.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>

namespace xtrain {

namespace cpu_kernels {

/// Allocates from a worker's scratch memory, or only measures (null).
class carving {
 public:
  explicit carving(std::byte* memory) : memory_(memory) {}
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
    carving from(memory);
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

/// Online softmax of a panel: per query the largest score, Σ exp(score − largest), and values weighted by these exponentials.
template <class Arch, class T, class Kernel>
void attend_blocks(const attention_panel<Arch, T, Kernel>& panel) {
  using panel_type = attention_panel<Arch, T, Kernel>;
  using A = typename panel_type::A;
  using U = typename panel_type::U;
  using batch = typename panel_type::batch;
  constexpr std::size_t width = panel_type::width, w = panel_type::w, max_keys = attention_work<Arch, T>::keys;
  const Kernel& k = panel.kernel;
  const attention_work<Arch, T>& work = panel.work;
  const kernel::attention_shape& s = k.shape;
  const A nothing = -std::numeric_limits<A>::infinity();
  pack_panel<Arch, width>(panel.q(), panel.queries, s.d, work.q_panel, width);
  std::fill_n(work.sums, s.d * width, A{0});
  std::fill_n(work.largest, width, nothing);
  std::fill_n(work.total, width, A{0});
  panel.each_block([&](std::size_t j0, std::size_t keys) {
    multiply_panel<Arch>(keys, width, units_of<U>(s.d), packed_rows<U>{work.k_rows, units_of<U>(s.d)}.from(j0), work.q_panel, work.scores,
                         width, epilogue<A, T>{static_cast<A>(k.scale), nullptr, false, nullptr, 0});
    panel.cap(keys, work.scores);
    panel.mask(j0, keys, work.scores);
    for (std::size_t v = 0; v < width; v += w) {
      const batch so_far = batch::load_unaligned(work.largest + v);
      batch most = so_far;
      for (std::size_t j = 0; j < keys; ++j) most = xsimd::max(most, batch::load_unaligned(work.scores + j * width + v));
      most.store_unaligned(work.largest + v);
      // fully masked so far: avoid −infinity minus −infinity
      const batch shift = xsimd::select(most == batch(nothing), batch(A{0}), most);
      const batch shrink = simd::exp(so_far - shift);
      batch total = batch::load_unaligned(work.total + v) * shrink;
      for (std::size_t j = 0; j < keys; ++j) {
        A* const line = work.scores + j * width + v;
        const batch p = simd::exp(batch::load_unaligned(line) - shift);
        p.store_unaligned(line);
        total = total + p;
      }
      total.store_unaligned(work.total + v);
      // rescale to the new maximum
      if (j0 > panel.first_key && xsimd::any(shrink != batch(A{1})))
        for (std::size_t c = 0; c < s.d; ++c)
          (batch::load_unaligned(work.sums + c * width + v) * shrink).store_unaligned(work.sums + c * width + v);
    }
    if (k.dropout > 0.0) {
      panel.draw(j0, keys);
      for (std::size_t i = 0; i < keys * width; i += w)
        (batch::load_unaligned(work.scores + i) * batch::load_unaligned(work.kept + i)).store_unaligned(work.scores + i);
    }
    const std::size_t packed = units_of<U>(std::min(max_keys, panel.key_count - j0));
    multiply_panel<Arch>(
        s.d, width, units_of<U>(keys), packed_rows<U>{work.v_columns + j0 / max_keys * s.d * units_of<U>(max_keys), packed},
        panel.panel_of(panel.rounded(work.scores, keys), keys), work.sums, width, epilogue<A, T>{A{1}, nullptr, true, nullptr, 0});
  });
}

template <class Arch, class T>
void attend_panel(const kernel::attention<host_memory, T>& k, const attention_work<Arch, T>& work, const attention_ranges& ranges, std::size_t b,
                  std::size_t h, std::size_t i0) {
  using panel_type = attention_panel<Arch, T, kernel::attention<host_memory, T>>;
  using A = typename panel_type::A;
  using batch = typename panel_type::batch;
  constexpr std::size_t width = panel_type::width, w = panel_type::w;
  const kernel::attention_shape& s = k.shape;
  const panel_type panel(k, work, ranges, b, h, i0);
  attend_blocks(panel);
  for (std::size_t v = 0; v < width; v += w) {
    const batch scale = batch(A{1}) / batch::load_unaligned(work.total + v);
    for (std::size_t c = 0; c < s.d; ++c)
      (batch::load_unaligned(work.sums + c * width + v) * scale).store_unaligned(work.sums + c * width + v);
  }
  panel.put_sums(sum_rows<T, false>{k.o_bthd.raw() + panel.output(), s.h * s.d});
  if (k.lse_bht.empty()) return;
  for (std::size_t i = 0; i < panel.queries; ++i) k.lse_bht.raw()[panel.of_head(i)] = work.largest[i] + std::log(work.total[i]);
}

/// One block of keys, merged with results of other blocks.
template <class Arch, class T>
void attend_panel(const kernel::attention_block<host_memory, T>& k, const attention_work<Arch, T>& work, const attention_ranges& ranges,
                  std::size_t b, std::size_t h, std::size_t i0) {
  using panel_type = attention_panel<Arch, T, kernel::attention_block<host_memory, T>>;
  using A = typename panel_type::A;
  using batch = typename panel_type::batch;
  const kernel::attention_shape& s = k.shape;
  const panel_type panel(k, work, ranges, b, h, i0);
  if (panel.last_end == 0 && !k.begins) return;
  attend_blocks(panel);
  panel.turn_sums();
  for (std::size_t i = 0; i < panel.queries; ++i) {
    A& lse = k.lse_bht.raw()[panel.of_head(i)];
    A* const o = k.o_bthd.raw() + panel.output() + i * s.h * s.d;
    const bool sees = work.total[i] > A{0};
    if (!sees && !k.begins) continue;
    const A before = k.begins ? -std::numeric_limits<A>::infinity() : lse, most = sees ? std::max(before, work.largest[i]) : A{0};
    const A old_part = std::exp(before - most), part = sees ? std::exp(work.largest[i] - most) : A{0};
    const A total = old_part + part * work.total[i];
    lse = most + std::log(total);  // −infinity if everything is masked
    const batch keeps(sees ? old_part / total : A{0}), takes(sees ? part / total : A{0});
    simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      const batch added = takes * simd::load<Arch>(work.turned + i * s.d + c, count);
      simd::store(o + c, k.begins ? added : simd::multiply_add(keeps, simd::load<Arch>(o + c, count), added), count);
    });
  }
}

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

/// Panels part, part + parts, … of the heads of a key/value head.
template <class Arch, class T, class Kernel>
void attend_group(const Kernel& k, const attention_keys<T>& from, std::size_t b, std::size_t group, std::size_t part, std::size_t parts,
                  std::byte* memory) {
  using work_type = attention_work<Arch, T>;
  using U = typename work_type::U;
  const kernel::attention_shape& s = k.shape;
  const work_type work(memory, k, from.count, false);
  pack_a<Arch>(from.keys, from.count, s.d, work.k_rows);
  for (std::size_t j0 = 0; j0 < from.count; j0 += work_type::keys)
    pack_a<Arch>(strided<T>{from.values.at(j0, 0), 1, from.values.row}, s.d, std::min(work_type::keys, from.count - j0),
                 work.v_columns + j0 / work_type::keys * s.d * units_of<U>(work_type::keys));
  const std::size_t heads = s.h / s.k;
  const attention_ranges ranges = ranges_of(k, from.count);
  for (std::size_t h = group * heads; h < (group + 1) * heads; ++h)
    for (std::size_t i0 = part * work_type::queries; i0 < ranges.queries.count; i0 += parts * work_type::queries)
      attend_panel<Arch>(k, work, ranges, b, h, i0);
}

/// All heads of all sequences; keys(b, group) locates keys. With few heads, threads split queries; each split packs keys again.
template <class Arch, class T, class Kernel, class Keys>
void attend_all(const cpu_stream& stream, const Kernel& k, std::size_t queries_of_row, std::size_t worker_bytes, std::byte* scratch, Keys&& keys) {
  constexpr std::size_t queries = attention_work<Arch, T>::queries;
  const std::size_t groups = k.shape.b * k.shape.k, panels = (queries_of_row + queries - 1) / queries;
  const std::size_t parts = groups == 0 ? 1 : std::max<std::size_t>(1, std::min(panels, 4 * stream.threads() / groups));
  stream.parallel(groups * parts, [&](std::size_t task, std::size_t worker) {
    const std::size_t b = task / parts / k.shape.k, group = task / parts % k.shape.k;
    attend_group<Arch, T>(k, keys(b, group), b, group, task % parts, parts, scratch + worker * worker_bytes);
  });
}

/// A task's part of a key/value head's backward: dq of query panels part, part + parts, …, or dk and dv of such key blocks, or everything. Each sum belongs to
/// one task: its order is independent of the number of tasks.
struct backward_share {
  bool queries = true, keys = true;
  std::size_t part = 0, parts = 1;

  [[nodiscard]] std::size_t first_panel() const { return keys ? 0 : part; }
  [[nodiscard]] std::size_t panel_step() const { return keys ? 1 : parts; }
  [[nodiscard]] bool has_block(std::size_t block) const { return queries || block % parts == part; }
};

/// Backward of a panel: adds to dk and dv, writes dq.
template <class Arch, class T, class Kernel>
void attend_panel_backward(const Kernel& k, const attention_work<Arch, T>& work, const attention_ranges& ranges, std::size_t b, std::size_t h,
                           std::size_t i0, const backward_share& share) {
  using panel_type = attention_panel<Arch, T, Kernel>;
  using work_type = attention_work<Arch, T>;
  using A = typename panel_type::A;
  using U = typename panel_type::U;
  using batch = typename panel_type::batch;
  constexpr std::size_t width = panel_type::width, w = panel_type::w, max_keys = work_type::keys;
  const kernel::attention_shape& s = k.shape;
  const panel_type panel(k, work, ranges, b, h, i0);
  if (!panel.sees_block([&](std::size_t block) { return share.has_block(block); })) return;
  const std::size_t queries = panel.queries, o_row = s.h * s.d;
  const T* o = k.o_bthd.raw() + panel.output();
  const strided<T> q = panel.q(), d_o{k.do_bthd.raw() + panel.output(), o_row, 1};
  for (std::size_t i = 0; i < width; ++i) {
    batch sum(A{0});
    if (i < queries)
      simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
        sum = sum + simd::load<Arch>(o + i * o_row + c, count) * simd::load<Arch>(d_o.at(i, c), count);
      });
    work.delta[i] = simd::sum(sum);
    work.largest[i] = i < queries ? k.lse_bht.raw()[panel.of_head(i)] : A{0};
  }
  pack_panel<Arch, width>(q, queries, s.d, work.q_panel, width);
  pack_panel<Arch, width>(d_o, queries, s.d, work.do_panel, width);
  const std::size_t line_units = units_of<U>(queries);
  for (std::size_t c = 0; c < s.d; c += width) {
    pack_b<Arch, A>(strided<T>{q.at(0, c), 1, q.row}, std::min(width, s.d - c), queries, work.q_lines + c * line_units);
    pack_b<Arch, A>(strided<T>{d_o.at(0, c), 1, d_o.row}, std::min(width, s.d - c), queries, work.do_lines + c * line_units);
  }
  std::fill_n(work.sums, s.d * width, A{0});
  const epilogue<A, T> adding{A{1}, nullptr, true, nullptr, 0};
  const bool drops = k.dropout > 0.0, caps = k.softcap != 0.0;
  // d(keys) += block · rows of queries, for dk and dv
  const auto add_to_keys = [&](const typename work_type::score* block, std::size_t keys, const U* lines, A* to) {
    pack_a<Arch>(strided<typename work_type::score>{block, width, 1}, keys, queries, work.p_rows);
    for (std::size_t c = 0; c < s.d; c += width)
      multiply_panel<Arch>(keys, std::min(width, s.d - c), line_units, packed_rows<U>{work.p_rows, line_units}, lines + c * line_units,
                           to + c, s.d, adding);
  };
  panel.each_block([&](std::size_t j0, std::size_t keys) {
    if (!share.has_block(j0 / max_keys)) return;
    const std::size_t units = units_of<U>(s.d);
    // forward: p = exp(s − lse), s = scale · k qᵀ, or softcap · tanh(scale · k qᵀ / softcap)
    multiply_panel<Arch>(keys, width, units, packed_rows<U>{work.k_rows, units}.from(j0), work.q_panel, work.scores, width,
                         epilogue<A, T>{static_cast<A>(k.scale), nullptr, false, nullptr, 0});
    panel.cap(keys, work.scores, work.steepness);
    panel.mask(j0, keys, work.scores);
    // forward: o = (p · kept) v
    multiply_panel<Arch>(keys, width, units, packed_rows<U>{work.v_rows, units}.from(j0), work.do_panel, work.dscores, width,
                         epilogue<A, T>{A{1}, nullptr, false, nullptr, 0});
    if (drops) panel.draw(j0, keys);
    const batch scale(static_cast<A>(k.scale));
    for (std::size_t v = 0; v < width; v += w) {
      const batch lse = batch::load_unaligned(work.largest + v), delta = batch::load_unaligned(work.delta + v);
      for (std::size_t j = 0; j < keys; ++j) {
        A* const p_line = work.scores + j * width + v;
        A* const dp_line = work.dscores + j * width + v;
        const batch p = simd::exp(batch::load_unaligned(p_line) - lse);
        batch dp = batch::load_unaligned(dp_line), kept_p = p;
        if (drops) {
          const batch kept = batch::load_unaligned(work.kept + j * width + v);
          dp = dp * kept;
          kept_p = p * kept;
        }
        kept_p.store_unaligned(p_line);
        batch ds = scale * p * (dp - delta);
        if (caps) ds = ds * batch::load_unaligned(work.steepness + j * width + v);
        ds.store_unaligned(dp_line);
      }
    }
    if (share.keys) add_to_keys(panel.rounded(work.scores, keys), keys, work.do_lines, work.dv + j0 * s.d);
    const auto* const ds = panel.rounded(work.dscores, keys);
    if (share.keys) add_to_keys(ds, keys, work.q_lines, work.dk + j0 * s.d);
    if (!share.queries) return;
    const std::size_t packed = units_of<U>(std::min(max_keys, panel.key_count - j0));
    multiply_panel<Arch>(s.d, width, units_of<U>(keys),
                         packed_rows<U>{work.k_columns + j0 / max_keys * s.d * units_of<U>(max_keys), packed}, panel.panel_of(ds, keys),
                         work.sums, width, adding);
  });
  if (!share.queries) return;
  if constexpr (requires { k.dkv; }) panel.put_sums(sum_rows<A, true>{k.dq_bthd.raw() + panel.output(), o_row});
  else panel.put_sums(sum_rows<T, false>{k.dqkv.raw() + ranges.queries.row_of(b, i0) * s.row() + h * s.d, s.row()});
}

/// A task's part of the backward of a key/value head's heads.
template <class Arch, class T, class Kernel>
void attend_group_backward(const Kernel& k, std::size_t b, std::size_t group, const backward_share& share, std::byte* memory) {
  using work_type = attention_work<Arch, T>;
  using A = typename work_type::A;
  using U = typename work_type::U;
  const kernel::attention_shape& s = k.shape;
  const attention_keys<T> from = keys_of<T>(k, b, group);
  const work_type work(memory, k, from.count, true);
  const std::size_t units = units_of<U>(s.d);
  const auto each_block = [&](auto&& visit) {
    for (std::size_t j0 = 0; j0 < from.count; j0 += work_type::keys)
      if (share.has_block(j0 / work_type::keys)) visit(j0, std::min(work_type::keys, from.count - j0));
  };
  each_block([&](std::size_t j0, std::size_t count) {
    pack_a<Arch>(strided<T>{from.keys.at(j0, 0), from.keys.row, 1}, count, s.d, work.k_rows + j0 * units);
    pack_a<Arch>(strided<T>{from.values.at(j0, 0), from.values.row, 1}, count, s.d, work.v_rows + j0 * units);
    if (share.queries)
      pack_a<Arch>(strided<T>{from.keys.at(j0, 0), 1, from.keys.row}, s.d, count,
                   work.k_columns + j0 / work_type::keys * s.d * units_of<U>(work_type::keys));
    if (!share.keys) return;
    std::fill_n(work.dk + j0 * s.d, count * s.d, A{0});
    std::fill_n(work.dv + j0 * s.d, count * s.d, A{0});
  });
  const std::size_t heads = s.h / s.k, step = work_type::queries;
  const attention_ranges ranges = ranges_of(k);
  for (std::size_t h = group * heads; h < (group + 1) * heads; ++h)
    for (std::size_t i0 = share.first_panel() * step; i0 < ranges.queries.count; i0 += share.panel_step() * step)
      attend_panel_backward<Arch>(k, work, ranges, b, h, i0, share);
  if (!share.keys) return;
  const auto put = [&](const A* sums, const auto& to) {
    each_block([&](std::size_t j0, std::size_t count) {
      for (std::size_t i = j0; i < j0 + count; ++i) to.template put<Arch>(i, sums + i * s.d, s.d);
    });
  };
  if constexpr (requires { k.dkv; }) {
    A* const keys = k.dkv.raw() + ranges.keys.row_of(b, 0) * 2 * s.k * s.d + group * s.d;
    put(work.dk, sum_rows<A, true>{keys, 2 * s.k * s.d});
    put(work.dv, sum_rows<A, true>{keys + s.k * s.d, 2 * s.k * s.d});
  } else {
    T* const row = k.dqkv.raw() + b * s.t * s.row() + group * s.d;
    put(work.dk, sum_rows<T, false>{row + s.key_offset(), s.row()});
    put(work.dv, sum_rows<T, false>{row + s.value_offset(), s.row()});
  }
}

/// Backward of all key/value heads. With fewer heads than threads, separate tasks compute dq and dk, dv: both need probabilities and their gradients, hence
/// seven products instead of five.
template <class Arch, class T, class Kernel>
void attend_all_backward(const cpu_stream& stream, const Kernel& k, std::size_t worker_bytes, std::byte* scratch) {
  using work_type = attention_work<Arch, T>;
  const kernel::attention_shape& s = k.shape;
  const attention_ranges ranges = ranges_of(k);
  const std::size_t groups = s.b * s.k, threads = stream.threads(), rounds = (groups + threads - 1) / threads;
  const bool divides = 7 * groups < 5 * rounds * threads;
  const auto parts_of = [&](std::size_t pieces) {
    return divides ? std::clamp<std::size_t>(4 * threads / groups, 1, std::max<std::size_t>(1, pieces)) : 1;
  };
  const std::size_t key_parts = parts_of((ranges.keys.count + work_type::keys - 1) / work_type::keys);
  const std::size_t query_parts = divides ? parts_of((ranges.queries.count + work_type::queries - 1) / work_type::queries) : 0;
  const std::size_t tasks = key_parts + query_parts;
  stream.parallel(groups * tasks, [&](std::size_t task, std::size_t worker) {
    const std::size_t b = task / tasks / s.k, group = task / tasks % s.k, part = task % tasks;
    const backward_share share = !divides         ? backward_share{}
                                 : part < key_parts ? backward_share{false, true, part, key_parts}
                                                    : backward_share{true, false, part - key_parts, query_parts};
    attend_group_backward<Arch, T>(k, b, group, share, scratch + worker * worker_bytes);
  });
}

/// The query at position `now` over cache positions `from` … `end` − 1. `scores`: an element per cache position.
template <class Arch, class T, class A>
void attend_cache(std::size_t from, std::size_t end, std::size_t now, std::size_t d, A scale, A softcap, A slope, const T* q, const T* keys,
                  const T* values, A* scores, A* sums, T* o) {
  using batch = simd::batch<A, Arch>;
  A largest = -std::numeric_limits<A>::infinity();
  for (std::size_t j = from; j < end; ++j) {
    batch dot(A{0});
    simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      dot = simd::multiply_add(simd::load<Arch>(q + c, count), simd::load<Arch>(keys + j * d + c, count), dot);
    });
    scores[j] = simd::sum(dot) * scale;
    if (softcap != A{0}) scores[j] = softcap * std::tanh(scores[j] / softcap);
    scores[j] -= slope * (static_cast<A>(now) - static_cast<A>(j));
    largest = std::max(largest, scores[j]);
  }
  A total{0};
  std::fill_n(sums, d, A{0});
  for (std::size_t j = from; j < end; ++j) {
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

template <class T>
[[nodiscard]] std::size_t cache_of(const kernel::cached_attention<host_memory, T>& k, std::size_t b, std::size_t group) {
  return (b * k.shape.k + group) * k.capacity * k.shape.d;
}

/// Appends a head's keys and values to the cache.
template <class T>
void extend_cache(const kernel::cached_attention<host_memory, T>& k, std::size_t b, std::size_t group) {
  const kernel::attention_shape& s = k.shape;
  const std::size_t cache = cache_of(k, b, group) + static_cast<std::size_t>(k.length_b.raw()[b]) * s.d;
  for (std::size_t i = 0; i < s.t; ++i) {
    const T* new_row = k.qkv.raw() + (b * s.t + i) * s.row() + group * s.d;
    std::copy_n(new_row + s.key_offset(), s.d, k.k_cache.raw() + cache + i * s.d);
    std::copy_n(new_row + s.value_offset(), s.d, k.v_cache.raw() + cache + i * s.d);
  }
}

template <class Arch, class T>
void attend_cache_group(const kernel::cached_attention<host_memory, T>& k, std::size_t b, std::size_t group, std::byte* memory) {
  using A = accumulate_t<T>;
  const kernel::attention_shape& s = k.shape;
  A* scores = reinterpret_cast<A*>(memory);
  A* sums = scores + k.capacity;
  const auto before = static_cast<std::size_t>(k.length_b.raw()[b]);
  const std::size_t cache = cache_of(k, b, group);
  const std::size_t heads = s.h / s.k;
  for (std::size_t i = 0; i < s.t; ++i) {
    const std::size_t now = before + i, end = kernel::end_seen(k.end_bt.raw(), b * s.t + i, now);
    for (std::size_t h = group * heads; h < (group + 1) * heads; ++h)
      attend_cache<Arch>(kernel::first_seen(0, k.window, now), end, now, s.d, static_cast<A>(k.scale), static_cast<A>(k.softcap),
                         k.slope_h.empty() ? A{0} : static_cast<A>(k.slope_h.raw()[h]), k.qkv.raw() + (b * s.t + i) * s.row() + h * s.d,
                         k.k_cache.raw() + cache, k.v_cache.raw() + cache, scores, sums, k.o_bthd.raw() + ((b * s.t + i) * s.h + h) * s.d);
  }
}

/// From so many new tokens on, panels are faster than single queries.
inline constexpr std::size_t queries_worth_packing = 8;

template <class Arch, class T>
[[nodiscard]] std::size_t cache_worker_bytes(const kernel::cached_attention<host_memory, T>& k) {
  if (k.shape.t >= queries_worth_packing) return attention_work<Arch, T>(nullptr, k, k.capacity, false).bytes;
  return product_plan::round_up((k.capacity + k.shape.d) * sizeof(accumulate_t<T>), 64);
}

}  // namespace cpu_kernels

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.shape.t, false).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<13>(k);
  const kernel::attention_shape& s = k.shape;
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, s.t, false).bytes;
  cpu_kernels::attend_all<simd::native, T>(stream, k, s.t, bytes, scratch.raw(),
                                           [&](std::size_t b, std::size_t group) { return cpu_kernels::keys_of<T>(k, b, group); });
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention_backward<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.shape.t, true).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention_backward<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<15>(k);
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.shape.t, true).bytes;
  cpu_kernels::attend_all_backward<simd::native, T>(stream, k, bytes, scratch.raw());
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention_block<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, false).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention_block<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<17>(k);
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, false).bytes;
  cpu_kernels::attend_all<simd::native, T>(stream, k, k.queries.count, bytes, scratch.raw(),
                                           [&](std::size_t b, std::size_t group) { return cpu_kernels::keys_of<T>(k, b, group); });
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention_block_backward<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, true).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention_block_backward<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<19>(k);
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, true).bytes;
  cpu_kernels::attend_all_backward<simd::native, T>(stream, k, bytes, scratch.raw());
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::cached_attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::cache_worker_bytes<simd::native>(k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::cached_attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<12>(k);
  const kernel::attention_shape& s = k.shape;
  const std::size_t bytes = cpu_kernels::cache_worker_bytes<simd::native>(k);
  if (s.t < cpu_kernels::queries_worth_packing)
    return stream.parallel(s.b * s.k, [&](std::size_t part, std::size_t worker) {
      cpu_kernels::extend_cache(k, part / s.k, part % s.k);
      cpu_kernels::attend_cache_group<simd::native>(k, part / s.k, part % s.k, scratch.raw() + worker * bytes);
    });
  stream.parallel(s.b * s.k, [&](std::size_t part, std::size_t) { cpu_kernels::extend_cache(k, part / s.k, part % s.k); });
  const kernel::attention<host_memory, T> panels{
      .shape = s, .scale = k.scale, .window = k.window, .softcap = k.softcap, .qkv = k.qkv, .end_bt = k.end_bt, .slope_h = k.slope_h, .o_bthd = k.o_bthd};
  cpu_kernels::attend_all<simd::native, T>(stream, panels, s.t, bytes, scratch.raw(), [&](std::size_t b, std::size_t group) {
    const std::size_t cache = cpu_kernels::cache_of(k, b, group);
    return cpu_kernels::attention_keys<T>{
        {k.k_cache.raw() + cache, s.d, 1}, {k.v_cache.raw() + cache, s.d, 1}, static_cast<std::size_t>(k.length_b.raw()[b]) + s.t};
  });
}

}  // namespace xtrain
