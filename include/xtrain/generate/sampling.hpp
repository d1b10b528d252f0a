// Sampling the next token from logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>

namespace xtrain {

struct sampling_config {
  double temperature = 0.0;         ///< 0: greedy decoding
  std::size_t top_k = 0;            ///< only the k most likely tokens; 0: all
  double top_p = 1.0;               ///< only the most likely tokens whose probabilities sum to this   [Holtzman et al. 2020]
  double repetition_penalty = 1.0;  ///< logits of tokens in the sequence are divided by this (multiplied if negative)  [Keskar et al. 2019]
  std::uint64_t seed = 42;
};

/// Samples tokens; the result is a function of (seed, sequence, position).
class sampler {
 public:
  /// throws config_error when a setting is out of range
  explicit sampler(const sampling_config& settings);

  /// `seen` holds the tokens of the sequence so far, including the prompt. Ties go to the lower token id.
  ///   throws  non_finite_error when a logit is NaN
  template <class Logit>
  [[nodiscard]] token choose(std::span<const Logit> logits, std::span<const token> seen, std::size_t row, std::size_t place) {
    scores_.assign(logits.begin(), logits.end());
    for (const double score : scores_) require<non_finite_error>(!std::isnan(score), "sampling: logits must be numbers; one is NaN");
    if (settings_.repetition_penalty != 1.0) penalise(seen);
    if (settings_.temperature == 0.0) return static_cast<token>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
    const std::size_t kept = likeliest_first();
    // softmax over the kept tokens, with temperature
    const double largest = scores_[order_[0]];
    double total = 0;
    for (std::size_t i = 0; i < kept; ++i) total += weights_[i] = std::exp((scores_[order_[i]] - largest) / settings_.temperature);
    std::size_t in_nucleus = kept;
    if (settings_.top_p < 1.0) {
      double share = 0;
      for (std::size_t i = 0; i < kept; ++i) {
        share += weights_[i] / total;
        if (share < settings_.top_p) continue;
        in_nucleus = i + 1;
        break;
      }
      total = std::accumulate(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(in_nucleus), 0.0);
    }
    const random_site site{
        .seed = settings_.seed, .step = static_cast<std::uint32_t>(place), .site = static_cast<std::uint32_t>(row), .first = 0};
    double left = total * static_cast<double>(uniform_open(random_word(site, 0)));
    for (std::size_t i = 0; i + 1 < in_nucleus; ++i) {
      left -= weights_[i];
      if (left <= 0.0) return static_cast<token>(order_[i]);
    }
    return static_cast<token>(order_[in_nucleus - 1]);
  }

 private:
  void penalise(std::span<const token> seen);

  /// Sorts the candidate tokens by likelihood; returns their number.
  std::size_t likeliest_first();

  sampling_config settings_;
  std::vector<double> scores_;
  std::vector<double> weights_;
  std::vector<std::size_t> order_;
  std::vector<token> seen_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/generate/sampling_impl.hpp>
#endif
