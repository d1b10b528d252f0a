// Conversations as samples, formatted by a chat template; the loss covers the assistant's turns. Component 'io'.
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
  bool train_on_input = false;  ///< the loss also covers other roles
  bool packed = false;          ///< several conversations per sequence, isolated
  overlong when_too_long = overlong::refuse;
  /// Form instruction: the user's text, with {instruction} and {input}. Empty: instruction and input, with earlier turns.
  prompt_template prompt{};
  std::string instruction_field = "instruction", input_field = "input", output_field = "output";  ///< field names of that form
  std::string conversation_field{};  ///< list of messages, forms messages and conversations; empty: the form's name
  std::string system_prompt{};       ///< system message at the beginning, in place of the conversation's
  chat_variables variables{};  ///< for the template; a record's tools and chat_template_kwargs override them
  warning_handler warn = print_warning;  ///< told once per file what the template does not read of messages
};

/// Conversations of a JSON list or JSON Lines. The loss covers the assistant's text and the end of its turn; tokens are found by their bytes.
///   throws  file_error; data_error with file and line if a record is malformed or the template rejects it; config_error if the template fails
[[nodiscard]] dataset chat_dataset(const std::string& path, const tokenizer& with, const chat_template& form, const chat_options& options = {});
/// Without a template: prompts and completions are strings.
[[nodiscard]] dataset chat_dataset(const std::string& path, const tokenizer& with, const chat_options& options = {});

/// The first record has a string prompt and completion, which need no template.
///   throws  file_error
[[nodiscard]] bool holds_text_completions(const std::string& path);

/// Tokens of a text that the template has written, as in chat_dataset: a prompt for a model trained on such chats.
[[nodiscard]] std::vector<token> encode_chat(std::string_view text, const tokenizer& with, const chat_template& form);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/chat_dataset_impl.hpp>
#endif
