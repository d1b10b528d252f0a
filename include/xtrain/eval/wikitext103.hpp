// WIKITEXT103 of Megatron-LM's tasks/main.py: the loss of a long text in overlapping windows. Component 'io'.
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
  std::size_t overlapping_eval = 32;  ///< targets per window (the first scores all); 1 to the model's length
  bool begins_text = true;            ///< with the tokenizer's begin tokens; Megatron's GPT2BPETokenizer has none
};

/// Result of evaluate_wikitext103.
struct wikitext103_result {
  std::size_t original_tokens = 0;  ///< parts of the file between single spaces
  std::size_t tokens = 0;           ///< of the detokenized text
  double loss = 0;                  ///< mean over all tokens but the first
  double perplexity = 0;            ///< e^min(loss, 20)
  double token_ratio = 0;           ///< (tokens - 1) / (original_tokens - 1)
  double adjusted_perplexity = 0;   ///< e^min(loss x token_ratio, 20)
};

/// Windows of seq_length inputs and one token, `overlapping_eval` tokens apart; a continuation holds what earlier windows have not scored. Megatron's
/// padded windows without targets are omitted.
[[nodiscard]] std::vector<token_request> overlapping_windows(std::span<const token> tokens, std::size_t seq_length, std::size_t overlapping_eval);

/// Evaluates on a WikiText file (`wiki.test.tokens`), detokenized first.
///   throws  config_error when overlapping_eval is out of range; data_error when the path lacks 'wiki' (which selects detokenization in Megatron), or
///           the file is not UTF-8 or has fewer than two words or tokens; file_error
[[nodiscard]] wikitext103_result evaluate_wikitext103(language_model& model, const tokenizer& with, const std::string& path,
                                                      const wikitext103_settings& settings = {});

/// In Megatron's format.
[[nodiscard]] std::string wikitext103_report(const wikitext103_result& result);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/wikitext103_impl.hpp>
#endif
