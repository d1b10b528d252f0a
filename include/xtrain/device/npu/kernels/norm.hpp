// Normalization, composed of elementwise operators and sums of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// Of a weight that is centered at `offset`.
[[nodiscard]] inline npu_view norm_weight(npu_sequence& s, const npu_view& weight_c, double offset) {
  if (offset == 0.0) return wide(s, weight_c);
  const npu_view all = wide_copy(s, weight_c);
  add_number(s, all, offset);
  return all;
}

/// dx += rstd · (g − mean(g) − x̂ · mean(g · x̂)), g = dy · weight, without mean(g) if it is not centered; dweight += Σ dy · x̂
///   xhat_nc   x̂
inline void add_norm_gradients(npu_sequence& s, const npu_view& xhat_nc, const npu_view& weight_c, const npu_view& rstd_n1, const npu_view& dy_nc,
                               const npu_view& dx_nc, const npu_view* dweight_c, bool is_centered) {
  const npu_view dy = wide(s, dy_nc), g_nc = product(s, dy, weight_c, xhat_nc);
  const npu_view gx_nc = product(s, g_nc, xhat_nc, xhat_nc), mean_gx_n1 = mean_last(s, gx_nc);
  if (is_centered) s.run(npu_op::inplace_sub, g_nc, mean_last(s, g_nc), npu_scalar{1});
  s.run(npu_op::inplace_addcmul, g_nc, xhat_nc, mean_gx_n1, npu_scalar{-1});
  s.run(npu_op::inplace_mul, g_nc, rstd_n1);
  add_to(s, g_nc, dx_nc);
  if (dweight_c == nullptr) return;
  s.run(npu_op::mul, dy, xhat_nc, gx_nc);
  add_column_sum(s, gx_nc, *dweight_c);
}

/// rstd = 1 / sqrt(mean of squares + epsilon)
inline void inverse_deviation(npu_sequence& s, const npu_view& x_nc, double epsilon, const npu_view& rstd_n1) {
  sum_last(s, product(s, x_nc, x_nc, x_nc), rstd_n1);
  s.run(npu_op::inplace_muls, rstd_n1, npu_scalar{1.0 / static_cast<double>(x_nc.dim(x_nc.rank - 1))});
  add_number(s, rstd_n1, epsilon);
  s.run(npu_op::inplace_rsqrt, rstd_n1);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::rms_norm<Memory, T>& k) {
  kernel::check_arity<8>(k);
  if (k.n == 0 || k.c == 0) return;
  const npu_view x_nc = view_of(k.x_nc, {k.n, k.c}), weight_c = view_of(k.weight_c, {k.c}), y_nc = view_of(k.y_nc, {k.n, k.c}),
                 rstd_n1 = view_of(k.rstd_n, {k.n, 1});
  if (s.rules().has_fused() && k.offset == 0.0)
    return s.run(npu_op::rms_norm, x_nc, weight_c, k.epsilon, y_nc, rstd_n1);
  const npu_view x = wide(s, x_nc);
  inverse_deviation(s, x, k.epsilon, rstd_n1);
  const npu_view y = product(s, x, rstd_n1, x);
  s.run(npu_op::inplace_mul, y, norm_weight(s, weight_c, k.offset));
  store(s, y, y_nc);
}

template <class Memory, class T, class G>
requires(is_number<T>&& is_number<G>) void compose(npu_sequence& s, const kernel::rms_norm_backward<Memory, T, G>& k) {
  kernel::check_arity<9>(k);
  if (k.n == 0 || k.c == 0) return;
  const npu_view x_nc = wide(s, view_of(k.x_nc, {k.n, k.c})), rstd_n1 = view_of(k.rstd_n, {k.n, 1}), dweight_c = view_of(k.dweight_c, {k.c});
  if (s.rules().has_fused()) {
    const npu_view dx_nc = s.fresh_like(x_nc), sum_c = s.fresh(npu_type::fp32, {k.c});
    s.run(npu_op::rms_norm_grad, wide(s, view_of(k.dy_nc, {k.n, k.c})), x_nc, rstd_n1.as({k.n}), norm_weight(s, view_of(k.weight_c, {k.c}), k.offset), dx_nc,
          sum_c);
    add_to(s, dx_nc, view_of(k.dx_nc, {k.n, k.c}));
    if (!k.dweight_c.empty()) add_to(s, sum_c, dweight_c);
    return;
  }
  add_norm_gradients(s, product(s, x_nc, rstd_n1, x_nc), norm_weight(s, view_of(k.weight_c, {k.c}), k.offset), rstd_n1, view_of(k.dy_nc, {k.n, k.c}),
                     view_of(k.dx_nc, {k.n, k.c}), k.dweight_c.empty() ? nullptr : &dweight_c, false);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::layer_norm<Memory, T>& k) {
  kernel::check_arity<9>(k);
  if (k.n == 0 || k.c == 0) return;
  const npu_view x_nc = view_of(k.x_nc, {k.n, k.c}), weight_c = view_of(k.weight_c, {k.c}), bias_c = view_of(k.bias_c, {k.c}),
                 y_nc = view_of(k.y_nc, {k.n, k.c}), mean_n1 = view_of(k.mean_n, {k.n, 1}), rstd_n1 = view_of(k.rstd_n, {k.n, 1});
  if (s.rules().has_fused())
    return s.run(npu_op::layer_norm, x_nc, npu_ints{static_cast<std::int64_t>(k.c)}, weight_c, bias_c, k.epsilon, y_nc, mean_n1, rstd_n1);
  const npu_view deviation_nc = wide_copy(s, x_nc);
  sum_last(s, deviation_nc, mean_n1);
  s.run(npu_op::inplace_muls, mean_n1, npu_scalar{1.0 / static_cast<double>(k.c)});
  s.run(npu_op::inplace_sub, deviation_nc, mean_n1, npu_scalar{1});
  inverse_deviation(s, deviation_nc, k.epsilon, rstd_n1);
  s.run(npu_op::inplace_mul, deviation_nc, rstd_n1);
  s.run(npu_op::inplace_mul, deviation_nc, wide(s, weight_c));
  add_to(s, bias_c, deviation_nc);
  store(s, deviation_nc, y_nc);
}

template <class Memory, class T, class G>
requires(is_number<T>&& is_number<G>) void compose(npu_sequence& s, const kernel::layer_norm_backward<Memory, T, G>& k) {
  kernel::check_arity<10>(k);
  if (k.n == 0 || k.c == 0) return;
  if (s.rules().has_fused()) {
    const npu_view x_nc = wide(s, view_of(k.x_nc, {k.n, k.c})), dx_nc = s.fresh_like(x_nc), dweight_c = s.fresh(npu_type::fp32, {k.c}),
                   dbias_c = s.fresh(npu_type::fp32, {k.c});
    s.run(npu_op::layer_norm_backward, wide(s, view_of(k.dy_nc, {k.n, k.c})), x_nc, npu_ints{static_cast<std::int64_t>(k.c)}, view_of(k.mean_n, {k.n, 1}),
          view_of(k.rstd_n, {k.n, 1}), wide(s, view_of(k.weight_c, {k.c})), npu_none{}, npu_bools{{true, true, true}}, dx_nc, dweight_c, dbias_c);
    add_to(s, dx_nc, view_of(k.dx_nc, {k.n, k.c}));
    if (!k.dweight_c.empty()) add_to(s, dweight_c, view_of(k.dweight_c, {k.c}));
    if (!k.dbias_c.empty()) add_to(s, dbias_c, view_of(k.dbias_c, {k.c}));
    return;
  }
  const npu_view xhat_nc = wide_copy(s, view_of(k.x_nc, {k.n, k.c})), mean_n1 = view_of(k.mean_n, {k.n, 1}), rstd_n1 = view_of(k.rstd_n, {k.n, 1}),
                 dy_nc = view_of(k.dy_nc, {k.n, k.c}), dweight_c = view_of(k.dweight_c, {k.c});
  s.run(npu_op::inplace_sub, xhat_nc, mean_n1, npu_scalar{1});
  s.run(npu_op::inplace_mul, xhat_nc, rstd_n1);
  add_norm_gradients(s, xhat_nc, wide(s, view_of(k.weight_c, {k.c})), rstd_n1, dy_nc, view_of(k.dx_nc, {k.n, k.c}),
                     k.dweight_c.empty() ? nullptr : &dweight_c, true);
  if (!k.dbias_c.empty()) add_column_sum(s, dy_nc, view_of(k.dbias_c, {k.c}));
}

/// The heads of rows of queries, keys and values.
template <class Kernel, class Operand>
[[nodiscard]] npu_view heads_of(const Kernel& k, const Operand& rows, std::size_t first, std::size_t count) {
  return view_of(rows, {k.n, k.h + 2 * k.k, k.d}).slice(1, first, count);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::head_norm<Memory, T>& k) {
  kernel::check_arity<10>(k);
  if (k.n == 0 || k.d == 0) return;
  const npu_view x_nhd = wide(s, heads_of(k, k.x_nr, 0, k.h + k.k)), rstd_nh1 = view_of(k.rstd_nh, {k.n, k.h + k.k, 1});
  inverse_deviation(s, x_nhd, k.epsilon, rstd_nh1);
  const npu_view y_nhd = product(s, x_nhd, rstd_nh1, x_nhd);
  s.run(npu_op::inplace_mul, y_nhd.slice(1, 0, k.h), wide(s, view_of(k.query_d, {k.d})));
  s.run(npu_op::inplace_mul, y_nhd.slice(1, k.h, k.k), wide(s, view_of(k.key_d, {k.d})));
  store(s, y_nhd, heads_of(k, k.y_nr, 0, k.h + k.k));
  store(s, heads_of(k, k.x_nr, k.h + k.k, k.k), heads_of(k, k.y_nr, k.h + k.k, k.k));
}

template <class Memory, class T, class G>
requires(is_number<T>&& is_number<G>) void compose(npu_sequence& s, const kernel::head_norm_backward<Memory, T, G>& k) {
  kernel::check_arity<12>(k);
  if (k.n == 0 || k.d == 0) return;
  const std::size_t normed = k.h + k.k;
  const npu_view rstd_nh1 = view_of(k.rstd_nh, {k.n, normed, 1}), dy_nhd = wide(s, heads_of(k, k.dy_nr, 0, normed));
  const npu_view xhat_nhd = wide_copy(s, heads_of(k, k.x_nr, 0, normed)), g_nhd = wide_copy(s, heads_of(k, k.dy_nr, 0, normed));
  s.run(npu_op::inplace_mul, xhat_nhd, rstd_nh1);
  s.run(npu_op::inplace_mul, g_nhd.slice(1, 0, k.h), wide(s, view_of(k.query_d, {k.d})));
  s.run(npu_op::inplace_mul, g_nhd.slice(1, k.h, k.k), wide(s, view_of(k.key_d, {k.d})));
  const npu_view gx_nhd = product(s, g_nhd, xhat_nhd, xhat_nhd);
  s.run(npu_op::inplace_addcmul, g_nhd, xhat_nhd, mean_last(s, gx_nhd), npu_scalar{-1});
  s.run(npu_op::inplace_mul, g_nhd, rstd_nh1);
  if (!k.dquery_d.empty()) {
    s.run(npu_op::mul, dy_nhd, xhat_nhd, gx_nhd);
    const auto add_weight = [&](std::size_t first, std::size_t count, const npu_view& dweight_d) {
      const npu_view sum_d = s.fresh(npu_type::fp32, {k.d});
      s.run(npu_op::reduce_sum, gx_nhd.slice(1, first, count), npu_ints{0, 1}, false, static_cast<int>(npu_type::fp32), sum_d);
      add_to(s, sum_d, dweight_d);
    };
    add_weight(0, k.h, view_of(k.dquery_d, {k.d}));
    add_weight(k.h, k.k, view_of(k.dkey_d, {k.d}));
  }
  store(s, g_nhd, heads_of(k, k.dx_nr, 0, normed));
  if (k.dx_nr.raw() != k.dy_nr.raw()) store(s, heads_of(k, k.dy_nr, normed, k.k), heads_of(k, k.dx_nr, normed, k.k));
}

}  // namespace xtrain::npu_kernels
