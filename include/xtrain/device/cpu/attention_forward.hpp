// Forward pass of attention: online softmax of a panel of queries at a time over blocks of keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include <xtrain/device/cpu/attention_panel.hpp>
#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>

namespace xtrain::cpu_kernels {

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

}  // namespace xtrain::cpu_kernels
