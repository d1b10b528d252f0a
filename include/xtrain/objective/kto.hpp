// Kahneman-Tversky optimization: single answers, each labeled desirable or not, instead of pairs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

/// The loss of an answer; r is its log-probability minus the reference model's.
enum class kto_kind : std::uint8_t {
  kto,       ///< desirable: 1 − σ(beta · (r − z)), undesirable: 1 − σ(beta · (z − r))     [Ethayarajh et al. 2024, eq. 8]
  apo_zero,  ///< z = 0: trl's 'apo_zero_unpaired'                           [D'Oosterlinck et al. 2024]
};

template <>
struct kind_names<kto_kind> {
  static constexpr named_kinds<kto_kind, 2> all{{{"kto", kto_kind::kto}, {"apo_zero_unpaired", kto_kind::apo_zero}}};
};

/// Sequence 2i of a micro-batch is a prompt with its answer, 2i + 1 the same prompt with another record's answer. `labels` has 1 (desirable) or 0
/// (undesirable) per sequence, ignored for 2i + 1. z estimates the KL divergence from the reference model: max(0, mean of r over sequences 2i + 1), without
/// a gradient, per micro-batch of one data-parallel rank. Loss of a step: mean over answers.
///   departs from  trl's KTOTrainer, whose z is a mean over all ranks' simultaneous micro-batches: here, a step does not depend on the number of ranks
/// Sequences 2i + 1 have gradients of 0 in the backward pass; with apo_zero they may be padding. Reference: as for dpo. Reported rewards are means over
/// desirable and undesirable answers, as in trl.
struct kto {
  static constexpr std::string_view name = "kto";
  static constexpr std::size_t group_size = 2;
  static constexpr std::array<std::string_view, 4> statistics{"rewards/chosen", "rewards/rejected", "rewards/margins", "kl"};
  using hooks = xtrain::hooks<hook::upload, hook::uses_reference, hook::reads_labels, hook::reported>;

  struct config {
    kto_kind kind = kto_kind::kto;
    double beta = 0.1;
    double desirable_weight = 1.0, undesirable_weight = 1.0;

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "kind", .full_name = "loss_type", .help = "which loss"}, c.kind);
      visit({.name = "beta", .range = setting_range::positive, .help = "strength of the pull to the reference model"}, c.beta);
      visit({.name = "desirable_weight", .range = setting_range::non_negative, .help = "weight of desirable answers"}, c.desirable_weight);
      visit({.name = "undesirable_weight", .range = setting_range::non_negative, .help = "weight of undesirable answers"}, c.undesirable_weight);
    }
  };

  /// Answers with a target.
  [[nodiscard]] static double count_losses(const batch_view& batch) {
    double answers = 0;
    for (std::size_t i = 0; i + 1 < batch.b; i += 2) answers += has_target(batch, i) ? 1 : 0;
    return answers;
  }
  /// throws data_error unless answers and other records' answers alternate, with labels
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    require_pairs(name, "an answer and another record's answer in turn", batch);
    require<data_error>(batch.labels.size() == batch.b, "kto: every sequence must have a label, 1 for desirable or 0; given ", batch.labels.size(),
                        " labels for ", batch.b, " sequences");
    for (std::size_t i = 0; i < batch.b; i += 2)
      require<data_error>(!has_target(batch, i) || batch.labels[i] == 0 || batch.labels[i] == 1,
                          "kto: the label of an answer must be 1 (desirable) or 0 (undesirable); sequence ", i, " has ", batch.labels[i]);
  }
  static void require_config(const config& c) { require_ranges("kto", c); }
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::sequence_log_probs; }

  template <class Device, class Memory>
  static void losses(execution<Device>& on, const config& c, const sequence_losses<Memory>& of) {
    const ops::kto_settings settings{.beta = c.beta,
                                     .desirable_weight = c.desirable_weight,
                                     .undesirable_weight = c.undesirable_weight,
                                     .estimates_kl = c.kind == kto_kind::kto};
    ops::kto_loss<Device>(on, settings, of.logp_b, of.count_b, of.reference_b, of.label_b, of.loss_g, of.dlogp_b, of.statistics_4g);
  }
  /// From sums over answers / number of answers: rewards of desirable and undesirable answers, z, fraction of desirable ones.
  [[nodiscard]] static std::array<double, 4> reported(const std::array<double, 4>& means) {
    const double desirable = means[3], undesirable = 1.0 - desirable;
    const double chosen = desirable > 0.0 ? means[0] / desirable : 0.0, rejected = undesirable > 0.0 ? means[1] / undesirable : 0.0;
    return {chosen, rejected, desirable > 0.0 && undesirable > 0.0 ? chosen - rejected : 0.0, means[2]};
  }
  template <class Recipe>
  using state = sequence_objective<Recipe, kto>;
};

static_assert(objective<kto>);

}  // namespace xtrain
