// Attention, composed of batched products and a softmax in fp32. Scores of some heads exist at the same time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// Attention's operands without element types. Views without elements are not given.
struct attention_task {
  double scale = 1.0, softcap = 0.0;
  std::size_t window = 0;
  npu_view slope_h = absent;
  npu_view q_bthd{}, k_bukd{}, v_bukd{};
  npu_view start_bt = absent, end_bt = absent;        ///< bounds of keys, as [b, 1, t, 1]
  npu_view length_b = absent;                         ///< position of each sequence's first query, as [b, 1, 1, 1]
  std::size_t first_query = 0, first_key = 0;         ///< positions
  npu_view o_bthd{}, lse_bht = absent, do_bthd{};     ///< lse as [b, h, t, 1]
  npu_view dq_bthd{}, dk_bukd{}, dv_bukd{};
  bool is_merged = false;                             ///< with results of earlier keys; gradients are added to

  [[nodiscard]] std::size_t sequences() const { return q_bthd.dim(0); }
  [[nodiscard]] std::size_t queries() const { return q_bthd.dim(1); }
  [[nodiscard]] std::size_t heads() const { return q_bthd.dim(2); }
  [[nodiscard]] std::size_t keys() const { return k_bukd.dim(1); }
  [[nodiscard]] std::size_t key_heads() const { return k_bukd.dim(2); }
  /// Query heads of a key head.
  [[nodiscard]] std::size_t group() const { return heads() / key_heads(); }
  [[nodiscard]] bool is_causal() const { return end_bt.elements() == 0; }
};

/// `count` heads from `first` on, of `t` rows of each of `b` sequences, as [b, t, count, d].
///   own   rows of a sequence in the matrix; at: the first
template <class Operand>
[[nodiscard]] npu_view heads_in(const Operand& rows, std::size_t b, std::size_t own, std::size_t at, std::size_t t, std::size_t row, std::size_t first,
                                std::size_t count, std::size_t d) {
  return view_of(rows, {b, t, count, d}).with_strides({own * row, row, d, 1}).from(at * row + first * d);
}
/// One number per query, or nothing: [b, 1, t, 1].
template <class Operand>
[[nodiscard]] npu_view per_query(const Operand& bounds, std::size_t b, std::size_t own, std::size_t at, std::size_t t) {
  if (bounds.empty()) return absent;
  return view_of(bounds, {b, 1, t, 1}).with_strides({own, own, 1, 1}).from(at);
}

template <class Kernel>
[[nodiscard]] attention_task task_of(const Kernel& k) {
  const auto& [b, t, h, kv, d, all, first] = k.shape;
  const std::size_t row = k.shape.row();
  return {.scale = k.scale,
          .softcap = k.softcap,
          .window = k.window,
          .slope_h = view_of(k.slope_h, {k.slope_h.size()}),
          .q_bthd = heads_in(k.qkv, b, t, 0, t, row, 0, h, d),
          .k_bukd = heads_in(k.qkv, b, t, 0, t, row, h, kv, d),
          .v_bukd = heads_in(k.qkv, b, t, 0, t, row, h + kv, kv, d),
          .start_bt = per_query(k.start_bt, b, t, 0, t),
          .end_bt = per_query(k.end_bt, b, t, 0, t),
          .o_bthd = heads_in(k.o_bthd, b, t, 0, t, h * d, 0, h, d),
          .lse_bht = view_of(k.lse_bht, {b, h, t, 1})};
}
template <class Kernel>
[[nodiscard]] attention_task task_of_block(const Kernel& k) {
  const auto& [b, t, h, kv, d, all, first] = k.shape;
  const kernel::position_block &queries = k.queries, &keys = k.keys;
  return {.scale = k.scale,
          .softcap = k.softcap,
          .window = k.window,
          .slope_h = view_of(k.slope_h, {k.slope_h.size()}),
          .q_bthd = heads_in(k.qkv, b, queries.own, queries.at, queries.count, k.shape.row(), 0, h, d),
          .k_bukd = heads_in(k.kv, b, keys.own, keys.at, keys.count, 2 * kv * d, 0, kv, d),
          .v_bukd = heads_in(k.kv, b, keys.own, keys.at, keys.count, 2 * kv * d, kv, kv, d),
          .start_bt = per_query(k.start_bt, b, t, queries.first, queries.count),
          .end_bt = per_query(k.end_bt, b, t, queries.first, queries.count),
          .first_query = queries.first,
          .first_key = keys.first,
          .o_bthd = heads_in(k.o_bthd, b, queries.own, queries.at, queries.count, h * d, 0, h, d),
          .lse_bht = view_of(k.lse_bht, {b, h, queries.count, 1}).with_strides({h * queries.own, queries.own, 1, 1}).from(queries.at)};
}

/// Indices of one dim.
struct index_range {
  std::size_t first = 0, count = 0;
  [[nodiscard]] std::size_t end() const { return first + count; }
};

/// Sequences, key heads and queries whose scores exist at the same time.
struct attention_part {
  index_range sequences{}, key_heads{}, queries{};
};

/// Keys that some query of a part may see, as far as the host knows.
[[nodiscard]] inline index_range keys_of(const attention_task& task, const index_range& queries) {
  index_range all{0, task.keys()};
  if (task.length_b.elements() != 0) return all;
  const std::size_t first = task.first_query + queries.first, end = task.first_query + queries.end();
  if (task.is_causal()) all.count = std::min(all.count, end > task.first_key ? end - task.first_key : 0);
  const std::size_t earliest = kernel::first_seen(0, task.window, first);
  all.first = std::min(all.count, earliest > task.first_key ? earliest - task.first_key : 0);
  all.count -= all.first;
  return all;
}

/// Positions of a part's queries: [t, 1], or [b, 1, t, 1] where the device alone knows them.
///   before   is subtracted
[[nodiscard]] inline npu_view positions_of(npu_sequence& s, const attention_task& task, const attention_part& part, std::size_t before = 0) {
  const index_range& rows = part.queries;
  const auto first = static_cast<std::int64_t>(rows.first) - static_cast<std::int64_t>(before);
  if (task.length_b.elements() == 0) return count_from(s, first + static_cast<std::int64_t>(task.first_query), rows.count).as({rows.count, 1});
  const npu_view all = s.fresh(npu_type::int32, {part.sequences.count, 1, rows.count, 1}), count_t1 = count_from(s, first, rows.count).as({rows.count, 1});
  s.run(npu_op::add, task.length_b.slice(0, part.sequences.first, part.sequences.count), count_t1, integer(1), all);
  return all;
}

/// Which keys a part's queries do not attend to: [t, u], or [b, 1, t, u] where that depends on the sequence.
[[nodiscard]] inline npu_view hidden_keys(npu_sequence& s, const attention_task& task, const attention_part& part, const index_range& keys) {
  const std::size_t b = part.sequences.count, t = part.queries.count, u = keys.count;
  const npu_view column_u = count_from(s, static_cast<std::int64_t>(task.first_key + keys.first), u);
  npu_view all{};
  const auto also = [&](const auto& op, const npu_view& bound) {
    const npu_view mask = bound.rank == 4 ? s.fresh(npu_type::boolean, {b, 1, t, u}) : s.fresh(npu_type::boolean, {t, u});
    s.run(op, column_u, bound, mask);
    if (all.rank == 0) {
      all = mask;
      return;
    }
    const npu_view either = s.fresh_like(all.rank == 4 ? all : mask, npu_type::boolean);
    s.run(npu_op::logical_or, all, mask, either);
    all = either;
  };
  const auto of_queries = [&](const npu_view& bound_bt) {
    return bound_bt.slice(0, part.sequences.first, b).slice(2, part.queries.first, t);
  };
  if (task.is_causal()) also(npu_op::greater, positions_of(s, task, part));
  else also(npu_op::at_least, of_queries(task.end_bt));
  if (task.start_bt.elements() != 0) also(npu_op::less, of_queries(task.start_bt));
  if (task.window != 0 && task.window < task.first_query + task.queries() + (task.length_b.elements() == 0 ? 0 : task.keys()))
    also(npu_op::less, positions_of(s, task, part, task.window - 1));
  return all;
}

/// The composed operators of a part.
class attention_heads {
 public:
  attention_heads(npu_sequence& s, const attention_task& task, const attention_part& part) : s_(&s), task_(&task), part_(part) {}

  [[nodiscard]] const attention_part& part() const { return part_; }
  [[nodiscard]] attention_heads with_queries(const index_range& queries) const {
    return {*s_, *task_, {part_.sequences, part_.key_heads, queries}};
  }
  /// Of [b, t, heads, d], as [b, heads, t, d].
  [[nodiscard]] npu_view queries(const npu_view& all) const {
    const std::size_t group = task_->group();
    return by_head(all, part_.queries, part_.key_heads.first * group, part_.key_heads.count * group);
  }
  [[nodiscard]] npu_view keys(const npu_view& all, const index_range& of) const { return by_head(all, of, part_.key_heads.first, part_.key_heads.count); }
  [[nodiscard]] npu_view lse() const {
    const std::size_t group = task_->group();
    return task_->lse_bht.slice(0, part_.sequences.first, part_.sequences.count)
        .slice(1, part_.key_heads.first * group, part_.key_heads.count * group)
        .slice(2, part_.queries.first, part_.queries.count);
  }

  /// A copy in fp32 as [b · key heads, rows, d]: the queries of a key head are consecutive.
  [[nodiscard]] npu_view gathered(const npu_view& x_bhtd) const {
    const std::size_t all = part_.sequences.count * part_.key_heads.count;
    return wide_copy(*s_, x_bhtd).as({all, x_bhtd.dim(0) * x_bhtd.dim(1) / all * x_bhtd.dim(2), x_bhtd.dim(3)});
  }
  /// a · b of every key head.
  [[nodiscard]] npu_view multiplied(const npu_view& a, const npu_view& b) const {
    const npu_view c = s_->fresh(npu_type::fp32, {a.dim(0), a.dim(1), b.dim(2)});
    s_->run(npu_op::batch_matmul, a, b, c, 0);
    return c;
  }
  [[nodiscard]] npu_view of_query_heads(const npu_view& all) const {
    return all.as({part_.sequences.count, part_.key_heads.count * task_->group(), part_.queries.count, all.dim(2)});
  }

  /// Scores as [b, h, t, u] after scale, softcap, slopes and the mask.
  ///   slope    gets the derivative of the softcap, if it is given
  ///   hidden   gets the mask
  [[nodiscard]] npu_view scores(const npu_view& q, const npu_view& k, const index_range& keys, npu_view* slope, npu_view& hidden) const {
    const npu_view all = of_query_heads(multiplied(q, k.transposed()));
    if (task_->softcap != 0.0) {
      s_->run(npu_op::inplace_muls, all, npu_scalar{task_->scale / task_->softcap});
      s_->run(npu_op::inplace_tanh, all);
      if (slope != nullptr) {
        *slope = times(*s_, product(*s_, all, all, all), -1.0);
        add_number(*s_, *slope, 1.0);
      }
      s_->run(npu_op::inplace_muls, all, npu_scalar{task_->softcap});
    } else {
      s_->run(npu_op::inplace_muls, all, npu_scalar{task_->scale});
    }
    if (task_->slope_h.elements() != 0) {
      const std::size_t first = part_.key_heads.first * task_->group(), count = part_.key_heads.count * task_->group();
      const npu_view query = positions_of(*s_, *task_, part_), column_u = count_from(*s_, static_cast<std::int64_t>(task_->first_key + keys.first), keys.count);
      npu_view like = query;
      like.dims[like.rank - 1] = static_cast<std::int64_t>(keys.count);
      const npu_view position = s_->fresh_like(query), key_u = s_->fresh_like(column_u), distance = s_->fresh_like(like);
      s_->run(npu_op::cast, query, npu_type::fp32, position);
      s_->run(npu_op::cast, column_u, npu_type::fp32, key_u);
      s_->run(npu_op::sub, position, key_u, npu_scalar{1}, distance);
      s_->run(npu_op::inplace_addcmul, all, distance, task_->slope_h.slice(0, first, count).as({count, 1, 1}), npu_scalar{-1});
    }
    hidden = hidden_keys(*s_, *task_, part_, keys);
    s_->run(npu_op::inplace_masked_fill, all, hidden, npu_scalar{-1e30});
    return all;
  }

 private:
  [[nodiscard]] npu_view by_head(const npu_view& all, const index_range& rows, std::size_t first, std::size_t count) const {
    npu_view some = all.slice(0, part_.sequences.first, part_.sequences.count).slice(1, rows.first, rows.count).slice(2, first, count);
    std::swap(some.dims[1], some.dims[2]);
    std::swap(some.strides[1], some.strides[2]);
    return some;
  }
  npu_sequence* s_;
  const attention_task* task_;
  attention_part part_;
};

/// Calls f(heads, queries at once) for parts of which the scores are not larger than the rules say: some sequences, else some key heads of one, else some
/// queries of one key head.
///   copies   matrices of scores that exist at the same time
template <class F>
void for_each_part(npu_sequence& s, const attention_task& task, std::size_t copies, F&& f) {
  const std::size_t k = task.key_heads(), b = task.sequences(), t = task.queries();
  const std::size_t row = std::max<std::size_t>(1, copies * task.group() * task.keys() * sizeof(float));
  const std::size_t most = s.rules().settings.chunk_bytes, fit = most / (row * t);
  const std::size_t heads = std::clamp<std::size_t>(fit, 1, k), sequences = heads < k ? 1 : std::clamp<std::size_t>(fit / k, 1, b);
  constexpr std::size_t multiple = 16;  // rows of a tile of a product
  std::size_t rows = fit > 0 ? t : std::clamp<std::size_t>(most / row, 1, t);
  if (rows > multiple && rows < t) rows = rows / multiple * multiple;
  for (std::size_t i = 0; i < b; i += sequences)
    for (std::size_t j = 0; j < k; j += heads) {
      const npu_sequence::scope here(s);
      f(attention_heads(s, task, {{i, std::min(sequences, b - i)}, {j, std::min(heads, k - j)}, {0, t}}), rows);
    }
}
/// Calls f(heads with some queries, their keys).
template <class F>
void for_each_tile(npu_sequence& s, const attention_task& task, const attention_heads& heads, std::size_t rows, F&& f) {
  for (std::size_t i = 0; i < task.queries(); i += rows) {
    const npu_sequence::scope here(s);
    const index_range queries{i, std::min(rows, task.queries() - i)};
    f(heads.with_queries(queries), keys_of(task, queries));
  }
}

/// A number below which a logarithm is of no key: hidden scores are -1e30.
inline constexpr double no_key = -5e29;

/// Results for no key at all.
inline void attend_to_nothing(npu_sequence& s, const npu_view& o, const npu_view& lse) {
  s.run(npu_op::inplace_zero, o);
  s.run(npu_op::inplace_fill, lse, npu_scalar{-std::numeric_limits<double>::infinity()});
}

/// Values of a cache that were not written yet: 0 times what is there need not be 0.
inline void clear_unwritten(npu_sequence& s, const attention_task& task, const attention_part& part, const npu_view& v) {
  const std::size_t b = part.sequences.count, u = task.keys();
  const npu_view end_b = s.fresh(npu_type::int32, {b, 1, 1, 1}), unwritten = s.fresh(npu_type::boolean, {b, 1, u, 1});
  s.run(npu_op::add, task.length_b.slice(0, part.sequences.first, b), filled(s, npu_type::int32, static_cast<double>(task.queries())), integer(1), end_b);
  s.run(npu_op::at_least, count_from(s, 0, u).as({u, 1}), end_b, unwritten);
  s.run(npu_op::inplace_masked_fill, v.as({b, part.key_heads.count, u, v.dim(2)}), unwritten, npu_scalar{0});
}

/// Softmax of the scores, and the values' mean.
///   is_whole   each query has a key
inline void attend_composed(npu_sequence& s, const attention_task& task, bool is_whole) {
  for_each_part(s, task, 2, [&](const attention_heads& whole, std::size_t rows) {
    const npu_view k_all = whole.gathered(whole.keys(task.k_bukd, {0, task.keys()})), v_all = whole.gathered(whole.keys(task.v_bukd, {0, task.keys()}));
    if (task.length_b.elements() != 0) clear_unwritten(s, task, whole.part(), v_all);
    for_each_tile(s, task, whole, rows, [&](const attention_heads& heads, const index_range& keys) {
      const npu_view o_bhtd = heads.queries(task.o_bthd);
      if (keys.count == 0) {
        if (!task.is_merged) attend_to_nothing(s, o_bhtd, heads.lse());
        return;
      }
      npu_view hidden{};
      const npu_view v = v_all.slice(1, keys.first, keys.count);
      const npu_view scores = heads.scores(heads.gathered(heads.queries(task.q_bthd)), k_all.slice(1, keys.first, keys.count), keys, nullptr, hidden);
      const npu_view of_block = s.fresh(npu_type::fp32, {scores.dim(0), scores.dim(1), scores.dim(2), 1}), p = s.fresh_like(scores);
      s.run(npu_op::log_sum_exp, scores, npu_ints{-1}, true, of_block);
      npu_view lse = of_block, before{};
      if (task.is_merged) {  // with earlier keys: the logarithm of both sums
        const npu_view both_2 = s.fresh(npu_type::fp32, {scores.dim(0), scores.dim(1), scores.dim(2), 2});
        before = both_2.slice(3, 0, 1);
        s.run(npu_op::clamp, heads.lse(), npu_scalar{-1e30}, npu_scalar{1e30}, before);
        store(s, of_block, both_2.slice(3, 1, 1));
        lse = s.fresh_like(of_block);
        s.run(npu_op::log_sum_exp, both_2, npu_ints{-1}, true, lse);
      }
      s.run(npu_op::inplace_sub, scores, lse, npu_scalar{1});
      s.run(npu_op::exp, scores, p);
      const npu_view o = heads.of_query_heads(heads.multiplied(p.as({v.dim(0), p.elements() / v.dim(0) / v.dim(1), v.dim(1)}), v));
      if (task.is_merged) {
        const npu_view power = s.fresh_like(of_block), share = s.fresh_like(of_block);
        s.run(npu_op::sub, before, lse, npu_scalar{1}, power);
        s.run(npu_op::exp, power, share);
        s.run(npu_op::inplace_addcmul, o, o_bhtd, share, npu_scalar{1});
      }
      if (!is_whole) {
        const npu_view sees_none = s.fresh_like(lse, npu_type::boolean);
        s.run(npu_op::less_than, lse, npu_scalar{no_key}, sees_none);
        s.run(npu_op::inplace_masked_fill, o, sees_none, npu_scalar{0});
        s.run(npu_op::inplace_masked_fill, lse, sees_none, npu_scalar{-std::numeric_limits<double>::infinity()});
      }
      if (task.lse_bht.elements() != 0) store(s, lse, heads.lse());
      store(s, o, o_bhtd);
    });
  });
}

/// Gradients of queries are written by tiles, those of keys and values are sums over tiles.
///   is_whole   each query has a key
inline void attend_backward_composed(npu_sequence& s, const attention_task& task, bool is_whole) {
  const std::size_t u = task.keys();
  for_each_part(s, task, task.softcap != 0.0 ? 5 : 3, [&](const attention_heads& whole, std::size_t rows) {
    const npu_view k_all = whole.gathered(whole.keys(task.k_bukd, {0, u})), v_all = whole.gathered(whole.keys(task.v_bukd, {0, u}));
    const bool is_one = rows >= task.queries() && keys_of(task, {0, task.queries()}).count == u;
    npu_view dk_all{}, dv_all{};
    if (!is_one)
      for (npu_view* const sum : {&dk_all, &dv_all}) {
        *sum = s.fresh_like(k_all);
        s.run(npu_op::inplace_zero, *sum);
      }
    const auto of_keys = [&](const npu_view& all, const npu_view& to) {
      store(s, all.as({to.dim(0), to.dim(1), to.dim(2), to.dim(3)}), to, task.is_merged);
    };
    for_each_tile(s, task, whole, rows, [&](const attention_heads& heads, const index_range& keys) {
      if (keys.count == 0) {
        if (!task.is_merged) s.run(npu_op::inplace_zero, heads.queries(task.dq_bthd));
        return;
      }
      const npu_view q = heads.gathered(heads.queries(task.q_bthd)), k = k_all.slice(1, keys.first, keys.count), v = v_all.slice(1, keys.first, keys.count);
      const npu_view o = heads.gathered(heads.queries(task.o_bthd)), d_o = heads.gathered(heads.queries(task.do_bthd));
      npu_view slope{}, hidden{};
      const npu_view scores = heads.scores(q, k, keys, task.softcap != 0.0 ? &slope : nullptr, hidden), p = s.fresh_like(scores);
      s.run(npu_op::inplace_sub, scores, heads.lse(), npu_scalar{1});
      s.run(npu_op::exp, scores, p);
      if (!is_whole) s.run(npu_op::inplace_masked_fill, p, hidden, npu_scalar{0});  // infinite for queries without keys
      const auto of_key_heads = [&](const npu_view& all) { return all.as({q.dim(0), q.dim(1), k.dim(1)}); };
      // forward: o = p v
      const npu_view dv = heads.multiplied(of_key_heads(p).transposed(), d_o);
      const npu_view ds = of_key_heads(heads.multiplied(d_o, v.transposed()));
      // forward: p = softmax(s)
      s.run(npu_op::inplace_mul, o, d_o);
      s.run(npu_op::inplace_sub, ds, sum_last(s, o), npu_scalar{1});
      s.run(npu_op::inplace_mul, ds, of_key_heads(p));
      if (task.softcap != 0.0) s.run(npu_op::inplace_mul, ds, of_key_heads(slope));
      s.run(npu_op::inplace_muls, ds, npu_scalar{task.scale});
      // forward: s = scale · q kᵀ
      store(s, heads.of_query_heads(heads.multiplied(ds, k)), heads.queries(task.dq_bthd), task.is_merged);
      const npu_view dk = heads.multiplied(ds.transposed(), q);
      if (is_one) {
        of_keys(dk, heads.keys(task.dk_bukd, {0, u}));
        of_keys(dv, heads.keys(task.dv_bukd, {0, u}));
        return;
      }
      add_to(s, dk, dk_all.slice(1, keys.first, keys.count));
      add_to(s, dv, dv_all.slice(1, keys.first, keys.count));
    });
    if (is_one) return;
    of_keys(dk_all, whole.keys(task.dk_bukd, {0, u}));
    of_keys(dv_all, whole.keys(task.dv_bukd, {0, u}));
  });
}

/// CANN's fused attention takes it: scores without softcap and slopes, at most 256 heads of at most 768 elements.
[[nodiscard]] inline bool is_fused(const npu_sequence& s, const attention_task& task) {
  return s.rules().has_fused() && task.softcap == 0.0 && task.slope_h.elements() == 0 && task.heads() <= 256 && task.q_bthd.dim(3) <= 768;
}
/// The mask of a fused attention, and the number that says how it is read: a part of a triangle that is always the same, or all of it.
struct fused_mask {
  npu_view hidden{};
  std::int64_t mode = 1;
};
[[nodiscard]] inline fused_mask mask_of(npu_sequence& s, const attention_task& task) {
  constexpr std::size_t side = 2048;
  const std::size_t t = task.queries();
  const bool is_triangle = task.is_causal() && task.start_bt.elements() == 0 && (task.window == 0 || task.window >= t);
  if (!is_triangle || t <= side) return {hidden_keys(s, task, {{0, task.sequences()}, {}, {0, t}}, {0, t}), 1};
  const npu_view column = count_from(s, 0, side), hidden = s.fresh(npu_type::boolean, {side, side});
  s.run(npu_op::greater, column, column.as({side, 1}), hidden);
  return {hidden, 2};
}
/// Of a fused attention: every token that the mask shows.
inline constexpr std::int64_t all_tokens = 2147483647;

inline void attend_fused(npu_sequence& s, const attention_task& task) {
  const std::size_t b = task.sequences(), h = task.heads(), t = task.queries();
  const npu_view largest = s.fresh(npu_type::fp32, {b, h, t, 8}), sum = s.fresh(npu_type::fp32, {b, h, t, 8}), reserved = s.fresh(task.q_bthd.type, {1});
  const fused_mask mask = mask_of(s, task);
  s.run(npu_op::flash_attention, task.q_bthd, task.k_bukd, task.v_bukd, npu_none{}, npu_none{}, npu_none{}, mask.hidden, npu_none{}, npu_none{}, npu_none{},
        task.scale, 1.0, all_tokens, all_tokens, h, "BSND", 0, mask.mode, 1, largest, sum, reserved, task.o_bthd);
  // eight equal copies each
  const npu_view log_sum = s.fresh(npu_type::fp32, {b, h, t, 1});
  s.run(npu_op::log, sum.slice(3, 0, 1), log_sum);
  s.run(npu_op::add, largest.slice(3, 0, 1), log_sum, npu_scalar{1}, task.lse_bht);
}

inline void attend_backward_fused(npu_sequence& s, const attention_task& task) {
  const std::size_t b = task.sequences(), h = task.heads(), t = task.queries(), kv = task.key_heads(), d = task.q_bthd.dim(3);
  const npu_type type = task.q_bthd.type;
  // p = exp(s - largest) / sum: with lse for the largest, the sum is 1
  const npu_view largest = s.fresh(npu_type::fp32, {b, h, t, 8}), sum = s.fresh(npu_type::fp32, {b, h, t, 8}), reserved = s.fresh(type, {1});
  s.run(npu_op::inplace_copy, largest, task.lse_bht);
  s.run(npu_op::inplace_fill, sum, npu_scalar{1});
  const npu_view dq = s.fresh(type, {b, t, h, d}), dk = s.fresh(type, {b, t, kv, d}), dv = s.fresh(type, {b, t, kv, d});
  const fused_mask mask = mask_of(s, task);
  s.run(npu_op::flash_attention_grad, task.q_bthd, task.k_bukd, task.v_bukd, task.do_bthd, npu_none{}, npu_none{}, npu_none{}, mask.hidden, largest, sum,
        npu_none{}, task.o_bthd, npu_none{}, npu_none{}, npu_none{}, task.scale, 1.0, all_tokens, all_tokens, h, "BSND", 0, mask.mode, 1, dq, dk, dv,
        reserved);
  store(s, dq, task.dq_bthd);
  store(s, dk, task.dk_bukd);
  store(s, dv, task.dv_bukd);
}

/// CANN has no operator that draws our random numbers.
template <class Memory, class T>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::attention<Memory, T>& k) {
  return k.dropout > 0.0;
}
template <class Memory, class T>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::attention_backward<Memory, T>& k) {
  return k.dropout > 0.0;
}
template <class Memory, class T>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::attention_block<Memory, T>& k) {
  return k.dropout > 0.0;
}
template <class Memory, class T>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::attention_block_backward<Memory, T>& k) {
  return k.dropout > 0.0;
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::attention<Memory, T>& k) {
  kernel::check_arity<13>(k);
  if (k.o_bthd.empty()) return;
  const attention_task task = task_of(k);
  if (is_fused(s, task)) attend_fused(s, task);
  else attend_composed(s, task, true);
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::attention_backward<Memory, T>& k) {
  kernel::check_arity<15>(k);
  if (k.dqkv.empty()) return;
  const auto& [b, t, h, kv, d, all, first] = k.shape;
  const std::size_t row = k.shape.row();
  attention_task task = task_of(k);
  task.do_bthd = heads_in(k.do_bthd, b, t, 0, t, h * d, 0, h, d);
  task.dq_bthd = heads_in(k.dqkv, b, t, 0, t, row, 0, h, d);
  task.dk_bukd = heads_in(k.dqkv, b, t, 0, t, row, h, kv, d);
  task.dv_bukd = heads_in(k.dqkv, b, t, 0, t, row, h + kv, kv, d);
  if (is_fused(s, task)) attend_backward_fused(s, task);
  else attend_backward_composed(s, task, true);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::attention_block<Memory, T>& k) {
  kernel::check_arity<17>(k);
  if (k.shape.b == 0 || k.shape.h == 0 || k.shape.d == 0 || k.queries.count == 0) return;
  attention_task task = task_of_block(k);
  task.is_merged = !k.begins;
  if (k.keys.count != 0) return attend_composed(s, task, false);
  if (k.begins) attend_to_nothing(s, task.o_bthd, task.lse_bht);
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::attention_block_backward<Memory, T>& k) {
  kernel::check_arity<19>(k);
  const auto& [b, t, h, kv, d, all, first] = k.shape;
  const kernel::position_block &queries = k.queries, &keys = k.keys;
  if (b == 0 || h == 0 || d == 0 || queries.count == 0 || keys.count == 0) return;
  attention_task task = task_of_block(k);
  task.is_merged = true;
  task.do_bthd = heads_in(k.do_bthd, b, queries.own, queries.at, queries.count, h * d, 0, h, d);
  task.dq_bthd = heads_in(k.dq_bthd, b, queries.own, queries.at, queries.count, h * d, 0, h, d);
  task.dk_bukd = heads_in(k.dkv, b, keys.own, keys.at, keys.count, 2 * kv * d, 0, kv, d);
  task.dv_bukd = heads_in(k.dkv, b, keys.own, keys.at, keys.count, 2 * kv * d, kv, kv, d);
  attend_backward_composed(s, task, false);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::cached_attention<Memory, T>& k) {
  kernel::check_arity<12>(k);
  const auto& [b, t, h, kv, d, all, first] = k.shape;
  if (k.o_bthd.empty() || k.capacity < t) return;
  const std::size_t row = k.shape.row();
  const auto cache = [&](const auto& operand) { return view_of(operand, {k.shape.b, k.shape.k, k.capacity, k.shape.d}); };
  const auto by_position = [](npu_view heads) {  // [b, k, u, d] as [b, u, k, d], or the reverse
    std::swap(heads.dims[1], heads.dims[2]);
    std::swap(heads.strides[1], heads.strides[2]);
    return heads;
  };
  // new rows go to the cache
  const npu_view length_b = view_of(k.length_b, {b});
  {
    const npu_sequence::scope here(s);
    const npu_view place_b = clamped(s, length_b, 0, k.capacity - t + 1);
    const auto append = [&](std::size_t first_head, const npu_view& to_bkud) {
      const npu_view from_bktd = by_position(heads_in(k.qkv, k.shape.b, k.shape.t, 0, k.shape.t, row, first_head, k.shape.k, k.shape.d));
      const npu_view dense_bktd = s.fresh_like(from_bktd, from_bktd.type);
      store(s, from_bktd, dense_bktd);
      s.run(npu_op::inplace_scatter_update, to_bkud, place_b, dense_bktd, -2);
    };
    append(h, cache(k.k_cache));
    append(h + kv, cache(k.v_cache));
  }
  attention_task task{.scale = k.scale, .softcap = k.softcap, .window = k.window, .slope_h = view_of(k.slope_h, {k.slope_h.size()})};
  task.q_bthd = heads_in(k.qkv, b, t, 0, t, row, 0, h, d);
  task.k_bukd = by_position(cache(k.k_cache));
  task.v_bukd = by_position(cache(k.v_cache));
  task.end_bt = per_query(k.end_bt, b, t, 0, t);
  task.length_b = length_b.as({b, 1, 1, 1});
  task.o_bthd = heads_in(k.o_bthd, b, t, 0, t, h * d, 0, h, d);
  attend_composed(s, task, true);
}

}  // namespace xtrain::npu_kernels
