#pragma once

#include <cstddef>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/ops/preference.hpp>

namespace xtrain {

/// Sums over the targets of every sequence, on every rank with the head: log-probabilities, and numbers of targets.
///   loss_n   memory for the batch's cross-entropy
///   logp_b, count_b   written
template <class Recipe>
void sequence_log_probs(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n,
                        vector_view<double, typename pass<Recipe>::memory> logp_b, vector_view<double, typename pass<Recipe>::memory> count_b) {
  head.cross_entropy(p, loss_n);
  ops::sequence_sums(p, loss_n, p.batch.targets_n, head.vocab_size(), logp_b, count_b);
  if constexpr (has_context_parallel<Recipe>) {
    p.internal.parallel.context().all_reduce(p.stream, logp_b.span(), reduction::sum);
    p.internal.parallel.context().all_reduce(p.stream, count_b.span(), reduction::sum);
  }
}

/// Computes only these: for a reference model.
template <class Recipe>
class log_prob_collector final : public pass_objective<Recipe> {
 public:
  using memory = typename pass<Recipe>::memory;

  ///   temperature   divides logits
  explicit log_prob_collector(double temperature = 1.0) : temperature_(temperature) {}

  void write_to(vector_view<double, memory> logp_b, vector_view<double, memory> count_b) {
    logp_b_ = logp_b;
    count_b_ = count_b;
  }
  void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
    const auto scope = p.scope();
    if constexpr (scores_sequences<Recipe>) sequence_log_probs(p, head, loss_n, logp_b_, count_b_);
    else sequence_log_probs(p, head.with_temperature(p, temperature_), loss_n, logp_b_, count_b_);
  }

 private:
  double temperature_;
  vector_view<double, memory> logp_b_{}, count_b_{};
};

/// Computes only −log p(target) of every token, for any objective of the model.
template <class Recipe>
class token_loss_collector final : public pass_objective<Recipe> {
 public:
  ///   temperature   divides logits
  explicit token_loss_collector(double temperature = 1.0) : temperature_(temperature) {}

  void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
    const auto scope = p.scope();
    if constexpr (scores_sequences<Recipe>) head.cross_entropy(p, loss_n);
    else head.with_temperature(p, temperature_).cross_entropy(p, loss_n);
  }

 private:
  double temperature_;
};

}  // namespace xtrain
