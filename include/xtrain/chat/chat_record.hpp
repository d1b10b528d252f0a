// Conversations in the formats of public data sets, converted to messages with roles. Component 'io'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_form.hpp>
#include <xtrain/chat/jinja/characters.hpp>
#include <xtrain/chat/jinja/from_json.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

namespace detail {

/// One conversation, ready for a template.
struct chat_record {
  std::vector<jinja_value> messages;
  jinja_value tools{};
};

class chat_record_reader {
 public:
  chat_record_reader(std::string_view path, std::size_t line) : path_(path), line_(line) {}

  ///   field   of the list of messages, in the forms messages and conversations; empty: the form's name
  ///   throws  data_error with file and line if the record is not a conversation of that form
  [[nodiscard]] chat_record read(const jinja_value& record, chat_form form, std::string_view field = {}) const {
    if (form == chat_form::automatic) form = form_of(record);
    if (form == chat_form::instruction) return read_instruction(record);
    if (form == chat_form::moss) return read_moss(record);
    chat_record result;
    const bool is_list = record.as_sequence() != nullptr;
    if (!is_list) {
      if (const std::string* system = text(record, "system"); system != nullptr && !system->empty()) add(result, "system", *system);
      result.tools = tools_of(record);
    }
    if (field.empty()) field = form == chat_form::messages ? "messages" : "conversations";
    const jinja_value* list = is_list ? &record : find(record, field);
    must(list != nullptr && list->as_sequence() != nullptr, "a record must have a list of ", field, "; it has none");
    for (const jinja_value& message : list->as_sequence()->items) result.messages.push_back(read_message(message));
    return result;
  }

  /// A question and its answer. The input may be missing or empty.
  struct question {
    std::string_view instruction{}, input{}, output{};
  };
  [[nodiscard]] question read_question(const jinja_value& record, std::string_view instruction, std::string_view input, std::string_view output) const {
    const std::string *asks = text(record, instruction), *adds = text(record, input), *answers = text(record, output);
    must(asks != nullptr, "a record must have '", instruction, "'; it is missing");
    must(answers != nullptr, "a record must have '", output, "'; it is missing");
    return {*asks, adds == nullptr ? std::string_view{} : std::string_view(*adds), *answers};
  }
  [[nodiscard]] static chat_record dialogue(std::string_view asks, std::string_view answers) {
    chat_record result;
    add(result, "user", asks);
    add(result, "assistant", answers);
    return result;
  }
  /// A system message at the beginning, and no other.
  static void set_system(chat_record& of, std::string_view content) {
    std::vector<jinja_value> others = std::move(of.messages);
    of.messages.clear();
    add(of, "system", content);
    for (jinja_value& one : others) {
      const jinja_value* role = find(one, "role");
      if (role == nullptr || !role->is_text() || role->text() != "system") of.messages.push_back(std::move(one));
    }
  }

 protected:
  template <class... Parts>
  void must(bool holds, const Parts&... parts) const {
    require<data_error>(holds, path_, ": line ", line_, ": ", parts...);
  }
  [[nodiscard]] static const jinja_value* find(const jinja_value& in, std::string_view name) {
    const jinja_value* found = in.as_mapping() == nullptr ? nullptr : in.as_mapping()->find_name(name);
    return found != nullptr && !found->is_none() ? found : nullptr;
  }
  /// Null if it is missing.
  [[nodiscard]] const std::string* text(const jinja_value& in, std::string_view name) const {
    const jinja_value* found = find(in, name);
    must(found == nullptr || found->is_text(), "'", name, "' must be a string; it is ", found == nullptr ? "" : found->type());
    return found == nullptr ? nullptr : &found->text();
  }
  static void add(chat_record& to, std::string_view role, std::string_view content) {
    jinja_mapping one;
    one.set("role", role);
    one.set("content", content);
    to.messages.emplace_back(std::move(one));
  }

  [[nodiscard]] chat_form form_of(const jinja_value& record) const {
    if (record.as_sequence() != nullptr || find(record, "messages") != nullptr) return chat_form::messages;
    if (find(record, "conversations") != nullptr) return chat_form::conversations;
    if (find(record, "instruction") != nullptr) return chat_form::instruction;
    must(find(record, "chat") != nullptr, "a record must have messages, conversations, instruction or chat; it has none of them");
    return chat_form::moss;
  }

  /// The tools: a list, or that list as a JSON string.
  [[nodiscard]] jinja_value tools_of(const jinja_value& record) const {
    const jinja_value* found = find(record, "tools");
    if (found == nullptr) return {};
    jinja_value list = *found;
    if (found->is_text()) {
      if (jinja::stripped(found->text(), true, true).empty()) return {};
      list = jinja_value_from_json(found->text(), concat(path_, ": line ", line_, ": 'tools'"));
    }
    must(list.as_sequence() != nullptr, "'tools' must be a list; it is ", list.type());
    if (list.as_sequence()->items.empty()) return {};
    std::vector<jinja_value> all;
    for (const jinja_value& tool : list.as_sequence()->items) all.push_back(find(tool, "name") != nullptr ? as_function(tool) : tool);
    return all;
  }
  /// A function in the form templates expect, with its type.
  [[nodiscard]] static jinja_value as_function(const jinja_value& what) {
    jinja_mapping one;
    one.set("type", "function");
    one.set("function", what);
    return one;
  }

  /// A message with either pair of field names; other fields are kept.
  [[nodiscard]] jinja_value read_message(const jinja_value& message) const {
    must(message.as_mapping() != nullptr, "every message must be an object; one is ", message.type());
    const std::string* role = text(message, find(message, "role") != nullptr ? "role" : "from");
    must(role != nullptr, "every message must have 'role' or 'from'; one has neither");
    const jinja_value* content = find(message, find(message, "content") != nullptr ? "content" : "value");
    jinja_mapping one;
    one.set("role", role_of(*role));
    must(content != nullptr || find(message, "tool_calls") != nullptr, "every message must have content or value; one has neither");
    for (const char* name : {"weight", "loss_weight", "train", "loss"})  // of OpenAI, LLaMA-Factory, axolotl, ms-swift: an answer that is not to be learned
      if (const jinja_value* learned = find(message, name); learned != nullptr && learned->is_number() && role_of(*role) == "assistant")
        must(learned->real() == 1.0, "every answer is learned: '", name, "' of a message must be 1 or true; it is ", learned->real());
    if (*role == "function_call") {
      must(content != nullptr && content->is_text(), "a function_call must be a string of JSON; it is ", content == nullptr ? "missing" : content->type());
      one.set("content", "");
      one.set("tool_calls", std::vector<jinja_value>{
                                as_function(jinja_value_from_json(content->text(), concat(path_, ": line ", line_, ": function_call")))});
      return one;
    }
    const std::string_view speaker = role_of(*role);
    const bool may_be_object = speaker != "system" && speaker != "user" && speaker != "assistant";  // what a tool gives, which templates write as JSON
    must(content == nullptr || content->is_text() || content->as_sequence() != nullptr || (may_be_object && content->as_mapping() != nullptr),
         "content of a message must be a string or a list of parts; it is ", content == nullptr ? "" : content->type());
    one.set("content", content == nullptr ? jinja_value{} : joined_parts(*content));
    for (const auto& more : message.as_mapping()->entries())
      if (const std::string& name = more.key.text(); name != "role" && name != "from" && name != "content" && name != "value")
        one.set(name, more.content);
    return one;
  }
  [[nodiscard]] static std::string_view role_of(std::string_view name) {
    if (name == "human") return "user";
    if (name == "gpt" || name == "chatgpt" || name == "function_call") return "assistant";
    return name == "observation" || name == "function_response" ? "tool" : name;
  }
  /// Content may be a list of parts: if all are text, their concatenation.
  [[nodiscard]] static jinja_value joined_parts(const jinja_value& content) {
    if (content.as_sequence() == nullptr) return content;
    std::string all;
    for (const jinja_value& part : content.as_sequence()->items) {
      const jinja_value *type = find(part, "type"), *words = find(part, find(part, "text") != nullptr ? "text" : "value");
      if (type == nullptr || !type->is_text() || type->text() != "text" || words == nullptr || !words->is_text()) return content;
      all += words->text();
    }
    return all;
  }

  /// Earlier turns are in the instruction, each after its speaker's name at the beginning of a line.
  [[nodiscard]] chat_record read_instruction(const jinja_value& record) const {
    const std::string *instruction = text(record, "instruction"), *input = text(record, "input"), *output = text(record, "output");
    must(instruction != nullptr, "a record must have 'instruction'; it is missing");
    must(output != nullptr, "a record must have 'output'; it is missing");
    chat_record result;
    std::string all = *instruction;
    if (input != nullptr && !input->empty()) all += "\n" + *input;
    if (!jinja::stripped(all, true, false).starts_with(human)) {
      add(result, "user", all);
      add(result, "assistant", *output);
      return result;
    }
    std::string_view rest = jinja::stripped(all, true, false);
    bool is_human = true;
    while (true) {
      rest.remove_prefix(is_human ? human.size() : assistant.size());
      const std::size_t end = std::min(next_speaker(rest), rest.size());
      const std::string_view words = jinja::stripped(rest.substr(0, end), true, true);
      const bool last = end == rest.size();
      if (!last || is_human || !words.empty()) add(result, is_human ? "user" : "assistant", words);
      if (last) break;
      rest = jinja::stripped(rest.substr(end), true, false);
      is_human = rest.starts_with(human);
    }
    must(is_human || all_said(all),
         "an instruction of turns must end with 'Assistant:' or with what the human says; it ends with an answer");
    add(result, "assistant", *output);
    return result;
  }
  static constexpr std::string_view human = "Human:", assistant = "Assistant:";
  /// The line break before the next speaker's name.
  [[nodiscard]] static std::size_t next_speaker(std::string_view text) {
    return std::min(text.find("\nHuman:"), text.find("\nAssistant:"));
  }
  /// Whether nothing follows the last "Assistant:".
  [[nodiscard]] static bool all_said(std::string_view text) { return jinja::stripped(text, false, true).ends_with(assistant); }

  /// The turns of Human and MOSS; thoughts, commands and their results are left out.
  [[nodiscard]] chat_record read_moss(const jinja_value& record) const {
    const jinja_value* turns = find(record, "chat");
    must(turns != nullptr && turns->as_mapping() != nullptr, "a record must have 'chat', an object of turns; it has none");
    chat_record result;
    if (const std::string* system = text(record, "meta_instruction"); system != nullptr && !system->empty()) add(result, "system", *system);
    for (std::size_t i = 1; i <= turns->as_mapping()->size(); ++i) {
      const std::string name = concat("turn_", i);
      const jinja_value* turn = find(*turns, name);
      must(turn != nullptr, "turns must be named turn_1, turn_2 and so on; '", name, "' is missing");
      for (const auto& [speaker, role, end] : {std::array<std::string_view, 3>{"Human", "user", "<eoh>"}, {"MOSS", "assistant", "<eom>"}}) {
        const std::string* words = text(*turn, speaker);
        must(words != nullptr, "every turn must have 'Human' and 'MOSS'; '", name, "' has no '", speaker, "'");
        add(result, role, without_marks(*words, concat("<|", speaker, "|>:"), end));
      }
    }
    return result;
  }
  [[nodiscard]] static std::string_view without_marks(std::string_view words, std::string_view begin, std::string_view end) {
    words = jinja::stripped(words, true, true);
    if (words.starts_with(begin)) words.remove_prefix(begin.size());
    if (words.ends_with(end)) words.remove_suffix(end.size());
    return jinja::stripped(words, true, true);
  }

  std::string_view path_;
  std::size_t line_;
};

}  // namespace detail

}  // namespace xtrain
