// Conversations as samples, formatted by a chat template; the loss is on the assistant's turns. Component 'io'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/chat/chat_form.hpp>
#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/warning.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// How conversations are read.
struct chat_options {
  chat_form form = chat_form::automatic;
  bool train_on_input = false;  ///< the other roles' text contributes to the loss as well
  bool packed = false;          ///< several conversations per sequence, kept apart
  overlong when_too_long = overlong::refuse;
  /// Of the form instruction: what the user says, with {instruction} and {input}. Empty: the instruction and the input as they are, with earlier turns.
  prompt_template prompt{};
  std::string instruction_field = "instruction", input_field = "input", output_field = "output";  ///< what a record of that form calls them
  std::string conversation_field{};  ///< the list of messages, in the forms messages and conversations; empty: the form's name
  std::string system_prompt{};       ///< a system message at the beginning, in place of the conversation's own
  chat_variables variables{};  ///< for the template; tools and chat_template_kwargs of a record override those given here
  warning_handler warn = print_warning;  ///< is told, once per file, what of a message the template does not read
};

/// Conversations of a file: a JSON list or JSON Lines. The loss is on what the assistant says and on what ends its turn; the
/// tokens are found by their bytes.
///   throws  file_error; data_error with file and line if a record is malformed or the template rejects it; config_error if the
///           template fails
[[nodiscard]] dataset chat_dataset(const std::string& path, const tokenizer& with, const chat_template& form, const chat_options& options = {});
/// Without a template: records with a prompt and a completion that are strings.
[[nodiscard]] dataset chat_dataset(const std::string& path, const tokenizer& with, const chat_options& options = {});

/// Whether the first record of a file has a prompt and a completion that are strings, which need no chat template.
///   throws  file_error
[[nodiscard]] bool holds_text_completions(const std::string& path);

/// The tokens of a text that the template has written, as chat_dataset makes them: a prompt for a model that was trained on such chats.
[[nodiscard]] std::vector<token> encode_chat(std::string_view text, const tokenizer& with, const chat_template& form);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/chat_dataset_impl.hpp>
#endif
