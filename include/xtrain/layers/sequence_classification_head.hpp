#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <xtrain/layers/classification_head.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/ops/activation.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>

namespace xtrain {

/// logits = dropout(tanh(x · Wᵀ + b)) · Vᵀ + a, x: each sequence's first token. All tensor-parallel ranks compute it.
/// [Devlin et al. 2019, section 3.1]
template <class Recipe>
class sequence_classification_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using accumulate = accumulate_t<compute>;

  struct options {
    std::size_t hidden_size = 0;
    std::size_t labels = 0;
    std::string pooler_name{}, labels_name{};
    double dropout = 0.0;
    std::uint32_t site = 0;  // random site of dropout
    initial_values initial{};
  };

  sequence_classification_head(builder<Recipe>& build, const options& o)
      : dropout_(o.dropout), site_(o.site),
        pooler_(build, {{o.pooler_name, o.hidden_size}}, o.hidden_size, {.bias = true, .initial = o.initial, .where = region::tensor_parallel}),
        labels_{build.matrix({{o.labels_name, o.labels}}, o.hidden_size, o.initial, false, matrix_use::table, region::tensor_parallel),
                build.vector({{o.labels_name, o.labels}}, "bias", 0.0, region::tensor_parallel)} {}

  /// x [n, hidden_size] read; loss_n added to, at any index (only its sum is used): sequence losses times the label weight
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, vector_view<accumulate, memory> loss_n) const {
    const auto scope = p.scope();
    const std::size_t b = p.batch.b, c = x.shape(1);
    const auto first = p.save(b, c), pooled = p.save(b, c);
    pool(p, x, first, pooled);
    auto dropped = pooled;
    if (drops(p)) {
      dropped = p.temporary(b, c);
      ops::dropout(p, pooled, dropout_, p.random_at(site_, c), dropped);
    }
    const vector_view<accumulate, memory> loss_b{p.workspace.template take<accumulate>(b), {b}};
    labels_.forward(p, dropped, p.batch.labels_b, p.gradient_scale * p.label_weight, loss_b);
    ops::add(p, loss_b, loss_n.rows(0, b), p.label_weight);
  }

  /// dx [n, hidden_size] added to
  void backward(pass<Recipe>& p, matrix_view<compute, memory> dx) const {
    const auto scope = p.scope();
    const std::size_t b = p.batch.b, c = dx.shape(1);
    const auto dpooled = p.temporary(b, c), dfirst = p.temporary(b, c);
    // forward: logits = dropout(pooled) · Vᵀ + a
    const auto ddropped = labels_.backward(p, b, c);
    if (drops(p)) ops::dropout(p, ddropped, dropout_, p.random_at(site_, c), dpooled);
    else ops::copy(p, ddropped, dpooled);
    // forward: pooled = tanh(first · Wᵀ + b)
    ops::tanh_backward(p, p.pop_saved(b, c), dpooled, dpooled);
    p.internal.rows_are_sequences = true;
    pooler_.backward(p, p.pop_saved(b, c), dpooled, dfirst);
    p.internal.rows_are_sequences = false;
    // forward: first = x at the first tokens
    ops::embedding_backward(p, p.batch.firsts_b, dfirst, dx, p.first_sequence_parallel_token());
  }

  /// x [n, hidden_size] read, logits [b, labels] written
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate, memory> logits_bv) const {
    const auto scope = p.scope();
    const auto first = p.temporary(p.batch.b, x.shape(1)), pooled = p.temporary(p.batch.b, x.shape(1));
    pool(p, x, first, pooled);
    labels_.logits(p, pooled, logits_bv);
  }

 private:
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return dropout_ > 0.0 && p.trains(); }
  void pool(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> first,
            matrix_view<compute, memory> pooled) const {
    // under sequence parallelism one rank has the first token; all compute the label
    ops::embedding(p, p.batch.firsts_b, x, first, ops::result::replaces, p.first_sequence_parallel_token());
    sum_over_sequence_parallel_region(p, first);
    p.internal.rows_are_sequences = true;
    pooler_.forward(p, first, pooled);
    p.internal.rows_are_sequences = false;
    ops::tanh(p, pooled, pooled);
  }

  double dropout_;
  std::uint32_t site_;
  linear<Recipe> pooler_;
  classification_head<Recipe> labels_;
};

}  // namespace xtrain
