// DoRA: LoRA updates the directions of weight rows; their magnitudes are trained separately.
//                                              [Liu et al. 2024, "DoRA: Weight-decomposed low-rank adaptation", eq. 5 and section 4.3]
#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>

#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/norm.hpp>

namespace xtrain {

/// W' = m · V / |V| by row, with V = W + scale · B · A; the backward treats |V| as constant, as the paper does. Made of operations that models use, so it
/// runs on every device; kernels make constants such as ones. Matrices of W's size are recomputed in every pass.
template <class Recipe>
class decomposed_rows {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using gradient_type = typename pass<Recipe>::gradient_type;
  using accumulate = accumulate_t<compute>;
  using matrix = matrix_view<compute, memory>;
  using in_matrix = matrix_view<const compute, memory>;
  using in_vector = vector_view<const compute, memory>;
  using sums = vector_view<accumulate, memory>;

  /// Memory belongs to the caller's scope.
  decomposed_rows(pass<Recipe>& p, in_matrix w_oi, in_matrix a_ri, in_matrix b_or, in_vector m_o, double scale)
      : w_oi_(w_oi), directions_oi_(p.temporary(w_oi.shape(0), w_oi.shape(1))), rstd_o_(take<accumulate>(p, w_oi.shape(0))),
        length_o_(take<accumulate>(p, w_oi.shape(0))) {
    const std::size_t o = w_oi.shape(0), i = w_oi.shape(1);
    const auto scope = p.scope();
    const matrix v_oi = p.temporary(o, i);
    ops::copy(p, w_oi, v_oi);
    ops::linear_backward_input(p, b_or, a_ri, v_oi, ops::result::is_added, scale);  // B · A
    ops::rms_norm(p, in_matrix(v_oi), in_vector(ones(p, i)), epsilon, directions_oi_, rstd_o_);
    multiply(p, m_o, unit(), length_o_);
  }

  /// W' − W
  [[nodiscard]] matrix change(pass<Recipe>& p) const {
    const matrix d_oi = scaled(p, length_o_, directions_oi_);
    const auto scope = p.scope();
    const sums minus_o = take<accumulate>(p, w_oi_.shape(0));
    multiply(p, ones(p, w_oi_.shape(0)), -1.0, minus_o);
    add_scaled(p, minus_o, w_oi_, d_oi);
    return d_oi;
  }

  /// m / |V| · x by row: input gradient through B, and gradient of B from V's.
  [[nodiscard]] matrix through(pass<Recipe>& p, in_matrix x_or) const { return scaled(p, length_o_, scaled(p, rstd_o_, x_or)); }

  /// y = x · (V / |V|)ᵀ
  void project(pass<Recipe>& p, in_matrix x_ni, matrix y_no) const {
    ops::linear(p, x_ni, in_matrix(directions_oi_), {}, y_no, ops::result::replaces, unit());
  }

  /// dm += Σ over rows of dy · projected, for all modules of a layer: m acts like a norm's weights.
  static void length_gradient(pass<Recipe>& p, in_matrix projected_no, in_matrix dy_no, vector_view<gradient_type, memory> dm_o) {
    const auto scope = p.scope();
    const std::size_t n = dy_no.shape(0), o = dy_no.shape(1);
    const matrix unused_no = p.temporary(n, o);
    fill_zero(p.stream, unused_no.span());
    ops::rms_norm_backward(p, projected_no, in_vector(ones(p, o)), sums_of_one(p, n), dy_no, unused_no, dm_o);
  }

  /// gradient += alpha · x, for any gradient dtype
  static void add_to_gradient(pass<Recipe>& p, in_matrix x, double alpha, matrix_view<gradient_type, memory> gradient) {
    const auto scope = p.scope();
    ops::linear(p, ones(p, 1).template reshaped<2>({1, 1}), x.template reshaped<2>({x.size(), 1}), {},
                gradient.template reshaped<2>({1, x.size()}), ops::result::is_added, alpha);
  }

 private:
  static constexpr double epsilon = 1e-24;  // on the mean square: zero rows stay zero

  /// Rows of `directions` have length √in.
  [[nodiscard]] double unit() const { return 1.0 / std::sqrt(static_cast<double>(w_oi_.shape(1))); }

  template <class T>
  [[nodiscard]] static vector_view<T, memory> take(pass<Recipe>& p, std::size_t n) {
    return {p.workspace.template take<T>(n), {n}};
  }
  /// 1 / rms of zeros, with an epsilon of 1, is 1.
  [[nodiscard]] static sums sums_of_one(pass<Recipe>& p, std::size_t n) {
    const sums ones_n = take<accumulate>(p, n);
    const auto scope = p.scope();
    const matrix zeros_n1 = p.temporary(n, 1), unused_n1 = p.temporary(n, 1);
    fill_zero(p.stream, zeros_n1.span());
    ops::rms_norm(p, in_matrix(zeros_n1), in_vector(zeros_n1.rows(0, 1).template reshaped<1>({1})), 1.0, unused_n1, ones_n);
    return ones_n;
  }
  [[nodiscard]] static vector_view<compute, memory> ones(pass<Recipe>& p, std::size_t n) {
    const sums ones_n = sums_of_one(p, n);
    if constexpr (std::is_same_v<accumulate, compute>) {
      return ones_n;
    } else {
      const auto rounded_n = take<compute>(p, n);
      ops::cast(p, ones_n.span(), rounded_n.span());
      return rounded_n;
    }
  }
  /// y = alpha · x, in accumulate
  static void multiply(pass<Recipe>& p, in_vector x_o, double alpha, sums y_o) {
    const auto scope = p.scope();
    const std::size_t o = x_o.shape(0);
    ops::linear(p, x_o.template reshaped<2>({o, 1}), ones(p, 1).template reshaped<2>({1, 1}), {}, y_o.template reshaped<2>({o, 1}),
                ops::result::replaces, alpha);
  }
  /// y += factor · x by row: a norm's backward at input zero.
  static void add_scaled(pass<Recipe>& p, sums factor_o, in_matrix x_oi, matrix y_oi) {
    const auto scope = p.scope();
    const matrix zeros_oi = p.temporary(x_oi.shape(0), x_oi.shape(1));
    fill_zero(p.stream, zeros_oi.span());
    ops::rms_norm_backward(p, zeros_oi, in_vector(ones(p, x_oi.shape(1))), factor_o, x_oi, y_oi, vector_view<gradient_type, memory>{});
  }
  [[nodiscard]] static matrix scaled(pass<Recipe>& p, sums factor_o, in_matrix x_oi) {
    const matrix y_oi = p.temporary(x_oi.shape(0), x_oi.shape(1));
    fill_zero(p.stream, y_oi.span());
    add_scaled(p, factor_o, x_oi, y_oi);
    return y_oi;
  }

  in_matrix w_oi_;
  matrix directions_oi_;  // V's rows / |V| · √in
  sums rstd_o_;           // √in / |V|
  sums length_o_;         // m / √in
};

}  // namespace xtrain
