// Record handlers: records to token sequences. AscendSpeed's by name, and one for chat templates. Component 'io'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/warning.hpp>
#include <xtrain/data/record_source.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Begin-of-text token of a text.
enum class text_beginning : std::uint8_t { as_tokenizer, always, never };

/// Settings of make_record_handler.
struct handler_options {
  std::vector<std::string> keys{"text"};  ///< texts: fields, a dataset each
  bool append_eod = false;                ///< ends documents with the end-of-text token
  text_beginning beginning = text_beginning::as_tokenizer;
  /// Instructions: fields for prompt, query (optional) and response.
  std::map<std::string, std::string> map_keys{{"prompt", "instruction"}, {"query", "input"}, {"response", "output"}};
  std::optional<chat_template> chat{};  ///< for ConversationHandler
  warning_handler warn = print_warning;  ///< for ConversationHandler: told once per file what the template does not read
};

/// One text; targets overlap the answer.
struct prompt_and_answer {
  std::string text{};
  std::size_t answer = 0;  ///< first byte
};

/// Makes token sequences of records; thread-safe.
class record_handler {
 public:
  virtual ~record_handler() = default;
  [[nodiscard]] virtual std::vector<std::string> keys() const = 0;
  /// Tokens have a loss mask (one dataset: three files).
  [[nodiscard]] virtual bool is_instruction() const = 0;
  /// Writes a record's samples to `into`, resized. Texts: one per key, in order of keys(), empty for an empty text. Instructions: one or more, forming one
  /// document.
  ///   record  fields may be moved from
  ///   throws  data_error with the place if the record does not fit the handler
  virtual void tokenize(source_record& record, std::vector<detail::text_with_loss_mask>& into) const = 0;
  /// What decides samples besides record and tokenizer: name and options. A resumed run must match. User-written handlers return their options here.
  [[nodiscard]] virtual json settings() const { return json::object(); }
};

/// A handler by name, with or without final "Handler":
///   GeneralPretrain                 texts: the fields `keys`
///   AlpacaPretrain                  instruction, input and output as one text
///   StackOverflowPythonPretrain     title, question_body and answer_body as one text
///   GeneralInstruction              instruction, input and output, or the fields of map_keys
///   BelleMultiTurnInstruction       turns of "Human:" and "Assistant:" in instruction; output is the last answer
///   MOSSInstruction                 turns of "Human" and "MOSS" in chat: a sample each, with earlier turns; without thoughts, commands and results
///   LeetcodePythonInstruction       code_with_problem up to its code; code_only and explanation_only
///   Conversation                    conversations of any chat_form, by a chat template; every answer is a target
///   throws  config_error for an unknown name, an option that the handler lacks, append_eod without an end-of-text token, or instructions with a
///           tokenizer that adds tokens after a prompt (ChatGLM-6B)
[[nodiscard]] std::unique_ptr<const record_handler> make_record_handler(const std::string& name, const tokenizer& with,
                                                                        handler_options options = {});

namespace detail {

/// AscendSpeed's conversations:
///   "\n" system "\n", then per turn "### Instruction:\n" or "### Response:\n", text, "\n".
/// The answer is the last turn with its line break.
class ascendspeed_prompt {
 public:
  ascendspeed_prompt();
  void user(std::string_view words) { add("### Instruction:\n", words); }
  void assistant(std::string_view words) { add("### Response:\n", words); }
  [[nodiscard]] prompt_and_answer sample() const { return {text_, answer_}; }

 private:
  void add(std::string_view speaker, std::string_view words);

  std::string text_;
  std::size_t answer_ = 0;
};

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/record_handler_impl.hpp>
#endif
