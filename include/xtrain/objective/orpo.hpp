// Odds ratio preference optimization: no reference model.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/sequence_objective.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/preference.hpp>

namespace xtrain {

/// Sequences 2i (chosen) and 2i + 1 (rejected) of a micro-batch are a pair. With mean log-probabilities per target, x and y, and
/// log-odds(x) = x − log(1 − exp(x)), the loss of a pair is −x − beta · log σ(log-odds(x) − log-odds(y)); loss of a step: mean over pairs.
///                                                                                         [Hong et al. 2024, eq. 6 and 7]
///   departs from  trl's ORPOTrainer, whose first term is a mean over all tokens of a micro-batch, prompts included; here over targets, usually the answer,
///                 as in LLaMA-Factory
/// Rewards are beta · x and beta · y, as in both.
struct orpo {
  static constexpr std::string_view name = "orpo";
  static constexpr std::size_t group_size = 2;
  static constexpr std::array<std::string_view, 4> statistics{"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"};
  using hooks = xtrain::hooks<>;

  struct config {
    double beta = 0.1;  ///< weight of the odds ratio loss; the paper's λ

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "beta", .range = setting_range::positive, .help = "weight of the odds ratio loss"}, c.beta);
    }
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) { return count_groups(batch, group_size); }
  /// throws data_error when sequences are not pairs, or only one of a pair has targets
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    require_pairs(name, "chosen and rejected in turn", batch);
    require_targets_of_both(name, batch);
  }
  static void require_config(const config& c) { require_ranges("orpo", c); }
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }

  template <class Device, class Memory>
  static void losses(execution<Device>& on, const config& c, const sequence_losses<Memory>& of) {
    const ops::preference_settings settings{
        .kind = kernel::preference_kind::odds_ratio, .beta = c.beta, .average_log_probs = true, .average_rewards = true, .nll_weight = 1.0};
    ops::preference_loss<Device>(on, settings, of.logp_b, of.count_b, {}, of.loss_g, of.dlogp_b, of.statistics_4g);
  }
  template <class Recipe>
  using state = sequence_objective<Recipe, orpo>;
};

static_assert(objective<orpo>);

}  // namespace xtrain
