// The task WIKITEXT103 of Megatron-LM's tasks/main.py: the loss of a long text in windows that overlap. Component 'io'.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/eval/language_model.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Settings of evaluate_wikitext103.
struct wikitext103_settings {
  std::size_t overlapping_eval = 32;  ///< targets of every window but the first, which scores all of its own. From 1 to the model's length
  bool begins_text = true;            ///< with the tokens that the tokenizer puts before a text; Megatron's GPT2BPETokenizer puts none
};

/// What evaluate_wikitext103 found.
struct wikitext103_result {
  std::size_t original_tokens = 0;  ///< parts of the file between single spaces
  std::size_t tokens = 0;           ///< of the detokenized text
  double loss = 0;                  ///< mean over all tokens but the first, each scored once
  double perplexity = 0;            ///< e^loss, of a loss of at most 20
  double token_ratio = 0;           ///< (tokens - 1) / (original_tokens - 1)
  double adjusted_perplexity = 0;   ///< e^(loss x token_ratio), of a product of at most 20
};

/// The windows of a text, in order. Each is seq_length tokens that the model reads and one more, and begins `overlapping_eval` tokens after the last one;
/// its continuation is what no window before it has scored. A padded window of Megatron's, which scores nothing, is none.
[[nodiscard]] std::vector<token_request> overlapping_windows(std::span<const token> tokens, std::size_t seq_length, std::size_t overlapping_eval);

/// Evaluates a model of any length on a file in WikiText's form, `wiki.test.tokens`, whose tokenization is undone first.
///   throws  config_error when overlapping_eval is not from 1 to the model's length; data_error for a file whose path does not have 'wiki' in it (which
///           decides how it is detokenized there), that is not UTF-8, or that has fewer than two words or tokens; file_error
[[nodiscard]] wikitext103_result evaluate_wikitext103(language_model& model, const tokenizer& with, const std::string& path,
                                                      const wikitext103_settings& settings = {});

/// The result as Megatron prints it.
[[nodiscard]] std::string wikitext103_report(const wikitext103_result& result);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/wikitext103_impl.hpp>
#endif
