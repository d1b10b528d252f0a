// Backward pass of attention, from the forward pass's log-sum-exp of each query.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/cpu/attention_panel.hpp>
#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>

namespace xtrain::cpu_kernels {

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

}  // namespace xtrain::cpu_kernels
