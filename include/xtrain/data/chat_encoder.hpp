// Tokens of a rendered conversation. Component 'io'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_record.hpp>
#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text_span.hpp>
#include <xtrain/core/warning.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/jinja/characters.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// Tokenizes a conversation. As in transformers, a bos or eos that the tokenizer would split becomes a single token: with "normalized": true, special tokens
/// are found only in normalized text (LLaMA 2's "</s>" only after a space).
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
    bool alone;  // encodes as this token at the begin of a text
  };
  [[nodiscard]] bool is_found_inside(const std::string& text, token id) const {
    try {
      const std::vector<token> ids = with_.encode("." + text + ".");
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    } catch (const data_error&) {  // the vocabulary may lack a full stop
      return false;
    }
  }
  /// Text between two marks, encoded after its mark if the mark is one token there: tokenizers put a space only before an entire text.
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

/// The text ends with the last answer's content: the template left the turn open.
[[nodiscard]] inline bool ends_open(const chat_text& chat, const chat_record& record) {
  if (record.messages.empty() || chat.answers.empty() || chat.answers.back().end != chat.text.size()) return false;
  const std::string content = content_text(record.messages.back()).value_or(std::string());
  const std::string_view words = jinja::stripped(content, true, true);
  return !words.empty() && jinja::stripped(chat.text, false, true).ends_with(words);
}

[[nodiscard]] inline chat_variables variables_with(chat_variables all, const jinja_value& tools, const jinja_mapping& given) {
  if (!tools.is_none()) all.tools = tools;
  for (const auto& [name, value] : given.entries()) {
    if (name.text() == "tools") all.tools = value;
    else if (name.text() == "documents") all.documents = value;
    else all.more.set(name, value);
  }
  return all;
}

/// Makes samples of records; thread-safe.
class chat_record_encoder {
 public:
  ///   form  null: records must be texts
  chat_record_encoder(const tokenizer& with, const chat_template* form) : with_(with), form_(form) {
    if (form != nullptr) encoder_.emplace(with, *form);
  }

  ///   returns  message fields that the template has not read
  ///   throws   data_error, config_error without the place
  std::vector<unread_field> encode(const chat_record& record, const chat_variables& given, text_with_loss_mask& sample) const {
    if (record.is_text) {
      encode_text(record, sample);
      return {};
    }
    require<data_error>(form_ != nullptr, "a record of messages needs a chat template; none is given");
    chat_variables variables = variables_with(given, record.tools, record.variables);
    chat_text chat = form_->apply_with_answers(jinja_value(record.messages), variables, record.prompt_messages > 0 ? record.messages.size() : 0);
    encoder_->encode(chat, sample);
    if (record.prompt_messages > 0) {
      const auto end = record.messages.begin() + static_cast<std::ptrdiff_t>(record.prompt_messages);
      variables.add_generation_prompt = true;
      text_with_loss_mask prompt;
      encoder_->encode({form_->apply(jinja_value(std::vector<jinja_value>(record.messages.begin(), end)), variables)}, prompt);
      learn_behind(prompt.tokens, sample);
      chat.answers = {{0, chat.text.size()}};
    }
    if (with_.special().eos >= 0 && ends_open(chat, record)) sample.add(with_.special().eos, true);
    return std::move(chat.unread);
  }

 private:
  void encode_text(const chat_record& record, text_with_loss_mask& sample) const {
    const token eos = with_.special().eos;
    const std::string mark = eos >= 0 ? with_.token_text(eos) : std::string();
    std::string_view completion = record.completion;
    if (!mark.empty() && completion.ends_with(mark)) completion.remove_suffix(mark.size());
    text_with_loss_mask prompt;
    for (text_with_loss_mask* one : {&prompt, &sample}) {
      one->clear();
      for (const token id : with_.beginning()) one->add(id, false);
    }
    prompt.add(record.prompt, 0, {}, with_);
    if (const std::vector<token> ending = with_.prompt_ending(); ending.empty()) {
      sample.add(concat(record.prompt, completion), 0, {}, with_);
    } else {
      for (const token id : ending) prompt.add(id, false);
      sample = prompt;
      sample.add(completion, 0, {}, with_);
    }
    if (eos >= 0) sample.add(eos, false);
    learn_behind(prompt.tokens, sample);
  }
  /// The completion begins where its tokens differ from the prompt's.            [trl, common_prefix_length]
  static void learn_behind(const std::vector<token>& prompt, text_with_loss_mask& sample) {
    std::size_t same = 0;
    while (same < std::min(prompt.size(), sample.tokens.size()) && prompt[same] == sample.tokens[same]) ++same;
    for (std::size_t i = 0; i < sample.tokens.size(); ++i) sample.learned[i] = i >= same;
    require<data_error>(same < sample.tokens.size(), "a completion must have tokens to train on; it has none");
  }

  const tokenizer& with_;
  const chat_template* form_;
  std::optional<chat_encoder> encoder_{};
};

/// Reports what a template does not read of a file's records, each once; thread-safe.
class unread_warnings {
 public:
  explicit unread_warnings(warning_handler warn) : warn_(std::move(warn)) {}

  ///   place      of the record: "chats.jsonl: line 2"
  ///   variables  the record's chat_template_kwargs
  void say(const std::string& path, std::string_view place, const std::vector<unread_field>& unread, const jinja_mapping& variables,
           const chat_template& form) {
    for (const unread_field& one : unread)
      if (std::find(chat_record_reader::loss_fields.begin(), chat_record_reader::loss_fields.end(), one.name) == chat_record_reader::loss_fields.end())
        once(path, one.name,
             one.is_quoted ? concat(place, ": the chat template writes '", one.name, "' of a tool call, a string, in quotes: write them as an object")
                           : concat(place, ": the chat template does not read '", one.name, "', which a message of role '", one.role, "' has: it is left out"));
    for (const auto& [key, value] : variables.entries())
      if (const std::string& name = key.text(); !value.is_none() && name != "tools" && name != "documents" && !form.mentions(name))
        once(path, name, concat(place, ": the chat template does not read '", name, "' of chat_template_kwargs: it has no effect"));
  }

 private:
  void once(const std::string& path, const std::string& name, const std::string& text) {
    const std::lock_guard<std::mutex> alone(mutex_);
    if (warn_ && said_.emplace(path, name).second) warn_(text);
  }

  warning_handler warn_;
  std::mutex mutex_{};
  std::set<std::pair<std::string, std::string>> said_{};
};

}  // namespace detail

}  // namespace xtrain
