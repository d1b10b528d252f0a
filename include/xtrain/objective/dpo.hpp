// Direct preference optimization.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/kind_names.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/sequence_objective.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/preference.hpp>

namespace xtrain {

using kernel::preference_kind;

template <>
struct kind_names<kernel::preference_kind> {
  static constexpr named_kinds<kernel::preference_kind, 4> all{{{"sigmoid", kernel::preference_kind::sigmoid},  // names used by dpo
                                                                {"robust", kernel::preference_kind::robust},
                                                                {"hinge", kernel::preference_kind::hinge},
                                                                {"ipo", kernel::preference_kind::ipo}}};
};

/// Sequences 2i (chosen) and 2i + 1 (rejected) of a micro-batch are a pair. Loss of a pair: −log σ(beta · Δ), Δ the model's log-ratio of chosen to rejected
/// minus the reference model's; loss of a step: mean over pairs.
///                                                                                         [Rafailov et al. 2023, eq. 7]
/// `kind`, label_smoothing and reference_free select variants: ipo, conservative and robust DPO, hinge; formulas: kernel::preference_loss. The head runs
/// twice: for log-probabilities, and for gradients.
/// Reference: log-probabilities in the batch, a model given to the trainer, or the model with its adapter switched off.
struct dpo {
  static constexpr std::string_view name = "dpo";
  static constexpr std::size_t group_size = 2;
  using hooks = xtrain::hooks<hook::upload, hook::uses_reference>;
  static constexpr std::array<std::string_view, 4> statistics{"rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"};

  struct config {
    preference_kind kind = preference_kind::sigmoid;
    double beta = 0.1;             ///< strength of the pull to the reference model; ipo: the paper's τ
    double label_smoothing = 0.0;  ///< sigmoid, robust: probability of a swapped label
    bool reference_free = false;   ///< the reference is uniform

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "kind", .full_name = "loss_type", .help = "which loss"}, c.kind);
      visit({.name = "beta", .range = setting_range::positive, .help = "strength of the pull to the reference model"}, c.beta);
      visit({.name = "label_smoothing", .range = setting_range::share_below_one,
             .help = "probability that a pair is labeled the wrong way round"}, c.label_smoothing);
      visit({.name = "reference_free", .help = "no reference model: all sequences are as probable to it"}, c.reference_free);
    }
  };


  [[nodiscard]] static double count_losses(const batch_view& batch) { return count_groups(batch, group_size); }
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    require_pairs(name, "chosen and rejected in turn", batch);
  }
  /// throws config_error for settings that the kind does not have
  static void require_config(const config& c);
  [[nodiscard]] static reference_use reference(const config& settings) {
    return settings.reference_free ? reference_use::none : reference_use::sequence_log_probs;
  }

  template <class Device, class Memory>
  static void losses(execution<Device>& on, const config& c, const sequence_losses<Memory>& of) {
    // as in trl, ipo averages log-probabilities over tokens
    const ops::preference_settings settings{
        .kind = c.kind, .beta = c.beta, .label_smoothing = c.label_smoothing, .average_log_probs = c.kind == preference_kind::ipo};
    ops::preference_loss<Device>(on, settings, of.logp_b, of.count_b, of.reference_b, of.loss_g, of.dlogp_b, of.statistics_4g);
  }
  template <class Recipe>
  using state = sequence_objective<Recipe, dpo>;
};

inline void dpo::require_config(const config& c) {
  const bool is_robust = c.kind == preference_kind::robust;
  require<config_error>(c.kind != preference_kind::odds_ratio, "dpo: kind must be sigmoid, robust, hinge or ipo; for odds_ratio choose orpo");
  require_ranges("dpo", c);
  require<config_error>(!is_robust || c.label_smoothing < 0.5, "dpo: label_smoothing must be in [0, 0.5) for the kind robust; given ", c.label_smoothing);
  require<config_error>(c.label_smoothing == 0.0 || c.kind == preference_kind::sigmoid || is_robust,
                        "dpo: label_smoothing is for the kinds sigmoid and robust only; given ", c.label_smoothing);
}

static_assert(objective<dpo>);

}  // namespace xtrain
