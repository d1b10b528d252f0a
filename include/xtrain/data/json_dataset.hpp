// JSON and JSON Lines: a text field of each record, or instructions with answers. Component 'io'.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/data/dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// How a JSON file of texts is read.
struct json_text_options {
  std::string field = "text";  ///< of every record
  sequence_layout layout = sequence_layout::stream;
  overlong when_too_long = overlong::refuse;  ///< for layouts of whole samples
};

/// The texts of all records, each a document.
///   throws  file_error, data_error with the line if a record is malformed
[[nodiscard]] dataset json_text_dataset(const std::vector<std::string>& paths, const tokenizer& with, const json_text_options& options = {});
/// The same for one file.
[[nodiscard]] dataset json_text_dataset(const std::string& path, const tokenizer& with, const json_text_options& options = {});
[[nodiscard]] dataset json_text_dataset(std::initializer_list<std::string> paths, const tokenizer& with, const json_text_options& options = {});

/// The prompt before an answer. {instruction} and {input} are replaced.
struct prompt_template {
  std::string with_input{};
  std::string without_input{};

  [[nodiscard]] std::string text(std::string_view instruction, std::string_view input) const;
};

/// Stanford Alpaca's template.
[[nodiscard]] prompt_template alpaca_template();

/// How instructions are read.
struct instruct_options {
  bool train_on_input = false;  ///< the prompt contributes to the loss as well
  bool packed = false;          ///< several samples per sequence, kept apart
  prompt_template prompt = alpaca_template();
  overlong when_too_long = overlong::refuse;
  std::string instruction_field = "instruction", input_field = "input", output_field = "output";  ///< what a record calls them
  std::size_t max_prompt_tokens = 0, max_answer_tokens = 0;  ///< the prompt, and the answer without its end token, are cut at so many tokens; 0: they are not
  bool skips_empty = false;  ///< records with an empty instruction or answer are left out; false: they are samples
  /// The last of the tokens that the tokenizer puts behind a prompt is a target, as in ChatGLM-6B's P-tuning; false: they are not.
  bool learns_prompt_ending = false;
};

/// Records of instruction, input (may be missing or empty) and output. The targets are the tokens that overlap the answer's
/// bytes, found by offsets, whatever the answer contains.
///   throws  file_error, data_error with the line if a record is malformed
[[nodiscard]] dataset instruct_dataset(const std::string& path, const tokenizer& with, const instruct_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/json_dataset_impl.hpp>
#endif
