#pragma once

#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/reference/embedding.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T, class G>
void run_kernel(reference_stream&, const kernel::linear_cross_entropy<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<19>(k);
  using acc = accumulate_t<T>;
  const auto x_nc = detail::values<acc>(k.x_nc, k.n, k.c);
  const auto weight_vc = detail::values<acc>(k.weight_vc, k.v, k.c);
  array<acc, 2> logits_nv = detail::product_transposed(x_nc, weight_vc);
  if (!k.bias_v.empty()) logits_nv += xt::view(detail::values<acc>(k.bias_v, k.v), xt::newaxis(), xt::all());
  array<acc, 2> slope_nv{};  // derivative of the softcap
  if (k.softcap != 0.0) {
    const acc cap = static_cast<acc>(k.softcap);
    const array<acc, 2> capped_nv = xt::tanh(logits_nv / cap);
    logits_nv = cap * capped_nv;
    slope_nv = acc{1} - capped_nv * capped_nv;
  }
  const array<acc, 1> largest_n = xt::amax(logits_nv, {1});
  const array<acc, 2> shifted_nv = logits_nv - xt::view(largest_n, xt::all(), xt::newaxis());
  const array<acc, 1> log_sum_n = xt::log(xt::sum(xt::exp(shifted_nv), {1}));
  array<acc, 2> dlogits_nv(std::array<std::size_t, 2>{k.n, k.v});
  dlogits_nv.fill(acc{0});
  for (std::size_t i = 0; i < k.n; ++i) {
    const token target = k.target_n.data()[i];
    const acc token_weight = k.token_weight_n.empty() ? acc{1} : k.token_weight_n.data()[i];
    const bool counted = detail::inside(target, k.v) && token_weight != acc{0};
    const acc z = static_cast<acc>(k.z_loss), log_z = static_cast<acc>(k.log_z_loss), largest = largest_n(i), lse = largest + log_sum_n(i);
    const acc kept = static_cast<acc>(1.0 - k.label_smoothing), spread = static_cast<acc>(k.label_smoothing / static_cast<double>(k.v));
    k.loss_n.data()[i] = acc{0};
    if (!counted) continue;
    acc total{0};
    for (std::size_t j = 0; k.label_smoothing != 0.0 && j < k.v; ++j) total += shifted_nv(i, j);
    k.loss_n.data()[i] =
        token_weight * (log_sum_n(i) - kept * shifted_nv(i, static_cast<std::size_t>(target)) - spread * total + z * largest * largest);
    if (k.log_z_loss != 0.0) k.loss_n.data()[i] += token_weight * log_z * lse * lse;
    // forward: loss = token_weight · (lse − kept · logits[target] − spread · Σ logits + z · largest² + log_z · lse²), lse = logsumexp(logits)
    std::size_t peak = 0;
    while (peak + 1 < k.v && shifted_nv(i, peak) != acc{0}) ++peak;
    for (std::size_t j = 0; j < k.v; ++j) {
      const acc p = std::exp(shifted_nv(i, j) - log_sum_n(i)) * (acc{1} + acc{2} * log_z * lse);
      const acc hit = j == static_cast<std::size_t>(target) ? kept : acc{0};
      const acc pull = j == peak ? acc{2} * z * largest : acc{0};
      const acc slope = k.softcap != 0.0 ? slope_nv(i, j) : acc{1};
      dlogits_nv(i, j) =
          static_cast<acc>(static_cast<T>(static_cast<acc>(kernel::gradient_scale_of(k)) * token_weight * (p - hit - spread + pull) * slope));
    }
  }
  if (!k.with_gradient) return;
  // forward: logits = x · weightᵀ + bias, before the softcap
  detail::store<2>(k.dx_nc, detail::product_transposed<acc>(dlogits_nv, xt::transpose(weight_vc)));
  if (!k.dweight_vc.empty())
    detail::store_added<2>(k.dweight_vc, detail::product_transposed<acc>(xt::transpose(dlogits_nv), xt::transpose(x_nc)));
  if (!k.dbias_v.empty()) detail::store_added<1>(k.dbias_v, array<acc, 1>(xt::sum(dlogits_nv, {0})));
}

}  // namespace xtrain
