// Proximal policy optimization, the value function.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/objective/answers_batch.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/ppo.hpp>
#include <xtrain/objective/step_values.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/ops/step_scalars.hpp>
#include <xtrain/ops/value_loss.hpp>

namespace xtrain {

/// Decoders of a recipe with this objective have a score head, as reward models. A target's value is the score of the hidden state before it (prompt and
/// earlier answer). Loss = ½ · max((v − return)², (clip(v, old ± clip_range) − return)²); loss of a step: mean over tokens. Formulas: kernel::value_loss.
///                                                                                         [Schulman et al. 2017; trl, torchtune]
struct ppo_value {
  static constexpr std::string_view name = "ppo_value";
  static constexpr std::size_t group_size = 1;
  static constexpr bool balances_experts = false;
  static constexpr std::array<std::string_view, 2> statistics{"value/clip_ratio", "value/mean"};
  using hooks = xtrain::hooks<hook::balances_experts, hook::averages_tokens, hook::scores_sequences, hook::require_model, hook::upload>;

  struct config {
    double clip_range = 0.2;   ///< trl's cliprange_value, torchtune's value_clip_range
    double coefficient = 1.0;  ///< scales gradients, not the reported loss: trl's vf_coef, torchtune's value_coeff

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "clip_range", .range = setting_range::positive, .help = "how far values count from those of the rollout"}, c.clip_range);
      visit({.name = "coefficient", .range = setting_range::non_negative, .help = "of the gradients"}, c.coefficient);
    }
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) { return ppo::count_losses(batch); }
  /// throws config_error for a setting out of range; data_error when a batch lacks what it needs
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    detail::require_answers(name, batch);
    detail::require_token_values(name, "old values", "ppo_rollouts", batch, batch.old_values);
    detail::require_token_values(name, "returns", "ppo_rollouts", batch, batch.returns);
  }
  static void require_config(const config& c) { require_ranges("ppo_value", c); }
  /// throws config_error unless the score head is trained
  template <class Model>
  static void require_model(const Model& model) {
    const auto* entry = model.parameters().find("score.weight");
    require<config_error>(entry != nullptr && entry->spec.trainable,
                          "ppo_value: the score head must be trained; the adapter freezes 'score.weight'. Add 'score' to its modules_to_save, as PEFT does");
  }
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }

  template <class Recipe>
  class state final : public pass_objective<Recipe> {
   public:
    using device = typename Recipe::device;
    using memory = typename device::memory;

    template <class Context>
    state(const config& settings, const Context& on, const objective_sizes& sizes)
        : settings_(settings), is_dry_run_(is_dry_run(on)), num_tokens_(sizes.num_tokens), tokens_(on, sizes.micro_batches * sizes.num_tokens, is_dry_run_),
          old_(on, sizes.micro_batches * sizes.num_tokens, is_dry_run_), returns_(on, sizes.micro_batches * sizes.num_tokens, is_dry_run_) {
      require_config(settings);
    }
    void prepare(pass<Recipe>& p, std::size_t micro_batch) {
      p.internal.objective = this;
      p.internal.micro_batch = micro_batch;
    }
    template <class Stream, class Data>
    void upload(Stream& stream, const Data& data) {
      const batch_view& batch = data.batch;
      const std::size_t micro_batch = data.micro_batch;
      if (is_dry_run_) return;
      std::vector<token> tokens(batch.targets.size(), -1);
      for (std::size_t i = 0; i < tokens.size(); ++i)
        if (batch.targets[i] >= 0) tokens[i] = static_cast<token>(i);
      tokens_.upload(stream, std::span<const token>(tokens), micro_batch * num_tokens_);
      if (batch.returns.empty()) return;  // for values alone
      old_.upload(stream, batch.old_values, micro_batch * num_tokens_);
      returns_.upload(stream, batch.returns, micro_batch * num_tokens_);
    }
    /// Passes without gradients write values in place of losses.
    void predicts(bool values) { predicts_ = values; }

    void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
      const auto saved = p.trains() ? head.save_input_gradient(p) : matrix_view<typename pass<Recipe>::compute, memory>{};
      const auto scope = p.scope();
      const std::size_t n = loss_n.shape(0), slot = p.internal.micro_batch * num_tokens_;
      const auto values = [&] { return vector_view<double, memory>{p.workspace.template take<double>(n), {n}}; };
      const auto value_n = values(), count_n = values(), of_token_n = values(), dvalue_n = values(), is_clipped_n = values();
      const auto token_n = tokens_.view(slot, n);
      const auto x_nc = head.hidden_states(p, token_n);
      head.scores(p, x_nc, token_n, value_n, count_n);
      if (predicts_ && !p.trains()) return ops::sequence_losses(p, value_n, n, loss_n);
      ops::value_loss<device>(p, settings_.clip_range, value_n, old_.view(slot, n), returns_.view(slot, n), token_n, of_token_n, dvalue_n, is_clipped_n);
      if (p.trains()) {
        const auto scale = p.gradient_scale;
        p.gradient_scale.value *= settings_.coefficient;
        head.gradient(p, x_nc, token_n, dvalue_n, saved);
        p.gradient_scale = scale;
      }
      ops::sequence_losses(p, of_token_n, n, loss_n);
      if (p.internal.statistics.empty()) return;
      ops::sum(p, is_clipped_n.span(), p.internal.statistics.subspan(0, 1));
      ops::sum(p, value_n.span(), p.internal.statistics.subspan(1, 1));
    }

   private:
    config settings_;
    bool is_dry_run_, predicts_ = false;
    std::size_t num_tokens_;
    detail::step_values<device, token> tokens_;
    detail::step_values<device, double> old_, returns_;
  };
};

static_assert(objective<ppo_value>);

}  // namespace xtrain
