// The output head's product with its cross-entropy, in chunks of rows, in fp32.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>
#include <xtrain/device/npu/kernels/matmul.hpp>

namespace xtrain::npu_kernels {

/// linear_cross_entropy without element types. Operands without elements are not given.
struct loss_task {
  bool with_gradient = false;
  double gradient_scale = 1.0, z_loss = 0.0, label_smoothing = 0.0, log_z_loss = 0.0, softcap = 0.0;
  npu_view factor_1{}, x_nc{}, weight_vc{}, bias_v{}, target_n1{}, token_weight_n1{}, loss_n1{}, dx_nc{}, dweight_vc{}, dbias_v{};
};

/// Loss of a chunk of rows.
///   returns  the gradient of the logits in the type of x; a view without elements if none is wanted
[[nodiscard]] inline npu_view add_chunk_loss(npu_sequence& s, const loss_task& task, const npu_view& logits_nv, std::size_t first) {
  const std::size_t n = logits_nv.dim(0), v = logits_nv.dim(1);
  const double certainty = 1.0 - task.label_smoothing, spread = task.label_smoothing / static_cast<double>(v);
  const npu_view target_n1 = task.target_n1.slice(0, first, n), loss_n1 = task.loss_n1.slice(0, first, n), token_v = count_from(s, 0, v);
  npu_view slope_nv{};
  if (task.bias_v.elements() != 0) add_to(s, task.bias_v, logits_nv);
  if (task.softcap != 0.0) {
    s.run(npu_op::inplace_muls, logits_nv, npu_scalar{1.0 / task.softcap});
    s.run(npu_op::inplace_tanh, logits_nv);
    if (task.with_gradient) {
      slope_nv = times(s, product(s, logits_nv, logits_nv, logits_nv), -1.0);
      add_number(s, slope_nv, 1.0);
    }
    s.run(npu_op::inplace_muls, logits_nv, npu_scalar{task.softcap});
  }
  const npu_view lse_n1 = s.fresh(npu_type::fp32, {n, 1}), zero = filled(s, npu_type::fp32, 0.0), hit_nv = s.fresh(npu_type::boolean, {n, v});
  s.run(npu_op::log_sum_exp, logits_nv, npu_ints{-1}, true, lse_n1);
  s.run(npu_op::equal, target_n1, token_v, hit_nv);
  npu_view counts_n1 = inside(s, target_n1, 0, v);
  npu_view scale_n1 = s.fresh(npu_type::fp32, {n, 1});
  if (task.token_weight_n1.elements() != 0) {
    const npu_view weight_n1 = task.token_weight_n1.slice(0, first, n), is_weighed_n1 = s.fresh(npu_type::boolean, {n, 1});
    s.run(npu_op::not_equal, weight_n1, npu_scalar{0}, is_weighed_n1);
    counts_n1 = both(s, counts_n1, is_weighed_n1, counts_n1);
    store(s, weight_n1, scale_n1);
  } else {
    s.run(npu_op::inplace_fill, scale_n1, npu_scalar{1});
  }

  // loss = weight · (lse − certainty · logits[target] − spread · Σ logits + z · largest² + log_z · lse²)
  const npu_view work_nv = s.fresh(npu_type::fp32, {n, v}), sum_n1 = s.fresh(npu_type::fp32, {n, 1}), all_n1 = wide_copy(s, lse_n1);
  s.run(npu_op::where, hit_nv, logits_nv, zero, work_nv);
  sum_last(s, work_nv, sum_n1);
  s.run(npu_op::inplace_add, all_n1, sum_n1, npu_scalar{-certainty});
  if (task.label_smoothing != 0.0) {
    sum_last(s, logits_nv, sum_n1);
    s.run(npu_op::inplace_add, all_n1, sum_n1, npu_scalar{-spread});
  }
  npu_view largest_n1{}, peak_n1{};
  if (task.z_loss != 0.0) {
    largest_n1 = s.fresh(npu_type::fp32, {n, 1});
    peak_n1 = s.fresh(npu_type::int32, {n, 1});
    s.run(npu_op::max_dim, logits_nv, -1, true, largest_n1, peak_n1);
    s.run(npu_op::inplace_addcmul, all_n1, largest_n1, largest_n1, npu_scalar{task.z_loss});
  }
  if (task.log_z_loss != 0.0) s.run(npu_op::inplace_addcmul, all_n1, lse_n1, lse_n1, npu_scalar{task.log_z_loss});
  s.run(npu_op::inplace_mul, all_n1, scale_n1);
  s.run(npu_op::where, counts_n1, all_n1, zero, loss_n1);
  if (!task.with_gradient) return {};

  // dlogits = scale · weight · (p (1 + 2 log_z · lse) − certainty · onehot(target) − spread + 2 z · largest · onehot(argmax)) · slope
  const npu_view p_nv = s.fresh(npu_type::fp32, {n, v}), one_hot_nv = s.fresh(npu_type::fp32, {n, v});
  s.run(npu_op::sub, logits_nv, lse_n1, npu_scalar{1}, work_nv);
  s.run(npu_op::exp, work_nv, p_nv);
  if (task.log_z_loss != 0.0) {
    const npu_view factor_n1 = times(s, lse_n1, 2.0 * task.log_z_loss);
    add_number(s, factor_n1, 1.0);
    s.run(npu_op::inplace_mul, p_nv, factor_n1);
  }
  s.run(npu_op::cast, hit_nv, npu_type::fp32, one_hot_nv);
  s.run(npu_op::inplace_add, p_nv, one_hot_nv, npu_scalar{-certainty});
  if (task.label_smoothing != 0.0) add_number(s, p_nv, -spread);
  if (task.z_loss != 0.0) {
    s.run(npu_op::equal, peak_n1, token_v, hit_nv);
    s.run(npu_op::cast, hit_nv, npu_type::fp32, one_hot_nv);
    s.run(npu_op::inplace_addcmul, p_nv, one_hot_nv, largest_n1, npu_scalar{2.0 * task.z_loss});
  }
  s.run(npu_op::inplace_muls, scale_n1, npu_scalar{task.gradient_scale});
  if (task.factor_1.elements() != 0) s.run(npu_op::inplace_mul, scale_n1, wide(s, task.factor_1));
  s.run(npu_op::inplace_mul, p_nv, scale_n1);
  if (task.softcap != 0.0) s.run(npu_op::inplace_mul, p_nv, slope_nv);
  clear_unless(s, counts_n1, p_nv);
  if (task.x_nc.type == npu_type::fp32) return p_nv;
  const npu_view dlogits_nv = s.fresh(task.x_nc.type, {n, v});
  store(s, p_nv, dlogits_nv);
  return dlogits_nv;
}

inline void linear_loss(npu_sequence& s, const loss_task& task) {
  const std::size_t n = task.x_nc.dim(0), c = task.x_nc.dim(1), v = task.weight_vc.dim(0);
  const std::size_t fit = std::max<std::size_t>(1, s.rules().settings.chunk_bytes / (4 * v * sizeof(float))), rows = std::min(n, fit);
  const bool is_frozen = !task.with_gradient || task.dweight_vc.elements() == 0, has_bias = task.with_gradient && task.dbias_v.elements() != 0;
  // what is added to in 16 bits is added to once
  const bool in_parts = rows < n && is_16_bits(task.x_nc.type);
  npu_view dweight_vc = task.dweight_vc, dbias_v = task.dbias_v;
  if (in_parts && !is_frozen && is_16_bits(dweight_vc.type)) {
    dweight_vc = s.fresh(npu_type::fp32, {v, c});
    s.run(npu_op::inplace_zero, dweight_vc);
  }
  if (in_parts && has_bias && is_16_bits(dbias_v.type)) {
    dbias_v = s.fresh(npu_type::fp32, {v});
    s.run(npu_op::inplace_zero, dbias_v);
  }
  const bool widens = task.x_nc.type != npu_type::fp32 && !s.rules().widens_products();
  const npu_view weight_vc = widens ? wide(s, task.weight_vc) : task.weight_vc;
  for (std::size_t first = 0; first < n; first += rows) {
    const npu_sequence::scope here(s);
    const npu_view x_nc = task.x_nc.slice(0, first, std::min(rows, n - first)), logits_nv = wide_product(s, x_nc, weight_vc.transposed());
    const npu_view dlogits_nv = add_chunk_loss(s, task, logits_nv, first);
    if (!task.with_gradient) continue;
    multiply(s, dlogits_nv, task.weight_vc, nullptr, task.dx_nc.slice(0, first, x_nc.dim(0)), 1.0, false);
    if (!is_frozen) multiply(s, dlogits_nv.transposed(), x_nc, nullptr, dweight_vc, 1.0, true);
    if (has_bias) add_column_sum(s, dlogits_nv, dbias_v);
  }
  if (!is_frozen && dweight_vc.address != task.dweight_vc.address) add_to(s, dweight_vc, task.dweight_vc);
  if (has_bias && dbias_v.address != task.dbias_v.address) add_to(s, dbias_v, task.dbias_v);
}

template <class Memory, class T, class G>
requires(is_number<T>&& is_number<G>) void compose(npu_sequence& s, const kernel::linear_cross_entropy<Memory, T, G>& k) {
  kernel::check_arity<19>(k);
  if (k.n == 0) return;
  const auto column = [&](const auto& operand) { return view_of(operand, {operand.size(), 1}); };
  const auto optional = [&](const auto& operand) { return view_of(operand, {operand.size()}); };
  loss_task task{.with_gradient = k.with_gradient,
                 .gradient_scale = k.gradient_scale,
                 .z_loss = k.z_loss,
                 .label_smoothing = k.label_smoothing,
                 .log_z_loss = k.log_z_loss,
                 .softcap = k.softcap,
                 .factor_1 = optional(k.gradient_factor_1),
                 .x_nc = view_of(k.x_nc, {k.n, k.c}),
                 .weight_vc = view_of(k.weight_vc, {k.v, k.c}),
                 .bias_v = optional(k.bias_v),
                 .target_n1 = column(k.target_n),
                 .token_weight_n1 = column(k.token_weight_n),
                 .loss_n1 = column(k.loss_n)};
  task.dx_nc = view_of(k.dx_nc, {k.n, k.c});
  task.dweight_vc = view_of(k.dweight_vc, {k.dweight_vc.empty() ? 0 : k.v, k.c});
  task.dbias_v = optional(k.dbias_v);
  linear_loss(s, task);
}

}  // namespace xtrain::npu_kernels
