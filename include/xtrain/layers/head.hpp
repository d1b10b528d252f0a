// Both ends of a language model: tokens to vectors, vectors to losses or logits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/norm.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// What an adapter adds to a table of embeddings: nothing, where it has no on_table.
template <class Recipe>
struct table_adapter {
  struct type {
    template <class Builder>
    void declare(Builder&, const std::string&, std::size_t, std::size_t) {}
    template <class Pass, class Indices, class Y>
    void forward(Pass&, const Indices&, const Y&) const {}
    template <class Pass, class Indices, class DY>
    void backward(Pass&, const Indices&, const DY&) const {}
  };
};
template <class Recipe>
requires requires { typename Recipe::adapter::template on_table<Recipe>; }
struct table_adapter<Recipe> {
  using type = typename Recipe::adapter::template on_table<Recipe>;
};

/// y = dropout(token embedding (+ position embedding)), and whatever an adapter adds to either.
template <class Recipe>
class token_embedding {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    std::size_t vocabulary = 0;
    std::size_t width = 0;
    std::string name{};
    std::string position_name{};  // empty: positions are not learned vectors
    std::size_t positions = 0;
    double dropout = 0.0;
    std::uint32_t site = 0;
    initial_values initial{};
  };

  token_embedding(builder<Recipe>& build, const options& o)
      : dropout_(o.dropout), site_(o.site), tokens_(build.matrix({{o.name, o.vocabulary}}, o.width, o.initial)) {
    token_adapter_.declare(build, o.name, o.vocabulary, o.width);
    if (o.position_name.empty()) return;
    positions_ = build.matrix({{o.position_name, o.positions}}, o.width, o.initial);
    position_adapter_.declare(build, o.position_name, o.positions, o.width);
  }

  /// y [n, width] written
  void forward(pass<Recipe>& p, matrix_view<compute, memory> y) const {
    ops::embedding(p, p.batch.tokens_n, p.matrix(tokens_), y);
    token_adapter_.forward(p, p.batch.tokens_n, y);
    if (positions_.exists()) {
      ops::embedding(p, p.batch.positions_n, p.matrix(positions_), y, ops::result::is_added);
      position_adapter_.forward(p, p.batch.positions_n, y);
    }
    if (drops(p)) ops::dropout(p, y, dropout_, p.random_at(site_, p.batch.t * y.shape(1)), y);
  }

  /// dy [n, width] is used up
  void backward(pass<Recipe>& p, matrix_view<compute, memory> dy) const {
    if (drops(p)) ops::dropout(p, dy, dropout_, p.random_at(site_, p.batch.t * dy.shape(1)), dy);
    if (const auto d = p.matrix_gradient(tokens_); d.exists()) ops::embedding_backward(p, p.batch.tokens_n, dy, d);
    token_adapter_.backward(p, p.batch.tokens_n, dy);
    if (!positions_.exists()) return;
    if (const auto d = p.matrix_gradient(positions_); d.exists()) ops::embedding_backward(p, p.batch.positions_n, dy, d);
    position_adapter_.backward(p, p.batch.positions_n, dy);
  }

  /// The table, for a head that is tied to it.
  [[nodiscard]] parameter table() const { return tokens_; }

 private:
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return dropout_ > 0.0 && p.trains(); }

  double dropout_;
  std::uint32_t site_;
  parameter tokens_;
  parameter positions_;
  typename table_adapter<Recipe>::type token_adapter_, position_adapter_;
};

/// logits = x · weightᵀ, and their cross-entropy. While training, the forward computes the gradients too: logits exist once,
/// in chunks, and are never kept. Where `normalized`, every row of the weight is divided by its length first, in every pass; the
/// weight itself is not changed.                                              [Yang et al. 2023, section 3.4, NormHead]
template <class Recipe>
class language_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using device = typename Recipe::device;
  using sums = vector_view<accumulate_t<compute>, memory>;

  struct options {
    bool normalized = false;
    double z_loss = 0.0;
  };
  language_head(const typename device::context& context, typename device::stream& stream, parameter weight, std::size_t width,
                const options& o)
      : normalized_(o.normalized), z_loss_(o.z_loss), weight_(weight), scale_c_(context, {o.normalized ? width : 0}, memory_role::weights) {
    if (!normalized_) return;
    const std::vector<compute> scale(width, static_cast<compute>(1.0 / std::sqrt(static_cast<double>(width))));  // until the copy is made
    copy_to_device(stream, scale_c_.span(), scale);
    stream.synchronize();
  }

  /// loss_n written, natural logarithm, 0 where there is no target; z_loss is part of what is trained, not of what is evaluated.
  /// While training: keeps dx, adds to the weight's gradient.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, sums loss_n) const {
    const auto scope = p.scope();
    if (!p.trains()) return ops::linear_cross_entropy(p, x, used_weight(p), p.batch.targets_n, loss_n);
    const auto dx = p.keep(x.shape(0), x.shape(1));
    const auto dweight = p.matrix_gradient(weight_);
    if (normalized_ && dweight.exists()) return forward_normalized(p, x, dx, dweight, loss_n);
    ops::linear_cross_entropy_with_gradient(p, x, used_weight(p), p.batch.targets_n, p.gradient_scale, loss_n, dx, dweight, z_loss_);
  }

  /// dx, as the forward computed it
  [[nodiscard]] matrix_view<const compute, memory> backward(pass<Recipe>& p, std::size_t n, std::size_t width) const {
    return p.pop(n, width);
  }

  /// logits [n, vocabulary] written, in the accumulate type
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate_t<compute>, memory> logits_nv) const {
    const auto scope = p.scope();
    ops::linear(p, x, used_weight(p), {}, logits_nv);
  }

 private:
  using gradient_type = typename pass<Recipe>::gradient_type;

  /// The weight, or its rows at length 1: w / |w| is w / rms(w) · 1/√c.
  struct unit_rows {
    matrix_view<compute, memory> weight;
    vector_view<accumulate_t<compute>, memory> rstd_v;
  };
  [[nodiscard]] vector_view<const compute, memory> scale() const { return scale_c_.view(); }
  static constexpr double epsilon = 1e-24;  // of the mean square: rows of zeros stay zeros
  [[nodiscard]] unit_rows normalize(pass<Recipe>& p) const {
    const auto weight = p.matrix(weight_);
    const std::size_t v = weight.shape(0), c = weight.shape(1);
    const unit_rows rows{p.temporary(v, c), {p.workspace.template take<accumulate_t<compute>>(v), {v}}};
    ops::rms_norm(p, weight, scale(), epsilon, rows.weight, rows.rstd_v);
    return rows;
  }
  [[nodiscard]] matrix_view<const compute, memory> used_weight(pass<Recipe>& p) const {
    if (!normalized_) return p.matrix(weight_);
    return normalize(p).weight;
  }
  void forward_normalized(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> dx,
                          matrix_view<gradient_type, memory> dweight, sums loss_n) const {
    if constexpr (std::is_same_v<gradient_type, compute>) {
      const unit_rows rows = normalize(p);
      const auto drows = p.temporary(dweight.shape(0), dweight.shape(1));
      fill_zero(p.stream, drows.span());
      ops::linear_cross_entropy_with_gradient(p, x, matrix_view<const compute, memory>(rows.weight), p.batch.targets_n, p.gradient_scale,
                                              loss_n, dx, drows, z_loss_);
      ops::rms_norm_backward(p, p.matrix(weight_), scale(), vector_view<const accumulate_t<compute>, memory>(rows.rstd_v),
                             matrix_view<const compute, memory>(drows), dweight, vector_view<compute, memory>{});
    }
  }

  bool normalized_;
  double z_loss_;
  parameter weight_;
  tensor<compute, 1, device> scale_c_;
};

}  // namespace xtrain
