// Sampling the next token from logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/token_selection.hpp>

namespace xtrain {

/// Added to the logit of the last token where the sequence, with prompt, ends with the others.
struct sequence_bias {
  std::vector<token> tokens{};
  double bias = 0;
};

/// Names and meanings of transformers' generate; frequency and presence penalties of OpenAI and vLLM.
struct sampling_config {
  double temperature = 0.0;         ///< 0: greedy
  std::size_t top_k = 0;            ///< only the k most likely tokens, with ties; 0: all
  double top_p = 1.0;               ///< only the most likely tokens up to this probability   [Holtzman et al. 2020]
  double repetition_penalty = 1.0;  ///< divides logits of tokens in the sequence (multiplies if negative)  [Keskar et al. 2019]
  std::uint64_t seed = 42;
  double min_p = 0.0;                         ///< minimum probability relative to the most likely token    [Nguyen et al. 2024]
  double frequency_penalty = 0.0;             ///< subtracted from a token's logit per occurrence in the new tokens
  double presence_penalty = 0.0;              ///< subtracted once from the logits of generated tokens
  std::size_t no_repeat_ngram_size = 0;       ///< n tokens in a row occur once per sequence, with prompt; 0: off
  std::vector<std::vector<token>> bad_words{};  ///< token sequences never generated
  std::vector<sequence_bias> biases{};
};

/// Changes logits in place, given prompt and new tokens; −infinity bans a token.
using logits_processor = std::function<void(std::span<const token> so_far, std::span<float> logits)>;

/// Rules besides the config.
struct sampling_rules {
  std::size_t min_new_tokens = 0;  ///< minimum tokens before `stop` is allowed
  std::vector<token> stop{};
  logits_processor processor{};
};

/// Samples tokens as a function of (seed, sequence, position). Logits change in the order of transformers' processors: biases, repetition penalty,
/// frequency and presence penalty, no_repeat_ngram_size, bad_words, min_new_tokens, the user's processor; then temperature, top-k, top-p, min-p. Draws are
/// defined on sorted tokens (README.md) and found by selection, in time linear in the vocabulary.
class sampler {
 public:
  /// throws config_error when a setting is out of range
  explicit sampler(const sampling_config& settings, sampling_rules rules = {});

  /// `seen`: prompt and new tokens; the last `place` were generated. Ties go to the lower token id.
  ///   throws  non_finite_error when a logit is NaN, data_error when every token is banned
  template <class Logit>
  [[nodiscard]] token choose(std::span<const Logit> logits, std::span<const token> seen, std::size_t row, std::size_t place) {
    selection_.scores().assign(logits.begin(), logits.end());
    return choose(seen, row, place);
  }
  /// Probability of each result of choose().
  template <class Logit>
  [[nodiscard]] std::vector<double> distribution(std::span<const Logit> logits, std::span<const token> seen, std::size_t place) {
    selection_.scores().assign(logits.begin(), logits.end());
    return distribution(seen, place);
  }
  /// throws config_error when bad_words or biases have a token outside the vocabulary; the other functions check it too
  void require_vocabulary(std::size_t vocab_size);
  /// All changes before the temperature, in place, for beam search.
  void process(std::vector<double>& scores, std::span<const token> seen, std::size_t place);

 private:
  token choose(std::span<const token> seen, std::size_t row, std::size_t place);
  std::vector<double> distribution(std::span<const token> seen, std::size_t place);

  [[nodiscard]] bool changes_scores() const;
  void change_scores(std::vector<double>& scores, std::span<const token> seen, std::size_t place);
  void add_biases(std::vector<double>& scores, std::span<const token> seen) const;
  void penalise(std::vector<double>& scores, std::span<const token> seen, std::span<const token> generated);
  void ban_repeated_ngrams(std::vector<double>& scores, std::span<const token> seen) const;
  void ask_processor(std::vector<double>& scores, std::span<const token> seen);

  /// throws data_error when every token is banned
  void require_choice();

  sampling_config settings_;
  detail::token_choice choice_;
  sampling_rules rules_;
  detail::token_selection selection_;
  detail::score_range range_{};  // of processed scores
  std::vector<token> seen_;
  std::vector<float> for_processor_;
  std::size_t vocab_size_ = 0;  // checked against the settings
};

/// log p(t) of a softmax over logits.
template <class Logit>
[[nodiscard]] double log_prob_of(std::span<const Logit> logits, token t) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Logit x : logits) largest = std::max(largest, static_cast<double>(x));
  for (const Logit x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(t)]) - largest - std::log(sum);
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/generate/sampling_impl.hpp>
#endif
