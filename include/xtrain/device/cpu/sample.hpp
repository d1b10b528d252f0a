// Sampling: a row per task.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/sample.hpp>
#include <xtrain/device/token_selection.hpp>

namespace xtrain {

namespace cpu_kernels {

inline token sampled_token(const kernel::sample<host_memory>& k, std::size_t i, detail::token_selection& selection) {
  const float* const logits = k.logits_nv.raw() + i * k.v;
  std::vector<double>& scores = selection.scores();
  scores.assign(logits, logits + k.v);
  detail::score_range range = detail::range_of(scores);
  if (range.has_nan) return kernel::undecided;
  if (k.repetition_penalty != 1.0) {
    const token* const text = k.text_nc.raw() + i * k.capacity;
    for (token j = 0; j <= k.last_n.raw()[i]; ++j) {  // from the logit: repetitions change nothing
      const token t = text[j];
      if (t < 0 || static_cast<std::size_t>(t) >= k.v) continue;
      const auto logit = static_cast<double>(logits[t]);
      scores[static_cast<std::size_t>(t)] = logit > 0 ? logit / k.repetition_penalty : logit * k.repetition_penalty;
    }
    range = detail::range_of(scores);
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (range.has_nan || range.largest == infinity || range.largest == -infinity) return kernel::undecided;
  selection.bound(range);
  double uniform = 1.0;
  if (k.temperature != 0.0) {
    const random_site site{.seed = k.seed,
                           .step = static_cast<std::uint32_t>(k.place_n.raw()[i]),
                           .site = static_cast<std::uint32_t>(k.sequence_n.raw()[i]),
                           .first = 0};
    uniform = static_cast<double>(uniform_open(random_word(site, 0)));
  }
  return selection.draw({.temperature = k.temperature, .top_k = k.top_k, .top_p = k.top_p, .min_p = k.min_p}, uniform);
}

}  // namespace cpu_kernels

inline void run_native(cpu_stream& stream, const kernel::sample<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  stream.parallel(k.n, [&](std::size_t i, std::size_t) {
    static thread_local detail::token_selection selection;  // its memory stays
    k.token_n.raw()[i] = cpu_kernels::sampled_token(k, i, selection);
  });
}

inline void run_native(cpu_stream&, const kernel::advance<host_memory>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  for (std::size_t i = 0; i < k.n; ++i) k.compute(i);
}

}  // namespace xtrain
