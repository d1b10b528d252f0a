#pragma once

#include <cstddef>
#include <string>

#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/linear.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/ops/elementwise.hpp>

namespace xtrain {

/// logits = norm(gelu(x · Wᵀ + b)) · tableᵀ + bias. [Devlin et al. 2019, section 3.1]
template <class Recipe>
class masked_lm_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using accumulate = accumulate_t<compute>;

  struct options {
    std::size_t hidden_size = 0;
    std::size_t vocab_size = 0;
    double norm_epsilon = 1e-12;
    std::string name{};  // module: "<name>.transform.dense", "<name>.bias"
    parameter table{};   // the embedding table if tied; else "<name>.decoder" with the bias, as transformers reads it
    initial_values initial{};
  };

  masked_lm_head(builder<Recipe>& build, const options& o)
      : dense_(build, {{o.name + ".transform.dense", o.hidden_size}}, o.hidden_size, {.bias = true, .initial = o.initial}),
        norm_(build, o.name + ".transform.LayerNorm", o.hidden_size, o.norm_epsilon),
        decoder_{o.table.exists() ? o.table : build.matrix({build.vocabulary_part(o.name + ".decoder", o.vocab_size)}, o.hidden_size, o.initial),
                 {.shard = build.shard(),
                  .vocab_size = o.vocab_size,
                  .bias = build.vector({build.vocabulary_part(o.table.exists() ? o.name : o.name + ".decoder", o.vocab_size)}, "bias", 0.0)}} {}

  /// x [n, hidden_size] read, loss_n written
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, vector_view<accumulate, memory> loss_n) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    const auto u = p.save(n, c), a = p.save(n, c);
    const auto y = p.temporary(n, c);
    dense_.forward(p, x, u);
    ops::gelu_erf(p, u, a);
    norm_.forward(p, a, y);
    decoder_.forward(p, y, loss_n);
    p.save_reference(a);
  }

  /// x [n, hidden_size] read, dx [n, hidden_size] added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> dx) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    const auto a = p.saved_reference(n, c);
    const auto da = p.temporary(n, c);
    // forward: logits = y · tableᵀ + bias,  y = norm(a)
    const auto dy = decoder_.backward(p, n, c);
    fill_zero(p.stream, da.span());
    norm_.backward(p, a, dy, da);
    // forward: a = gelu(u)
    p.pop_saved(n, c);
    const auto u = p.pop_saved(n, c);
    ops::gelu_erf_backward(p, u, da, da);
    // forward: u = x · Wᵀ + b
    dense_.backward(p, x, da, dx, ops::result::is_added);
  }

  /// x [n, hidden_size] read, logits [n, vocabulary] written
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate, memory> logits_nv) const {
    const auto scope = p.scope();
    const auto u = p.temporary(x.shape(0), x.shape(1)), y = p.temporary(x.shape(0), x.shape(1));
    dense_.forward(p, x, u);
    ops::gelu_erf(p, u, u);
    norm_.recompute(p, u, y);
    decoder_.logits(p, y, logits_nv);
  }

 private:
  linear<Recipe> dense_;
  layer_norm<Recipe> norm_;
  vocab_parallel_head<Recipe> decoder_;
};

}  // namespace xtrain
