// Cross-entropy of a vocabulary that ranks have shards of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// Calls f(first, count) for some rows of v fp32 elements: `copies` of them exist at the same time.
template <class F>
void for_each_logits(npu_sequence& s, std::size_t n, std::size_t v, std::size_t copies, F&& f) {
  const std::size_t rows = std::max<std::size_t>(1, s.rules().settings.chunk_bytes / (copies * std::max<std::size_t>(1, v) * sizeof(float)));
  for (std::size_t first = 0; first < n; first += rows) {
    const npu_sequence::scope here(s);
    f(first, std::min(rows, n - first));
  }
}

template <class Memory, class A>
requires std::is_same_v<A, float>
void compose(npu_sequence& s, const kernel::softmax_part<Memory, A>& k) {
  kernel::check_arity<7>(k);
  if (k.n == 0 || k.v == 0) return;
  const npu_view all_nv = view_of(k.logits_nv, {k.n, k.v}), target_n1 = view_of(k.target_n, {k.n, 1}), parts_pn1 = view_of(k.parts_pn, {k.parts, k.n, 1});
  for_each_logits(s, k.n, k.v, 3, [&](std::size_t first, std::size_t n) {
    const auto part = [&](std::size_t which) { return parts_pn1.slice(0, which, 1).as({k.n, 1}).slice(0, first, n); };
    const npu_view logits_nv = all_nv.slice(0, first, n), largest_n1 = s.fresh(npu_type::fp32, {n, 1}), peak_n1 = s.fresh(npu_type::int32, {n, 1}),
                   lower_nv = s.fresh_like(logits_nv), work_nv = s.fresh_like(logits_nv), hit_nv = s.fresh_like(logits_nv, npu_type::boolean);
    s.run(npu_op::max_dim, logits_nv, -1, true, largest_n1, peak_n1);
    store(s, largest_n1, part(0));
    s.run(npu_op::sub, logits_nv, largest_n1, npu_scalar{1}, lower_nv);
    s.run(npu_op::exp, lower_nv, work_nv);
    sum_last(s, work_nv, part(1));
    s.run(npu_op::equal, target_n1.slice(0, first, n), count_from(s, k.first, k.v), hit_nv);
    s.run(npu_op::where, hit_nv, logits_nv, filled(s, npu_type::fp32, 0.0), work_nv);
    sum_last(s, work_nv, part(2));
    if (k.parts == 4) sum_last(s, logits_nv, part(3));
  });
}

/// softmax_of_parts without element types. Operands without elements are not given.
struct parts_task {
  std::size_t ranks = 1, rank = 0, parts = 3, vocab_size = 0;
  token first = 0;
  double gradient_scale = 1.0, z_loss = 0.0, label_smoothing = 0.0, log_z_loss = 0.0;
  npu_view factor_1{}, parts_rpn{}, target_n1{}, token_weight_n1{}, logits_nv{}, loss_n1{}, dlogits_nv{};
};
inline void loss_of_parts(npu_sequence& s, const parts_task& task) {
  const std::size_t n = task.loss_n1.dim(0), v = task.logits_nv.dim(1);
  const auto column = [&] { return s.fresh(npu_type::fp32, {n, 1}); };
  const auto part = [&](std::size_t which) { return task.parts_rpn.slice(1, which, 1).as({task.ranks, n}).with_strides({task.parts * n, 1}); };
  const auto over_ranks = [&](const npu_view& x_rn) {
    const npu_view sum = column();
    s.run(npu_op::reduce_sum, x_rn, npu_ints{0}, true, static_cast<int>(npu_type::fp32), sum.as({1, n}));
    return sum;
  };
  const auto largest_of = [&](std::size_t ranks) {
    const npu_view largest = column(), which = s.fresh(npu_type::int32, {1, n});
    s.run(npu_op::max_dim, part(0).slice(0, 0, ranks), 0, true, largest.as({1, n}), which);
    return largest;
  };
  const npu_view largest_n1 = largest_of(task.ranks), below_rn = s.fresh(npu_type::fp32, {task.ranks, n}), power_rn = s.fresh(npu_type::fp32, {task.ranks, n});
  s.run(npu_op::sub, part(0), largest_n1.as({1, n}), npu_scalar{1}, below_rn);
  s.run(npu_op::exp, below_rn, power_rn);
  s.run(npu_op::inplace_mul, power_rn, part(1));
  const npu_view lse_n1 = column(), zero = filled(s, npu_type::fp32, 0.0);
  s.run(npu_op::log, over_ranks(power_rn), lse_n1);
  add_to(s, largest_n1, lse_n1);
  npu_view counts_n1 = inside(s, task.target_n1, 0, task.vocab_size);
  const npu_view scale_n1 = column();
  if (task.token_weight_n1.elements() != 0) {
    const npu_view is_weighed_n1 = s.fresh(npu_type::boolean, {n, 1});
    s.run(npu_op::not_equal, task.token_weight_n1, npu_scalar{0}, is_weighed_n1);
    counts_n1 = both(s, counts_n1, is_weighed_n1, counts_n1);
    store(s, task.token_weight_n1, scale_n1);
  } else {
    s.run(npu_op::inplace_fill, scale_n1, npu_scalar{1});
  }
  // loss = weight · (lse − (1 − e) Σ target − u Σ total + z · largest² + log_z · lse²)
  const double certainty = 1.0 - task.label_smoothing, spread = task.label_smoothing / static_cast<double>(task.vocab_size);
  const npu_view all_n1 = wide_copy(s, lse_n1);
  s.run(npu_op::inplace_add, all_n1, over_ranks(part(2)), npu_scalar{-certainty});
  if (task.parts == 4) s.run(npu_op::inplace_add, all_n1, over_ranks(part(3)), npu_scalar{-spread});
  if (task.z_loss != 0.0) s.run(npu_op::inplace_addcmul, all_n1, largest_n1, largest_n1, npu_scalar{task.z_loss});
  if (task.log_z_loss != 0.0) s.run(npu_op::inplace_addcmul, all_n1, lse_n1, lse_n1, npu_scalar{task.log_z_loss});
  s.run(npu_op::inplace_mul, all_n1, scale_n1);
  s.run(npu_op::where, counts_n1, all_n1, zero, task.loss_n1);
  if (task.dlogits_nv.elements() == 0) return;

  s.run(npu_op::inplace_muls, scale_n1, npu_scalar{task.gradient_scale});
  if (task.factor_1.elements() != 0) s.run(npu_op::inplace_mul, scale_n1, wide(s, task.factor_1));
  npu_view pull_n1{};  // 2 z · largest where this rank has the first largest logit
  if (task.z_loss != 0.0) {
    npu_view has_peak_n1 = s.fresh(npu_type::boolean, {n, 1});
    s.run(npu_op::equal, part(0).slice(0, task.rank, 1), largest_n1.as({1, n}), has_peak_n1.as({1, n}));
    if (task.rank > 0) {
      const npu_view is_first_n1 = s.fresh(npu_type::boolean, {n, 1});
      s.run(npu_op::less, largest_of(task.rank), largest_n1, is_first_n1);
      has_peak_n1 = both(s, has_peak_n1, is_first_n1, has_peak_n1);
    }
    pull_n1 = column();
    s.run(npu_op::where, has_peak_n1, largest_n1, zero, pull_n1);
    s.run(npu_op::inplace_muls, pull_n1, npu_scalar{2.0 * task.z_loss});
  }
  for_each_logits(s, n, v, 4, [&](std::size_t first, std::size_t count) {
    const auto rows = [&](const npu_view& all) { return all.slice(0, first, count); };
    const npu_view logits_nv = rows(task.logits_nv), work_nv = s.fresh_like(logits_nv), p_nv = s.fresh_like(logits_nv), one_hot_nv = s.fresh_like(logits_nv),
                   hit_nv = s.fresh_like(logits_nv, npu_type::boolean);
    s.run(npu_op::sub, logits_nv, rows(lse_n1), npu_scalar{1}, work_nv);
    s.run(npu_op::exp, work_nv, p_nv);
    if (task.log_z_loss != 0.0) {
      const npu_view factor_n1 = times(s, rows(lse_n1), 2.0 * task.log_z_loss);
      add_number(s, factor_n1, 1.0);
      s.run(npu_op::inplace_mul, p_nv, factor_n1);
    }
    s.run(npu_op::equal, rows(task.target_n1), count_from(s, task.first, v), hit_nv);
    s.run(npu_op::cast, hit_nv, npu_type::fp32, one_hot_nv);
    s.run(npu_op::inplace_add, p_nv, one_hot_nv, npu_scalar{-certainty});
    if (task.label_smoothing != 0.0) add_number(s, p_nv, -spread);
    if (task.z_loss != 0.0) {
      const npu_view top_n1 = s.fresh(npu_type::fp32, {count, 1}), peak_n1 = s.fresh(npu_type::int32, {count, 1});
      s.run(npu_op::max_dim, logits_nv, -1, true, top_n1, peak_n1);
      s.run(npu_op::equal, peak_n1, count_from(s, 0, v), hit_nv);
      s.run(npu_op::cast, hit_nv, npu_type::fp32, one_hot_nv);
      const npu_view is_here_n1 = s.fresh(npu_type::boolean, {count, 1}), here_n1 = s.fresh(npu_type::fp32, {count, 1});
      s.run(npu_op::equal, top_n1, rows(largest_n1), is_here_n1);
      s.run(npu_op::where, is_here_n1, rows(pull_n1), zero, here_n1);
      s.run(npu_op::inplace_addcmul, p_nv, one_hot_nv, here_n1, npu_scalar{1});
    }
    s.run(npu_op::inplace_mul, p_nv, rows(scale_n1));
    clear_unless(s, rows(counts_n1), p_nv);
    store(s, p_nv, rows(task.dlogits_nv));
  });
}

template <class Memory, class A, class T>
requires(std::is_same_v<A, float>&& is_number<T>) void compose(npu_sequence& s, const kernel::softmax_of_parts<Memory, A, T>& k) {
  kernel::check_arity<17>(k);
  if (k.n == 0) return;
  const std::size_t parts = kernel::softmax_parts(k.label_smoothing);
  const auto column = [&](const auto& operand) { return view_of(operand, {operand.size(), 1}); };
  loss_of_parts(s, {.ranks = k.ranks,
                    .rank = k.rank,
                    .parts = parts,
                    .vocab_size = k.vocab_size,
                    .first = k.first,
                    .gradient_scale = k.gradient_scale,
                    .z_loss = k.z_loss,
                    .label_smoothing = k.label_smoothing,
                    .log_z_loss = k.log_z_loss,
                    .factor_1 = view_of(k.gradient_factor_1, {k.gradient_factor_1.size()}),
                    .parts_rpn = view_of(k.parts_rpn, {k.ranks, parts, k.n}),
                    .target_n1 = column(k.target_n),
                    .token_weight_n1 = column(k.token_weight_n),
                    .logits_nv = view_of(k.logits_nv, {k.n, k.v}),
                    .loss_n1 = column(k.loss_n),
                    .dlogits_nv = view_of(k.dlogits_nv, {k.dlogits_nv.empty() ? 0 : k.n, k.v})});
}

}  // namespace xtrain::npu_kernels
