// Definitions of wikitext103.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/utf8.hpp>
#include <xtrain/eval/benchmark_task_impl.hpp>
#include <xtrain/eval/wikitext103.hpp>

namespace xtrain {

namespace detail {

/// Windows from `first` on, at most `count`.
[[nodiscard]] inline std::vector<token_request> some_overlapping_windows(std::span<const token> tokens, std::size_t seq_length, std::size_t overlapping_eval,
                                                                         std::size_t first, std::size_t count) {
  std::vector<token_request> windows;
  const auto part = [&](std::size_t begin, std::size_t end) {
    return std::vector<token>(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end));
  };
  for (std::size_t w = first; w < first + count; ++w) {
    const std::size_t begin = w * overlapping_eval, end = std::min(tokens.size(), begin + seq_length + 1);
    const std::size_t scored = w == 0 ? 1 : begin + seq_length + 1 - overlapping_eval;  // tokens scored by earlier windows, and the first
    if (scored >= tokens.size()) break;
    windows.push_back({.context = part(begin, scored), .continuation = part(scored, end)});
  }
  return windows;
}

/// str() of Python for a number like 1.25.
[[nodiscard]] inline std::string shortest_fixed(double value) {
  std::array<char, 400> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed).ptr;
  const std::string text(digits.data(), end);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

[[nodiscard]] inline std::string four_digits(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.4E", value);
  return text.data();
}

}  // namespace detail

XTRAIN_INLINE std::vector<token_request> overlapping_windows(std::span<const token> tokens, std::size_t seq_length, std::size_t overlapping_eval) {
  require<config_error>(overlapping_eval >= 1 && overlapping_eval <= seq_length, "evaluation: overlapping_eval must be from 1 to ", seq_length,
                        ", the length of a window, so that no token is left out; given ", overlapping_eval);
  return detail::some_overlapping_windows(tokens, seq_length, overlapping_eval, 0, tokens.size());
}

XTRAIN_INLINE wikitext103_result evaluate_wikitext103(language_model& model, const tokenizer& with, const std::string& path,
                                                      const wikitext103_settings& settings) {
  require<data_error>(path.find("wiki") != std::string::npos && path.find("ptb") == std::string::npos, path,
                      ": must have 'wiki' in its path, and not 'ptb': its path says how Megatron-LM detokenizes a file");
  const std::size_t length = model.max_length();
  require<config_error>(settings.overlapping_eval >= 1 && settings.overlapping_eval <= length, "--overlapping-eval: must be from 1 to ", length,
                        ", the length of a window, so that no token is left out; given ", settings.overlapping_eval);
  const mapped_file file(path);
  const std::string_view text = file.text();
  const std::size_t valid = detail::whole_characters_end(text, 0);
  require<data_error>(valid == text.size(), path, ": line ", detail::line_of(text, valid), ": must be UTF-8");
  wikitext103_result result;
  const std::string words = detail::stripped(text);
  result.original_tokens = 1 + static_cast<std::size_t>(std::count(words.begin(), words.end(), ' '));
  require<data_error>(result.original_tokens > 1, path, ": must have at least two words with a space between them; it has one");
  std::vector<token> tokens = settings.begins_text ? with.beginning() : std::vector<token>{};
  const std::vector<token> own = with.encode(detail::wikitext_detokenized(std::string(text)));
  tokens.insert(tokens.end(), own.begin(), own.end());
  result.tokens = tokens.size();
  require<data_error>(result.tokens > 1, path, ": must have at least two tokens; it has ", result.tokens);
  double sum = 0;
  constexpr std::size_t at_once = 1024;  // windows in memory
  for (std::size_t first = 0;; first += at_once) {
    const auto windows = detail::some_overlapping_windows(tokens, length, settings.overlapping_eval, first, at_once);
    if (windows.empty()) break;
    for (const token_score& one : model.score(windows)) sum -= one.log_likelihood;
  }
  const auto targets = static_cast<double>(result.tokens - 1);
  result.loss = sum / targets;
  result.token_ratio = targets / static_cast<double>(result.original_tokens - 1);
  result.perplexity = std::exp(std::min(20.0, result.loss));
  result.adjusted_perplexity = std::exp(std::min(20.0, result.loss * result.token_ratio));
  return result;
}

XTRAIN_INLINE std::string wikitext103_report(const wikitext103_result& result) {
  const std::string line = concat(" validation results on WIKITEXT103 | avg loss: ", detail::four_digits(result.loss), " | ppl: ",
                                  detail::four_digits(result.perplexity), " | adjusted ppl: ", detail::four_digits(result.adjusted_perplexity),
                                  " | token ratio: ", detail::shortest_fixed(result.token_ratio), " |");
  const std::string rule(line.size() + 1, '-');
  return concat(" > number of original tokens: ", result.original_tokens, ", number of detokenized tokens: ", result.tokens, "\n", rule, "\n", line, "\n",
                rule, "\n");
}

}  // namespace xtrain
