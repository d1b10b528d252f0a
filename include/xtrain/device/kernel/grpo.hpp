// The loss of GRPO and its variants: advantages of whole answers, clipped ratios of probabilities per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// How the losses of tokens become one: the weight of a token's loss, before the sum is divided by a number of sequences or of targets.
enum class grpo_kind : std::uint8_t {
  grpo,     ///< 1 / targets of its sequence: the mean over sequences of their means over tokens    [Shao et al. 2024, "DeepSeekMath", eq. 3]
  dapo,     ///< 1: the mean over all tokens of a step                                             [Yu et al. 2025, "DAPO", eq. 8]
  dr_grpo,  ///< 1 / max_completion_length: a mean over sequences that does not depend on lengths  [Liu et al. 2025, "Dr. GRPO", section 3.2]
};

/// Sequence i of b, each of t tokens, is a prompt without targets and an answer, whose tokens are the targets. For every target j of it, with
/// log p = −loss_j, w its kind's weight, A = advantage_i:
///   ratio = exp(log p − old_j), or 1 with the gradient of log p if there is no old; with sequence_ratio the geometric mean of the
///           sequence's ratios                                                                      [Zheng et al. 2025, "GSPO", eq. 7]
///   kl    = exp(reference_j − log p) − (reference_j − log p) − 1                                    [Schulman 2020, "Approximating KL divergence"]
///   loss  = w · (−min(ratio · A, clip(ratio, 1 − epsilon_low, 1 + epsilon_high) · A) + beta · kl)
///   dloss / dlog p = w · (−A · ratio, 0 where the clipped one is smaller, + beta · (1 − exp(reference_j − log p)))
/// As trl's GRPOTrainer, but for an advantage of 0: then the first part is 0, also where the ratio is infinite.
///   loss_n        read      cross-entropy per token, natural logarithm; n = b · t
///   target_n      read      outside [0, v): no target
///   advantage_b   read
///   old_n, reference_n   read   log-probabilities of the targets; old_n may be empty, reference_n is if beta is 0
///   loss_b        written   the sum of a sequence's losses
///   weight_n      written   −dloss / dlog p, the weight that gives cross-entropy this gradient; 0 where there is no target; may be empty
///   statistics_3b written   per sequence Σ kl, and the numbers of tokens clipped below and above; divided by its targets, but for dapo
///   rounding      computed in double; weights are rounded once
template <class Memory, class A>
struct grpo_loss {
  static constexpr std::string_view name = "grpo_loss";
  template <class M>
  using on = grpo_loss<M, A>;

  std::size_t b = 0, t = 0, v = 0;
  grpo_kind kind = grpo_kind::dapo;
  bool sequence_ratio = false;
  double beta = 0.0, epsilon_low = 0.2, epsilon_high = 0.2, max_completion_length = 1.0;
  read<A, Memory> loss_n{};
  read<token, Memory> target_n{};
  read<double, Memory> advantage_b{};
  read<A, Memory> old_n{}, reference_n{};
  written<double, Memory> loss_b{}, statistics_3b{};
  written<A, Memory> weight_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.b, s.t, s.v, s.kind, s.sequence_ratio, s.beta, s.epsilon_low, s.epsilon_high, s.max_completion_length, s.loss_n, s.target_n,
             s.advantage_b, s.old_n, s.reference_n, s.loss_b, s.statistics_3b, s.weight_n);
  }
  [[nodiscard]] constexpr double operations() const { return 20.0 * static_cast<double>(b) * static_cast<double>(t); }
};

}  // namespace xtrain::kernel
