// Vocabulary-parallel cross-entropy: the partial results of each rank's logits, and the loss computed from those of all ranks.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// Over the logits of tokens first … first + v − 1:
///   largest_i = max_j l_ij,  sum_i = Σ_j exp(l_ij − largest_i),  target_i = l_i,target if the target is in this shard, else 0
///   logits_nv   read, in accumulate
///   target_n    read
///   parts_3n    written   largest, sum, target: n of each
template <class Memory, class A>
struct softmax_part {
  static constexpr std::string_view name = "softmax_part";
  template <class M>
  using on = softmax_part<M, A>;

  std::size_t n = 0, v = 0;
  token first = 0;
  read<A, Memory> logits_nv{};
  read<token, Memory> target_n{};
  written<A, Memory> parts_3n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.first, s.logits_nv, s.target_n, s.parts_3n);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n) * static_cast<double>(v); }
};

/// With M = max_r largest_r and lse = M + log Σ_r sum_r exp(largest_r − M) over all ranks r:
///   loss_i = lse_i − Σ_r target_r,i + z_loss · M²,
///   dlogits_ij = gradient_scale · (exp(l_ij − lse_i) − onehot(target_i)_j + 2 z_loss · M · onehot(first argmax of all ranks)_j)
///                                            [Shoeybi et al. 2019, section 3, cross entropy; z_loss: Yang et al. 2023, section 3.5]
///   parts_r3n   read      of all `ranks` ranks, in rank order
///   target_n    read      outside [0, vocabulary): ignored, no loss, no gradient
///   logits_nv   read      of tokens first … first + v − 1
///   loss_n      written   natural logarithm
///   dlogits_nv  written   rounded to T; empty: only the loss is computed
template <class Memory, class A, class T>
struct softmax_of_parts {
  static constexpr std::string_view name = "softmax_of_parts";
  template <class M>
  using on = softmax_of_parts<M, A, T>;

  std::size_t n = 0, v = 0, rank = 0, ranks = 1, vocab_size = 0;
  token first = 0;
  double gradient_scale = 1.0, z_loss = 0.0;
  read<A, Memory> parts_r3n{};
  read<token, Memory> target_n{};
  read<A, Memory> logits_nv{};
  written<A, Memory> loss_n{};
  written<T, Memory> dlogits_nv{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.rank, s.ranks, s.vocab_size, s.first, s.gradient_scale, s.z_loss, s.parts_r3n, s.target_n, s.logits_nv, s.loss_n, s.dlogits_nv);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n) * static_cast<double>(v); }
};

}  // namespace xtrain::kernel
