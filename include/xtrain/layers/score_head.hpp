#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/pass_internal.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// score = x · weightᵀ, x: final hidden state of one token per sequence; Hugging Face's 'score.weight' with one label. The objective chooses the token and
/// uses the score. All tensor-parallel ranks compute it.
template <class Recipe>
class score_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using sums = vector_view<accumulate_t<compute>, memory>;

  static constexpr const char* name = "score";

  /// throws config_error under context parallelism, where another rank may have the token
  score_head(builder<Recipe>& build, std::size_t hidden_size, initial_values initial)
      : weight_(build.matrix({{name, 1}}, hidden_size, initial, false, matrix_use::table, region::tensor_parallel)) {
    build.require_whole_sequences("a score head");
  }

  /// x [n, hidden_size] read; the objective writes loss_n; while training it saves dx and adds to the weight's gradient
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, sums loss_n) const {
    require<config_error>(p.internal.objective != nullptr, "score head: a pass must have an objective; the model predicts no tokens");
    p.internal.objective->compute(p, head_pass<Recipe>(*this, x), loss_n);
  }
  /// dx, from the forward
  [[nodiscard]] matrix_view<const compute, memory> backward(pass<Recipe>& p, std::size_t n, std::size_t width) const {
    return p.pop_saved(n, width);
  }
  [[nodiscard]] parameter weight() const { return weight_; }

 private:
  parameter weight_;
};

/// One pass through a score head, for an objective.
template <class Recipe>
requires scores_sequences<Recipe>
class head_pass<Recipe> {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using accumulate = accumulate_t<compute>;
  using sums = vector_view<accumulate, memory>;

  ///   x [n or this rank's tokens, hidden_size]
  head_pass(const score_head<Recipe>& head, matrix_view<const compute, memory> x) : head_(&head), x_(x) {}

  /// Gradient of x, returned by the head's backward; call before other saves of the pass.
  [[nodiscard]] matrix_view<compute, memory> save_input_gradient(pass<Recipe>& p) const { return p.save(x_.shape(0), x_.shape(1)); }

  /// Final hidden states of tokens, in the caller's scope; negative index: zeros.
  [[nodiscard]] matrix_view<const compute, memory> hidden_states(pass<Recipe>& p, vector_view<const token, memory> token_b) const {
    const auto chosen = p.temporary(token_b.shape(0), x_.shape(1));
    // under sequence parallelism one rank has a token; all compute its score
    ops::embedding(p, token_b, x_, chosen, ops::result::replaces, p.first_sequence_parallel_token());
    sum_over_sequence_parallel_region(p, chosen);
    return chosen;
  }
  /// score_b, count_b (1) written; 0 and 0 for a negative token
  void scores(pass<Recipe>& p, matrix_view<const compute, memory> x_bc, vector_view<const token, memory> token_b, vector_view<double, memory> score_b,
              vector_view<double, memory> count_b) const {
    const auto scope = p.scope();
    const std::size_t b = token_b.shape(0);
    const auto values = [&] { return matrix_view<accumulate, memory>{p.workspace.template take<accumulate>(b), {b, 1}}; };
    const auto score = values(), negative = values();
    ops::linear(p, x_bc, p.matrix(head_->weight()), vector_view<const compute, memory>{}, score);
    // sequence_sums sums −log p, over one token each: change the sign
    fill_zero(p.stream, negative.span());
    ops::add(p, matrix_view<const accumulate, memory>(score), negative, -1.0);
    ops::sequence_sums(p, negative.template reshaped<1>({b}), token_b, p.batch.n(), score_b, count_b);
  }
  /// Gradients for loss derivatives dscore_b, times p.gradient_scale.
  ///   dx   from save_input_gradient, written
  void gradient(pass<Recipe>& p, matrix_view<const compute, memory> x_bc, vector_view<const token, memory> token_b,
                vector_view<const double, memory> dscore_b, matrix_view<compute, memory> dx) const {
    const auto scope = p.scope();
    const std::size_t b = token_b.shape(0), c = x_.shape(1);
    const auto dscore = p.temporary(b, 1), dx_bc = p.temporary(b, c);
    ops::score_gradients(p, dscore_b, p.gradient_scale, dscore.template reshaped<1>({b}));
    // forward: score = x · weightᵀ
    ops::linear_backward_input(p, dscore, p.matrix(head_->weight()), dx_bc);
    if (const auto dweight = p.matrix_gradient(head_->weight()); dweight.exists()) ops::linear_backward_weight(p, dscore, x_bc, dweight);
    fill_zero(p.stream, dx.span());
    ops::embedding_backward(p, token_b, dx_bc, dx, p.first_sequence_parallel_token());
  }

  /// Interface of heads over a vocabulary.
  ///   throws  config_error
  void cross_entropy(pass<Recipe>&, sums) const {
    fail<config_error>("a model with a score head predicts no tokens: it must not be the reference model of an objective over log-probabilities");
  }
  [[nodiscard]] std::size_t vocab_size() const { return 0; }

 private:
  const score_head<Recipe>* head_;
  matrix_view<const compute, memory> x_;
};

}  // namespace xtrain
