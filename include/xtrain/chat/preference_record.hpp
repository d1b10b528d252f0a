// Preference sets: prompts and answers as texts or messages. Component 'io'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_form.hpp>
#include <xtrain/chat/chat_record.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/characters.hpp>
#include <xtrain/jinja/operators.hpp>
#include <xtrain/jinja/template.hpp>

namespace xtrain {

namespace detail {

/// Unchanged text, or messages for a template.
struct preference_part {
  std::string text{};
  std::vector<jinja_value> messages{};
};

struct preference_record {
  bool is_text = false;
  preference_part prompt{};
  std::vector<preference_part> answers{};  ///< chosen and rejected, or one
  jinja_value tools{};
  jinja_mapping variables{};  ///< chat_template_kwargs
  token label = -1;  ///< of a single answer: 1 desirable, 0 undesirable
};

class preference_record_reader : chat_record_reader {
 public:
  using chat_record_reader::chat_record_reader;

  /// throws data_error with file and line
  [[nodiscard]] preference_record read_pair(const jinja_value& record, preference_form form, const preference_fields& fields = {}) const {
    require_object(record);
    const named_value chosen = fields.chosen.empty() ? first_of(record, {"chosen", "chosen_messages", "response_j"}) : first_of(record, {fields.chosen}),
                      rejected =
                          fields.rejected.empty() ? first_of(record, {"rejected", "rejected_messages", "response_k"}) : first_of(record, {fields.rejected});
    const std::string_view first = fields.chosen.empty() ? std::string_view("chosen") : fields.chosen;
    const std::string_view second = fields.rejected.empty() ? std::string_view("rejected") : fields.rejected;
    must(chosen.found() && rejected.found(), "a record must have '", first, "' and '", second, "'; '", chosen.found() ? second : first, "' is missing",
         chosen.found() || rejected.found() || !first_of(record, {"completion", "label", "kto_tag"}).found() ? "" : ". Is it unpaired preference data?");
    require_answer(chosen);
    require_answer(rejected);
    must(chosen.value->is_text() == rejected.value->is_text(), "'", chosen.name, "' and '", rejected.name, "' must be of the same kind; they are ",
         chosen.value->type(), " and ", rejected.value->type());
    preference_record result{.tools = tools_of(record, wraps_tools(record)), .variables = variables_of(record)};
    if (is_text(record, *chosen.value, form)) {
      result.is_text = true;
      read_texts(record, chosen.value->text(), rejected.value->text(), fields.prompt, result);
      return result;
    }
    std::vector<jinja_value> a = answer_messages(*chosen.value), b = answer_messages(*rejected.value);
    const bool has_prompt = !fields.prompt.empty() || find_list(record, "prompt") != nullptr || role_of_message(a.front()) == "assistant";
    const std::size_t common = has_prompt ? 0 : common_beginning(a, b);
    if (common > 0) {
      must(common < a.size() && common < b.size(), "'", chosen.name, "' and '", rejected.name, "' must differ in an answer; ",
           a.size() == b.size() ? "they are equal" : "one is the beginning of the other");
      const auto end = a.begin() + static_cast<std::ptrdiff_t>(common);
      result.prompt.messages.assign(a.begin(), end);
      if (const std::string* system = text(record, "system"); system != nullptr && !system->empty() && role_of_message(a.front()) != "system")
        result.prompt.messages.insert(result.prompt.messages.begin(), message_of("system", *system));
      a.erase(a.begin(), end);
      b.erase(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(common));
    } else {
      result.prompt.messages = fields.prompt.empty() ? prompt_messages(record) : prompt_messages(record, fields.prompt);
    }
    require_assistant(a, chosen.name);
    require_assistant(b, rejected.name);
    result.answers.push_back({.messages = std::move(a)});
    result.answers.push_back({.messages = std::move(b)});
    return result;
  }

  /// One answer with a label.
  ///   throws  data_error with file and line
  [[nodiscard]] preference_record read_labelled(const jinja_value& record, preference_form form) const {
    require_object(record);
    const named_value label = first_of(record, {"label", "kto_tag"});
    must(label.found(), "a record must have 'label' or 'kto_tag'; it is missing",
         first_of(record, {"chosen", "chosen_messages", "response_j"}).found() ? ". Is it a set of pairs?" : "");
    const bool is_label = label.value->is_whole() && (label.value->whole() == 0 || label.value->whole() == 1);
    must(is_label, "'", label.name, "' must be true or false; it is ",
         label.value->is_whole() ? concat(label.value->whole()) : std::string(label.value->type()));
    preference_record result{
        .tools = tools_of(record, wraps_tools(record)), .variables = variables_of(record), .label = static_cast<token>(label.value->whole())};
    const named_value completion = first_of(record, {"completion", "output", "response"});
    std::vector<jinja_value> answer;
    if (!completion.found()) {  // last message
      answer = conversation(record);
      must(!answer.empty(), "a record must have 'completion', or a list of messages or conversations; it has none");
      split_last(answer, result);
    } else {
      require_answer(completion);
      if (is_text(record, *completion.value, form)) {
        const std::string* prompt = text(record, "prompt");
        must(prompt != nullptr, "a record must have 'prompt'; it is missing");
        result.is_text = true;
        result.prompt.text = *prompt;
        result.answers.push_back({.text = completion.value->text()});
        return result;
      }
      answer = answer_messages(*completion.value);
      const bool has_prompt = answer.size() == 1 || role_of_message(answer.front()) == "assistant";
      if (has_prompt) result.prompt.messages = prompt_messages(record);
      else split_last(answer, result);
    }
    require_assistant(answer, completion.found() ? completion.name : "messages");
    result.answers.push_back({.messages = std::move(answer)});
    return result;
  }

  [[nodiscard]] static jinja_value message_of(std::string_view role, std::string_view content) {
    chat_record one;
    add(one, role, content);
    return one.messages.front();
  }
  [[nodiscard]] static std::string role_of_message(const jinja_value& message) {
    const jinja_value* role = find(message, "role");
    return role != nullptr && role->is_text() ? role->text() : "";
  }

 private:
  struct named_value {
    std::string_view name{};
    const jinja_value* value = nullptr;
    [[nodiscard]] bool found() const { return value != nullptr; }
  };
  [[nodiscard]] static named_value first_of(const jinja_value& record, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names)
      if (const jinja_value* found = find(record, name)) return {name, found};
    return {};
  }
  [[nodiscard]] static const jinja_value* find_list(const jinja_value& record, std::string_view name) {
    const jinja_value* found = find(record, name);
    return found != nullptr && found->as_sequence() != nullptr ? found : nullptr;
  }
  [[nodiscard]] static bool wraps_tools(const jinja_value& record) { return find(record, "conversations") != nullptr; }
  void require_object(const jinja_value& record) const { must(record.as_mapping() != nullptr, "a record must be an object; it is ", record.type()); }
  void require_answer(const named_value& answer) const {
    must(answer.value->is_text() || answer.value->as_mapping() != nullptr ||
             (answer.value->as_sequence() != nullptr && !answer.value->as_sequence()->items.empty()),
         "'", answer.name, "' must be a string, a message or a list of messages; it is ",
         answer.value->as_sequence() != nullptr ? "empty" : answer.value->type());
  }
  void require_assistant(const std::vector<jinja_value>& answer, std::string_view name) const {
    must(role_of_message(answer.back()) == "assistant", "'", name, "' must end with what the assistant says; its last role is ",
         role_of_message(answer.back()));
  }

  /// Answers are unchanged text.
  [[nodiscard]] bool is_text(const jinja_value& record, const jinja_value& answer, preference_form form) const {
    must(form != preference_form::text || answer.is_text(), "answers must be strings, for that form of records; one is ", answer.type());
    if (!answer.is_text() || form == preference_form::messages) return false;
    if (form == preference_form::text) return true;
    return find_list(record, "prompt") == nullptr && !first_of(record, {"messages", "conversations", "instruction", "question"}).found();
  }

  /// Without a prompt: the answers' common beginning. [trl, extract_prompt]
  ///   field  required prompt field; empty: prompt, if present
  void read_texts(const jinja_value& record, const std::string& chosen, const std::string& rejected, const std::string& field, preference_record& to) const {
    const std::string* prompt = text(record, field.empty() ? "prompt" : field);
    must(prompt != nullptr || field.empty(), "a record must have '", field, "', a string; it is missing");
    std::size_t common = 0;
    if (prompt == nullptr) {
      must(chosen != rejected, "'chosen' and 'rejected' must differ where there is no 'prompt'; they are equal");
      const std::size_t most = std::min(chosen.size(), rejected.size());
      while (common < most && chosen[common] == rejected[common]) ++common;
      if (common == most) {
        if (most > 0) common = jinja::character_before(chosen, common);  // an answer has at least one character
      } else {
        while (common > 0 && (static_cast<unsigned char>(chosen[common]) & 0xC0U) == 0x80U) --common;  // not within a character
        if (common > 0 && chosen[common - 1] == ' ') --common;                                         // a space belongs to the next word
      }
    }
    to.prompt.text = prompt != nullptr ? *prompt : chosen.substr(0, common);
    to.answers.push_back({.text = chosen.substr(common)});
    to.answers.push_back({.text = rejected.substr(common)});
  }

  [[nodiscard]] std::vector<jinja_value> answer_messages(const jinja_value& answer) const {
    if (answer.is_text()) return {message_of("assistant", answer.text())};
    if (answer.as_mapping() != nullptr) return {read_message(answer)};
    return list_messages(answer);
  }
  [[nodiscard]] std::vector<jinja_value> list_messages(const jinja_value& list) const {
    std::vector<jinja_value> all;
    for (const jinja_value& message : list.as_sequence()->items) all.push_back(read_message(message));
    return all;
  }
  /// Messages after the system's; empty: no list.
  [[nodiscard]] std::vector<jinja_value> conversation(const jinja_value& record) const {
    const jinja_value* list = find_list(record, "prompt");
    for (const std::string_view name : {"messages", "conversations"}) {
      if (list == nullptr) list = find(record, name);
      must(list == nullptr || list->as_sequence() != nullptr, "'", name, "' must be a list; it is ", list == nullptr ? "" : list->type());
    }
    std::vector<jinja_value> all;
    if (list == nullptr) return all;
    all = list_messages(*list);
    if (const std::string* system = text(record, "system"); system != nullptr && !system->empty()) all.insert(all.begin(), message_of("system", *system));
    return all;
  }
  /// The prompt, if separate from answers.
  [[nodiscard]] std::vector<jinja_value> prompt_messages(const jinja_value& record) const {
    std::vector<jinja_value> all = conversation(record);
    if (!all.empty()) return all;
    const named_value asked = first_of(record, {"prompt", "instruction", "question"});
    must(asked.found() && asked.value->is_text(),
         "a record must have its prompt: a string or a list of messages, or what its answers begin with; it has none");
    if (const std::string* system = text(record, "system"); system != nullptr && !system->empty()) all.push_back(message_of("system", *system));
    if (const jinja_value* history = find(record, "history")) {
      must(history->as_sequence() != nullptr, "'history' must be a list; it is ", history->type());
      for (const jinja_value& turn : history->as_sequence()->items) {
        const bool is_turn = turn.as_sequence() != nullptr && turn.as_sequence()->items.size() == 2 && turn.as_sequence()->items[0].is_text() &&
                             turn.as_sequence()->items[1].is_text();
        must(is_turn, "'history' must be a list of pairs of strings; one is ", turn.type());
        all.push_back(message_of("user", turn.as_sequence()->items[0].text()));
        all.push_back(message_of("assistant", turn.as_sequence()->items[1].text()));
      }
    }
    const std::string* input = text(record, "input");
    all.push_back(message_of("user", input != nullptr && !input->empty() ? concat(asked.value->text(), "\n", *input) : asked.value->text()));
    return all;
  }
  /// Prompt in a field.
  [[nodiscard]] std::vector<jinja_value> prompt_messages(const jinja_value& record, const std::string& field) const {
    const jinja_value* found = find(record, field);
    must(found != nullptr, "a record must have '", field, "'; it is missing");
    if (found->is_text()) return {message_of("user", found->text())};
    must(found->as_sequence() != nullptr && !found->as_sequence()->items.empty(), "'", field, "' must be a string or a list of messages; it is ",
         found->as_sequence() != nullptr ? "empty" : found->type());
    return list_messages(*found);
  }
  /// Prompt and last message of a conversation.
  void split_last(std::vector<jinja_value>& conversation, preference_record& to) const {
    must(conversation.size() > 1, "a conversation must have a prompt and an answer; it has one message");
    to.prompt.messages.assign(conversation.begin(), conversation.end() - 1);
    conversation.erase(conversation.begin(), conversation.end() - 1);
  }
  [[nodiscard]] std::size_t common_beginning(const std::vector<jinja_value>& a, const std::vector<jinja_value>& b) const {
    std::size_t common = 0;
    try {
      jinja::allowance cost(most_compared);
      while (common < std::min(a.size(), b.size()) && jinja::equal(a[common], b[common], cost)) ++common;
    } catch (const jinja::fault&) {
      must(false, "messages must be comparable within ", most_compared, " steps; they are too long");
    }
    return common;
  }
  static constexpr std::size_t most_compared = std::size_t{1} << 28;  // bytes of text count one each
};

}  // namespace detail

}  // namespace xtrain
