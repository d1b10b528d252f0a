// Definitions of sampling.hpp.
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

XTRAIN_INLINE sampler::sampler(const sampling_config& settings, sampling_rules rules) : settings_(settings),
      choice_{.temperature = settings.temperature, .top_k = settings.top_k, .top_p = settings.top_p, .min_p = settings.min_p}, rules_(std::move(rules)) {
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
  range_ = range;
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
  process(selection_.scores(), seen, place);
  require_choice();
  const random_site site{
      .seed = settings_.seed, .step = static_cast<std::uint32_t>(place), .site = static_cast<std::uint32_t>(row), .first = 0};
  return selection_.draw(choice_, static_cast<double>(uniform_open(random_word(site, 0))));
}

XTRAIN_INLINE std::vector<double> sampler::distribution(std::span<const token> seen, std::size_t place) {
  std::vector<double>& scores = selection_.scores();
  process(scores, seen, place);
  require_choice();
  std::vector<double> probabilities(scores.size(), 0.0);
  if (settings_.temperature == 0.0) {
    probabilities[static_cast<std::size_t>(selection_.draw(choice_, 1.0))] = 1.0;
    return probabilities;
  }
  const std::size_t kept = selection_.sort(choice_);
  const double total = selection_.sum_of_weights(kept);
  for (std::size_t i = 0; i < kept; ++i) probabilities[selection_.token_at(i)] = selection_.weight_at(i) / total;
  return probabilities;
}

XTRAIN_INLINE void sampler::require_choice() {
  require<data_error>(range_.largest > -std::numeric_limits<double>::infinity(), "sampling: every token is banned");
  selection_.bound(range_);
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

}  // namespace xtrain
