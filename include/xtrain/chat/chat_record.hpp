// Conversations of public data sets as messages with roles. Component 'io'.
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
#include <xtrain/core/error.hpp>
#include <xtrain/jinja/characters.hpp>
#include <xtrain/jinja/from_json.hpp>

namespace xtrain {

namespace detail {

/// A conversation for a template, or texts of prompt and completion.
struct chat_record {
  std::vector<jinja_value> messages{};
  jinja_value tools{};
  jinja_mapping variables{};            ///< chat_template_kwargs
  std::size_t prompt_messages = 0;      ///< prompt messages; the rest is the completion; 0: a conversation
  bool is_text = false;                 ///< prompt and completion are unchanged text
  std::string prompt{}, completion{};
};

class chat_record_reader {
 public:
  /// Whether an answer is learned (OpenAI, LLaMA-Factory, axolotl, ms-swift).
  static constexpr std::array<std::string_view, 4> loss_fields{"weight", "loss_weight", "train", "loss"};

  chat_record_reader(std::string_view path, std::size_t line) : path_(path), line_(line) {}

  ///  field   list of messages, in the forms messages and conversations; empty: the form's name
  ///   throws  data_error with file and line for another form
  [[nodiscard]] chat_record read(const jinja_value& record, chat_form form, std::string_view field = {}) const {
    if (form == chat_form::automatic) form = form_of(record);
    if (form == chat_form::instruction) return read_instruction(record);
    if (form == chat_form::moss) return read_moss(record);
    if (form == chat_form::prompt_completion) return read_completion(record);
    const bool is_list = record.as_sequence() != nullptr;
    chat_record result;
    if (!is_list) result = without_turns(record, form == chat_form::conversations);
    if (field.empty()) field = form == chat_form::messages ? "messages" : "conversations";
    const jinja_value* list = is_list ? &record : find(record, field);
    must(list != nullptr && list->as_sequence() != nullptr, "a record must have a list of ", field, "; it has none");
    for (const jinja_value& message : list->as_sequence()->items) result.messages.push_back(read_message(message));
    return result;
  }

  /// Question and answer; the input may be missing.
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
  /// throws data_error for texts: they take no system message
  void require_messages(const chat_record& record) const {
    must(!record.is_text, "a system prompt needs records of messages; this one has texts that are used as they are");
  }
  /// The only system message, at the front.
  static void set_system(chat_record& of, std::string_view content) {
    const auto is_system = [](const jinja_value& one) {
      const jinja_value* role = find(one, "role");
      return role != nullptr && role->is_text() && role->text() == "system";
    };
    const auto prompt = of.messages.begin() + static_cast<std::ptrdiff_t>(of.prompt_messages);
    if (of.prompt_messages > 0) of.prompt_messages += 1 - static_cast<std::size_t>(std::count_if(of.messages.begin(), prompt, is_system));
    std::vector<jinja_value> others = std::move(of.messages);
    of.messages.clear();
    add(of, "system", content);
    for (jinja_value& one : others)
      if (!is_system(one)) of.messages.push_back(std::move(one));
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
    if (find(record, "prompt") != nullptr && find(record, "completion") != nullptr) return chat_form::prompt_completion;
    if (record.as_sequence() != nullptr || find(record, "messages") != nullptr) return chat_form::messages;
    if (find(record, "conversations") != nullptr) return chat_form::conversations;
    if (find(record, "instruction") != nullptr) return chat_form::instruction;
    must(find(record, "chat") != nullptr,
         "a record must have messages, conversations, instruction or chat, or a prompt and a completion; it has no such field");
    return chat_form::moss;
  }

  /// System message, tools, template variables.
  [[nodiscard]] chat_record without_turns(const jinja_value& record, bool wraps_tools) const {
    chat_record result;
    if (const std::string* system = text(record, "system"); system != nullptr && !system->empty()) add(result, "system", *system);
    result.tools = tools_of(record, wraps_tools);
    result.variables = variables_of(record);
    return result;
  }
  /// A list, or its JSON string.
  ///   wraps  gives a function the type that templates expect
  [[nodiscard]] jinja_value tools_of(const jinja_value& record, bool wraps) const {
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
    for (const jinja_value& tool : list.as_sequence()->items) all.push_back(wraps && find(tool, "name") != nullptr ? as_function(tool) : tool);
    return all;
  }
  /// [trl, chat_template_kwargs]
  [[nodiscard]] jinja_mapping variables_of(const jinja_value& record) const {
    const jinja_value* found = find(record, "chat_template_kwargs");
    if (found == nullptr) return {};
    must(found->as_mapping() != nullptr, "'chat_template_kwargs' must be an object; it is ", found->type());
    for (const char* name : {"messages", "conversation", "chat_template", "add_generation_prompt", "continue_final_message", "tokenize", "padding",
                             "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "sanitize_control_tokens"})
      must(found->as_mapping()->find_name(name) == nullptr, "'chat_template_kwargs' must hold variables of the template; given '", name, "'");
    return *found->as_mapping();
  }
  [[nodiscard]] static jinja_value as_function(const jinja_value& what) {
    jinja_mapping one;
    one.set("type", "function");
    one.set("function", what);
    return one;
  }

  /// With either pair of field names; keeps other fields in order.
  [[nodiscard]] jinja_value read_message(const jinja_value& message) const {
    must(message.as_mapping() != nullptr, "every message must be an object; one is ", message.type());
    const char *role_key = find(message, "role") != nullptr ? "role" : "from", *content_key = find(message, "content") != nullptr ? "content" : "value";
    const std::string* role = text(message, role_key);
    must(role != nullptr, "every message must have 'role' or 'from'; one has neither");
    const jinja_value* content = find(message, content_key);
    const std::string_view speaker = role_of(*role);
    if (speaker == "assistant")
      for (const std::string_view name : loss_fields)
        if (const jinja_value* learned = find(message, name); learned != nullptr)
          must(learned->is_number() && learned->real() == 1.0, "every answer is learned: '", name, "' of a message must be 1 or true; it is ",
               learned->is_number() ? concat(learned->real()) : std::string(learned->type()));
    if (*role == "function_call") {
      must(content != nullptr && content->is_text(), "a function_call must be a string of JSON; it is ", content == nullptr ? "missing" : content->type());
      jinja_mapping call;
      call.set("role", speaker);
      call.set("content", "");
      call.set("tool_calls", std::vector<jinja_value>{
                                 as_function(jinja_value_from_json(content->text(), concat(path_, ": line ", line_, ": function_call")))});
      return call;
    }
    const bool may_be_object = speaker != "system" && speaker != "user" && speaker != "assistant";  // a tool's result: templates write JSON
    must(content == nullptr || content->is_text() || content->as_sequence() != nullptr || (may_be_object && content->as_mapping() != nullptr),
         "content of a message must be a string or a list of parts; it is ", content == nullptr ? "" : content->type());
    jinja_mapping one;
    bool says = false;
    for (const auto& [key, what] : message.as_mapping()->entries()) {
      if (what.is_none()) continue;
      const std::string& name = key.text();
      if (name == role_key) {
        one.set("role", speaker);
        continue;
      }
      one.set(name == content_key ? "content" : name, what);
      says = says || std::find(loss_fields.begin(), loss_fields.end(), name) == loss_fields.end();
    }
    must(says, "every message must have content or value; one has neither");
    return one;
  }
  [[nodiscard]] static std::string_view role_of(std::string_view name) {
    if (name == "human") return "user";
    if (name == "gpt" || name == "chatgpt" || name == "function_call") return "assistant";
    return name == "observation" || name == "function_response" ? "tool" : name;
  }
  /// Texts or messages. [trl, SFTTrainer]
  [[nodiscard]] chat_record read_completion(const jinja_value& record) const {
    const jinja_value *prompt = find(record, "prompt"), *completion = find(record, "completion");
    must(prompt != nullptr && completion != nullptr, "a record must have 'prompt' and 'completion'; '", prompt == nullptr ? "prompt" : "completion",
         "' is missing");
    const jinja_value* label = find(record, "label");
    must(label == nullptr || !label->is_boolean(), "a record with a 'label' of true or false is a preference (kto), and not every completion is learned");
    chat_record result;
    result.is_text = prompt->is_text() && completion->is_text();
    if (result.is_text) {
      result.prompt = prompt->text();
      result.completion = completion->text();
      return result;
    }
    for (const auto& [name, given] : {std::pair{"prompt", prompt}, {"completion", completion}}) {
      must(given->as_sequence() != nullptr, "'prompt' and 'completion' must both be strings, or both be lists of messages; '", name, "' is ", given->type());
      must(!given->as_sequence()->items.empty(), "'", name, "' must have a message; it is empty");
      for (const jinja_value& message : given->as_sequence()->items) result.messages.push_back(read_message(message));
    }
    result.prompt_messages = prompt->as_sequence()->items.size();
    result.tools = tools_of(record, false);
    result.variables = variables_of(record);
    return result;
  }

  /// Earlier turns in the instruction, after a speaker's name at the beginning of a line.
  [[nodiscard]] chat_record read_instruction(const jinja_value& record) const {
    const std::string *instruction = text(record, "instruction"), *input = text(record, "input"), *output = text(record, "output");
    must(instruction != nullptr, "a record must have 'instruction'; it is missing");
    must(output != nullptr, "a record must have 'output'; it is missing");
    const jinja_value* history = find(record, "history");
    must(history == nullptr || !history->truth(), "'history' must be empty: earlier turns must be in the instruction, after 'Human:' and 'Assistant:'");
    chat_record result = without_turns(record, false);
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
  /// Line break before the next speaker's name.
  [[nodiscard]] static std::size_t next_speaker(std::string_view text) {
    return std::min(text.find("\nHuman:"), text.find("\nAssistant:"));
  }
  /// Nothing after the last "Assistant:".
  [[nodiscard]] static bool all_said(std::string_view text) { return jinja::stripped(text, false, true).ends_with(assistant); }

  /// Human and MOSS only; no thoughts, commands, results.
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
