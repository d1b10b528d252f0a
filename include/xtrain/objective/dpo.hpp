// Direct preference optimization: pairs of a chosen and a rejected answer, without a reward model.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/sequence_log_probs.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/ops/step_scalars.hpp>

namespace xtrain {

using kernel::preference_kind;

/// Sequences 2i (chosen) and 2i + 1 (rejected) of a micro-batch are a pair. The loss of a pair is −log σ(beta · Δ), where Δ is how much more the
/// model prefers the chosen sequence than the reference model does; the loss of a step is the mean over its pairs.
///                                                                                         [Rafailov et al. 2023, eq. 7]
/// `kind`, label_smoothing and reference_free select its variants: ipo, conservative and robust DPO, hinge; kernel::preference_loss has the
/// formulas. The head runs twice: for log-probabilities, and for gradients.
/// The reference: log-probabilities in the batch, a model given to the trainer, or the model itself with its adapter switched off.
struct dpo {
  static constexpr std::string_view name = "dpo";
  static constexpr std::size_t group_size = 2;
  static constexpr std::array<std::string_view, 4> statistics{"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"};

  struct config {
    preference_kind kind = preference_kind::sigmoid;
    double beta = 0.1;             ///< strength of the pull to the reference model; ipo: the paper's τ
    double label_smoothing = 0.0;  ///< sigmoid, robust: probability that a pair is labeled the wrong way round
    bool reference_free = false;   ///< the reference gives every sequence the same probability
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) {
    double pairs = 0;
    for (std::size_t i = 0; i + 1 < batch.b; i += 2) {
      const auto targets = batch.targets.subspan(i * batch.t, 2 * batch.t);
      pairs += std::any_of(targets.begin(), targets.end(), [](token t) { return t >= 0; }) ? 1 : 0;
    }
    return pairs;
  }
  /// throws data_error when sequences are not pairs
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    require<data_error>(batch.b % 2 == 0, "dpo: a micro-batch must have an even number of sequences, chosen and rejected in turn; given ", batch.b);
    require<data_error>(batch.targets.size() == batch.b * batch.t, "dpo: every token of a batch must have a label, or a negative one; given ",
                        batch.targets.size(), " labels for ", batch.b * batch.t, " tokens");
    require<data_error>(batch.token_weights.empty(), "dpo: a batch must not have weights per token");
    require<data_error>(batch.reference_log_probs.empty() || batch.reference_log_probs.size() == batch.b,
                        "dpo: reference log-probabilities must be given for every sequence, or for none; given ", batch.reference_log_probs.size(),
                        " for ", batch.b);
    for (std::size_t i = 0; i < batch.starts.size(); ++i)
      require<data_error>(batch.starts[i] == 0 || batch.targets[i] < 0, "dpo: a sequence must hold one sample; sequence ", i / batch.t,
                          " holds a second one at token ", i % batch.t, ". Do not pack samples");
  }
  /// throws config_error for settings that the kind does not have; so does every rank, not only those with a head
  static void require_config(const config& c);
  [[nodiscard]] static reference_use reference(const config& settings) {
    return settings.reference_free ? reference_use::none : reference_use::sequence_log_probs;
  }

  template <class Recipe>
  class state final : public pass_objective<Recipe> {
   public:
    using device = typename Recipe::device;
    using memory = typename device::memory;
    using accumulate = accumulate_t<typename pass<Recipe>::compute>;

    template <class Context>
    state(const config& settings, const Context& on, const objective_sizes& sizes)
        : settings_(settings), sequences_(sizes.sequences),
          reference_(on, reference(settings) == reference_use::none ? 0 : sizes.micro_batches * sizes.sequences * sizeof(double), memory_role::batch) {
      require_config(settings);
      require<config_error>(sizes.sequences % 2 == 0, "dpo: micro_batch_size must be even, for pairs of sequences; given ", sizes.sequences);
    }
    void prepare(pass<Recipe>& p, std::size_t micro_batch) {
      p.internal.objective = this;
      p.internal.micro_batch = micro_batch;
    }
    /// Where the reference model's log-probabilities of a micro-batch are; none in a reference-free run.
    [[nodiscard]] vector_view<double, memory> reference_b(std::size_t micro_batch, std::size_t b) const {
      if (reference(settings_) == reference_use::none) return {};
      return {reference_.template as<double>().subspan(micro_batch * sequences_, b), {b}};
    }

    void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
      const auto saved = p.trains() ? head.save_input_gradient(p) : matrix_view<typename pass<Recipe>::compute, memory>{};
      const auto scope = p.scope();
      const std::size_t b = p.batch.b, pairs = b / 2;
      const auto values = [&](std::size_t n) { return vector_view<double, memory>{p.workspace.template take<double>(n), {n}}; };
      const auto logp_b = values(b), count_b = values(b), dlogp_b = values(b), loss_p = values(pairs);
      const matrix_view<double, memory> statistics_4p{p.workspace.template take<double>(4 * pairs), {4, pairs}};
      sequence_log_probs(p, head, loss_n, logp_b, count_b);
      ops::preference_loss(p, of_kernel(), logp_b, count_b, reference_b(p.internal.micro_batch, b), loss_p, dlogp_b, statistics_4p);
      if (p.trains()) {
        const vector_view<accumulate, memory> weight_n{p.workspace.template take<accumulate>(loss_n.shape(0)), {loss_n.shape(0)}};
        ops::sequence_weights(p, p.batch.targets_n, head.vocab_size(), dlogp_b, weight_n);
        head.gradient(p, weight_n, loss_n, saved);
      }
      // context-parallel ranks have parts of the same sequences: one of them has their losses
      bool counts = true;
      if constexpr (has_context_parallel<Recipe>) counts = p.internal.parallel.context().rank() == 0;
      ops::sequence_losses(p, counts ? loss_p : vector_view<double, memory>{}, b, loss_n);
      for (std::size_t i = 0; counts && !p.internal.statistics.empty() && i < dpo::statistics.size(); ++i)
        ops::sum(p, statistics_4p.rows(i, 1).span(), p.internal.statistics.subspan(i, 1));
    }

   private:
    [[nodiscard]] ops::preference_settings of_kernel() const {
      // as trl, which averages the log-probabilities of ipo over tokens
      return {.kind = settings_.kind,
              .beta = settings_.beta,
              .label_smoothing = settings_.label_smoothing,
              .average_log_probs = settings_.kind == preference_kind::ipo};
    }

    config settings_;
    std::size_t sequences_;
    buffer<device> reference_;
  };
};

inline void dpo::require_config(const config& c) {
  const bool is_robust = c.kind == preference_kind::robust;
  require<config_error>(c.beta > 0.0, "dpo: beta must be positive; given ", c.beta);
  require<config_error>(c.label_smoothing >= 0.0 && c.label_smoothing < (is_robust ? 0.5 : 1.0), "dpo: label_smoothing must be in [0, ",
                        is_robust ? "0.5" : "1", "); given ", c.label_smoothing);
  require<config_error>(c.label_smoothing == 0.0 || c.kind == preference_kind::sigmoid || is_robust,
                        "dpo: label_smoothing is for the kinds sigmoid and robust only; given ", c.label_smoothing);
}

static_assert(objective<dpo>);

}  // namespace xtrain
