// Objectives over sequences: log-probabilities of sequences, a loss over pairs, and its gradient as token weights. Between are a few doubles per sequence:
// another objective (rewards, advantages) is one more kernel between sequence_sums and sequence_weights:
//
//   head without gradients -> loss_n -> sequence_sums -> logp_b, count_b -> preference_loss -> loss_p, dlogp_b
//   -> sequence_weights -> token_weight_n -> head with gradients and these weights
//
// kto_loss is such a kernel, for single answers.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// Sums over the targets of b sequences of t tokens:
///   logp_i = −Σ loss over targets of sequence i; count_i = number of targets
///   loss_n     read      cross-entropy per token, natural logarithm, without weights, label smoothing and z-loss; n = b · t
///   target_n   read      outside [0, v): not counted
///   logp_b, count_b   written   double
///   rounding   in double, in an order that depends on t alone: objectives subtract sums over thousands of tokens
template <class Memory, class A>
struct sequence_sums {
  static constexpr std::string_view name = "sequence_sums";
  template <class M>
  using on = sequence_sums<M, A>;

  std::size_t b = 0, t = 0, v = 0;
  read<A, Memory> loss_n{};
  read<token, Memory> target_n{};
  written<double, Memory> logp_b{}, count_b{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.b, s.t, s.v, s.loss_n, s.target_n, s.logp_b, s.count_b);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(b) * static_cast<double>(t); }
};

/// A pair's loss as a function of h = beta · Δ − margin; Δ: how much more than the reference model the model prefers the chosen sequence.
enum class preference_kind {
  sigmoid,  ///< −(1 − e) log σ(h) − e log σ(−h), e = label_smoothing    [DPO: Rafailov et al. 2023, eq. 7; e > 0, cDPO: Mitchell 2023, eq. 3]
  robust,   ///< (−(1 − e) log σ(h) + e log σ(−h)) / (1 − 2e)            [robust DPO: Chowdhury et al. 2024]
  hinge,    ///< max(0, 1 − h)                                           [SLiC: Zhao et al. 2023; with a reference model: Liu et al. 2024, RSO]
  ipo,      ///< (Δ − 1 / (2 beta))²                                     [Azar et al. 2024, eq. 17; beta is the paper's τ]
  odds_ratio,  ///< −beta log σ(log-odds chosen − log-odds rejected); log-odds of x = r or r / count:
               ///< x − log(1 − exp(x)), x at most −1e-10 to stay finite   [ORPO: Hong et al. 2024, eq. 7]
};

/// Sequences 2i (chosen) and 2i + 1 (rejected) are pair i of p. With r_j = logp_j − reference_j (reference_j = 0 without reference):
///   Δ_i = r_2i − r_2i+1, or r_2i / count_2i − r_2i+1 / count_2i+1 with average_log_probs (a count of 0 divides by 1)
///   loss_i = see preference_kind,   dlogp_j = ∂loss_(j/2) / ∂logp_j
///   chosen reward = beta · r_2i,  rejected reward = beta · r_2i+1,  margin = chosen − rejected reward,  accuracy = 1 if margin > 0, else 0
/// added to the loss:
///   nll_weight · −logp_2i / count_2i (negative log-likelihood of the chosen sequence per target); center · (r_2i + r_2i+1)²
/// As trl's DPOTrainer: its `ipo` has average_log_probs, its 'sigmoid_norm' is sigmoid with average_log_probs; rewards are not averaged. SimPO
/// [Meng et al. 2024, eq. 6]: sigmoid, average_log_probs, γ as margin, no reference. ORPO: odds_ratio, average_log_probs, nll_weight 1. For both, trl averages
/// rewards (average_rewards). Scores of a reward model as log-probabilities, with beta 1: the loss of Bradley and Terry.
///   margin            subtracted from beta · Δ; not for ipo and odds_ratio
///   label_smoothing   probability of a wrongly ordered pair: sigmoid; robust: below 1/2
/// A pair without target (both counts 0) is padding: loss, dlogp and statistics are 0.
///   logp_b, count_b   read      of sequence_sums
///   reference_b       read      log-probabilities by the reference model; empty: reference-free
///   loss_p, dlogp_b   written
///   statistics_4p     written   chosen reward, rejected reward, margin, accuracy: p of each; may be empty
template <class Memory>
struct preference_loss {
  static constexpr std::string_view name = "preference_loss";
  template <class M>
  using on = preference_loss<M>;

  std::size_t pairs = 0;
  preference_kind kind = preference_kind::sigmoid;
  double beta = 0.1, label_smoothing = 0.0, margin = 0.0, nll_weight = 0.0, center = 0.0;
  bool average_log_probs = false, average_rewards = false;
  read<double, Memory> logp_b{}, count_b{}, reference_b{};
  written<double, Memory> loss_p{}, dlogp_b{}, statistics_4p{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.pairs, s.kind, s.beta, s.label_smoothing, s.margin, s.nll_weight, s.center, s.average_log_probs, s.average_rewards, s.logp_b,
             s.count_b, s.reference_b, s.loss_p, s.dlogp_b, s.statistics_4p);
  }
  [[nodiscard]] constexpr double operations() const { return 20.0 * static_cast<double>(pairs); }
};

/// Kahneman-Tversky optimization: e answers, labeled desirable or not. Sequence 2i is answer i; 2i + 1 is another example's answer to the same prompt. With
/// r_j = logp_j − reference_j:
///   z = max(0, mean of r_2i+1 over sequences with a target), a gradient-free estimate of the KL divergence from the reference model;
///       0 without estimates_kl: APO-zero for single answers                       [D'Oosterlinck et al. 2024, trl: apo_zero_unpaired]
///   loss_i = desirable_weight · (1 − σ(beta · (r_2i − z))) if label_2i is positive, undesirable_weight · (1 − σ(beta · (z − r_2i))) otherwise
///                                                                                           [Ethayarajh et al. 2024, eq. 8; trl's KTOTrainer]
///   dlogp_2i = ∂loss_i / ∂logp_2i,   dlogp_2i+1 = 0
/// An answer without target is padding: loss, dlogp and statistics are 0.
///   logp_b, count_b   read      of sequence_sums
///   reference_b       read      log-probabilities by the reference model; empty: 0
///   label_b           read      of sequences 2i
///   loss_e, dlogp_b   written
///   statistics_4e     written   reward beta · r_2i if desirable, else 0; if undesirable, else 0; z; 1 if desirable: e of each; may be empty
///   rounding          z in double, in an order that depends on its number of terms alone
template <class Memory>
struct kto_loss {
  static constexpr std::string_view name = "kto_loss";
  template <class M>
  using on = kto_loss<M>;

  std::size_t answers = 0;
  double beta = 0.1, desirable_weight = 1.0, undesirable_weight = 1.0;
  bool estimates_kl = true;
  read<double, Memory> logp_b{}, count_b{}, reference_b{};
  read<token, Memory> label_b{};
  written<double, Memory> loss_e{}, dlogp_b{}, statistics_4e{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.answers, s.beta, s.desirable_weight, s.undesirable_weight, s.estimates_kl, s.logp_b, s.count_b, s.reference_b, s.label_b,
             s.loss_e, s.dlogp_b, s.statistics_4e);
  }
  [[nodiscard]] constexpr double operations() const { return 20.0 * static_cast<double>(answers); }
};

/// From values per sequence to values per token, n = b · t:
///   token_weight_n = −dlogp of the sequence, 0 without target: gives cross-entropy the objective's gradient,
///                    d loss = Σ dlogp d logp = Σ −dlogp d cross-entropy
///   loss_n         = loss i at the first token of sequence i · b / losses, 0 elsewhere: sums to the objective's loss, which the weighted
///                    cross-entropy is not
///   target_n       read      outside [0, v): no target; empty if token_weight_n is
///   dlogp_b        read      empty if token_weight_n is
///   loss_g         read      `losses` values, a divisor of b: per sequence or group (pairs). Empty: loss_n is 0
///   token_weight_n, loss_n   written   rounded once to A; each may be empty
template <class Memory, class A>
struct sequence_weights {
  static constexpr std::string_view name = "sequence_weights";
  template <class M>
  using on = sequence_weights<M, A>;

  std::size_t b = 0, t = 0, v = 0, losses = 0;
  read<token, Memory> target_n{};
  read<double, Memory> dlogp_b{}, loss_g{};
  written<A, Memory> token_weight_n{}, loss_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.b, s.t, s.v, s.losses, s.target_n, s.dlogp_b, s.loss_g, s.token_weight_n, s.loss_n);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(b) * static_cast<double>(t); }
};

/// dlogit_b = dscore_b · gradient_scale, for a head with a score per sequence.
///   dscore_b   read
///   dlogit_b   written, rounded once to T
template <class Memory, class T>
struct score_gradients {
  static constexpr std::string_view name = "score_gradients";
  template <class M>
  using on = score_gradients<M, T>;

  std::size_t b = 0;
  double gradient_scale = 1.0;
  read<double, Memory> gradient_factor_1{};  // factor on gradient_scale; empty: 1
  read<double, Memory> dscore_b{};
  written<T, Memory> dlogit_b{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.b, s.gradient_scale, s.gradient_factor_1, s.dscore_b, s.dlogit_b);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(b); }
};

}  // namespace xtrain::kernel
