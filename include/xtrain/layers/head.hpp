// Both ends of a language model: tokens to vectors, vectors to losses or logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>

namespace xtrain {

/// y = dropout(token embedding (+ position embedding)).
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
    if (!o.position_name.empty()) positions_ = build.matrix({{o.position_name, o.positions}}, o.width, o.initial);
  }

  /// y [n, width] written
  void forward(pass<Recipe>& p, matrix_view<compute, memory> y) const {
    ops::embedding(p, p.batch.tokens_n, p.matrix(tokens_), y);
    if (positions_.exists()) ops::embedding(p, p.batch.positions_n, p.matrix(positions_), y, ops::result::is_added);
    if (drops(p)) ops::dropout(p, y, dropout_, p.random_at(site_, p.batch.t * y.shape(1)), y);
  }

  /// dy [n, width] is used up
  void backward(pass<Recipe>& p, matrix_view<compute, memory> dy) const {
    if (drops(p)) ops::dropout(p, dy, dropout_, p.random_at(site_, p.batch.t * dy.shape(1)), dy);
    if (const auto d = p.matrix_gradient(tokens_); d.exists()) ops::embedding_backward(p, p.batch.tokens_n, dy, d);
    if (!positions_.exists()) return;
    if (const auto d = p.matrix_gradient(positions_); d.exists()) ops::embedding_backward(p, p.batch.positions_n, dy, d);
  }

  /// The table, for a head that is tied to it.
  [[nodiscard]] parameter table() const { return tokens_; }

 private:
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return dropout_ > 0.0 && p.trains(); }

  double dropout_;
  std::uint32_t site_;
  parameter tokens_;
  parameter positions_;
};

/// logits = x · weightᵀ, and their cross-entropy. While training, the forward computes the gradients too: logits exist once,
/// in chunks, and are never kept.
template <class Recipe>
class language_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using sums = vector_view<accumulate_t<compute>, memory>;

  explicit language_head(parameter weight) : weight_(weight) {}

  /// loss_n written, natural logarithm, 0 where there is no target. While training: keeps dx, adds to the weight's gradient.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, sums loss_n) const {
    if (!p.trains()) return ops::linear_cross_entropy(p, x, p.matrix(weight_), p.batch.targets_n, loss_n);
    const auto dx = p.keep(x.shape(0), x.shape(1));
    ops::linear_cross_entropy_with_gradient(p, x, p.matrix(weight_), p.batch.targets_n, p.gradient_scale, loss_n, dx,
                                            p.matrix_gradient(weight_));
  }

  /// dx, as the forward computed it
  [[nodiscard]] matrix_view<const compute, memory> backward(pass<Recipe>& p, std::size_t n, std::size_t width) const {
    return p.pop(n, width);
  }

  /// logits [n, vocabulary] written, in the accumulate type
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate_t<compute>, memory> logits_nv) const {
    ops::linear(p, x, p.matrix(weight_), {}, logits_nv);
  }

 private:
  parameter weight_;
};

}  // namespace xtrain
