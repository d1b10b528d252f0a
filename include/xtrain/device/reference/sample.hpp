// Reference: sampling. Every token is sorted.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/sample.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

inline void run_kernel(reference_stream&, const kernel::sample<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < k.n; ++i) {
    const float* const logits = k.logits_nv.raw() + i * k.v;
    token& chosen = k.token_n.raw()[i];
    chosen = kernel::undecided;
    std::vector<double> x(logits, logits + k.v);
    if (std::any_of(x.begin(), x.end(), [](double one) { return std::isnan(one); })) continue;
    if (k.repetition_penalty != 1.0)
      for (token j = 0; j <= k.last_n.raw()[i]; ++j) {
        const token t = k.text_nc.raw()[i * k.capacity + static_cast<std::size_t>(j)];
        if (t < 0 || static_cast<std::size_t>(t) >= k.v) continue;
        const auto logit = static_cast<double>(logits[t]);
        x[static_cast<std::size_t>(t)] = logit > 0 ? logit / k.repetition_penalty : logit * k.repetition_penalty;
      }
    if (std::any_of(x.begin(), x.end(), [](double one) { return std::isnan(one) || one == infinity; })) continue;
    std::vector<std::size_t> order(k.v);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
    if (k.v == 0 || x[order[0]] == -infinity) continue;
    chosen = static_cast<token>(order[0]);
    if (k.temperature == 0.0) continue;
    std::size_t kept = k.v;
    if (k.top_k != 0 && k.top_k < k.v)
      for (kept = k.top_k; kept < k.v && x[order[kept]] == x[order[k.top_k - 1]];) ++kept;
    while (x[order[kept - 1]] == -infinity) --kept;
    std::vector<double> weight(kept);
    for (std::size_t j = 0; j < kept; ++j) weight[j] = std::exp((x[order[j]] - x[order[0]]) / k.temperature);
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    double share = 0;
    for (std::size_t j = 0; k.top_p < 1.0 && j < kept; ++j)
      if ((share += weight[j] / total) >= k.top_p) kept = j + 1;
    while (kept > 1 && weight[kept - 1] < k.min_p) --kept;
    const random_site site{.seed = k.seed,
                           .step = static_cast<std::uint32_t>(k.place_n.raw()[i]),
                           .site = static_cast<std::uint32_t>(k.sequence_n.raw()[i]),
                           .first = 0};
    double left = std::accumulate(weight.begin(), weight.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
    left *= static_cast<double>(uniform_open(random_word(site, 0)));
    std::size_t j = 0;
    for (; j + 1 < kept; ++j)
      if ((left -= weight[j]) <= 0.0) break;
    chosen = static_cast<token>(order[j]);
  }
}

inline void run_kernel(reference_stream&, const kernel::advance<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  for (std::size_t i = 0; i < k.n; ++i) k.compute(i);
}

}  // namespace xtrain
