#pragma once

#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/preference.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Log-probability and number of targets per sequence, from token losses: kernel::sequence_sums
///   loss_n [b · t], target_n [b · t] read; logp_b, count_b written
template <class Device, class A>
void sequence_sums(execution<Device>& on, vector<A, Device> loss_n, in_vector<token, Device> target_n, std::size_t vocab_size,
                   vector<double, Device> logp_b, vector<double, Device> count_b) {
  const std::size_t n = loss_n.shape(0), b = logp_b.shape(0), t = b == 0 ? 0 : n / b;
  require<shape_error>(b * t == n, "sequence_sums: the ", n, " tokens must be those of ", b, " sequences of equal length");
  require_shape("sequence_sums: target_n", target_n.shape(), {n});
  require_shape("sequence_sums: count_b", count_b.shape(), {b});
  launch(on, kernel::sequence_sums<typename Device::memory, std::remove_const_t<A>>{.b = b,
                                                                                    .t = t,
                                                                                    .v = vocab_size,
                                                                                    .loss_n = loss_n.span(),
                                                                                    .target_n = target_n.span(),
                                                                                    .logp_b = logp_b.span(),
                                                                                    .count_b = count_b.span()});
}

using kernel::preference_kind;

/// See kernel::preference_loss.
struct preference_settings {
  preference_kind kind = preference_kind::sigmoid;
  double beta = 0.1;               ///< strength of the constraint to the reference model; ipo: τ
  double label_smoothing = 0.0;    ///< probability of a wrongly ordered pair: sigmoid (cDPO), robust
  double margin = 0.0;             ///< SimPO's γ; not for ipo and odds_ratio
  bool average_log_probs = false;  ///< log-probabilities per token: trl's ipo and sigmoid_norm, SimPO, ORPO
  bool average_rewards = false;    ///< rewards of the statistics per token
  double nll_weight = 0.0;         ///< weight of the chosen sequence's negative log-likelihood per target
  double center = 0.0;             ///< weight of the squared sum of both rewards
};

/// Loss of each pair 2i (chosen), 2i + 1 (rejected), and its derivative: kernel::preference_loss
///   logp_b, count_b; reference_b, or none: reference-free     read
///   loss_p [b / 2], dlogp_b written; statistics_4p [4, b / 2] written, or none
///   throws  config_error for settings that the kind lacks
template <class Device>
void preference_loss(execution<Device>& on, const preference_settings& settings, in_vector<double, Device> logp_b,
                     in_vector<double, Device> count_b, in_vector<double, Device> reference_b,
                     std::type_identity_t<vector<double, Device>> loss_p, std::type_identity_t<vector<double, Device>> dlogp_b,
                     std::type_identity_t<matrix<double, Device>> statistics_4p = {}) {
  const preference_kind kind = settings.kind;
  const double beta = settings.beta, label_smoothing = settings.label_smoothing, margin = settings.margin;
  const bool is_ipo = kind == preference_kind::ipo, is_robust = kind == preference_kind::robust;
  require<config_error>(beta > 0.0, "preference_loss: beta must be positive; given ", beta);
  require<config_error>(label_smoothing >= 0.0 && label_smoothing < (is_robust ? 0.5 : 1.0),
                        "preference_loss: label_smoothing must be in [0, ", is_robust ? "0.5" : "1", "); given ", label_smoothing);
  require<config_error>(label_smoothing == 0.0 || kind == preference_kind::sigmoid || is_robust,
                        "preference_loss: label_smoothing is for the kinds sigmoid and robust only; given ", label_smoothing);
  require<config_error>(margin == 0.0 || !(is_ipo || kind == preference_kind::odds_ratio), "preference_loss: ", is_ipo ? "ipo" : "odds_ratio",
                        " has no margin; given ", margin);
  const std::size_t b = logp_b.shape(0), pairs = b / 2;
  require<shape_error>(b % 2 == 0, "preference_loss: sequences must be pairs of a chosen and a rejected one; given ", b, " sequences");
  require_shape("preference_loss: count_b", count_b.shape(), {b});
  if (reference_b.exists()) require_shape("preference_loss: reference_b", reference_b.shape(), {b});
  require_shape("preference_loss: loss_p", loss_p.shape(), {pairs});
  require_shape("preference_loss: dlogp_b", dlogp_b.shape(), {b});
  if (statistics_4p.exists()) require_shape("preference_loss: statistics_4p", statistics_4p.shape(), {4, pairs});
  launch(on, kernel::preference_loss<typename Device::memory>{.pairs = pairs,
                                                              .kind = kind,
                                                              .beta = beta,
                                                              .label_smoothing = label_smoothing,
                                                              .margin = margin,
                                                              .nll_weight = settings.nll_weight,
                                                              .center = settings.center,
                                                              .average_log_probs = settings.average_log_probs,
                                                              .average_rewards = settings.average_rewards,
                                                              .logp_b = logp_b.span(),
                                                              .count_b = count_b.span(),
                                                              .reference_b = reference_b.extent(),
                                                              .loss_p = loss_p.span(),
                                                              .dlogp_b = dlogp_b.span(),
                                                              .statistics_4p = statistics_4p.extent()});
}

/// See kernel::kto_loss.
struct kto_settings {
  double beta = 0.1;  ///< strength of the constraint to the reference model
  double desirable_weight = 1.0, undesirable_weight = 1.0;
  bool estimates_kl = true;
};

/// Loss of each answer 2i, desirable or not, and its derivative; answers 2i + 1 estimate the KL divergence: kernel::kto_loss
///   logp_b, count_b, label_b; reference_b, or none     read
///   loss_e [b / 2], dlogp_b written; statistics_4e [4, b / 2] written, or none
///   throws  config_error for a setting out of range
template <class Device>
void kto_loss(execution<Device>& on, const kto_settings& settings, in_vector<double, Device> logp_b, in_vector<double, Device> count_b,
              in_vector<double, Device> reference_b, in_vector<token, Device> label_b, std::type_identity_t<vector<double, Device>> loss_e,
              std::type_identity_t<vector<double, Device>> dlogp_b, std::type_identity_t<matrix<double, Device>> statistics_4e = {}) {
  require<config_error>(settings.beta > 0.0 && settings.desirable_weight >= 0.0 && settings.undesirable_weight >= 0.0,
                        "kto_loss: beta must be positive, and weights not negative; given ", settings.beta, ", ", settings.desirable_weight, " and ",
                        settings.undesirable_weight);
  const std::size_t b = logp_b.shape(0), answers = b / 2;
  require<shape_error>(b % 2 == 0, "kto_loss: every answer must be followed by a sequence that estimates the KL divergence; given ", b, " sequences");
  require_shape("kto_loss: count_b", count_b.shape(), {b});
  require_shape("kto_loss: label_b", label_b.shape(), {b});
  if (reference_b.exists()) require_shape("kto_loss: reference_b", reference_b.shape(), {b});
  require_shape("kto_loss: loss_e", loss_e.shape(), {answers});
  require_shape("kto_loss: dlogp_b", dlogp_b.shape(), {b});
  if (statistics_4e.exists()) require_shape("kto_loss: statistics_4e", statistics_4e.shape(), {4, answers});
  launch(on, kernel::kto_loss<typename Device::memory>{.answers = answers,
                                                       .beta = settings.beta,
                                                       .desirable_weight = settings.desirable_weight,
                                                       .undesirable_weight = settings.undesirable_weight,
                                                       .estimates_kl = settings.estimates_kl,
                                                       .logp_b = logp_b.span(),
                                                       .count_b = count_b.span(),
                                                       .reference_b = reference_b.extent(),
                                                       .label_b = label_b.span(),
                                                       .loss_e = loss_e.span(),
                                                       .dlogp_b = dlogp_b.span(),
                                                       .statistics_4e = statistics_4e.extent()});
}

/// Token weights that give linear_cross_entropy the objective's gradient: −dlogp of the sequence, 0 without a target.
///   target_n [b · t], dlogp_b read; token_weight_n [b · t] written
template <class Device, class A>
void sequence_weights(execution<Device>& on, in_vector<token, Device> target_n, std::size_t vocab_size, in_vector<double, Device> dlogp_b,
                      vector<A, Device> token_weight_n) {
  const std::size_t n = token_weight_n.shape(0), b = dlogp_b.shape(0), t = b == 0 ? 0 : n / b;
  require<shape_error>(b * t == n, "sequence_weights: the ", n, " tokens must be those of ", b, " sequences of equal length");
  require_shape("sequence_weights: target_n", target_n.shape(), {n});
  launch(on, kernel::sequence_weights<typename Device::memory, A>{.b = b,
                                                                  .t = t,
                                                                  .v = vocab_size,
                                                                  .target_n = target_n.span(),
                                                                  .dlogp_b = dlogp_b.span(),
                                                                  .token_weight_n = token_weight_n.span()});
}

/// Losses per sequence or group of sequences, spread over tokens; only the sum is a loss: kernel::sequence_weights.
///   loss_g   read      its size divides b: b for a loss per sequence, b / 2 for pairs
///   loss_n   written   [b · t]
template <class Device, class A>
void sequence_losses(execution<Device>& on, in_vector<double, Device> loss_g, std::size_t b, vector<A, Device> loss_n) {
  const std::size_t n = loss_n.shape(0), t = b == 0 ? 0 : n / b, losses = loss_g.shape(0);
  require<shape_error>(b * t == n, "sequence_losses: the ", n, " tokens must be those of ", b, " sequences of equal length");
  require<shape_error>(losses == 0 || (losses <= b && b % losses == 0), "sequence_losses: the number of losses must divide the ", b,
                       " sequences; given ", losses);
  launch(on, kernel::sequence_weights<typename Device::memory, A>{
                 .b = b, .t = t, .losses = losses, .loss_g = loss_g.extent(), .loss_n = loss_n.span()});
}

/// dlogit_b = dscore_b · gradient_scale: kernel::score_gradients
template <class Device, class T>
void score_gradients(execution<Device>& on, in_vector<double, Device> dscore_b, kernel::scalar<typename Device::memory> gradient_scale,
                     vector<T, Device> dlogit_b) {
  const std::size_t b = dscore_b.shape(0);
  require_shape("score_gradients: dlogit_b", dlogit_b.shape(), {b});
  launch(on, kernel::score_gradients<typename Device::memory, T>{.b = b,
                                                                 .gradient_scale = gradient_scale.value,
                                                                 .gradient_factor_1 = gradient_scale.factor_1,
                                                                 .dscore_b = dscore_b.span(),
                                                                 .dlogit_b = dlogit_b.span()});
}

}  // namespace xtrain::ops
