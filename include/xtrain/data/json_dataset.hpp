// JSON and JSON Lines: texts, or instructions with answers. Component 'io'.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/data/dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// How a file of texts is read.
struct json_text_options {
  std::string field = "text";  ///< in every record
  sequence_layout layout = sequence_layout::stream;
  overlong when_too_long = overlong::refuse;  ///< for layouts of entire samples
};

/// Each record's text is a document.
///   throws  file_error, data_error with the line if a record is malformed
[[nodiscard]] dataset json_text_dataset(const std::vector<std::string>& paths, const tokenizer& with, const json_text_options& options = {});
/// For one file.
[[nodiscard]] dataset json_text_dataset(const std::string& path, const tokenizer& with, const json_text_options& options = {});
[[nodiscard]] dataset json_text_dataset(std::initializer_list<std::string> paths, const tokenizer& with, const json_text_options& options = {});

/// The prompt before an answer, with {instruction} and {input}.
struct prompt_template {
  std::string with_input{};
  std::string without_input{};

  [[nodiscard]] std::string text(std::string_view instruction, std::string_view input) const;
};

/// Stanford Alpaca's template.
[[nodiscard]] prompt_template alpaca_template();

/// How instructions are read.
struct instruct_options {
  bool train_on_input = false;  ///< the loss also covers the prompt
  bool packed = false;          ///< several samples per sequence, isolated
  prompt_template prompt = alpaca_template();
  overlong when_too_long = overlong::refuse;
  std::string instruction_field = "instruction", input_field = "input", output_field = "output";
  std::size_t max_prompt_tokens = 0, max_answer_tokens = 0;  ///< limits of prompt and answer (without end token); 0: none
  bool skips_empty = false;  ///< omits records with an empty instruction or answer
  /// The last token that the tokenizer puts after a prompt is a target, as in ChatGLM-6B's P-tuning.
  bool learns_prompt_ending = false;
};

/// Records of instruction, input (optional) and output. Targets overlap the answer's bytes, found by offsets.
///   throws  file_error, data_error with the line if a record is malformed
[[nodiscard]] dataset instruct_dataset(const std::string& path, const tokenizer& with, const instruct_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/json_dataset_impl.hpp>
#endif
