// Definitions of sampling.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <array>
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
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/generate/sampling.hpp>

namespace xtrain {

namespace detail {

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

}  // namespace detail

XTRAIN_INLINE sampler::sampler(const sampling_config& settings, sampling_rules rules) : settings_(settings), rules_(std::move(rules)) {
  require<config_error>(std::isfinite(settings.temperature) && settings.temperature >= 0.0, "temperature: must not be negative; given ",
                        settings.temperature);
  require<config_error>(settings.top_p > 0.0 && settings.top_p <= 1.0, "top_p: must be in (0, 1]; given ", settings.top_p);
  require<config_error>(settings.min_p >= 0.0 && settings.min_p <= 1.0, "min_p: must be in [0, 1]; given ", settings.min_p);
  require<config_error>(settings.repetition_penalty > 0.0, "repetition_penalty: must be positive; given ", settings.repetition_penalty);
  require<config_error>(std::isfinite(settings.frequency_penalty) && std::isfinite(settings.presence_penalty),
                        "frequency_penalty, presence_penalty: must be numbers; given ", settings.frequency_penalty, " and ", settings.presence_penalty);
  for (const std::vector<token>& word : settings.bad_words) require<config_error>(!word.empty(), "bad_words: a word must have a token; one has none");
  for (const sequence_bias& one : settings.biases)
    require<config_error>(!one.tokens.empty() && one.bias < std::numeric_limits<double>::infinity(),
                          "biases: must be of a token or more, and numbers below infinity; given ", one.tokens.size(),
                          " tokens and ", one.bias);
}

XTRAIN_INLINE void sampler::require_vocabulary(std::size_t vocab_size) {
  if (vocab_size == vocab_size_) return;
  const auto check = [&](const char* what, const std::vector<token>& tokens) {
    for (const token t : tokens)
      require<config_error>(t >= 0 && static_cast<std::size_t>(t) < vocab_size, what, ": tokens must be in the vocabulary of ", vocab_size, "; given ", t);
  };
  for (const std::vector<token>& word : settings_.bad_words) check("bad_words", word);
  for (const sequence_bias& one : settings_.biases) check("biases", one.tokens);
  vocab_size_ = vocab_size;
}

XTRAIN_INLINE void sampler::process(std::vector<double>& scores, std::span<const token> seen, std::size_t place) {
  require_vocabulary(scores.size());
  detail::score_range range = detail::range_of(scores);
  require<non_finite_error>(!range.has_nan, "sampling: logits must be numbers; one is NaN");
  if (changes_scores()) {
    change_scores(scores, seen, place);
    range = detail::range_of(scores);
  }
  require<non_finite_error>(!range.has_nan && range.largest < std::numeric_limits<double>::infinity(),
                            "sampling: logits must be finite, or -infinity for a banned token; one is ",
                            range.has_nan ? std::numeric_limits<double>::quiet_NaN() : range.largest);
  largest_ = range.largest;
  smallest_ = range.smallest;
}

XTRAIN_INLINE bool sampler::changes_scores() const {
  return !settings_.biases.empty() || settings_.repetition_penalty != 1.0 || settings_.frequency_penalty != 0.0 || settings_.presence_penalty != 0.0 ||
         settings_.no_repeat_ngram_size != 0 || !settings_.bad_words.empty() || rules_.min_new_tokens != 0 || rules_.processor;
}

XTRAIN_INLINE void sampler::change_scores(std::vector<double>& scores, std::span<const token> seen, std::size_t place) {
  constexpr double banned = -std::numeric_limits<double>::infinity();
  add_biases(scores, seen);
  penalise(scores, seen, seen.last(std::min(place, seen.size())));
  ban_repeated_ngrams(scores, seen);
  for (const std::vector<token>& word : settings_.bad_words) {
    const std::span<const token> before = std::span(word).first(word.size() - 1);
    if (before.size() <= seen.size() && std::equal(before.begin(), before.end(), seen.last(before.size()).begin()))
      scores[static_cast<std::size_t>(word.back())] = banned;
  }
  if (place < rules_.min_new_tokens)
    for (const token t : rules_.stop)
      if (static_cast<std::size_t>(t) < scores.size()) scores[static_cast<std::size_t>(t)] = banned;
  if (rules_.processor) ask_processor(scores, seen);
}

XTRAIN_INLINE token sampler::choose(std::span<const token> seen, std::size_t row, std::size_t place) {
  process(scores_, seen, place);
  if (settings_.temperature == 0.0) {
    require<data_error>(largest_ > -std::numeric_limits<double>::infinity(), "sampling: every token is banned");
    return static_cast<token>(std::find(scores_.begin(), scores_.end(), largest_) - scores_.begin());
  }
  const random_site site{
      .seed = settings_.seed, .step = static_cast<std::uint32_t>(place), .site = static_cast<std::uint32_t>(row), .first = 0};
  const double uniform = static_cast<double>(uniform_open(random_word(site, 0))), least = least_of_top_k();
  if (const std::optional<token> chosen = select(least, uniform)) return *chosen;
  const std::size_t kept = cut_tail(likeliest_first(least));
  double left = std::accumulate(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(kept), 0.0) * uniform;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weights_[i];
    if (left <= 0.0) return static_cast<token>(order_[i]);
  }
  return static_cast<token>(order_[kept - 1]);
}

XTRAIN_INLINE std::vector<double> sampler::distribution(std::span<const token> seen, std::size_t place) {
  process(scores_, seen, place);
  std::vector<double> probabilities(scores_.size(), 0.0);
  if (settings_.temperature == 0.0) {
    const auto best = std::max_element(scores_.begin(), scores_.end());
    require<data_error>(*best > -std::numeric_limits<double>::infinity(), "sampling: every token is banned");
    probabilities[static_cast<std::size_t>(best - scores_.begin())] = 1.0;
    return probabilities;
  }
  const std::size_t kept = cut_tail(likeliest_first(least_of_top_k()));
  const double total = std::accumulate(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  for (std::size_t i = 0; i < kept; ++i) probabilities[order_[i]] = weights_[i] / total;
  return probabilities;
}

XTRAIN_INLINE void sampler::add_biases(std::vector<double>& scores, std::span<const token> seen) const {
  for (const sequence_bias& one : settings_.biases) {
    const std::span<const token> before = std::span(one.tokens).first(one.tokens.size() - 1);
    if (before.size() <= seen.size() && std::equal(before.begin(), before.end(), seen.last(before.size()).begin()))
      scores[static_cast<std::size_t>(one.tokens.back())] += one.bias;
  }
}

XTRAIN_INLINE void sampler::penalise(std::vector<double>& scores, std::span<const token> seen, std::span<const token> generated) {
  const auto each_once = [&](std::span<const token> tokens, auto&& change) {
    seen_.assign(tokens.begin(), tokens.end());
    std::sort(seen_.begin(), seen_.end());
    for (std::size_t i = 0, next = 0; i < seen_.size(); i = next) {
      while (next < seen_.size() && seen_[next] == seen_[i]) ++next;
      if (seen_[i] >= 0 && static_cast<std::size_t>(seen_[i]) < scores.size()) change(scores[static_cast<std::size_t>(seen_[i])], next - i);
    }
  };
  if (settings_.repetition_penalty != 1.0)
    each_once(seen, [&](double& score, std::size_t) {
      score = score > 0 ? score / settings_.repetition_penalty : score * settings_.repetition_penalty;
    });
  if (settings_.frequency_penalty != 0.0 || settings_.presence_penalty != 0.0)
    each_once(generated, [&](double& score, std::size_t count) {
      score -= settings_.frequency_penalty * static_cast<double>(count) + settings_.presence_penalty;
    });
}

XTRAIN_INLINE void sampler::ban_repeated_ngrams(std::vector<double>& scores, std::span<const token> seen) const {
  const std::size_t n = settings_.no_repeat_ngram_size;
  if (n == 0 || seen.size() + 1 < n) return;
  const std::span<const token> now = seen.last(n - 1);
  for (std::size_t i = 0; i + n <= seen.size(); ++i) {
    const auto after = static_cast<std::size_t>(seen[i + n - 1]);
    if (after < scores.size() && std::equal(now.begin(), now.end(), seen.begin() + static_cast<std::ptrdiff_t>(i)))
      scores[after] = -std::numeric_limits<double>::infinity();
  }
}

XTRAIN_INLINE void sampler::ask_processor(std::vector<double>& scores, std::span<const token> seen) {
  for_processor_.resize(scores.size());
  std::transform(scores.begin(), scores.end(), for_processor_.begin(), [](double score) { return static_cast<float>(score); });
  rules_.processor(seen, for_processor_);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    require<non_finite_error>(!std::isnan(for_processor_[i]), "sampling: a logits processor must not write NaN; it has for token ", i);
    scores[i] = static_cast<double>(for_processor_[i]);
  }
}

XTRAIN_INLINE double sampler::least_of_top_k() {
  if (settings_.top_k == 0 || settings_.top_k >= scores_.size()) return -std::numeric_limits<double>::infinity();
  fill_buckets(largest_ - smallest_);
  std::vector<std::size_t> counts(detail::score_buckets, 0);
  for (const std::uint16_t bucket : buckets_) ++counts[bucket];
  std::size_t bucket = 0, before = 0;
  while (before + counts[bucket] < settings_.top_k) before += counts[bucket++];
  std::vector<double> within;
  within.reserve(counts[bucket]);
  for (std::size_t t = 0; t < scores_.size(); ++t)
    if (buckets_[t] == bucket) within.push_back(scores_[t]);
  const auto last = within.begin() + static_cast<std::ptrdiff_t>(settings_.top_k - 1 - before);
  std::nth_element(within.begin(), last, within.end(), std::greater<>());
  return *last;
}

XTRAIN_INLINE void sampler::fill_buckets(double range) {
  constexpr double last = static_cast<double>(detail::score_buckets - 1);
  // a range of 0, or one that is not finite: one bucket
  const double scale = range > 0 && range < std::numeric_limits<double>::infinity() ? std::min(detail::score_buckets / range, 1e300) : 0.0;
  buckets_.resize(scores_.size());
  for (std::size_t t = 0; t < scores_.size(); ++t) {
    const double place = (largest_ - scores_[t]) * scale;
    buckets_[t] = static_cast<std::uint16_t>(static_cast<std::int32_t>(place < last ? place : last));  // a NaN (infinity * 0) is last, too
  }
}

XTRAIN_INLINE std::optional<sampler::crossing> sampler::crossing_of(double target) {
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
XTRAIN_INLINE std::optional<token> sampler::select(double least, double uniform) {
  constexpr double infinity = std::numeric_limits<double>::infinity(), near = 0x1p-42;
  const std::size_t n = scores_.size();
  if (n <= detail::few_to_sort || largest_ == -infinity || (settings_.min_p > 0.0 && settings_.min_p < 1e-16)) return {};
  if (least > -infinity) {
    const auto kept = static_cast<std::size_t>(std::count_if(scores_.begin(), scores_.end(), [&](double score) { return score >= least; }));
    if (kept <= 4 * detail::few_to_sort) return {};
  }
  // a bucket's width is a step of the exponent, so that a weight is e to the middle of its bucket, from a table, times e to the distance from there, a short
  // series: |r| <= 0.005, and r^5 / 120 < 2^-45
  const double temperature = settings_.temperature, largest = largest_, range = std::min(largest - smallest_, 40 * temperature);
  constexpr double buckets = static_cast<double>(detail::score_buckets), last_bucket = buckets - 1;
  const double scale = range > 0 ? std::min(buckets / range, 1e300) : 0.0, step = range > 0 ? 1 / scale / temperature : 0.0;
  if (!(range < infinity) || !(step <= 0.01)) return {};
  std::vector<double> middles(detail::score_buckets);
  for (std::size_t i = 0; i < middles.size(); ++i) middles[i] = std::exp(-(static_cast<double>(i) + 0.5) * step);
  weights_.resize(n);
  buckets_.resize(n);
  bucket_sums_.assign(detail::score_buckets, 0.0);
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
  if (settings_.top_p < 1.0) {
    const double target = settings_.top_p * total;
    last = crossing_of(target);
    if (!last || last->sum <= target + doubt || (last->before > 0 && last->before >= target - doubt)) return {};
    kept = last->sum;
  }
  if (settings_.min_p > 0.0) {
    // the definition's weights decide where these are near: that of the least likely token that is not below min_p
    double least_kept = largest, sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (weights_[i] < settings_.min_p * (1 - near)) continue;
      if (weights_[i] <= settings_.min_p * (1 + near) && std::exp((scores_[i] - largest) / temperature) < settings_.min_p) continue;
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

XTRAIN_INLINE std::size_t sampler::likeliest_first(double least) {
  order_.clear();
  for (std::size_t t = 0; t < scores_.size(); ++t)
    if (scores_[t] >= least && scores_[t] > -std::numeric_limits<double>::infinity()) order_.push_back(t);
  require<data_error>(!order_.empty(), "sampling: every token is banned");
  std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b; });
  weights_.resize(order_.size());
  return order_.size();
}

XTRAIN_INLINE std::size_t sampler::cut_tail(std::size_t kept) {
  const double largest = scores_[order_[0]];
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weights_[i] = std::exp((scores_[order_[i]] - largest) / settings_.temperature);
  if (settings_.top_p < 1.0) {
    double share = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      share += weights_[i] / total;
      if (share < settings_.top_p) continue;
      kept = i + 1;
      break;
    }
  }
  while (kept > 1 && weights_[kept - 1] < settings_.min_p) --kept;  // the first weight is 1
  return kept;
}

}  // namespace xtrain
