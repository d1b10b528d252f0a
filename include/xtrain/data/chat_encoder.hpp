// Tokens of a conversation that a chat template has rendered. Component 'io'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_record.hpp>
#include <xtrain/chat/chat_template.hpp>
#include <xtrain/chat/jinja/characters.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/text/text_span.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// Tokenizes a conversation's text. A bos or eos that the template writes but the tokenizer would split is inserted as the single token that it is,
/// as transformers does: a tokenizer.json may look for its special tokens in normalized text only ("normalized": true), where LLaMA 2's "</s>" is
/// found behind a space alone.
class chat_encoder {
 public:
  chat_encoder(const tokenizer& with, const chat_template& form) : with_(with) {
    const special_tokens& special = with.special();
    for (const auto& [text, id] : {std::pair{form.token("bos_token"), special.bos}, std::pair{form.token("eos_token"), special.eos}})
      if (id >= 0 && !text.empty()) {
        const bool alone = with.encode(text) == std::vector<token>{id};
        if (!alone || !is_found_inside(text, id)) marks_.push_back({text, id, alone});
      }
  }

  void encode(const chat_text& chat, text_with_loss_mask& sample) const {
    const std::string_view text = chat.text;
    sample.clear();
    const mark* before = nullptr;
    for (std::size_t at = 0; at < text.size();) {
      const auto [begin, found] = next_mark(text, at);
      if (begin > at) add_between(before, text, at, begin, chat, sample);
      if (found == nullptr) break;
      const std::size_t end = begin + found->text.size();
      sample.add(found->id, is_answer(chat, begin, end));
      at = end;
      before = found;
    }
    const std::vector<token> beginning = with_.beginning();
    const bool has_it = sample.tokens.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), sample.tokens.begin());
    if (!has_it) {
      sample.tokens.insert(sample.tokens.begin(), beginning.begin(), beginning.end());
      sample.learned.insert(sample.learned.begin(), beginning.size(), false);
    }
  }

 private:
  struct mark {
    std::string text;
    token id;
    bool alone;  // is encoded as this token at the beginning of a text
  };
  [[nodiscard]] bool is_found_inside(const std::string& text, token id) const {
    try {
      const std::vector<token> ids = with_.encode("." + text + ".");
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    } catch (const data_error&) {  // a small vocabulary may have no token for a full stop
      return false;
    }
  }
  /// What lies between two marks. It is encoded behind its mark where that is one token there: a tokenizer puts a space before the words of a whole text only.
  void add_between(const mark* before, std::string_view text, std::size_t begin, std::size_t end, const chat_text& chat, text_with_loss_mask& sample) const {
    if (before != nullptr && before->alone) {
      const std::size_t from = begin - before->text.size();
      const std::vector<placed_token> tokens = with_.encode_placed(text.substr(from, end - from));
      if (!tokens.empty() && tokens.front().id == before->id) return sample.add(std::span(tokens).subspan(1), from, chat.answers);
    }
    sample.add(text.substr(begin, end - begin), begin, chat.answers, with_);
  }
  [[nodiscard]] static bool is_answer(const chat_text& chat, std::size_t begin, std::size_t end) {
    return std::any_of(chat.answers.begin(), chat.answers.end(), [&](const text_span& a) { return a.begin < end && begin < a.end; });
  }
  [[nodiscard]] std::pair<std::size_t, const mark*> next_mark(std::string_view text, std::size_t at) const {
    std::pair<std::size_t, const mark*> first{text.size(), nullptr};
    for (const mark& m : marks_)
      if (const std::size_t found = text.find(m.text, at); found < first.first) first = {found, &m};
    return first;
  }

  const tokenizer& with_;
  std::vector<mark> marks_;
};

/// Whether the text ends with the content of the last answer: then the template left the turn open.
[[nodiscard]] inline bool ends_open(const chat_text& chat, const chat_record& record) {
  if (record.messages.empty() || chat.answers.empty() || chat.answers.back().end != chat.text.size()) return false;
  const jinja_value* content = record.messages.back().as_mapping()->find_name("content");
  if (content == nullptr || !content->is_text()) return false;
  const std::string_view words = jinja::stripped(content->text(), true, true);
  return !words.empty() && jinja::stripped(chat.text, false, true).ends_with(words);
}

}  // namespace detail

}  // namespace xtrain
