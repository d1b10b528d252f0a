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

/// A number that is added to the logit of the last of these tokens where the sequence, prompt included, ends with the others.
struct sequence_bias {
  std::vector<token> tokens{};
  double bias = 0;
};

/// Names and meanings are those of transformers' generate; the frequency and presence penalties are OpenAI's and vLLM's.
struct sampling_config {
  double temperature = 0.0;         ///< 0: greedy decoding
  std::size_t top_k = 0;            ///< only the k most likely tokens, and those as likely as the last of them; 0: all
  double top_p = 1.0;               ///< only the most likely tokens whose probabilities sum to this   [Holtzman et al. 2020]
  double repetition_penalty = 1.0;  ///< logits of tokens in the sequence are divided by this (multiplied if negative)  [Keskar et al. 2019]
  std::uint64_t seed = 42;
  double min_p = 0.0;                         ///< only tokens at least this times as likely as the most likely one    [Nguyen et al. 2024]
  double frequency_penalty = 0.0;             ///< subtracted from a token's logit for every time that it was generated
  double presence_penalty = 0.0;              ///< subtracted once from the logits of tokens that were generated
  std::size_t no_repeat_ngram_size = 0;       ///< n tokens in a row occur only once in a sequence, prompt included; 0: any number of times
  std::vector<std::vector<token>> bad_words{};  ///< sequences of tokens that are not generated
  std::vector<sequence_bias> biases{};
};

/// Changes logits in place, given the tokens of the sequence so far, prompt included; −infinity bans a token.
using logits_processor = std::function<void(std::span<const token> so_far, std::span<float> logits)>;

/// What a sampler does besides its config's settings.
struct sampling_rules {
  std::size_t min_new_tokens = 0;  ///< before as many new tokens, none of `stop` is chosen
  std::vector<token> stop{};
  logits_processor processor{};
};

/// Samples tokens; the result is a function of (seed, sequence, position). Logits are changed in the order of transformers' processors: biases, repetition
/// penalty, frequency and presence penalty, no_repeat_ngram_size, bad_words, min_new_tokens, the user's processor; then temperature, top-k, top-p, min-p.
/// Which token a draw gives is defined with sorted tokens (README.md); it is found by selection, in time that is linear in the vocabulary.
class sampler {
 public:
  /// throws config_error when a setting is out of range
  explicit sampler(const sampling_config& settings, sampling_rules rules = {});

  /// `seen` holds the tokens of the sequence so far, including the prompt; the last `place` of them were generated. Ties go to the lower token id.
  ///   throws  non_finite_error when a logit is NaN, data_error when every token is banned
  template <class Logit>
  [[nodiscard]] token choose(std::span<const Logit> logits, std::span<const token> seen, std::size_t row, std::size_t place) {
    selection_.scores().assign(logits.begin(), logits.end());
    return choose(seen, row, place);
  }
  /// The probability with which choose() returns each token.
  template <class Logit>
  [[nodiscard]] std::vector<double> distribution(std::span<const Logit> logits, std::span<const token> seen, std::size_t place) {
    selection_.scores().assign(logits.begin(), logits.end());
    return distribution(seen, place);
  }
  /// throws config_error when bad_words or biases have a token outside a vocabulary of this size; all functions below and above do
  void require_vocabulary(std::size_t vocab_size);
  /// Everything before the temperature, in place: for a search over log-probabilities.
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
  detail::score_range range_{};  // of the processed scores
  std::vector<token> seen_;
  std::vector<float> for_processor_;
  std::size_t vocab_size_ = 0;  // for which the settings have been checked
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
