// Vocabulary-parallel cross-entropy: partial results per rank, and the loss from all.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// Values per token that ranks exchange: largest, sum, target; with label smoothing also the sum of logits.
[[nodiscard]] constexpr std::size_t softmax_parts(double label_smoothing) { return label_smoothing == 0.0 ? 3 : 4; }

/// Over logits of tokens first … first + v − 1:
///   largest_i = max_j l_ij,  sum_i = Σ_j exp(l_ij − largest_i),  target_i = l_i,target if in this shard, else 0,
///   total_i = Σ_j l_ij if parts = 4
///   parts       kernel::softmax_parts
///   logits_nv   read, in accumulate
///   target_n    read
///   parts_pn    written   largest, sum, target, total: n of each
template <class Memory, class A>
struct softmax_part {
  static constexpr std::string_view name = "softmax_part";
  template <class M>
  using on = softmax_part<M, A>;

  std::size_t n = 0, v = 0, parts = 3;
  token first = 0;
  read<A, Memory> logits_nv{};
  read<token, Memory> target_n{};
  written<A, Memory> parts_pn{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.parts, s.first, s.logits_nv, s.target_n, s.parts_pn);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n) * static_cast<double>(v); }
};

/// With M = max_r largest_r, lse = M + log Σ_r sum_r exp(largest_r − M) over ranks r, e = label_smoothing, u = e/vocab_size:
///   loss_i = token_weight_i · (lse_i − (1 − e) Σ_r target_r,i − u Σ_r total_r,i + z_loss · M² + log_z_loss · lse_i²),
///   dlogits_ij = gradient_scale · token_weight_i · (exp(l_ij − lse_i) (1 + 2 log_z_loss · lse_i) − (1 − e) onehot(target_i)_j − u
///                                                   + 2 z_loss · M · onehot(first argmax of all ranks)_j)
///            [Shoeybi et al. 2019, section 3, cross entropy; label smoothing: Szegedy et al. 2016, section 7; z_loss: Yang et al. 2023,
///            section 3.5; log_z_loss: Chowdhery et al. 2022, section 5]
///   parts_rpn   read      of all `ranks` ranks, in rank order; softmax_parts(label_smoothing) values per token
///   target_n    read      outside [0, vocabulary): ignored, no loss, no gradient
///   token_weight_n   read   any sign; empty: 1. Weight 0: the row is ignored for any logits
///   logits_nv   read      of tokens first … first + v − 1
///   loss_n      written   natural logarithm
///   dlogits_nv  written   rounded to T; empty: only the loss
template <class Memory, class A, class T>
struct softmax_of_parts {
  static constexpr std::string_view name = "softmax_of_parts";
  template <class M>
  using on = softmax_of_parts<M, A, T>;

  std::size_t n = 0, v = 0, rank = 0, ranks = 1, vocab_size = 0;
  token first = 0;
  double gradient_scale = 1.0, z_loss = 0.0, label_smoothing = 0.0, log_z_loss = 0.0;
  read<double, Memory> gradient_factor_1{};  // factor on gradient_scale; empty: 1
  read<A, Memory> parts_rpn{};
  read<token, Memory> target_n{};
  read<A, Memory> token_weight_n{};
  read<A, Memory> logits_nv{};
  written<A, Memory> loss_n{};
  written<T, Memory> dlogits_nv{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.rank, s.ranks, s.vocab_size, s.first, s.gradient_scale, s.gradient_factor_1, s.z_loss, s.label_smoothing,
             s.log_z_loss, s.parts_rpn, s.target_n, s.token_weight_n, s.logits_nv, s.loss_n, s.dlogits_nv);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n) * static_cast<double>(v); }
};

}  // namespace xtrain::kernel
