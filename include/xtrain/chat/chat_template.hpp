// Chat templates: render a chat to the text format of a model, and find which of its bytes are answers.
// Component 'io'.
#pragma once

#include <concepts>
#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/json_fwd.hpp>
#include <xtrain/jinja/template.hpp>

namespace xtrain {

/// One turn of a chat.
struct chat_message {
  std::string role;
  std::string content;
};

/// A list of messages for a template. Use jinja_value_from_json for messages with more than role and content.
[[nodiscard]] jinja_value chat_messages(const std::vector<chat_message>& messages);

/// A template's variables other than the messages.
struct chat_variables {
  bool add_generation_prompt = false;  ///< end the text where the assistant's answer begins
  jinja_value tools{};                 ///< a list of JSON schemas, or none
  jinja_value documents{};             ///< a list of documents, or none
  jinja_mapping more{};                ///< any other variables of the template: enable_thinking, date_string
  std::time_t now = 0;                 ///< time for strftime_now; 0: the current time
  jinja_limits limits{};               ///< of one rendering; finding answers may take twice that
};

/// A field that a message has and the template has not read: it is not in the text.
struct unread_field {
  std::string name{};    ///< "name"; of a part of a content that is a list: "content[].url"
  std::string role{};    ///< of its message
  /// It is read: arguments of a call that are JSON text, which the template writes as a string in quotes. Templates expect an object.
  bool is_quoted = false;

  friend bool operator==(const unread_field&, const unread_field&) = default;
};

/// A chat's text, and the byte ranges that the assistant says: its words and what ends its turn.
struct chat_text {
  std::string text{};
  std::vector<text_span> answers{};
  std::vector<unread_field> unread{};  ///< each once
};

namespace detail {

/// What a message says: its content, or the texts of its parts if all parts are text. Nothing: the content is missing, or of another kind.
[[nodiscard]] std::optional<std::string> content_text(const jinja_value& message);

/// The text of a chat, and the messages as the template gets them.
struct rendered_chat {
  rendered_text made{};
  std::vector<jinja_value> messages{};
  std::vector<unread_field> unread{};
};

}  // namespace detail

/// A chat template: Jinja that renders messages, and the loss mask of the answers.
class chat_template {
 public:
  ///   throws  config_error, with the line, if the text is not a valid template
  [[nodiscard]] static chat_template from_text(std::string_view text, std::string who = "chat template");

  /// The template of a GGUF file, or of a Hugging Face folder: chat_template.jinja, or the one in tokenizer_config.json; with the special tokens
  /// named in tokenizer_config.json and special_tokens_map.json. Chats with tools have the one of the name tool_use, if there is one: in
  /// tokenizer_config.json, or beside chat_template.jinja in additional_chat_templates/.
  ///   throws  file_error, config_error
  [[nodiscard]] static chat_template from_folder(const std::string& folder);
  /// Whether there is such a template.
  ///   throws  file_error if tokenizer_config.json is not JSON
  [[nodiscard]] static bool is_in(const std::string& folder);

  /// Renders the chat. Messages are a list of mappings. As in transformers, a key whose value is null is absent, and a message's reasoning is
  /// `reasoning_content` and `thinking`, whichever of them or of `reasoning` it has. A content that is a list of texts becomes one text where the template
  /// does not read the parts.
  ///   throws  data_error if the template rejects the chat, or leaves out tools, documents, tool_calls, or all that a message without content has;
  ///           config_error if the template fails or exceeds a limit
  [[nodiscard]] std::string apply(const std::same_as<jinja_value> auto& messages, const chat_variables& with = {}) const {
    jinja_limits limits = with.limits;
    return render_chat(messages, with, limits).made.text;
  }
  [[nodiscard]] std::string apply(const std::vector<chat_message>& messages, const chat_variables& with = {}) const;

  /// Renders the chat and finds its answers. If the template has {% generation %} blocks, they mark the answers. Otherwise
  /// an answer begins where the rendered messages before it, with the generation prompt, end, and ends where the rendered
  /// messages up to it end; if the end-of-text token follows immediately it belongs to the answer.
  ///   first   message from which answers are located. {% generation %} blocks are given whatever it is
  ///   throws  as apply; config_error if the text of messages depends on later ones, so that an answer cannot be located
  [[nodiscard]] chat_text apply_with_answers(const std::same_as<jinja_value> auto& messages, const chat_variables& with = {}, std::size_t first = 0) const {
    return find_answers(messages, with, first);
  }
  [[nodiscard]] chat_text apply_with_answers(const std::vector<chat_message>& messages, const chat_variables& with = {}) const;

  /// The text of a special token by its name, "bos_token" or "eos_token", as templates write it. Empty: none.
  [[nodiscard]] std::string token(std::string_view name) const;
  void set_token(std::string name, std::string text);

  /// What the template writes behind the words of a chat's last answer, without spaces around it: "<|im_end|>", or its eos_token. Empty: nothing, or the
  /// template rejects a chat of one question and its answer.
  [[nodiscard]] std::string end_of_turn() const;

  /// Whether this word is in the template's text, as the name of a variable is that it reads.
  [[nodiscard]] bool mentions(std::string_view name, const chat_variables& with = {}) const;

  /// A checksum of the template's text, that of the one for tools, and its special tokens.
  [[nodiscard]] std::string fingerprint() const;

  /// Writes chat_template.jinja, and the one for tools beside it, without special tokens: these are the tokenizer's.
  void save(const std::string& folder) const;

 private:
  static constexpr const char* tools_file = "additional_chat_templates/tool_use.jinja";  ///< beside chat_template.jinja
  static constexpr std::size_t max_messages = 1024;  ///< each answer is rendered three times, with all before it
  chat_template() = default;

  [[nodiscard]] const jinja_template& template_for(const chat_variables& with) const;

  [[nodiscard]] const std::string& text_for(const chat_variables& with) const;

  /// Renders messages as they are. Subtracts the cost from the limits.
  [[nodiscard]] rendered_text render(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const;
  /// Prepares messages, renders them, and checks what the template has read of them.
  [[nodiscard]] detail::rendered_chat render_chat(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const;

  [[nodiscard]] chat_text find_answers(const jinja_value& messages, const chat_variables& with, std::size_t first) const;

  [[nodiscard]] static const std::string* field(const jinja_value& message, std::string_view name);
  [[nodiscard]] static bool is_answer(const jinja_value& message);

  [[nodiscard]] static std::size_t same_until(std::string_view a, std::string_view b);
  [[nodiscard]] std::string text_of(const std::vector<jinja_value>& messages, std::size_t count, bool prompt, chat_variables with,
                                    jinja_limits& limits) const;

  [[nodiscard]] text_span find_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
                                      const chat_text& found, jinja_limits& limits) const;

  /// Where the prompt ends and the answer begins. A prompt may contain more than the text before a given answer (the begin of thinking):
  /// then as far as both agree, but not into the answer's content.
  [[nodiscard]] std::size_t begin_of_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
                                            std::string_view upto, jinja_limits& limits) const;

  /// Whether the template writes the generation prompt where it is asked for only, so that the text of a chat does not end with one.
  [[nodiscard]] bool ends_without_prompt(const std::vector<jinja_value>& all, const chat_variables& with, const std::string& upto, jinja_limits& limits) const;

  /// The chat followed by a question, to see whether its last answer stays unchanged; `otherwise` if the template allows no question.
  [[nodiscard]] std::string text_of_another_turn(std::vector<jinja_value> all, const chat_variables& with, const std::string& otherwise,
                                                 jinja_limits& limits) const;

  void set_standard(std::string_view text, std::string who);
  void set_with_tools(std::string_view text, std::string who);
  /// One template, or several by name: "default", and "tool_use" for chats with tools.
  void read_templates(const json& from, const std::string& path);

  /// Adds special tokens not known yet: strings, or objects with a "content" member.
  void read_tokens(const json& from);

  std::shared_ptr<const jinja_template> standard_, with_tools_;
  std::string text_, tools_text_;  ///< of standard_, of with_tools_
  jinja_mapping tokens_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/chat/chat_template_impl.hpp>
#endif
