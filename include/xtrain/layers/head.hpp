#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/norm.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// logits = x · weightᵀ and cross-entropy: see vocab_parallel_head. `normalized`: every pass divides rows of the weight by their L2 norm; the weight is not
/// changed. [Yang et al. 2023, section 3.4, NormHead]
template <class Recipe>
class language_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using device = typename Recipe::device;
  using sums = vector_view<accumulate_t<compute>, memory>;

  using adapter_type = typename vocab_parallel_head<Recipe>::adapter_type;

  struct options {
    bool normalized = false;
    double z_loss = 0.0;
    double softcap = 0.0;        ///< softcap · tanh(logits / softcap); 0: none
    tensor_shard shard{};        ///< of the vocabulary
    std::size_t vocab_size = 0;  ///< of all ranks
    adapter_type adapter{};      ///< declared; empty if `normalized`
  };
  language_head(const typename device::context& context, typename device::stream& stream, parameter weight, std::size_t width, const options& o)
      : head_(weight, {.shard = o.shard, .vocab_size = o.vocab_size, .z_loss = o.z_loss, .softcap = o.softcap, .adapter = o.adapter}),
        normalized_(o.normalized), scale_c_(context, {o.normalized ? width : 0}, memory_role::weights) {
    if (!normalized_) return;
    const std::vector<compute> scale(width, static_cast<compute>(1.0 / std::sqrt(static_cast<double>(width))));
    copy_to_device(stream, scale_c_.span(), scale);
    stream.synchronize();
  }

  /// loss_n written, natural logarithm, 0 without a target; z_loss only when training. While training: saves dx, adds to the weight's gradient.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, sums loss_n) const {
    if (!normalized_) return head_.forward(p, x, loss_n);
    const auto scope = p.scope();
    const auto dweight = p.trains() ? p.matrix_gradient(head_.weight()) : matrix_view<gradient_type, memory>{};
    if (dweight.exists()) return forward_normalized(p, x, dweight, loss_n);
    head_.forward_with(p, x, normalize(p).weight, {}, loss_n);
  }

  /// dx, from the forward
  [[nodiscard]] matrix_view<const compute, memory> backward(pass<Recipe>& p, std::size_t n, std::size_t width) const {
    return head_.backward(p, n, width);
  }

  /// logits [n, vocabulary] written, in the accumulate dtype
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate_t<compute>, memory> logits_nv) const {
    if (!normalized_) return head_.logits(p, x, logits_nv);
    const auto scope = p.scope();
    head_.logits_with(p, x, normalize(p).weight, logits_nv);
  }

 private:
  using gradient_type = typename pass<Recipe>::gradient_type;

  /// Rows of length 1: w / |w| = w / rms(w) · 1/√c.
  struct unit_rows {
    matrix_view<compute, memory> weight;
    vector_view<accumulate_t<compute>, memory> rstd_v;
  };
  [[nodiscard]] vector_view<const compute, memory> scale() const { return scale_c_.view(); }
  static constexpr double epsilon = 1e-24;  // added to the mean square: zero rows stay zero
  [[nodiscard]] unit_rows normalize(pass<Recipe>& p) const {
    const auto weight = p.matrix(head_.weight());
    const std::size_t v = weight.shape(0), c = weight.shape(1);
    const unit_rows rows{p.temporary(v, c), {p.workspace.template take<accumulate_t<compute>>(v), {v}}};
    ops::rms_norm(p, weight, scale(), epsilon, rows.weight, rows.rstd_v);
    return rows;
  }
  void forward_normalized(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<gradient_type, memory> dweight, sums loss_n) const {
    const unit_rows rows = normalize(p);
    const std::size_t v = dweight.shape(0), c = dweight.shape(1);
    const auto numbers = [&](std::size_t n) { return matrix_view<gradient_type, memory>{p.workspace.template take<gradient_type>(n * c), {n, c}}; };
    const auto drows = numbers(v);
    fill_zero(p.stream, drows.span());
    head_.forward_with(p, x, rows.weight, drows, loss_n);
    const matrix_view<const compute, memory> weight = p.matrix(head_.weight());
    const vector_view<const accumulate_t<compute>, memory> rstd = rows.rstd_v;
    const matrix_view<const gradient_type, memory> dy = drows;
    if constexpr (std::is_same_v<gradient_type, compute>) {
      ops::rms_norm_backward(p, weight, scale(), rstd, dy, dweight, vector_view<gradient_type, memory>{});
    } else {  // a range of rows at a time, in the gradient dtype
      const vector_view<gradient_type, memory> wide_scale{p.workspace.template take<gradient_type>(c), {c}};
      ops::cast(p, scale().span(), wide_scale.span());
      const std::size_t at_once = std::min(v, std::max<std::size_t>(16, (std::size_t{1} << 20) / c));
      for (std::size_t begin = 0; begin < v; begin += at_once) {
        const auto scope = p.scope();
        const std::size_t n = std::min(at_once, v - begin);
        const auto wide = numbers(n);
        ops::cast(p, weight.rows(begin, n).span(), wide.span());
        ops::rms_norm_backward(p, matrix_view<const gradient_type, memory>(wide), vector_view<const gradient_type, memory>(wide_scale), rstd.rows(begin, n),
                               dy.rows(begin, n), dweight.rows(begin, n), vector_view<gradient_type, memory>{});
      }
    }
  }

  vocab_parallel_head<Recipe> head_;
  bool normalized_;
  tensor<compute, 1, device> scale_c_;
};

}  // namespace xtrain
