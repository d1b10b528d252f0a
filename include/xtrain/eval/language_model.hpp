// A model as benchmarks see it: by tokens and by text.
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

/// A continuation to score after a context.
struct token_request {
  std::vector<token> context{}, continuation{};
};

/// Log-likelihood of a continuation, and whether every token has maximal probability (all ties count; PyTorch's argmax takes one token).
struct token_score {
  double log_likelihood = 0;
  bool is_greedy = false;
};

/// Greedy continuation.
struct continuation_settings {
  std::size_t max_new_tokens = 256;
  std::vector<token> stop{};                              ///< each ends a continuation; not part of it
  std::function<bool(std::size_t, token)> on_token = {};  ///< called with (index in the batch, token); false ends the continuation
};

/// Interface of a model under evaluation.
class language_model {
 public:
  virtual ~language_model() = default;
  /// log p(continuation | context), in order of requests; see log_likelihood_scorer.
  [[nodiscard]] virtual std::vector<token_score> score(std::span<const token_request> requests) = 0;
  /// New tokens for up to batch_size() prompts.
  [[nodiscard]] virtual std::vector<std::vector<token>> generate(std::span<const std::vector<token>> prompts,
                                                                 const continuation_settings& settings) = 0;
  /// In tokens.
  [[nodiscard]] virtual std::size_t max_length() const = 0;
  [[nodiscard]] virtual std::size_t batch_size() const = 0;
};

/// A language_model of a scorer (log_likelihood_scorer) and a generator, made on demand by make_generator().
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

/// Text to requests and back, as lm-evaluation-harness's HFLM does.
class text_evaluator {
 public:
  /// throws config_error when the tokenizer has no begin- or end-of-text token, or adds tokens after a prompt (ChatGLM-6B)
  text_evaluator(language_model& model, const tokenizer& with, std::vector<token> end_of_text = {});

  /// With a begin-of-text token if the tokenizer adds one and the text does not begin with it.
  [[nodiscard]] std::vector<token> encode(std::string_view text) const;
  /// Spaces at the end of the context belong to the continuation: the tokens of both texts joined, without as many as the context has. An empty context is
  /// the begin- or end-of-text token.
  ///   throws  data_error when either has no token
  [[nodiscard]] token_request encode_pair(std::string_view context, std::string_view continuation) const;
  /// Windows of a long text: every token is scored once, the first after a begin- or end-of-text token, others after as much context as fits.
  [[nodiscard]] std::vector<token_request> rolling_windows(std::string_view text) const;

  struct pair {
    std::string context{}, continuation{};
  };
  [[nodiscard]] std::vector<token_score> log_likelihood(std::span<const pair> requests) const;
  /// Sums per text.
  [[nodiscard]] std::vector<double> log_likelihood_rolling(std::span<const std::string> texts) const;

  struct generation_request {
    std::string context{};
    std::vector<std::string> until{};  ///< the result ends before the first
    std::size_t max_gen_toks = 256;
  };
  /// Greedy continuations without special tokens. `until` is searched in the text with and without them, as lm-evaluation-harness does in batches of one.
  /// A context without room for max_gen_toks loses its first tokens.
  ///   throws  config_error when max_gen_toks is not below the model's length
  [[nodiscard]] std::vector<std::string> generate_until(std::span<const generation_request> requests) const;

  [[nodiscard]] language_model& model() const { return *model_; }

 private:
  language_model* model_;
  tokenizer tokenizer_;
  token prefix_;  // replaces an empty context
  std::vector<token> end_of_text_;
};

namespace detail {

/// Bytes of Python's whitespace at the begin and end of a text.
[[nodiscard]] std::size_t space_at_begin(std::string_view text);
[[nodiscard]] std::size_t space_at_end(std::string_view text);
/// str.strip() of Python.
[[nodiscard]] std::string stripped(std::string_view text);
/// UTF-8 characters.
[[nodiscard]] std::size_t characters_of(std::string_view text);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/language_model_impl.hpp>
#endif
