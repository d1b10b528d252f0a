#pragma once

#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>

namespace xtrain {

/// logits = x · weightᵀ + bias and their cross-entropy. While training, the forward also computes gradients; logits exist in chunks and are never saved.
template <class Recipe>
class classification_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using accumulate = accumulate_t<compute>;

  classification_head(parameter weight, parameter bias) : weight_(weight), bias_(bias) {}

  /// x [n, hidden_size], target_n read; loss_n written, 0 without a target. While training: saves dx, adds `gradient_scale` · gradients of weight and bias.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, vector_view<const token, memory> target_n,
               kernel::scalar<memory> gradient_scale,
               vector_view<accumulate, memory> loss_n) const {
    if (!p.trains()) return ops::linear_cross_entropy(p, x, p.matrix(weight_), target_n, loss_n, p.vector(bias_));
    ops::linear_cross_entropy_with_gradient(p, x, p.matrix(weight_), target_n, gradient_scale, loss_n, p.save(x.shape(0), x.shape(1)),
                                            p.matrix_gradient(weight_), 0.0, p.vector(bias_), p.vector_gradient(bias_));
  }

  /// dx [n, hidden_size], from the forward
  [[nodiscard]] matrix_view<const compute, memory> backward(pass<Recipe>& p, std::size_t n, std::size_t width) const {
    return p.pop_saved(n, width);
  }

  /// logits [n, classes] written, in the accumulate dtype
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate, memory> logits_nv) const {
    ops::linear(p, x, p.matrix(weight_), p.vector(bias_), logits_nv);
  }

 private:
  parameter weight_;
  parameter bias_;
};

}  // namespace xtrain
