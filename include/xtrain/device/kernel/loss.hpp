// Output head fused with cross-entropy: the full logits are never stored.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// loss_i = token_weight_i · (logsumexp_v(l_iv) − (1 − e) l_i,target − e/v · Σ_v l_iv + z_loss · (max_v l_iv)²
///                          + log_z_loss · (logsumexp_v l_iv)²),
/// l_iv = x_i · weight_v + bias_v, or softcap · tanh((x_i · weight_v + bias_v) / softcap), e = label_smoothing, for rows with a target.
/// As PyTorch's cross_entropy: (1 − e) · (−log p_target) + e/v · Σ_v −log p_v.
///              [label smoothing: Szegedy et al. 2016, section 7; z_loss: Yang et al. 2023, section 3.5;
///              softcap: Gemma team 2024, "Gemma 2", section 2; log_z_loss: the z-loss of Chowdhery et al. 2022 (PaLM), section 5, and,
///              for routers, of Zoph et al. 2022 (ST-MoE)]
/// With with_gradient and p = softmax(logits), also:
///   dlogits = gradient_scale · token_weight · (p (1 + 2 log_z_loss · logsumexp) − (1 − e) onehot(target) − e/v
///                                              + 2 z_loss · max · onehot(first argmax)), times 1 − (l / softcap)² with a softcap,
///   dx = dlogits · weight,   dweight += dlogitsᵀ · x,   dbias += Σ_i dlogits_i
///   x_nc        read      final hidden states
///   weight_vc, bias_v   read; bias_v may be empty
///   target_n    read      outside [0, v): ignored, no loss, no gradient
///   token_weight_n   read   any sign; empty: 1. Weight 0: the row is ignored for any logits
///   loss_n      written   natural logarithm; 0 for ignored rows
///   dx_nc       written   with_gradient
///   dweight_vc, dbias_v   updated   with_gradient; empty when frozen
///   rounding    logits and softmax in accumulate; dlogits rounded to T before its two products
///   memory      scratch for a chunk of rows' logits, not for all
template <class Memory, class T, class G = T>
struct linear_cross_entropy {
  static constexpr std::string_view name = "linear_cross_entropy";
  template <class M>
  using on = linear_cross_entropy<M, T, G>;

  std::size_t n = 0, c = 0, v = 0;
  bool with_gradient = false;
  double gradient_scale = 1.0;
  read<double, Memory> gradient_factor_1{};  // factor on gradient_scale; empty: 1
  double z_loss = 0.0;
  double label_smoothing = 0.0;
  double log_z_loss = 0.0;
  double softcap = 0.0;  // 0: off
  read<T, Memory> x_nc{}, weight_vc{}, bias_v{};
  read<token, Memory> target_n{};
  read<accumulate_t<T>, Memory> token_weight_n{};
  written<accumulate_t<T>, Memory> loss_n{};
  written<T, Memory> dx_nc{};
  updated<G, Memory> dweight_vc{}, dbias_v{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.v, s.with_gradient, s.gradient_scale, s.gradient_factor_1, s.z_loss, s.label_smoothing, s.log_z_loss, s.softcap,
             s.x_nc, s.weight_vc, s.bias_v, s.target_n, s.token_weight_n, s.loss_n, s.dx_nc, s.dweight_vc, s.dbias_v);
  }
  [[nodiscard]] constexpr double operations() const {
    const double product = 2.0 * static_cast<double>(n) * static_cast<double>(c) * static_cast<double>(v);
    return product * (with_gradient ? (dweight_vc.empty() ? 2.0 : 3.0) : 1.0);
  }
};

}  // namespace xtrain::kernel
