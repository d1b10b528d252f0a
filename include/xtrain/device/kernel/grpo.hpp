// Loss of GRPO and variants: advantages per answer, clipped probability ratios per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// Weight of a token's loss, before division by the number of sequences or targets.
enum class grpo_kind : std::uint8_t {
  grpo,     ///< 1 / targets of its sequence: mean over sequences of means over tokens    [Shao et al. 2024, "DeepSeekMath", eq. 3]
  dapo,     ///< 1: mean over a step's tokens                                             [Yu et al. 2025, "DAPO", eq. 8]
  dr_grpo,  ///< 1 / max_completion_length: mean over sequences, independent of lengths  [Liu et al. 2025, "Dr. GRPO", section 3.2]
};

/// Each of b sequences of t tokens is a prompt without targets and an answer whose tokens are targets. For target j of sequence i, with log p = −loss_j, w the
/// kind's weight, A = advantage_i:
///   ratio = exp(log p − old_j), or 1 with the gradient of log p without old_n; with sequence_ratio the geometric mean of the sequence's
///           ratios                                                                      [Zheng et al. 2025, "GSPO", eq. 7]
///   kl    = exp(reference_j − log p) − (reference_j − log p) − 1                                    [Schulman 2020, "Approximating KL divergence"]
///   loss  = w · (−min(ratio · A, clip(ratio, 1 − epsilon_low, 1 + epsilon_high) · A) + beta · kl)
///   dloss / dlog p = w · (−A · ratio, 0 where the clipped term is smaller, + beta · (1 − exp(reference_j − log p)))
/// As trl's GRPOTrainer, except that an advantage of 0 makes the first part 0 even for an infinite ratio.
///   loss_n        read      cross-entropy per token, natural logarithm; n = b · t
///   target_n      read      outside [0, v): no target
///   advantage_b   read
///   old_n, reference_n   read   log-probabilities of targets; old_n may be empty, reference_n is if beta is 0
///   loss_b        written   sum of a sequence's losses
///   weight_n      written   −dloss / dlog p, the weight for cross-entropy; 0 without target; may be empty
///   statistics_3b written   per sequence Σ kl, tokens clipped below, tokens clipped above; divided by its targets, except for dapo
///   rounding      double; weights rounded once
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
