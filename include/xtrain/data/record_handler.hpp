// Record handlers: what becomes of a record before it is written as tokens. The handlers of AscendSpeed by their names, and one for chat templates.
// Component 'io'.
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

/// Whether a text begins with a begin-of-text token.
enum class text_beginning : std::uint8_t { as_tokenizer, always, never };

/// Settings of make_record_handler.
struct handler_options {
  std::vector<std::string> keys{"text"};  ///< of texts: the fields of a record, each of which becomes a dataset
  bool append_eod = false;                ///< the end-of-text token ends a document
  text_beginning beginning = text_beginning::as_tokenizer;
  /// Of instructions: which fields are the prompt, the query (may be missing) and the response.
  std::map<std::string, std::string> map_keys{{"prompt", "instruction"}, {"query", "input"}, {"response", "output"}};
  std::optional<chat_template> chat{};  ///< of ConversationHandler
  warning_handler warn = print_warning;  ///< of ConversationHandler: is told, once per file, what of a message the template does not read
};

/// A prompt and an answer as one text: targets are the tokens that overlap the answer.
struct prompt_and_answer {
  std::string text{};
  std::size_t answer = 0;  ///< its first byte
};

/// Makes token sequences of records. Used by several threads at once.
class record_handler {
 public:
  virtual ~record_handler() = default;
  /// The datasets that it makes.
  [[nodiscard]] virtual std::vector<std::string> keys() const = 0;
  /// Whether tokens have a loss mask (one dataset: three files), or are texts.
  [[nodiscard]] virtual bool is_instruction() const = 0;
  /// Writes the samples of the record to `into`, which is resized: of texts one for each key, in the order of keys(), without tokens if the text is
  /// empty; of instructions one or more, which are one document.
  ///   record  its fields may be taken
  ///   throws  data_error with the place if the record is not of the handler's form
  virtual void tokenize(source_record& record, std::vector<detail::text_with_loss_mask>& into) const = 0;
  /// What decides its samples beside the record and the tokenizer: its name and options. An interrupted run of preprocess_data goes on only with the same.
  /// A handler of your own that has options should say them.
  [[nodiscard]] virtual json settings() const { return json::object(); }
};

/// The handler of a name, with or without "Handler" at its end:
///   GeneralPretrain                 texts: the fields `keys`
///   AlpacaPretrain                  instruction, input and output as one text
///   StackOverflowPythonPretrain     title, question_body and answer_body as one text
///   GeneralInstruction              instruction, input and output, or the fields of map_keys
///   BelleMultiTurnInstruction       turns of "Human:" and "Assistant:" in instruction; output is the last answer
///   MOSSInstruction                 turns of "Human" and "MOSS" in chat: a sample for each, which begins with the turns before it; thoughts, commands and
///                                   results are left out
///   LeetcodePythonInstruction       code_with_problem up to its code; code_only and explanation_only
///   Conversation                    conversations of any chat_form, by a chat template; every answer is a target
///   throws  config_error for an unknown name, an option that the handler does not have, append_eod without an end-of-text token, or instructions with a
///           tokenizer that puts tokens behind a prompt (ChatGLM-6B)
[[nodiscard]] std::unique_ptr<const record_handler> make_record_handler(const std::string& name, const tokenizer& with,
                                                                        handler_options options = {});

namespace detail {

/// AscendSpeed's form of a conversation:
///   "\n" system "\n", then of each turn "### Instruction:\n" or "### Response:\n", what is said, and "\n".
/// The answer is the last turn, its line break included.
class ascendspeed_prompt {
 public:
  ascendspeed_prompt();
  void user(std::string_view words) { add("### Instruction:\n", words); }
  void assistant(std::string_view words) { add("### Response:\n", words); }
  /// What has been said so far.
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
