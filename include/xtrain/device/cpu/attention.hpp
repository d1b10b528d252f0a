// Attention, one panel of queries at a time against blocks of keys. Scores are kept transposed, keys down and queries across, so
// that whatever happens to a query (its maximum, its sum, its mask) happens in one lane, and probabilities are a packed
// operand as they are. Blocks that no query of the panel may see are never touched.
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

namespace xtrain {

namespace cpu_kernels {

/// Hands out pieces of a worker's scratch memory, or only measures them.
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

/// One worker's memory, and the sizes of a block.
template <class Arch, class T>
struct attention_work {
  using A = accumulate_t<T>;
  using U = unit<Arch, T>;
  /// Probabilities, as products take them.
  using score = std::conditional_t<std::is_same_v<U, simd::bf16_pair>, T, A>;
  static constexpr std::size_t vector = simd::width<A, Arch>;
  static constexpr std::size_t queries = panel_columns<A, Arch>;
  static constexpr std::size_t keys = tile_rows<Arch> * (112 / tile_rows<Arch>);

  U *k_rows, *v_rows, *v_columns, *k_columns;  // of one key/value head: panels of rows of keys; per block of keys, of columns
  U *q_panel, *do_panel;                       // [d, queries]
  U *q_lines, *do_lines;                       // panels of [queries, d]
  U* p_panel;                                  // [keys, queries]
  U* p_rows;                                   // panels of [keys, queries]
  A *scores, *dscores, *kept;                  // [keys, queries]
  score* rounded;                              // [keys, queries], where probabilities are rounded before products
  A *sums, *turned;                            // [d, queries] o or dq of the panel; [queries, d]
  A *dk, *dv;                                  // [t, d]
  A *first, *now, *last;                       // [queries] first key each may see, the query itself, and the last key
  A *largest, *total, *delta;                  // [queries] of the softmax; Σ do · o
  std::size_t bytes;

  attention_work(std::byte* memory, std::size_t t, std::size_t d, bool backward, bool drops) {
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

/// One panel of queries of one head: where its operands are and what each query may see.
template <class Arch, class T, class Kernel>
struct attention_panel {
  using A = accumulate_t<T>;
  using batch = simd::batch<A, Arch>;
  using work_type = attention_work<Arch, T>;
  using U = typename work_type::U;
  static constexpr std::size_t width = work_type::queries, w = work_type::vector;

  const Kernel& kernel;
  const work_type& work;
  std::size_t b, h, i0;
  std::size_t time;            // of the panel's first query, counted in keys
  std::size_t key_count;       // all there are
  std::size_t queries;         // fewer than `width` in the last panel; the lanes behind them compute on zeros
  std::size_t first_key = 0;   // what any query of the panel may see first
  std::size_t last_first = 0;  // what every query of the panel may see from
  std::size_t first_end = 0;   // and up to, one past it
  std::size_t last_end = 0;    // one past what any of them may see

  /// `before` keys lie in front of the first query's own.
  attention_panel(const Kernel& k, const work_type& memory, std::size_t row, std::size_t head, std::size_t first_query,
                  std::size_t before = 0)
      : kernel(k), work(memory), b(row), h(head), i0(first_query), time(before + first_query), key_count(before + k.shape.t),
        queries(std::min(width, k.shape.t - first_query)) {
    first_key = time;
    first_end = key_count;
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t query = std::min(i, queries - 1), place = b * k.shape.t + i0 + query, now = time + query;
      const std::size_t sample = k.start_bt.empty() ? 0 : static_cast<std::size_t>(k.start_bt.raw()[place]);
      const std::size_t first = kernel::first_seen(sample, k.window, now);
      const std::size_t end = kernel::end_seen(k.end_bt.raw(), place, now);
      first_key = std::min(first_key, first);
      last_first = std::max(last_first, first);
      first_end = std::min(first_end, end);
      last_end = std::max(last_end, end);
      work.first[i] = static_cast<A>(first);
      work.now[i] = static_cast<A>(now);
      work.last[i] = static_cast<A>(end) - A{1};
    }
  }

  /// Rows of t vectors of d numbers: `column` numbers into each row of qkv.
  static strided<T> part(const Kernel& k, std::size_t row, std::size_t column, std::size_t first_row) {
    return {k.qkv.raw() + (row * k.shape.t + first_row) * k.shape.row() + column, k.shape.row(), 1};
  }
  [[nodiscard]] strided<T> q() const { return part(kernel, b, h * kernel.shape.d, i0); }

  /// Blocks of keys that the panel sees: visit(j0, keys), keys being whole rows of tiles as far as there are any.
  template <class Visit>
  XTRAIN_INLINE void each_block(Visit&& visit) const {
    for (std::size_t j0 = first_key / work_type::keys * work_type::keys; j0 < last_end; j0 += work_type::keys) {
      const std::size_t there = std::min(work_type::keys, key_count - j0);
      visit(j0, std::min(there, product_plan::round_up(last_end - j0, tile_rows<Arch>)));
    }
  }

  /// Among the blocks that the panel sees is one with chosen(index of the block).
  template <class Chosen>
  [[nodiscard]] bool sees_block(Chosen&& chosen) const {
    for (std::size_t j0 = first_key / work_type::keys * work_type::keys; j0 < last_end; j0 += work_type::keys)
      if (chosen(j0 / work_type::keys)) return true;
    return false;
  }

  /// Scores get the slope of their distance, and −infinity where a query may not see a key.
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

  /// Dropout's factors of a block: the same words as the reference draws.
  void draw(std::size_t j0, std::size_t keys) const {
    const kernel::attention_shape& s = kernel.shape;
    const std::uint32_t threshold = dropout_threshold(kernel.dropout);
    const A factor = kernel.dropout < 1.0 ? static_cast<A>(1.0 / (1.0 - kernel.dropout)) : A{0};
    const random_site site{kernel.random.seed, kernel.random.step, kernel.random.site, 0};
    std::array<std::uint32_t, words_at_once> words;
    for (std::size_t i = 0; i < queries; ++i) {
      const std::uint64_t element = (s.head_of_all(kernel.random.first + b, h) * s.t + i0 + i) * s.t + j0;
      for (std::size_t j = 0; j < keys; j += words_at_once) {
        random_words(site, element + j, words);
        for (std::size_t word = 0; word < std::min(words_at_once, keys - j); ++word)
          work.kept[(j + word) * width + i] = words[word] >= threshold ? factor : A{0};
      }
    }
    for (std::size_t j = 0; j < keys; ++j) std::fill(work.kept + j * width + queries, work.kept + (j + 1) * width, A{0});
  }

  /// The block of numbers as products take them: rounded where they are rounded.
  const typename work_type::score* rounded(const A* numbers, std::size_t keys) const {
    if constexpr (std::is_same_v<typename work_type::score, A>) {
      return numbers;
    } else {
      for (std::size_t i = 0; i < keys * width; i += w) simd::store(work.rounded + i, batch::load_unaligned(numbers + i));
      return work.rounded;
    }
  }
  /// A panel of B from a block: units of keys by queries.
  const U* panel_of(const typename work_type::score* numbers, std::size_t keys) const {
    if constexpr (std::is_same_v<U, typename work_type::score>) {
      return numbers;
    } else {
      pack_panel<Arch, width>(strided<typename work_type::score>{numbers, 1, width}, width, keys, work.p_panel, width);
      return work.p_panel;
    }
  }

  /// sums [d, queries] as rows of d numbers, into rows of `to` that are `step` apart.
  void write_sums(T* to, std::size_t step) const {
    const std::size_t d = kernel.shape.d;
    pack_panel<Arch, width>(strided<A>{work.sums, width, 1}, d, width, work.turned, d);
    for (std::size_t i = 0; i < queries; ++i)
      simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(to + i * step + c, simd::load<Arch>(work.turned + i * d + c, count), count);
      });
  }
};

template <class Arch, class T>
void attend_panel(const kernel::attention<host_memory, T>& k, const attention_work<Arch, T>& work, std::size_t b, std::size_t h,
                  std::size_t i0, std::size_t before) {
  using panel_type = attention_panel<Arch, T, kernel::attention<host_memory, T>>;
  using A = typename panel_type::A;
  using U = typename panel_type::U;
  using batch = typename panel_type::batch;
  constexpr std::size_t width = panel_type::width, w = panel_type::w, most_keys = attention_work<Arch, T>::keys;
  const kernel::attention_shape& s = k.shape;
  const panel_type panel(k, work, b, h, i0, before);
  const A nothing = -std::numeric_limits<A>::infinity();
  pack_panel<Arch, width>(panel.q(), panel.queries, s.d, work.q_panel, width);
  std::fill_n(work.sums, s.d * width, A{0});
  std::fill_n(work.largest, width, nothing);
  std::fill_n(work.total, width, A{0});
  panel.each_block([&](std::size_t j0, std::size_t keys) {
    multiply_panel<Arch>(keys, width, units_of<U>(s.d), packed_rows<U>{work.k_rows, units_of<U>(s.d)}.from(j0), work.q_panel, work.scores,
                         width, epilogue<A, T>{static_cast<A>(k.scale), nullptr, false, nullptr, 0});
    panel.mask(j0, keys, work.scores);
    for (std::size_t v = 0; v < width; v += w) {
      const batch so_far = batch::load_unaligned(work.largest + v);
      batch most = so_far;
      for (std::size_t j = 0; j < keys; ++j) most = xsimd::max(most, batch::load_unaligned(work.scores + j * width + v));
      most.store_unaligned(work.largest + v);
      // a query that has seen nothing yet has a largest score of −infinity, which must not meet itself
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
      // what was summed so far shrinks to the new maximum
      if (j0 > panel.first_key && xsimd::any(shrink != batch(A{1})))
        for (std::size_t c = 0; c < s.d; ++c)
          (batch::load_unaligned(work.sums + c * width + v) * shrink).store_unaligned(work.sums + c * width + v);
    }
    if (k.dropout > 0.0) {
      panel.draw(j0, keys);
      for (std::size_t i = 0; i < keys * width; i += w)
        (batch::load_unaligned(work.scores + i) * batch::load_unaligned(work.kept + i)).store_unaligned(work.scores + i);
    }
    const std::size_t packed = units_of<U>(std::min(most_keys, panel.key_count - j0));
    multiply_panel<Arch>(
        s.d, width, units_of<U>(keys), packed_rows<U>{work.v_columns + j0 / most_keys * s.d * units_of<U>(most_keys), packed},
        panel.panel_of(panel.rounded(work.scores, keys), keys), work.sums, width, epilogue<A, T>{A{1}, nullptr, true, nullptr, 0});
  });
  for (std::size_t v = 0; v < width; v += w) {
    const batch scale = batch(A{1}) / batch::load_unaligned(work.total + v);
    for (std::size_t c = 0; c < s.d; ++c)
      (batch::load_unaligned(work.sums + c * width + v) * scale).store_unaligned(work.sums + c * width + v);
  }
  panel.write_sums(k.o_bthd.raw() + ((b * s.t + i0) * s.h + h) * s.d, s.h * s.d);
  if (k.lse_bht.empty()) return;
  for (std::size_t i = 0; i < panel.queries; ++i) k.lse_bht.raw()[(b * s.h + h) * s.t + i0 + i] = work.largest[i] + std::log(work.total[i]);
}

/// The keys and values of one key/value head; the last t of them are the queries' own.
template <class T>
struct attention_keys {
  strided<T> keys, values;
  std::size_t count;
};

/// Panels part, part + parts, … of all heads that share one key/value head.
template <class Arch, class T>
void attend_group(const kernel::attention<host_memory, T>& k, const attention_keys<T>& from, std::size_t b, std::size_t group,
                  std::size_t part, std::size_t parts, std::byte* memory) {
  using work_type = attention_work<Arch, T>;
  using U = typename work_type::U;
  const kernel::attention_shape& s = k.shape;
  const work_type work(memory, from.count, s.d, false, k.dropout > 0.0);
  pack_a<Arch>(from.keys, from.count, s.d, work.k_rows);
  for (std::size_t j0 = 0; j0 < from.count; j0 += work_type::keys)
    pack_a<Arch>(strided<T>{from.values.at(j0, 0), 1, from.values.row}, s.d, std::min(work_type::keys, from.count - j0),
                 work.v_columns + j0 / work_type::keys * s.d * units_of<U>(work_type::keys));
  const std::size_t heads = s.h / s.k;
  for (std::size_t h = group * heads; h < (group + 1) * heads; ++h)
    for (std::size_t i0 = part * work_type::queries; i0 < s.t; i0 += parts * work_type::queries)
      attend_panel<Arch>(k, work, b, h, i0, from.count - s.t);
}

/// All heads of all rows: keys(b, group) says where their keys are. Few heads are divided among threads by their queries; every
/// division packs the keys once more.
template <class Arch, class T, class Keys>
void attend_all(const cpu_stream& stream, const kernel::attention<host_memory, T>& k, std::size_t worker_bytes, std::byte* scratch,
                Keys&& keys) {
  constexpr std::size_t queries = attention_work<Arch, T>::queries;
  const std::size_t groups = k.shape.b * k.shape.k, panels = (k.shape.t + queries - 1) / queries;
  const std::size_t parts = groups == 0 ? 1 : std::max<std::size_t>(1, std::min(panels, 4 * stream.threads() / groups));
  stream.parallel(groups * parts, [&](std::size_t task, std::size_t worker) {
    const std::size_t b = task / parts / k.shape.k, group = task / parts % k.shape.k;
    attend_group<Arch>(k, keys(b, group), b, group, task % parts, parts, scratch + worker * worker_bytes);
  });
}

/// What one task makes of the backward of a key/value head: dq of panels part, part + parts, … of queries, or dk and dv of
/// blocks part, part + parts, … of keys, or everything. Each sum is made by one task, in the same order however many there are.
struct backward_share {
  bool queries = true, keys = true;
  std::size_t part = 0, parts = 1;

  [[nodiscard]] std::size_t first_panel() const { return keys ? 0 : part; }
  [[nodiscard]] std::size_t panel_step() const { return keys ? 1 : parts; }
  [[nodiscard]] bool has_block(std::size_t block) const { return queries || block % parts == part; }
};

/// The backward of one panel of queries: adds to dk and dv of its key/value head, and writes dq.
template <class Arch, class T>
void attend_panel_backward(const kernel::attention_backward<host_memory, T>& k, const attention_work<Arch, T>& work, std::size_t b,
                           std::size_t h, std::size_t i0, const backward_share& share) {
  using panel_type = attention_panel<Arch, T, kernel::attention_backward<host_memory, T>>;
  using work_type = attention_work<Arch, T>;
  using A = typename panel_type::A;
  using U = typename panel_type::U;
  using batch = typename panel_type::batch;
  constexpr std::size_t width = panel_type::width, w = panel_type::w, most_keys = work_type::keys;
  const kernel::attention_shape& s = k.shape;
  const panel_type panel(k, work, b, h, i0);
  if (!panel.sees_block([&](std::size_t block) { return share.has_block(block); })) return;
  const std::size_t queries = panel.queries, o_row = s.h * s.d;
  const T* o = k.o_bthd.raw() + ((b * s.t + i0) * s.h + h) * s.d;
  const strided<T> q = panel.q(), d_o{k.do_bthd.raw() + ((b * s.t + i0) * s.h + h) * s.d, o_row, 1};
  for (std::size_t i = 0; i < width; ++i) {
    batch sum(A{0});
    if (i < queries)
      simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
        sum = sum + simd::load<Arch>(o + i * o_row + c, count) * simd::load<Arch>(d_o.at(i, c), count);
      });
    work.delta[i] = simd::sum(sum);
    work.largest[i] = i < queries ? k.lse_bht.raw()[(b * s.h + h) * s.t + i0 + i] : A{0};
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
  const bool drops = k.dropout > 0.0;
  // d(keys) += block · lines of the queries, for dk and dv
  const auto add_to_keys = [&](const typename work_type::score* block, std::size_t keys, const U* lines, A* to) {
    pack_a<Arch>(strided<typename work_type::score>{block, width, 1}, keys, queries, work.p_rows);
    for (std::size_t c = 0; c < s.d; c += width)
      multiply_panel<Arch>(keys, std::min(width, s.d - c), line_units, packed_rows<U>{work.p_rows, line_units}, lines + c * line_units,
                           to + c, s.d, adding);
  };
  panel.each_block([&](std::size_t j0, std::size_t keys) {
    if (!share.has_block(j0 / most_keys)) return;
    const std::size_t units = units_of<U>(s.d);
    // forward: p = exp(scale · k qᵀ − lse)
    multiply_panel<Arch>(keys, width, units, packed_rows<U>{work.k_rows, units}.from(j0), work.q_panel, work.scores, width,
                         epilogue<A, T>{static_cast<A>(k.scale), nullptr, false, nullptr, 0});
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
        (scale * p * (dp - delta)).store_unaligned(dp_line);
      }
    }
    if (share.keys) add_to_keys(panel.rounded(work.scores, keys), keys, work.do_lines, work.dv + j0 * s.d);
    const auto* const ds = panel.rounded(work.dscores, keys);
    if (share.keys) add_to_keys(ds, keys, work.q_lines, work.dk + j0 * s.d);
    if (!share.queries) return;
    const std::size_t packed = units_of<U>(std::min(most_keys, s.t - j0));
    multiply_panel<Arch>(s.d, width, units_of<U>(keys),
                         packed_rows<U>{work.k_columns + j0 / most_keys * s.d * units_of<U>(most_keys), packed}, panel.panel_of(ds, keys),
                         work.sums, width, adding);
  });
  if (share.queries) panel.write_sums(k.dqkv.raw() + (b * s.t + i0) * s.row() + h * s.d, s.row());
}

/// A share of the backward of all heads that use one key/value head.
template <class Arch, class T>
void attend_group_backward(const kernel::attention_backward<host_memory, T>& k, std::size_t b, std::size_t group,
                           const backward_share& share, std::byte* memory) {
  using kernel_type = kernel::attention_backward<host_memory, T>;
  using work_type = attention_work<Arch, T>;
  using A = typename work_type::A;
  using U = typename work_type::U;
  const kernel::attention_shape& s = k.shape;
  const work_type work(memory, s.t, s.d, true, k.dropout > 0.0);
  const auto part = [&](std::size_t column, std::size_t row) { return attention_panel<Arch, T, kernel_type>::part(k, b, column, row); };
  const std::size_t keys = s.key_offset() + group * s.d, values = s.value_offset() + group * s.d;
  const std::size_t units = units_of<U>(s.d);
  const auto each_block = [&](auto&& visit) {
    for (std::size_t j0 = 0; j0 < s.t; j0 += work_type::keys)
      if (share.has_block(j0 / work_type::keys)) visit(j0, std::min(work_type::keys, s.t - j0));
  };
  each_block([&](std::size_t j0, std::size_t count) {
    pack_a<Arch>(part(keys, j0), count, s.d, work.k_rows + j0 * units);
    pack_a<Arch>(part(values, j0), count, s.d, work.v_rows + j0 * units);
    if (share.queries)
      pack_a<Arch>(strided<T>{part(keys, j0).data, 1, s.row()}, s.d, count,
                   work.k_columns + j0 / work_type::keys * s.d * units_of<U>(work_type::keys));
    if (!share.keys) return;
    std::fill_n(work.dk + j0 * s.d, count * s.d, A{0});
    std::fill_n(work.dv + j0 * s.d, count * s.d, A{0});
  });
  const std::size_t heads = s.h / s.k, step = work_type::queries;
  for (std::size_t h = group * heads; h < (group + 1) * heads; ++h)
    for (std::size_t i0 = share.first_panel() * step; i0 < s.t; i0 += share.panel_step() * step)
      attend_panel_backward<Arch>(k, work, b, h, i0, share);
  if (!share.keys) return;
  const auto write = [&](const A* from, std::size_t column) {
    each_block([&](std::size_t j0, std::size_t count) {
      for (std::size_t i = j0; i < j0 + count; ++i) {
        T* to = k.dqkv.raw() + (b * s.t + i) * s.row() + column;
        simd::for_each_vector<A, Arch>(0, s.d, [&](std::size_t c, auto lanes) XTRAIN_LAMBDA_INLINE {
          simd::store(to + c, simd::load<Arch>(from + i * s.d + c, lanes), lanes);
        });
      }
    });
  };
  write(work.dk, keys);
  write(work.dv, values);
}

/// The backward of all key/value heads of all rows. Where they are too few for the threads, dk and dv of a head are made by other
/// tasks than its dq: both need the probabilities and their gradients, so seven products are computed instead of five.
template <class Arch, class T>
void attend_all_backward(const cpu_stream& stream, const kernel::attention_backward<host_memory, T>& k, std::size_t worker_bytes,
                         std::byte* scratch) {
  using work_type = attention_work<Arch, T>;
  const kernel::attention_shape& s = k.shape;
  const std::size_t groups = s.b * s.k, threads = stream.threads(), rounds = (groups + threads - 1) / threads;
  const bool divides = 7 * groups < 5 * rounds * threads;
  const auto parts_of = [&](std::size_t pieces) {
    return divides ? std::clamp<std::size_t>(4 * threads / groups, 1, std::max<std::size_t>(1, pieces)) : 1;
  };
  const std::size_t key_parts = parts_of((s.t + work_type::keys - 1) / work_type::keys);
  const std::size_t query_parts = divides ? parts_of((s.t + work_type::queries - 1) / work_type::queries) : 0;
  const std::size_t tasks = key_parts + query_parts;
  stream.parallel(groups * tasks, [&](std::size_t task, std::size_t worker) {
    const std::size_t b = task / tasks / s.k, group = task / tasks % s.k, part = task % tasks;
    const backward_share share = !divides         ? backward_share{}
                                 : part < key_parts ? backward_share{false, true, part, key_parts}
                                                    : backward_share{true, false, part - key_parts, query_parts};
    attend_group_backward<Arch>(k, b, group, share, scratch + worker * worker_bytes);
  });
}

/// The query at place `now` against places `from` … `end` − 1 of the cache of its key/value head. `scores` holds one number per
/// cache place.
template <class Arch, class T, class A>
void attend_cache(std::size_t from, std::size_t end, std::size_t now, std::size_t d, A scale, A slope, const T* q, const T* keys,
                  const T* values, A* scores, A* sums, T* o) {
  using batch = simd::batch<A, Arch>;
  A largest = -std::numeric_limits<A>::infinity();
  for (std::size_t j = from; j < end; ++j) {
    batch dot(A{0});
    simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      dot = simd::multiply_add(simd::load<Arch>(q + c, count), simd::load<Arch>(keys + j * d + c, count), dot);
    });
    scores[j] = simd::sum(dot) * scale - slope * (static_cast<A>(now) - static_cast<A>(j));
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

/// Puts the new keys and values of one head behind those that the cache holds.
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
      attend_cache<Arch>(kernel::first_seen(0, k.window, now), end, now, s.d, static_cast<A>(k.scale),
                         k.slope_h.empty() ? A{0} : static_cast<A>(k.slope_h.raw()[h]), k.qkv.raw() + (b * s.t + i) * s.row() + h * s.d,
                         k.k_cache.raw() + cache, k.v_cache.raw() + cache, scores, sums, k.o_bthd.raw() + ((b * s.t + i) * s.h + h) * s.d);
  }
}

/// From so many new tokens on, panels of queries are faster than one query after the other.
inline constexpr std::size_t queries_worth_packing = 8;

template <class Arch, class T>
[[nodiscard]] std::size_t cache_worker_bytes(const kernel::cached_attention<host_memory, T>& k) {
  if (k.shape.t >= queries_worth_packing) return attention_work<Arch, T>(nullptr, k.capacity, k.shape.d, false, false).bytes;
  return product_plan::round_up((k.capacity + k.shape.d) * sizeof(accumulate_t<T>), 64);
}

}  // namespace cpu_kernels

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k.shape.t, k.shape.d, false, k.dropout > 0.0).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  const kernel::attention_shape& s = k.shape;
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, s.t, s.d, false, k.dropout > 0.0).bytes;
  cpu_kernels::attend_all<simd::native>(stream, k, bytes, scratch.raw(), [&](std::size_t b, std::size_t group) {
    const T* const row = k.qkv.raw() + b * s.t * s.row() + group * s.d;
    return cpu_kernels::attention_keys<T>{{row + s.key_offset(), s.row(), 1}, {row + s.value_offset(), s.row(), 1}, s.t};
  });
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention_backward<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k.shape.t, k.shape.d, true, k.dropout > 0.0).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention_backward<host_memory, T>& k, scratch_span<host_memory> scratch) {
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k.shape.t, k.shape.d, true, k.dropout > 0.0).bytes;
  cpu_kernels::attend_all_backward<simd::native>(stream, k, bytes, scratch.raw());
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::cached_attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::cache_worker_bytes<simd::native>(k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::cached_attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  const kernel::attention_shape& s = k.shape;
  const std::size_t bytes = cpu_kernels::cache_worker_bytes<simd::native>(k);
  if (s.t < cpu_kernels::queries_worth_packing)
    return stream.parallel(s.b * s.k, [&](std::size_t part, std::size_t worker) {
      cpu_kernels::extend_cache(k, part / s.k, part % s.k);
      cpu_kernels::attend_cache_group<simd::native>(k, part / s.k, part % s.k, scratch.raw() + worker * bytes);
    });
  stream.parallel(s.b * s.k, [&](std::size_t part, std::size_t) { cpu_kernels::extend_cache(k, part / s.k, part % s.k); });
  const kernel::attention<host_memory, T> panels{
      .shape = s, .scale = k.scale, .window = k.window, .qkv = k.qkv, .end_bt = k.end_bt, .slope_h = k.slope_h, .o_bthd = k.o_bthd};
  cpu_kernels::attend_all<simd::native>(stream, panels, bytes, scratch.raw(), [&](std::size_t b, std::size_t group) {
    const std::size_t cache = cpu_kernels::cache_of(k, b, group);
    return cpu_kernels::attention_keys<T>{
        {k.k_cache.raw() + cache, s.d, 1}, {k.v_cache.raw() + cache, s.d, 1}, static_cast<std::size_t>(k.length_b.raw()[b]) + s.t};
  });
}

}  // namespace xtrain
