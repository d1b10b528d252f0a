// Answers that are preferred to others, as groups of samples: for objectives that compare them. Component 'io'.
#pragma once

#include <string>

#include <xtrain/chat/chat_form.hpp>
#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/warning.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// How preferences are read.
struct preference_options {
  preference_form form = preference_form::automatic;
  preference_fields fields{};       ///< of pairs
  std::string system_prompt{};      ///< of pairs of messages: a system message before every prompt, in place of its own
  overlong when_too_long = overlong::refuse;
  /// For the objective reward, which scores the last token that has a target: one more token follows, so that it is the token that an answer ends with,
  /// as in transformers.
  bool scores_last_token = false;
  chat_variables variables{};  ///< for the template; tools and chat_template_kwargs of a record override those given here
  warning_handler warn = print_warning;  ///< is told, once per file, what of a message the template does not read
};

/// Pairs of a file, a JSON list or JSON Lines: sample 2i is a prompt with the chosen answer, sample 2i + 1 the same prompt with the rejected one. The
/// loss mask covers what the assistant says after the prompt and what ends its turn; tokens are found by their bytes. Records of messages
/// need a chat template; strings are used as they are, and an answer ends with the end-of-text token.
///   throws  file_error; data_error with file and line if a record is malformed or the template rejects it; config_error if the template fails
[[nodiscard]] dataset preference_dataset(const std::string& path, const tokenizer& with, const preference_options& options = {});
[[nodiscard]] dataset preference_dataset(const std::string& path, const tokenizer& with, const chat_template& form, const preference_options& options = {});

/// Answers with a label each, for kto: sample 2i is a prompt with its answer, sample 2i + 1 the same prompt with the answer of the next record (of the
/// last: the first), from which a KL divergence is estimated. Both have the label, 1 desirable or 0 undesirable.
///   throws  as preference_dataset; data_error if there is only one record
[[nodiscard]] dataset unpaired_preference_dataset(const std::string& path, const tokenizer& with, const preference_options& options = {});
[[nodiscard]] dataset unpaired_preference_dataset(const std::string& path, const tokenizer& with, const chat_template& form,
                                                  const preference_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/preference_dataset_impl.hpp>
#endif
