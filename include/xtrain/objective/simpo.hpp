// Simple preference optimization: no reference model.
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

/// Sequences 2i (chosen) and 2i + 1 (rejected) of a micro-batch are a pair. With mean log-probabilities per target, x and y, the loss of a pair is
/// −log σ(beta · (x − y) − gamma) − nll_weight · x; loss of a step: mean over pairs.         [Meng et al. 2024, eq. 6]
/// The last term and label_smoothing are from trl's CPOTrainer with loss_type 'simpo' (cpo_alpha, default 1).
///   departs from  trl, whose last term is a mean over all targets of a micro-batch; here over pairs
struct simpo {
  static constexpr std::string_view name = "simpo";
  static constexpr std::size_t group_size = 2;
  static constexpr std::array<std::string_view, 4> statistics{"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"};
  using hooks = xtrain::hooks<>;

  struct config {
    double beta = 2.0;             ///< scale of the rewards
    double gamma = 0.5;            ///< margin, not scaled by beta
    double nll_weight = 0.0;       ///< weight of the chosen answer's negative log-likelihood per target
    double label_smoothing = 0.0;  ///< probability of a swapped label

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "beta", .range = setting_range::positive, .help = "scale of the rewards"}, c.beta);
      visit({.name = "gamma", .range = setting_range::non_negative, .help = "margin between rewards"}, c.gamma);
      visit({.name = "nll_weight", .range = setting_range::non_negative, .help = "weight of the chosen answers' negative log-likelihood"}, c.nll_weight);
      visit({.name = "label_smoothing", .range = setting_range::share_below_one,
             .help = "probability that a pair is labeled the wrong way round"}, c.label_smoothing);
    }
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) { return count_groups(batch, group_size); }
  /// throws data_error when sequences are not pairs, or only one of a pair has targets
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    require_pairs(name, "chosen and rejected in turn", batch);
    require_targets_of_both(name, batch);
  }
  static void require_config(const config& c) { require_ranges("simpo", c); }
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }

  template <class Device, class Memory>
  static void losses(execution<Device>& on, const config& c, const sequence_losses<Memory>& of) {
    const ops::preference_settings settings{.beta = c.beta,
                                            .label_smoothing = c.label_smoothing,
                                            .margin = c.gamma,
                                            .average_log_probs = true,
                                            .average_rewards = true,
                                            .nll_weight = c.nll_weight};
    ops::preference_loss<Device>(on, settings, of.logp_b, of.count_b, {}, of.loss_g, of.dlogp_b, of.statistics_4g);
  }
  template <class Recipe>
  using state = sequence_objective<Recipe, simpo>;
};

static_assert(objective<simpo>);

}  // namespace xtrain
