// Attention, composed of batched products and a softmax in fp32. Scores of some heads exist at the same time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// What attention forward and backward have in common, without element types.
struct attention_task {
  kernel::attention_shape shape{};
  double scale = 1.0, softcap = 0.0;
  std::size_t window = 0;
  npu_view qkv{}, start_bt{}, end_bt{}, slope_h{};  ///< without elements: not given
  npu_view o_bthd{}, lse_bht{}, do_bthd{}, dqkv{};
};

template <class Kernel>
[[nodiscard]] attention_task task_of(const Kernel& k) {
  const auto& [b, t, h, kv, d, all, first] = k.shape;
  const auto optional = [](const auto& operand) { return view_of(operand, {operand.size()}); };
  return {.shape = k.shape,
          .scale = k.scale,
          .softcap = k.softcap,
          .window = k.window,
          .qkv = view_of(k.qkv, {b * t, k.shape.row()}),
          .start_bt = optional(k.start_bt),
          .end_bt = optional(k.end_bt),
          .slope_h = optional(k.slope_h),
          .o_bthd = view_of(k.o_bthd, {b * t, h * d}),
          .lse_bht = view_of(k.lse_bht, {b, h, t, 1})};
}

/// Which keys a query does not attend to: [t, t], or [sequences, 1, t, t] where that depends on the sequence.
[[nodiscard]] inline npu_view hidden_keys(npu_sequence& s, const attention_task& task, std::size_t first_b, std::size_t sequences) {
  const std::size_t t = task.shape.t;
  const npu_view column_t = count_from(s, 0, t);
  npu_view all{};
  const auto also = [&](const auto& op, const npu_view& bound) {
    const npu_view mask = bound.rank == 4 ? s.fresh(npu_type::boolean, {sequences, 1, t, t}) : s.fresh(npu_type::boolean, {t, t});
    s.run(op, column_t, bound, mask);
    if (all.rank == 0) {
      all = mask;
      return;
    }
    const npu_view either = s.fresh_like(all.rank == 4 ? all : mask, npu_type::boolean);
    s.run(npu_op::logical_or, all, mask, either);
    all = either;
  };
  const auto of_queries = [&](const npu_view& bound_bt) { return bound_bt.as({sequences, 1, t, 1}).from(first_b * t); };
  if (task.end_bt.elements() != 0) also(npu_op::at_least, of_queries(task.end_bt));
  else also(npu_op::greater, column_t.as({t, 1}));
  if (task.start_bt.elements() != 0) also(npu_op::less, of_queries(task.start_bt));
  if (task.window != 0 && task.window < t) also(npu_op::less, count_from(s, 1 - static_cast<std::int64_t>(task.window), t).as({t, 1}));
  return all;
}

/// Key heads first_k ... + heads of sequences first_b ... + sequences, with the query heads that use them.
class attention_part {
 public:
  attention_part(npu_sequence& s, const attention_task& task, std::size_t first_b, std::size_t sequences, std::size_t first_k, std::size_t heads)
      : s_(&s), task_(&task), first_b_(first_b), b_(sequences), first_k_(first_k), k_(heads), group_(task.shape.h / task.shape.k) {}

  /// Some heads of rows of heads, as [b, heads, t, d].
  [[nodiscard]] npu_view heads(const npu_view& rows, std::size_t first, std::size_t count) const {
    const std::size_t t = task_->shape.t, d = task_->shape.d, row = rows.dim(1);
    return rows.as({b_, count, t, d}).with_strides({t * row, d, row, 1}).from(first_b_ * t * row + first * d);
  }
  [[nodiscard]] npu_view queries(const npu_view& rows) const { return heads(rows, first_k_ * group_, k_ * group_); }
  [[nodiscard]] npu_view keys(const npu_view& rows) const { return heads(rows, task_->shape.h + first_k_, k_); }
  [[nodiscard]] npu_view values(const npu_view& rows) const { return heads(rows, task_->shape.h + task_->shape.k + first_k_, k_); }
  [[nodiscard]] npu_view lse() const {
    const std::size_t t = task_->shape.t, h = task_->shape.h;
    return task_->lse_bht.as({b_, k_ * group_, t, 1}).with_strides({h * t, t, 1, 1}).from((first_b_ * h + first_k_ * group_) * t);
  }

  /// A copy in fp32 as [b · key heads, rows, d]: the queries of a key head are consecutive.
  [[nodiscard]] npu_view gathered(const npu_view& x_bhtd) const {
    return wide_copy(*s_, x_bhtd).as({b_ * k_, x_bhtd.dim(1) / k_ * x_bhtd.dim(2), x_bhtd.dim(3)});
  }
  /// a · b of every key head.
  [[nodiscard]] npu_view multiplied(const npu_view& a, const npu_view& b) const {
    const npu_view c = s_->fresh(npu_type::fp32, {a.dim(0), a.dim(1), b.dim(2)});
    s_->run(npu_op::batch_matmul, a, b, c, 0);
    return c;
  }
  [[nodiscard]] npu_view by_head(const npu_view& all) const { return all.as({b_, k_ * group_, task_->shape.t, all.dim(2)}); }

  /// Scores as [b, h, t, t] after scale, softcap, slopes and the mask; slope_bhtt gets the derivative of the softcap.
  [[nodiscard]] npu_view scores(const npu_view& q, const npu_view& k, npu_view* slope_bhtt) const {
    const npu_view all = by_head(multiplied(q, k.transposed()));
    if (task_->softcap != 0.0) {
      s_->run(npu_op::inplace_muls, all, npu_scalar{task_->scale / task_->softcap});
      s_->run(npu_op::inplace_tanh, all);
      if (slope_bhtt != nullptr) {
        *slope_bhtt = times(*s_, product(*s_, all, all, all), -1.0);
        add_number(*s_, *slope_bhtt, 1.0);
      }
      s_->run(npu_op::inplace_muls, all, npu_scalar{task_->softcap});
    } else {
      s_->run(npu_op::inplace_muls, all, npu_scalar{task_->scale});
    }
    const std::size_t t = task_->shape.t;
    if (task_->slope_h.elements() != 0) {
      const npu_view column_t = count_from(*s_, 0, t);
      const npu_view slope_h11 = task_->slope_h.slice(0, first_k_ * group_, k_ * group_).as({k_ * group_, 1, 1});
      const npu_view distance_tt = s_->fresh(npu_type::fp32, {t, t}), position_t = s_->fresh(npu_type::fp32, {t});
      s_->run(npu_op::cast, column_t, npu_type::fp32, position_t);
      s_->run(npu_op::sub, position_t.as({t, 1}), position_t, npu_scalar{1}, distance_tt);
      s_->run(npu_op::inplace_addcmul, all, distance_tt, slope_h11, npu_scalar{-1});
    }
    s_->run(npu_op::inplace_masked_fill, all, hidden_keys(*s_, *task_, first_b_, b_), npu_scalar{-1e30});
    return all;
  }

 private:
  npu_sequence* s_;
  const attention_task* task_;
  std::size_t first_b_, b_, first_k_, k_, group_;
};

/// Calls f(part) for parts of which the scores are not larger than the rules say, if one key head's are not.
///   copies   matrices of scores that exist at the same time
template <class F>
void for_each_part(npu_sequence& s, const attention_task& task, std::size_t copies, F&& f) {
  const kernel::attention_shape& shape = task.shape;
  const std::size_t of_key_head = std::max<std::size_t>(1, copies * (shape.h / shape.k) * shape.t * shape.t * sizeof(float));
  const std::size_t fit = std::max<std::size_t>(1, s.rules().settings.chunk_bytes / of_key_head);
  const std::size_t heads = std::min(fit, shape.k), sequences = heads < shape.k ? 1 : std::min(shape.b, fit / shape.k);
  for (std::size_t b = 0; b < shape.b; b += sequences)
    for (std::size_t k = 0; k < shape.k; k += heads) {
      const npu_sequence::scope here(s);
      f(attention_part(s, task, b, std::min(sequences, shape.b - b), k, std::min(heads, shape.k - k)));
    }
}

inline void attend_composed(npu_sequence& s, const attention_task& task) {
  for_each_part(s, task, 2, [&](const attention_part& part) {
    const npu_view scores = part.scores(part.gathered(part.queries(task.qkv)), part.gathered(part.keys(task.qkv)), nullptr);
    const npu_view lse = s.fresh(npu_type::fp32, {scores.dim(0), scores.dim(1), scores.dim(2), 1}), p = s.fresh_like(scores);
    s.run(npu_op::log_sum_exp, scores, npu_ints{-1}, true, lse);
    store(s, lse, part.lse());
    s.run(npu_op::inplace_sub, scores, lse, npu_scalar{1});
    s.run(npu_op::exp, scores, p);
    const npu_view v = part.gathered(part.values(task.qkv));
    store(s, part.by_head(part.multiplied(p.as({v.dim(0), p.elements() / v.dim(0) / v.dim(1), v.dim(1)}), v)), part.queries(task.o_bthd));
  });
}

inline void attend_backward_composed(npu_sequence& s, const attention_task& task) {
  for_each_part(s, task, task.softcap != 0.0 ? 5 : 3, [&](const attention_part& part) {
    const npu_view q = part.gathered(part.queries(task.qkv)), k = part.gathered(part.keys(task.qkv)), v = part.gathered(part.values(task.qkv));
    const npu_view o = part.gathered(part.queries(task.o_bthd)), d_o = part.gathered(part.queries(task.do_bthd));
    npu_view slope{};
    const npu_view scores = part.scores(q, k, task.softcap != 0.0 ? &slope : nullptr), p = s.fresh_like(scores);
    s.run(npu_op::inplace_sub, scores, part.lse(), npu_scalar{1});
    s.run(npu_op::exp, scores, p);
    const auto of_key_heads = [&](const npu_view& all) { return all.as({q.dim(0), q.dim(1), k.dim(1)}); };
    // forward: o = p v
    const npu_view dv = part.multiplied(of_key_heads(p).transposed(), d_o);
    const npu_view ds = of_key_heads(part.multiplied(d_o, v.transposed()));
    // forward: p = softmax(s)
    s.run(npu_op::inplace_mul, o, d_o);
    s.run(npu_op::inplace_sub, ds, sum_last(s, o), npu_scalar{1});
    s.run(npu_op::inplace_mul, ds, of_key_heads(p));
    if (task.softcap != 0.0) s.run(npu_op::inplace_mul, ds, of_key_heads(slope));
    s.run(npu_op::inplace_muls, ds, npu_scalar{task.scale});
    // forward: s = scale · q kᵀ
    store(s, part.by_head(part.multiplied(ds, k)), part.queries(task.dqkv));
    const auto of_keys = [&](const npu_view& all, const npu_view& to) { store(s, all.as({to.dim(0), to.dim(1), to.dim(2), to.dim(3)}), to); };
    of_keys(part.multiplied(ds.transposed(), q), part.keys(task.dqkv));
    of_keys(dv, part.values(task.dqkv));
  });
}

/// CANN's fused attention takes it: scores without softcap and slopes, at most 256 heads of at most 768 elements.
[[nodiscard]] inline bool is_fused(const npu_sequence& s, const attention_task& task) {
  return s.rules().has_fused() && task.softcap == 0.0 && task.slope_h.elements() == 0 && task.shape.h <= 256 && task.shape.d <= 768;
}
/// The mask of a fused attention, and the number that says how it is read: a part of a triangle that is always the same, or all of it.
struct fused_mask {
  npu_view hidden{};
  std::int64_t mode = 1;
};
[[nodiscard]] inline fused_mask mask_of(npu_sequence& s, const attention_task& task) {
  constexpr std::size_t side = 2048;
  const bool is_causal = task.end_bt.elements() == 0 && task.start_bt.elements() == 0 && (task.window == 0 || task.window >= task.shape.t);
  if (!is_causal || task.shape.t <= side) return {hidden_keys(s, task, 0, task.shape.b), 1};
  const npu_view column = count_from(s, 0, side), hidden = s.fresh(npu_type::boolean, {side, side});
  s.run(npu_op::greater, column, column.as({side, 1}), hidden);
  return {hidden, 2};
}
/// Some heads of rows of heads, as [b, t, heads, d].
[[nodiscard]] inline npu_view fused_heads(const attention_task& task, const npu_view& rows, std::size_t first, std::size_t count) {
  const std::size_t t = task.shape.t, d = task.shape.d, row = rows.dim(1);
  return rows.as({task.shape.b, t, count, d}).with_strides({t * row, row, d, 1}).from(first * d);
}
/// Of a fused attention: every token that the mask shows.
inline constexpr std::int64_t all_tokens = 2147483647;

inline void attend_fused(npu_sequence& s, const attention_task& task) {
  const auto& [b, t, h, kv, d, all, first] = task.shape;
  const auto heads = [&](const npu_view& rows, std::size_t from, std::size_t count) { return fused_heads(task, rows, from, count); };
  const npu_view largest = s.fresh(npu_type::fp32, {b, h, t, 8}), sum = s.fresh(npu_type::fp32, {b, h, t, 8}), reserved = s.fresh(task.qkv.type, {1});
  const fused_mask mask = mask_of(s, task);
  s.run(npu_op::flash_attention, heads(task.qkv, 0, h), heads(task.qkv, h, kv), heads(task.qkv, h + kv, kv), npu_none{}, npu_none{}, npu_none{}, mask.hidden,
        npu_none{}, npu_none{}, npu_none{}, task.scale, 1.0, all_tokens, all_tokens, h, "BSND", 0, mask.mode, 1, largest, sum, reserved,
        heads(task.o_bthd, 0, h));
  // eight equal copies each
  const npu_view log_sum = s.fresh(npu_type::fp32, {b, h, t, 1});
  s.run(npu_op::log, sum.slice(3, 0, 1), log_sum);
  s.run(npu_op::add, largest.slice(3, 0, 1), log_sum, npu_scalar{1}, task.lse_bht);
}

inline void attend_backward_fused(npu_sequence& s, const attention_task& task) {
  const auto& [b, t, h, kv, d, all, first] = task.shape;
  const auto heads = [&](const npu_view& rows, std::size_t from, std::size_t count) { return fused_heads(task, rows, from, count); };
  // p = exp(s - largest) / sum: with lse for the largest, the sum is 1
  const npu_view largest = s.fresh(npu_type::fp32, {b, h, t, 8}), sum = s.fresh(npu_type::fp32, {b, h, t, 8}), reserved = s.fresh(task.qkv.type, {1});
  s.run(npu_op::inplace_copy, largest, task.lse_bht);
  s.run(npu_op::inplace_fill, sum, npu_scalar{1});
  const npu_view dq = s.fresh(task.qkv.type, {b, t, h, d}), dk = s.fresh(task.qkv.type, {b, t, kv, d}), dv = s.fresh(task.qkv.type, {b, t, kv, d});
  const fused_mask mask = mask_of(s, task);
  s.run(npu_op::flash_attention_grad, heads(task.qkv, 0, h), heads(task.qkv, h, kv), heads(task.qkv, h + kv, kv), heads(task.do_bthd, 0, h), npu_none{},
        npu_none{}, npu_none{}, mask.hidden, largest, sum, npu_none{}, heads(task.o_bthd, 0, h), npu_none{}, npu_none{}, npu_none{}, task.scale, 1.0,
        all_tokens, all_tokens, h, "BSND", 0, mask.mode, 1, dq, dk, dv, reserved);
  store(s, dq, heads(task.dqkv, 0, h));
  store(s, dk, heads(task.dqkv, h, kv));
  store(s, dv, heads(task.dqkv, h + kv, kv));
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
requires is_number<T>
void compose(npu_sequence& s, const kernel::attention<Memory, T>& k) {
  kernel::check_arity<13>(k);
  if (k.o_bthd.empty()) return;
  const attention_task task = task_of(k);
  if (is_fused(s, task)) attend_fused(s, task);
  else attend_composed(s, task);
}
template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::attention_backward<Memory, T>& k) {
  kernel::check_arity<15>(k);
  if (k.dqkv.empty()) return;
  attention_task task = task_of(k);
  task.do_bthd = view_of(k.do_bthd, {k.shape.b * k.shape.t, k.shape.h * k.shape.d});
  task.dqkv = view_of(k.dqkv, {k.shape.b * k.shape.t, k.shape.row()});
  if (is_fused(s, task)) attend_backward_fused(s, task);
  else attend_backward_composed(s, task);
}

}  // namespace xtrain::npu_kernels
