// Definitions of tokenizer.hpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

XTRAIN_INLINE std::vector<token> encoding::ids() const {
  std::vector<token> all;
  all.reserve(tokens.size());
  for (const placed_token& t : tokens) all.push_back(t.id);
  return all;
}

XTRAIN_INLINE encoding tokenizer_model::encode_whole(std::string_view text, const std::string_view* second) const {
  encoding whole;
  encode(text, whole.tokens);
  const std::size_t first = whole.tokens.size();
  if (second != nullptr) encode(*second, whole.tokens);
  whole.types.resize(whole.tokens.size(), 0);
  whole.parts.resize(whole.tokens.size(), 0);
  for (std::size_t i = first; i < whole.tokens.size(); ++i) whole.types[i] = whole.parts[i] = 1;
  return whole;
}

XTRAIN_INLINE std::vector<token> tokenizer::encode(std::string_view text) const {
  std::vector<token> ids;
  for (const placed_token& t : encode_placed(text)) ids.push_back(t.id);
  return ids;
}

XTRAIN_INLINE std::vector<token> tokenizer::encode_as_text(std::string_view text) const {
  std::vector<placed_token> tokens;
  model_->encode_as_text(text, tokens);
  std::vector<token> ids;
  for (const placed_token& t : tokens) ids.push_back(t.id);
  return ids;
}

XTRAIN_INLINE std::vector<placed_token> tokenizer::encode_placed(std::string_view text) const {
  std::vector<placed_token> tokens;
  model_->encode(text, tokens);
  return tokens;
}

XTRAIN_INLINE std::vector<token> tokenizer::beginning() const {
  return special_.adds_bos && special_.bos >= 0 ? std::vector<token>{special_.bos} : model_->prompt_beginning();
}

XTRAIN_INLINE std::vector<token> tokenizer::encode_prompt(std::string_view text) const {
  std::vector<token> ids = beginning();
  for (const placed_token& t : encode_placed(text)) ids.push_back(t.id);
  for (const token id : prompt_ending()) ids.push_back(id);
  if (ids.empty()) {
    const token first = special_.first();
    require<data_error>(first >= 0, "tokenizer: an empty prompt needs a begin-of-text token; this vocabulary has none");
    ids.push_back(first);
  }
  return ids;
}

XTRAIN_INLINE std::string tokenizer::decode(std::span<const token> tokens, special_text special) const {
  if (special == special_text::kept) return model_->decode(tokens);
  std::vector<token> text;
  for (const token t : tokens)
    if (!model_->is_special(t)) text.push_back(t);
  return model_->decode(text);
}

XTRAIN_INLINE streaming_decoder::streaming_decoder(tokenizer with, std::span<const token> before)
    : tokenizer_(std::move(with)), window_(before.begin(), before.end()) {
  given_ = tokenizer_.decode(window_).size();
}

XTRAIN_INLINE std::string streaming_decoder::push(token next) {
  window_.push_back(next);
  return take(false);
}

XTRAIN_INLINE std::string streaming_decoder::take(bool all) {
  const std::string text = tokenizer_.decode(window_);
  if (text.size() < given_) return {};
  if (!all && ends_inside_a_character(text)) return {};
  std::string fresh = text.substr(given_);
  given_ = text.size();
  if (window_.size() > longest_window) {  // distant tokens do not affect the next
    window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(longest_window / 2));
    given_ = tokenizer_.decode(window_).size();
  }
  return fresh;
}

XTRAIN_INLINE bool streaming_decoder::ends_inside_a_character(std::string_view text) {
  constexpr std::string_view replacement = "\xEF\xBF\xBD";  // part of a character in some vocabularies
  if (text.size() >= 3 && text.substr(text.size() - 3) == replacement) return true;
  for (std::size_t back = 1; back <= 4 && back <= text.size(); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0U) == 0x80U) continue;
    const std::size_t length = c >= 0xF0U ? 4 : c >= 0xE0U ? 3 : c >= 0xC0U ? 2 : 1;
    return length > back;
  }
  return false;
}

}  // namespace xtrain
