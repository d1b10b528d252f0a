#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/device/reference/embedding.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class A>
void run_kernel(reference_stream&, const kernel::softmax_part<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  for (std::size_t i = 0; i < k.n; ++i) {
    const A* logits = k.logits_nv.raw() + i * k.v;
    const A largest = *std::max_element(logits, logits + k.v);
    A sum{0};
    for (std::size_t j = 0; j < k.v; ++j) sum += std::exp(logits[j] - largest);
    const token target = k.target_n.raw()[i] - k.first;
    k.parts_pn.raw()[i] = largest;
    k.parts_pn.raw()[k.n + i] = sum;
    k.parts_pn.raw()[2 * k.n + i] = detail::inside(target, k.v) ? logits[target] : A{0};
    if (k.parts == 4) k.parts_pn.raw()[3 * k.n + i] = std::accumulate(logits, logits + k.v, A{0});
  }
}

template <class A, class T>
void run_kernel(reference_stream&, const kernel::softmax_of_parts<host_memory, A, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  const std::size_t parts = kernel::softmax_parts(k.label_smoothing);
  const A kept = static_cast<A>(1.0 - k.label_smoothing), spread = static_cast<A>(k.label_smoothing / static_cast<double>(k.vocab_size));
  for (std::size_t i = 0; i < k.n; ++i) {
    const auto part = [&](std::size_t rank, std::size_t what) { return k.parts_rpn.raw()[(rank * parts + what) * k.n + i]; };
    A largest = part(0, 0), sum{0}, at_target{0}, total{0};
    std::size_t peak_rank = 0;
    for (std::size_t r = 1; r < k.ranks; ++r) {
      if (part(r, 0) > largest) peak_rank = r;
      largest = std::max(largest, part(r, 0));
    }
    for (std::size_t r = 0; r < k.ranks; ++r) {
      sum += part(r, 1) * std::exp(part(r, 0) - largest);
      at_target += part(r, 2);
      if (parts == 4) total += part(r, 3);
    }
    const A lse = largest + std::log(sum);
    const A token_weight = k.token_weight_n.empty() ? A{1} : k.token_weight_n.raw()[i];
    const bool counted = detail::inside(k.target_n.raw()[i], k.vocab_size) && token_weight != A{0};
    const A z = static_cast<A>(k.z_loss), log_z = static_cast<A>(k.log_z_loss);
    k.loss_n.raw()[i] = counted ? token_weight * (lse - kept * at_target - spread * total + z * largest * largest) : A{0};
    if (counted && k.log_z_loss != 0.0) k.loss_n.raw()[i] += token_weight * log_z * lse * lse;
    if (k.dlogits_nv.empty()) continue;
    const token target = k.target_n.raw()[i] - k.first;
    const A* const logits = k.logits_nv.raw() + i * k.v;
    const auto peak = static_cast<std::size_t>(std::find(logits, logits + k.v, largest) - logits);
    for (std::size_t j = 0; j < k.v; ++j) {
      const A hit = target >= 0 && j == static_cast<std::size_t>(target) ? kept : A{0};
      const A pull = peak_rank == k.rank && j == peak ? A{2} * z * largest : A{0};
      const A p = std::exp(k.logits_nv.raw()[i * k.v + j] - lse) * (A{1} + A{2} * log_z * lse);
      const A gradient = static_cast<A>(kernel::gradient_scale_of(k)) * token_weight;
      k.dlogits_nv.raw()[i * k.v + j] = static_cast<T>(counted ? gradient * (p - hit - spread + pull) : A{0});
    }
  }
}

}  // namespace xtrain
