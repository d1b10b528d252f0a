// Load-balancing loss of mixtures of experts, over all layers.        [Fedus et al. 2022, section 2.2; Jiang et al. 2024]
#pragma once

#include <cstddef>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/experts.hpp>

namespace xtrain {

/// Layers count tokens per expert; the head adds the loss; the layers' backward uses its gradient. Padding is routed, not counted (as in transformers'
/// load_balancing_loss_func with an attention mask).
template <class Recipe>
class load_balance {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using accumulate = accumulate_t<compute>;

  struct sizes {
    std::size_t layers = 0, experts = 0, choices = 0, vocab_size = 0;
    double coefficient = 0.0;
  };

  /// Saves the expert load first in the stash, until the backward of all blocks is done.
  static void begin(pass<Recipe>& p, const sizes& of) {
    const std::size_t l = of.layers, e = of.experts;
    p.internal.load.count_le = {p.save_tokens(l * e).span(), {l, e}};
    p.internal.load.probability_le = {p.save_sums(l * e).span(), {l, e}};
    p.internal.load.dprobability_e = p.save_sums(e);
  }
  /// Adds the loss of all layers to loss_n and computes its gradient.
  static void add(pass<Recipe>& p, const sizes& of, vector_view<accumulate, memory> loss_n) {
    auto& load = p.internal.load;
    if (!load.exists()) return;
    if constexpr (has_context_parallel<Recipe>) {
      auto& sharing = p.internal.parallel.context();
      sharing.all_reduce(p.stream, load.count_le.span(), reduction::sum);
      sharing.all_reduce(p.stream, load.probability_le.span(), reduction::sum);
    }
    ops::expert_balance<compute>(p, load.count_le, load.probability_le, of.choices, p.batch.targets_n, of.vocab_size,
                                 of.coefficient * p.internal.balance_factor, p.gradient_scale, loss_n, load.dprobability_e);
    // the gradient also sums over the targets of all these ranks
    if constexpr (has_context_parallel<Recipe>) p.internal.parallel.context().all_reduce(p.stream, load.dprobability_e.span(), reduction::sum);
  }
  static void end(pass<Recipe>& p, const sizes& of) {
    if (!p.internal.load.exists()) return;
    (void)p.pop_saved_sums(of.experts);
    (void)p.pop_saved_sums(of.layers * of.experts);
    (void)p.pop_saved_tokens(of.layers * of.experts);
    p.internal.load = {};
  }
};

}  // namespace xtrain
