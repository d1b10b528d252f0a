// A model as benchmarks see it: tokens in, scores or tokens out; and the same for text.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// A continuation to score, given a context.
struct token_request {
  std::vector<token> context{}, continuation{};
};

/// The log-likelihood of a continuation, natural logarithm, and whether greedy decoding would have produced it: no token of the vocabulary is more
/// probable at any of its positions. PyTorch's argmax takes one of several equally probable tokens, here any of them counts.
struct token_score {
  double log_likelihood = 0;
  bool is_greedy = false;
};

/// How to continue prompts, greedily.
struct continuation_settings {
  std::size_t max_new_tokens = 256;
  std::vector<token> stop{};                              ///< any of these ends a continuation, and is not part of it
  std::function<bool(std::size_t, token)> on_token = {};  ///< called with (index in the batch, token); false ends that continuation
};

/// Interface of a model under evaluation.
class language_model {
 public:
  virtual ~language_model() = default;
  /// log p(continuation | context), in the order of the requests, see log_likelihood_scorer.
  [[nodiscard]] virtual std::vector<token_score> score(std::span<const token_request> requests) = 0;
  /// New tokens for up to batch_size() prompts.
  [[nodiscard]] virtual std::vector<std::vector<token>> generate(std::span<const std::vector<token>> prompts,
                                                                 const continuation_settings& settings) = 0;
  /// The longest sequence, in tokens.
  [[nodiscard]] virtual std::size_t max_length() const = 0;
  [[nodiscard]] virtual std::size_t batch_size() const = 0;
};

/// A language_model of a scorer (log_likelihood_scorer) and a generator, which is made by make_generator() if a benchmark needs one.
template <class Scorer, class MakeGenerator>
class scored_language_model final : public language_model {
 public:
  scored_language_model(Scorer& scorer, std::size_t batch_size, MakeGenerator make_generator)
      : scorer_(&scorer), batch_size_(batch_size), make_generator_(std::move(make_generator)) {}

  std::vector<token_score> score(std::span<const token_request> requests) override { return scorer_->score(requests); }
  std::vector<std::vector<token>> generate(std::span<const std::vector<token>> prompts, const continuation_settings& settings) override {
    if (!generator_) generator_ = make_generator_();
    return generator_->generate(prompts, {.max_new_tokens = settings.max_new_tokens, .stop = settings.stop, .on_token = settings.on_token});
  }
  [[nodiscard]] std::size_t max_length() const override { return scorer_->max_length(); }
  [[nodiscard]] std::size_t batch_size() const override { return batch_size_; }

 private:
  Scorer* scorer_;
  std::size_t batch_size_;
  MakeGenerator make_generator_;
  decltype(std::declval<MakeGenerator&>()()) generator_{};  // a unique_ptr
};

/// Text to requests and back, as the language model class of lm-evaluation-harness does for transformers' models (HFLM).
class text_evaluator {
 public:
  /// throws config_error when the tokenizer has neither a begin- nor an end-of-text token, or expects tokens after a prompt (ChatGLM-6B)
  text_evaluator(language_model& model, const tokenizer& with, std::vector<token> end_of_text = {});

  /// The tokens of a text, with a begin-of-text token if the tokenizer adds one and the text does not begin with it.
  [[nodiscard]] std::vector<token> encode(std::string_view text) const;
  /// The tokens of a context and its continuation. Spaces at the end of the context belong to the continuation, whose tokens are those that the
  /// whole text has after as many as the context has. An empty context is the begin- or end-of-text token.
  ///   throws  data_error when either is empty
  [[nodiscard]] token_request encode_pair(std::string_view context, std::string_view continuation) const;
  /// The windows of a long text: every token is scored once, the first after a begin- or end-of-text token, the others after as many as fit.
  [[nodiscard]] std::vector<token_request> rolling_windows(std::string_view text) const;

  struct pair {
    std::string context{}, continuation{};
  };
  [[nodiscard]] std::vector<token_score> log_likelihood(std::span<const pair> requests) const;
  /// Sums over whole texts.
  [[nodiscard]] std::vector<double> log_likelihood_rolling(std::span<const std::string> texts) const;

  struct generation_request {
    std::string context{};
    std::vector<std::string> until{};  ///< the result ends before the first of these
    std::size_t max_gen_toks = 256;
  };
  /// Greedy continuations without special tokens, which however may end them: `until` is looked for in the text with and without them, as
  /// lm-evaluation-harness does in batches of one. A context that does not leave room for max_gen_toks loses its first tokens.
  ///   throws  config_error when max_gen_toks is not below the model's length
  [[nodiscard]] std::vector<std::string> generate_until(std::span<const generation_request> requests) const;

  [[nodiscard]] language_model& model() const { return *model_; }

 private:
  language_model* model_;
  tokenizer tokenizer_;
  token prefix_;  // in place of an empty context
  std::vector<token> end_of_text_;
};

namespace detail {

/// The bytes of Python's whitespace at the beginning and at the end of a text.
[[nodiscard]] std::size_t space_at_begin(std::string_view text);
[[nodiscard]] std::size_t space_at_end(std::string_view text);
/// Python's str.strip().
[[nodiscard]] std::string stripped(std::string_view text);
/// Characters of a UTF-8 text.
[[nodiscard]] std::size_t characters_of(std::string_view text);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/language_model_impl.hpp>
#endif
