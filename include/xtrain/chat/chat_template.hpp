// Chat templates: render chats, and find bytes of answers. Component 'io'.
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

/// For messages with more than role and content: jinja_value_from_json.
[[nodiscard]] jinja_value chat_messages(const std::vector<chat_message>& messages);

/// A template's variables except messages.
struct chat_variables {
  bool add_generation_prompt = false;
  jinja_value tools{};                 ///< JSON schemas, or empty
  jinja_value documents{};             ///< a list, or empty
  jinja_mapping more{};                ///< others: enable_thinking, date_string
  std::time_t now = 0;                 ///< for strftime_now; 0: now
  jinja_limits limits{};               ///< per rendering; finding answers may take twice
};

/// A message's field that the template did not read: missing in the text.
struct unread_field {
  std::string name{};    ///< "name"; in a list content: "content[].url"
  std::string role{};    ///< the message's
  /// Read, but arguments as JSON text are written as a quoted string; templates expect an object.
  bool is_quoted = false;

  friend bool operator==(const unread_field&, const unread_field&) = default;
};

/// A chat's text and the assistant's byte ranges, with ends of turns.
struct chat_text {
  std::string text{};
  std::vector<text_span> answers{};
  std::vector<unread_field> unread{};  ///< each once
};

namespace detail {

/// Content, or its parts' text if all are text; nullopt: missing or of another kind.
[[nodiscard]] std::optional<std::string> content_text(const jinja_value& message);

/// Text, and the template's messages.
struct rendered_chat {
  rendered_text made{};
  std::vector<jinja_value> messages{};
  std::vector<unread_field> unread{};
};

}  // namespace detail

/// Jinja for messages, and the loss mask of answers.
class chat_template {
 public:
  /// throws config_error with the line for an invalid template
  [[nodiscard]] static chat_template from_text(std::string_view text, std::string who = "chat template");

  /// Of a GGUF file, or a folder's chat_template.jinja or tokenizer_config.json, with special tokens of tokenizer_config.json and special_tokens_map.json.
  /// Chats with tools use the template tool_use, if present in tokenizer_config.json or additional_chat_templates/.
  ///   throws  file_error, config_error
  [[nodiscard]] static chat_template from_folder(const std::string& folder);
  /// Whether there is a template.
  ///   throws  file_error if tokenizer_config.json is not JSON
  [[nodiscard]] static bool is_in(const std::string& folder);

  /// Renders mappings. As in transformers, null members are absent, and reasoning has both names `reasoning_content` and `thinking`, given as either or as
  /// `reasoning`. A content of texts becomes one text if the template does not read parts.
  ///   throws  data_error if the template rejects the chat, or omits tools, documents, tool_calls, or a message without content entirely;
  ///           config_error if the template fails or exceeds a limit
  [[nodiscard]] std::string apply(const std::same_as<jinja_value> auto& messages, const chat_variables& with = {}) const {
    jinja_limits limits = with.limits;
    return render_chat(messages, with, limits).made.text;
  }
  [[nodiscard]] std::string apply(const std::vector<chat_message>& messages, const chat_variables& with = {}) const;

  /// Renders the chat and finds its answers: {% generation %} blocks if the template has them. Else an answer begins where the messages before it, rendered
  /// with the generation prompt, end, and ends where the messages up to it end, with a following end-of-text token.
  ///   first   first message with a located answer; ignored with {% generation %} blocks
  ///   throws  as apply; config_error if text depends on later messages: the answer cannot be located
  [[nodiscard]] chat_text apply_with_answers(const std::same_as<jinja_value> auto& messages, const chat_variables& with = {}, std::size_t first = 0) const {
    return find_answers(messages, with, first);
  }
  [[nodiscard]] chat_text apply_with_answers(const std::vector<chat_message>& messages, const chat_variables& with = {}) const;

  /// A special token's text, "bos_token" or "eos_token"; or empty.
  [[nodiscard]] std::string token(std::string_view name) const;
  void set_token(std::string name, std::string text);

  /// Text after a last answer, stripped: "<|im_end|>", or eos_token. Empty: nothing, or the template rejects one question with its answer.
  [[nodiscard]] std::string end_of_turn() const;

  /// The template reads a variable of this name.
  [[nodiscard]] bool mentions(std::string_view name, const chat_variables& with = {}) const;

  /// Checksum of templates and special tokens.
  [[nodiscard]] std::string fingerprint() const;

  /// Writes chat_template.jinja and the template for tools; special tokens are the tokenizer's.
  void save(const std::string& folder) const;

 private:
  static constexpr const char* tools_file = "additional_chat_templates/tool_use.jinja";  ///< with chat_template.jinja
  static constexpr std::size_t max_messages = 1024;  ///< an answer is rendered three times with all messages before
  chat_template() = default;

  [[nodiscard]] const jinja_template& template_for(const chat_variables& with) const;

  [[nodiscard]] const std::string& text_for(const chat_variables& with) const;

  /// Renders unchanged messages; subtracts the cost from limits.
  [[nodiscard]] rendered_text render(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const;
  /// Prepares, renders, and checks what was read.
  [[nodiscard]] detail::rendered_chat render_chat(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const;

  [[nodiscard]] chat_text find_answers(const jinja_value& messages, const chat_variables& with, std::size_t first) const;

  [[nodiscard]] static const std::string* field(const jinja_value& message, std::string_view name);
  [[nodiscard]] static bool is_answer(const jinja_value& message);

  [[nodiscard]] static std::size_t same_until(std::string_view a, std::string_view b);
  [[nodiscard]] std::string text_of(const std::vector<jinja_value>& messages, std::size_t count, bool prompt, chat_variables with,
                                    jinja_limits& limits) const;

  [[nodiscard]] text_span find_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
                                      const chat_text& found, jinja_limits& limits) const;

  /// End of the prompt. It may contain more than the text before the answer (begin of thinking): then as far as both agree, not into the content.
  [[nodiscard]] std::size_t begin_of_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
                                            std::string_view upto, jinja_limits& limits) const;

  /// The generation prompt is written only on request: chats do not end with it.
  [[nodiscard]] bool ends_without_prompt(const std::vector<jinja_value>& all, const chat_variables& with, const std::string& upto, jinja_limits& limits) const;

  /// The chat with another question: does the last answer change? `otherwise` if the template allows no question.
  [[nodiscard]] std::string text_of_another_turn(std::vector<jinja_value> all, const chat_variables& with, const std::string& otherwise,
                                                 jinja_limits& limits) const;

  void set_standard(std::string_view text, std::string who);
  void set_with_tools(std::string_view text, std::string who);
  /// One template, or by name: "default", "tool_use" with tools.
  void read_templates(const json& from, const std::string& path);

  /// Adds unknown special tokens: strings, or "content" of objects.
  void read_tokens(const json& from);

  std::shared_ptr<const jinja_template> standard_, with_tools_;
  std::string text_, tools_text_;  ///< of standard_, with_tools_
  jinja_mapping tokens_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/chat/chat_template_impl.hpp>
#endif
