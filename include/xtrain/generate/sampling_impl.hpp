// Definitions of sampling.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/generate/sampling.hpp>

namespace xtrain {

XTRAIN_INLINE sampler::sampler(const sampling_config& settings) : settings_(settings) {
  require<config_error>(std::isfinite(settings.temperature) && settings.temperature >= 0.0, "temperature: must not be negative; given ",
                        settings.temperature);
  require<config_error>(settings.top_p > 0.0 && settings.top_p <= 1.0, "top_p: must be in (0, 1]; given ", settings.top_p);
  require<config_error>(settings.repetition_penalty > 0.0, "repetition_penalty: must be positive; given ", settings.repetition_penalty);
}

XTRAIN_INLINE void sampler::penalise(std::span<const token> seen) {
  seen_.assign(seen.begin(), seen.end());
  std::sort(seen_.begin(), seen_.end());
  seen_.erase(std::unique(seen_.begin(), seen_.end()), seen_.end());
  for (const token t : seen_) {
    if (t < 0 || static_cast<std::size_t>(t) >= scores_.size()) continue;
    double& score = scores_[static_cast<std::size_t>(t)];
    score = score > 0 ? score / settings_.repetition_penalty : score * settings_.repetition_penalty;
  }
}

XTRAIN_INLINE std::size_t sampler::likeliest_first() {
  order_.resize(scores_.size());
  weights_.resize(scores_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  const auto likelier = [&](std::size_t a, std::size_t b) { return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b; };
  const std::size_t kept = settings_.top_k == 0 ? order_.size() : std::min(settings_.top_k, order_.size());
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(kept), order_.end(), likelier);
  return kept;
}

}  // namespace xtrain
