// The output head's matmul fused with the cross-entropy, so that the full logits are never stored.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// loss_i = logsumexp_v(l_iv) − l_i,target + z_loss · (max_v l_iv)², l_iv = x_i · weight_v + bias_v, for rows with a target.
///                                                                         [z_loss: Yang et al. 2023, section 3.5]
/// If with_gradient, also, with p = softmax(logits):
///   dlogits = gradient_scale · (p − onehot(target) + 2 z_loss · max · onehot(first argmax)),  dx = dlogits · weight,
///   dweight += dlogitsᵀ · x,
///   dbias += Σ_i dlogits_i
///   x_nc        read      final hidden states
///   weight_vc, bias_v   read; bias_v is empty if there is no bias
///   target_n    read      label: the token to predict; outside [0, v): ignored, no loss, no gradient
///   loss_n      written   natural logarithm; 0 for ignored labels
///   dx_nc       written   if with_gradient
///   dweight_vc, dbias_v   updated   added to, if with_gradient; empty when frozen
///   rounding    logits and softmax in accumulate; dlogits rounded to T before its two products
///   memory      a device computes in chunks of rows: scratch memory for one chunk of logits, not for all
template <class Memory, class T, class G = T>
struct linear_cross_entropy {
  static constexpr std::string_view name = "linear_cross_entropy";
  template <class M>
  using on = linear_cross_entropy<M, T, G>;

  std::size_t n = 0, c = 0, v = 0;
  bool with_gradient = false;
  double gradient_scale = 1.0;
  double z_loss = 0.0;
  read<T, Memory> x_nc{}, weight_vc{}, bias_v{};
  read<token, Memory> target_n{};
  written<accumulate_t<T>, Memory> loss_n{};
  written<T, Memory> dx_nc{};
  updated<G, Memory> dweight_vc{}, dbias_v{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.v, s.with_gradient, s.gradient_scale, s.z_loss, s.x_nc, s.weight_vc, s.bias_v, s.target_n, s.loss_n, s.dx_nc,
             s.dweight_vc, s.dbias_v);
  }
  [[nodiscard]] constexpr double operations() const {
    const double product = 2.0 * static_cast<double>(n) * static_cast<double>(c) * static_cast<double>(v);
    return product * (with_gradient ? (dweight_vc.empty() ? 2.0 : 3.0) : 1.0);
  }
};

}  // namespace xtrain::kernel
