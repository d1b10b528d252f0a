// Preferred and other answers as groups of samples. Component 'io'.
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
  preference_fields fields{};       ///< for pairs
  std::string system_prompt{};      ///< pairs of messages: system message of every prompt, in place of the given
  overlong when_too_long = overlong::refuse;
  /// For objective reward, which scores the last token with a target: a token follows, so that the answer's last token is scored, as in transformers.
  bool scores_last_token = false;
  chat_variables variables{};  ///< for the template; a record's tools and chat_template_kwargs override them
  warning_handler warn = print_warning;  ///< told once per file what the template does not read of messages
};

/// Pairs of a JSON list or JSON Lines: sample 2i is a prompt with the chosen answer, 2i + 1 with the rejected. The loss covers the assistant's text after the
/// prompt and the end of its turn; tokens are found by their bytes. Messages need a chat template; strings are used unchanged, and an answer ends with
/// the end-of-text token.
///   throws  file_error; data_error with file and line if a record is malformed or the template rejects it; config_error if the template fails
[[nodiscard]] dataset preference_dataset(const std::string& path, const tokenizer& with, const preference_options& options = {});
[[nodiscard]] dataset preference_dataset(const std::string& path, const tokenizer& with, const chat_template& form, const preference_options& options = {});

/// Labeled answers, for kto: sample 2i is a prompt with its answer, 2i + 1 the prompt with the next record's answer (last: the first's), for estimating a
/// KL divergence. Both have the label, 1 desirable or 0 undesirable.
///   throws  as preference_dataset; data_error if there is only one record
[[nodiscard]] dataset unpaired_preference_dataset(const std::string& path, const tokenizer& with, const preference_options& options = {});
[[nodiscard]] dataset unpaired_preference_dataset(const std::string& path, const tokenizer& with, const chat_template& form,
                                                  const preference_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/preference_dataset_impl.hpp>
#endif
