// Tokens chosen from scores on the host: the definition (generate/README.md, 'Which token a draw gives'), and a selection without sorting that gives the
// same tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>

namespace xtrain::detail {

// Loops over a vocabulary are in groups of this many, which compilers turn into vectors.
inline constexpr std::size_t scores_at_once = 8;
inline constexpr std::size_t score_buckets = 4096;
inline constexpr std::size_t few_to_sort = 1024;

struct score_range {
  double largest, smallest;  // of scores above -infinity; -infinity and infinity without any
  bool has_nan;
};

[[nodiscard]] inline score_range range_of(std::span<const double> scores) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double largest[scores_at_once];  // not std::array: cudafe++ of CUDA 13.0 prints its length as a cast that is no C++
  double smallest[scores_at_once];
  std::uint64_t nan[scores_at_once] = {};
  std::ranges::fill(largest, -infinity);
  std::ranges::fill(smallest, infinity);
  const auto add = [&](std::size_t lane, double x) {
    const double banned_last = x == -infinity ? infinity : x;
    largest[lane] = x > largest[lane] ? x : largest[lane];
    smallest[lane] = banned_last < smallest[lane] ? banned_last : smallest[lane];
    nan[lane] |= x == x ? std::uint64_t{0} : std::uint64_t{1};
  };
  std::size_t i = 0;
  for (; i + scores_at_once <= scores.size(); i += scores_at_once)
    for (std::size_t lane = 0; lane < scores_at_once; ++lane) add(lane, scores[i + lane]);
  for (; i < scores.size(); ++i) add(0, scores[i]);
  return {std::ranges::max(largest), std::ranges::min(smallest), std::ranges::any_of(nan, [](std::uint64_t one) { return one != 0; })};
}

/// How a token is chosen from scores.
struct token_choice {
  double temperature = 0.0;
  std::size_t top_k = 0;
  double top_p = 1.0, min_p = 0.0;
};

/// Scores of a vocabulary, and memory to choose from them.
class token_selection {
 public:
  /// To be filled by the caller; then bound() their largest and smallest, which must be finite.
  [[nodiscard]] std::vector<double>& scores() { return scores_; }
  void bound(const score_range& range) {
    largest_ = range.largest;
    smallest_ = range.smallest;
  }
  /// The token that a random number in (0, 1] gives.
  [[nodiscard]] token draw(const token_choice& choice, double uniform);
  /// Sorts the tokens that may be drawn, the most likely first, and computes their weights; returns how many there are.
  std::size_t sort(const token_choice& choice) { return cut_tail(choice, likeliest_first(least_of_top_k(choice.top_k))); }
  [[nodiscard]] std::size_t token_at(std::size_t i) const { return order_[i]; }
  [[nodiscard]] double weight_at(std::size_t i) const { return weights_[i]; }
  [[nodiscard]] double sum_of_weights(std::size_t kept) const {
    return std::accumulate(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  }

 private:
  /// The score of the k-th most likely token; -infinity without top-k.
  double least_of_top_k(std::size_t top_k);
  /// Draws among tokens of at least this score without sorting them, where rounding cannot change the choice; nothing: sort them.
  std::optional<token> select(const token_choice& choice, double least, double uniform);
  /// Sorts the tokens of at least this score by likelihood; returns their number.
  std::size_t likeliest_first(double least);
  /// Their weights, with temperature; returns how many remain after top-p and min-p.
  std::size_t cut_tail(const token_choice& choice, std::size_t kept);

  /// Distributes scores down to `range` below the largest over buckets of equal width, the most likely first; those further below are in the last one.
  void fill_buckets(double range);
  /// The first token, by likelihood, at which the sum of weights reaches `target`.
  struct crossing {
    std::size_t token = 0;
    double before = 0, sum = 0;  // of weights before the token, and with it
  };
  std::optional<crossing> crossing_of(double target);

  std::vector<double> scores_;
  std::vector<double> weights_;  // in the order of order_, or of the vocabulary
  std::vector<std::size_t> order_;
  std::vector<std::uint16_t> buckets_;  // of tokens
  std::vector<double> bucket_sums_;     // of their weights
  double largest_ = 0, smallest_ = 0;   // of the scores above -infinity
};

inline token token_selection::draw(const token_choice& choice, double uniform) {
  if (choice.temperature == 0.0) return static_cast<token>(std::find(scores_.begin(), scores_.end(), largest_) - scores_.begin());
  const double least = least_of_top_k(choice.top_k);
  if (const std::optional<token> chosen = select(choice, least, uniform)) return *chosen;
  const std::size_t kept = cut_tail(choice, likeliest_first(least));
  double left = sum_of_weights(kept) * uniform;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weights_[i];
    if (left <= 0.0) return static_cast<token>(order_[i]);
  }
  return static_cast<token>(order_[kept - 1]);
}

inline double token_selection::least_of_top_k(std::size_t top_k) {
  if (top_k == 0 || top_k >= scores_.size()) return -std::numeric_limits<double>::infinity();
  fill_buckets(largest_ - smallest_);
  std::vector<std::size_t> counts(score_buckets, 0);
  for (const std::uint16_t bucket : buckets_) ++counts[bucket];
  std::size_t bucket = 0, before = 0;
  while (before + counts[bucket] < top_k) before += counts[bucket++];
  std::vector<double> within;
  within.reserve(counts[bucket]);
  for (std::size_t t = 0; t < scores_.size(); ++t)
    if (buckets_[t] == bucket) within.push_back(scores_[t]);
  const auto last = within.begin() + static_cast<std::ptrdiff_t>(top_k - 1 - before);
  std::nth_element(within.begin(), last, within.end(), std::greater<>());
  return *last;
}

inline void token_selection::fill_buckets(double range) {
  constexpr double last = static_cast<double>(score_buckets - 1);
  // a range of 0, or one that is not finite: one bucket
  const double scale = range > 0 && range < std::numeric_limits<double>::infinity() ? std::min(score_buckets / range, 1e300) : 0.0;
  buckets_.resize(scores_.size());
  for (std::size_t t = 0; t < scores_.size(); ++t) {
    const double place = (largest_ - scores_[t]) * scale;
    buckets_[t] = static_cast<std::uint16_t>(static_cast<std::int32_t>(place < last ? place : last));  // a NaN (infinity * 0) is last, too
  }
}

inline std::optional<token_selection::crossing> token_selection::crossing_of(double target) {
  double before = 0;
  std::size_t bucket = 0;
  while (bucket < bucket_sums_.size() && before + bucket_sums_[bucket] < target) before += bucket_sums_[bucket++];
  if (bucket == bucket_sums_.size()) return {};
  order_.clear();
  for (std::size_t t = 0; t < scores_.size(); ++t)
    if (buckets_[t] == bucket && weights_[t] > 0) order_.push_back(t);
  // many in one bucket: the half in which the sum is reached, until they are few or equal; tokens stay in ascending order
  constexpr std::size_t few = 512;
  double largest = 0, smallest = 0;
  std::vector<std::size_t> likelier;
  while (true) {
    if (order_.empty()) return {};
    largest = smallest = scores_[order_.front()];
    for (const std::size_t t : order_) {
      largest = std::max(largest, scores_[t]);
      smallest = std::min(smallest, scores_[t]);
    }
    if (order_.size() <= few || largest == smallest) break;
    const double middle = smallest + (largest - smallest) / 2;
    double sum = 0;
    likelier.clear();
    std::size_t others = 0;
    for (const std::size_t t : order_)
      if (scores_[t] > middle || scores_[t] == largest) {
        likelier.push_back(t);
        sum += weights_[t];
      } else {
        order_[others++] = t;
      }
    if (before + sum >= target) {
      std::swap(order_, likelier);
    } else {
      before += sum;
      order_.resize(others);
    }
  }
  if (largest != smallest)
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b; });
  for (const std::size_t t : order_) {
    const double sum = before + weights_[t];
    if (sum >= target) return crossing{.token = t, .before = before, .sum = sum};
    before = sum;
  }
  return {};
}

/// The definition sums weights in the order of likelihood; here they are summed in another order. Both sums of n weights are within n units of roundoff
/// (2^-53) of the exact sum, and so are n subtractions from it; a weight is within 2^-43 of the definition's, or is below e^-40 and left out. Where a sum is
/// further than `doubt` from what it is compared with, the definition's comparison has the same outcome.
inline std::optional<token> token_selection::select(const token_choice& choice, double least, double uniform) {
  constexpr double infinity = std::numeric_limits<double>::infinity(), near = 0x1p-42;
  const std::size_t n = scores_.size();
  if (n <= few_to_sort || largest_ == -infinity || (choice.min_p > 0.0 && choice.min_p < 1e-16)) return {};
  if (least > -infinity) {
    const auto kept = static_cast<std::size_t>(std::count_if(scores_.begin(), scores_.end(), [&](double score) { return score >= least; }));
    if (kept <= 4 * few_to_sort) return {};
  }
  // a bucket's width is a step of the exponent, so that a weight is e to the middle of its bucket, from a table, times e to the distance from there, a short
  // series: |r| <= 0.005, and r^5 / 120 < 2^-45
  const double temperature = choice.temperature, largest = largest_, range = std::min(largest - smallest_, 40 * temperature);
  constexpr double buckets = static_cast<double>(score_buckets), last_bucket = buckets - 1;
  const double scale = range > 0 ? std::min(buckets / range, 1e300) : 0.0, step = range > 0 ? 1 / scale / temperature : 0.0;
  if (!(range < infinity) || !(step <= 0.01)) return {};
  std::vector<double> middles(score_buckets);
  for (std::size_t i = 0; i < middles.size(); ++i) middles[i] = std::exp(-(static_cast<double>(i) + 0.5) * step);
  weights_.resize(n);
  buckets_.resize(n);
  bucket_sums_.assign(score_buckets, 0.0);
  for (std::size_t t = 0; t < n; ++t) {
    const double score = scores_[t], place = (largest - score) * scale;
    if (!(place <= buckets + 0.5) || score < least) {  // the smallest score's place may be rounded up; a NaN (infinity * 0) is a banned token's
      buckets_[t] = static_cast<std::uint16_t>(last_bucket);
      weights_[t] = 0;
      continue;
    }
    const auto bucket = static_cast<std::int32_t>(place < last_bucket ? place : last_bucket);
    const double r = (static_cast<double>(bucket) + 0.5 - place) * step;
    const double weight = middles[static_cast<std::size_t>(bucket)] * (1 + r * (1 + r * (0.5 + r * (1.0 / 6 + r * (1.0 / 24)))));
    buckets_[t] = static_cast<std::uint16_t>(bucket);
    weights_[t] = weight;
    bucket_sums_[static_cast<std::size_t>(bucket)] += weight;
  }
  const double total = std::accumulate(bucket_sums_.begin(), bucket_sums_.end(), 0.0);
  const double doubt = ((8.0 * static_cast<double>(n) + 128) * 0x1p-53 + near) * total;

  double kept = total;
  std::optional<crossing> last;  // top-p ends with it
  if (choice.top_p < 1.0) {
    const double target = choice.top_p * total;
    last = crossing_of(target);
    if (!last || last->sum <= target + doubt || (last->before > 0 && last->before >= target - doubt)) return {};
    kept = last->sum;
  }
  if (choice.min_p > 0.0) {
    // the definition's weights decide where these are near: that of the least likely token that is not below min_p
    double least_kept = largest, sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (weights_[i] < choice.min_p * (1 - near)) continue;
      if (weights_[i] <= choice.min_p * (1 + near) && std::exp((scores_[i] - largest) / temperature) < choice.min_p) continue;
      least_kept = std::min(least_kept, scores_[i]);
    }
    if (!last || scores_[last->token] < least_kept) {
      for (std::size_t i = 0; i < n; ++i) sum += scores_[i] >= least_kept ? weights_[i] : 0.0;
      kept = sum;
      last.reset();
    }
  }
  const double target = uniform * kept;
  const std::optional<crossing> chosen = crossing_of(target);
  if (!chosen || (chosen->before > 0 && chosen->before >= target - doubt)) return {};
  if (chosen->sum <= target + doubt && !(last && last->token == chosen->token)) return {};
  return static_cast<token>(chosen->token);
}

inline std::size_t token_selection::likeliest_first(double least) {
  order_.clear();
  for (std::size_t t = 0; t < scores_.size(); ++t)
    if (scores_[t] >= least && scores_[t] > -std::numeric_limits<double>::infinity()) order_.push_back(t);
  std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b; });
  weights_.resize(order_.size());
  return order_.size();
}

inline std::size_t token_selection::cut_tail(const token_choice& choice, std::size_t kept) {
  const double largest = scores_[order_[0]];
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weights_[i] = std::exp((scores_[order_[i]] - largest) / choice.temperature);
  if (choice.top_p < 1.0) {
    double share = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      share += weights_[i] / total;
      if (share < choice.top_p) continue;
      kept = i + 1;
      break;
    }
  }
  while (kept > 1 && weights_[kept - 1] < choice.min_p) --kept;  // the first weight is 1
  return kept;
}

}  // namespace xtrain::detail
