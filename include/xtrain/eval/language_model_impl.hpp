// Definitions of language_model.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/utf8.hpp>
#include <xtrain/eval/language_model.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE std::size_t space_at_begin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const character c = character_at(text, at);
    if (!is_python_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

XTRAIN_INLINE std::size_t space_at_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const character c = character_before(text, end);
    if (!is_python_space(c.code)) break;
    end -= c.bytes;
  }
  return text.size() - end;
}

XTRAIN_INLINE std::string stripped(std::string_view text) {
  text.remove_suffix(space_at_end(text));
  text.remove_prefix(space_at_begin(text));
  return std::string(text);
}

XTRAIN_INLINE std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace detail

XTRAIN_INLINE text_evaluator::text_evaluator(language_model& model, const tokenizer& with, std::vector<token> end_of_text)
    : model_(&model), tokenizer_(with), prefix_(with.special().bos >= 0 ? with.special().bos : with.special().eos),
      end_of_text_(std::move(end_of_text)) {
  require<config_error>(prefix_ >= 0, "evaluation: the tokenizer must have a begin- or an end-of-text token, which is the context of a text's first "
                                      "token; it has neither");
  require<config_error>(with.prompt_ending().empty(), "evaluation: a prompt must be continued by its answer; this tokenizer puts ",
                        with.prompt_ending().size(), " tokens between them");
  if (with.special().eos >= 0) end_of_text_.push_back(with.special().eos);
}

XTRAIN_INLINE std::vector<token> text_evaluator::encode(std::string_view text) const {
  const std::string begin = tokenizer_.token_text(prefix_);
  std::vector<token> ids = !begin.empty() && text.starts_with(begin) ? std::vector<token>{} : tokenizer_.beginning();
  for (const token t : tokenizer_.encode(text)) ids.push_back(t);
  return ids;
}

XTRAIN_INLINE token_request text_evaluator::encode_pair(std::string_view context, std::string_view continuation) const {
  if (context.empty()) {
    token_request request{.context = {prefix_}, .continuation = tokenizer_.encode(continuation)};
    require<data_error>(!request.continuation.empty(), "evaluation: a continuation must have at least one token; it has none");
    if (request.continuation.front() == prefix_) request.continuation.erase(request.continuation.begin());
    require<data_error>(!request.continuation.empty(), "evaluation: a continuation of an empty context must not be the begin-of-text token alone");
    return request;
  }
  const std::string whole = concat(context, continuation);
  context.remove_suffix(detail::space_at_end(context));
  token_request request{.context = encode(context), .continuation = encode(whole)};
  require<data_error>(!request.context.empty(), "evaluation: a context must have at least one token besides spaces at its end; it has none");
  require<data_error>(request.continuation.size() > request.context.size(),
                      "evaluation: a context with its continuation must have more tokens than the context alone; they have ",
                      request.continuation.size(), " and ", request.context.size(), "; the continuation is '", continuation, "'");
  request.continuation.erase(request.continuation.begin(), request.continuation.begin() + static_cast<std::ptrdiff_t>(request.context.size()));
  return request;
}

XTRAIN_INLINE std::vector<token_request> text_evaluator::rolling_windows(std::string_view text) const {
  const std::vector<token> tokens = encode(text);
  const std::size_t longest = model_->max_length();
  const auto part = [&](std::size_t begin, std::size_t end) {
    return std::vector<token>(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end));
  };
  std::vector<token_request> windows;
  for (std::size_t scored = 0; scored < tokens.size();) {
    const std::size_t end = std::min(tokens.size(), scored + longest);
    // inputs: the `longest` tokens before the last; tokens before the scored ones are context
    windows.push_back({.context = scored == 0 ? std::vector<token>{prefix_} : part(end - longest - 1, scored), .continuation = part(scored, end)});
    scored = end;
  }
  return windows;
}

XTRAIN_INLINE std::vector<token_score> text_evaluator::log_likelihood(std::span<const pair> requests) const {
  std::vector<token_request> tokens;
  tokens.reserve(requests.size());
  for (const pair& one : requests) tokens.push_back(encode_pair(one.context, one.continuation));
  return model_->score(tokens);
}

XTRAIN_INLINE std::vector<double> text_evaluator::log_likelihood_rolling(std::span<const std::string> texts) const {
  std::vector<token_request> windows;
  std::vector<std::size_t> of_text;
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (token_request& window : rolling_windows(texts[i])) {
      windows.push_back(std::move(window));
      of_text.push_back(i);
    }
  const std::vector<token_score> scores = model_->score(windows);
  std::vector<double> sums(texts.size());
  for (std::size_t w = 0; w < scores.size(); ++w) sums[of_text[w]] += scores[w].log_likelihood;
  return sums;
}

XTRAIN_INLINE std::vector<std::string> text_evaluator::generate_until(std::span<const generation_request> requests) const {
  std::vector<std::vector<token>> prompts;
  for (const generation_request& one : requests) {
    require<config_error>(one.max_gen_toks > 0 && one.max_gen_toks < model_->max_length(),
                          "evaluation: max_gen_toks must leave room for a prompt in ", model_->max_length(), " tokens; given ", one.max_gen_toks);
    std::vector<token> prompt = encode(one.context);
    const std::size_t room = model_->max_length() - one.max_gen_toks;
    if (prompt.size() > room) prompt.erase(prompt.begin(), prompt.end() - static_cast<std::ptrdiff_t>(room));
    require<data_error>(!prompt.empty(), "evaluation: a prompt must have at least one token; it has none");
    prompts.push_back(std::move(prompt));
  }
  // longest first, one max_gen_toks per batch
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (requests[a].max_gen_toks != requests[b].max_gen_toks) return requests[a].max_gen_toks > requests[b].max_gen_toks;
    return prompts[a].size() > prompts[b].size();
  });
  std::vector<std::string> results(requests.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first;
    std::vector<std::vector<token>> batch;
    while (end < order.size() && batch.size() < model_->batch_size() && requests[order[end]].max_gen_toks == requests[order[first]].max_gen_toks)
      batch.push_back(prompts[order[end++]]);
    std::vector<std::vector<token>> so_far(batch.size());
    std::vector<bool> has_special(batch.size(), false);
    const auto ends_at = [&](const std::string& text, const generation_request& request) {
      std::size_t at = std::string::npos;
      for (const std::string& stop : request.until)
        if (!stop.empty()) at = std::min(at, text.find(stop));
      return at;
    };
    const auto fresh = model_->generate(batch, {.max_new_tokens = requests[order[first]].max_gen_toks,
                                                .stop = end_of_text_,
                                                .on_token = [&](std::size_t r, token next) {
                                                  so_far[r].push_back(next);
                                                  const std::vector<token> one{next};
                                                  has_special[r] = has_special[r] || tokenizer_.decode(one, special_text::kept) !=
                                                                                         tokenizer_.decode(one, special_text::left_out);
                                                  const auto goes_on = [&](special_text special) {
                                                    return ends_at(tokenizer_.decode(so_far[r], special), requests[order[first + r]]) == std::string::npos;
                                                  };
                                                  return goes_on(special_text::left_out) && (!has_special[r] || goes_on(special_text::kept));
                                                }});
    for (std::size_t r = 0; r < fresh.size(); ++r) {
      std::string text = tokenizer_.decode(fresh[r], special_text::left_out);
      text.resize(std::min(text.size(), ends_at(text, requests[order[first + r]])));
      results[order[first + r]] = std::move(text);
    }
    first = end;
  }
  return results;
}

}  // namespace xtrain
