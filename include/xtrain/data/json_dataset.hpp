// JSON and JSON Lines: a text field of each record, or instructions with answers. Component 'io'.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/learned_text.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/data/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// The end of the JSON value that begins at `at`: counts brackets, skips strings. Validity is left to
/// the parser.
[[nodiscard]] inline std::size_t value_end(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    else if (c == '{' || c == '[') ++depth;
    else if (c == '}' || c == ']') {
      if (depth == 0) return i;
      if (--depth == 0) return i + 1;
    } else if (c == ',' && depth == 0) return i;
  }
  return text.size();
}

[[nodiscard]] inline std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r')) ++at;
  return at;
}

/// Calls visit(text, line) for every record of a file: the elements of a JSON list, the lines of a JSON Lines file, or
/// a single object. One record is held at a time. Records are not validated.
///   throws  data_error with file and line if the list is malformed
template <class Visit>
void for_each_record_text(const mapped_file& file, Visit&& visit) {
  const std::string_view text = file.text();
  std::size_t at = skip_space(text, text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  std::size_t line = 1, counted = 0;
  const auto line_at = [&](std::size_t place) {  // positions only grow, so lines are counted in one pass
    line += static_cast<std::size_t>(
        std::count(text.begin() + static_cast<std::ptrdiff_t>(counted), text.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
    counted = place;
    return line;
  };
  if (at < text.size() && text[at] == '[') {
    at = skip_space(text, at + 1);
    bool first = true;
    while (at < text.size() && text[at] != ']') {
      if (!first) {
        if (text[at] != ',')
          fail<data_error>(file.path(), ": must be a JSON list; line ", line_at(at), ": records must be separated by commas");
        at = skip_space(text, at + 1);
      }
      first = false;
      const std::size_t end = value_end(text, at);
      const std::size_t where = line_at(at);
      visit(text.substr(at, end - at), where);
      at = skip_space(text, end);
    }
    if (at >= text.size())
      fail<data_error>(file.path(), ": must be a JSON list; line ", line_at(text.size()),
                       ": the list does not end. Is the file cut short?");
    const std::size_t behind = skip_space(text, at + 1);
    if (behind < text.size())
      fail<data_error>(file.path(), ": must be one JSON list; line ", line_at(behind), ": something stands behind it");
    return;
  }
  if (at < text.size() && text[at] == '{') {  // a single record may span lines
    const std::size_t end = value_end(text, at);
    if (text[end - 1] == '}' && skip_space(text, end) == text.size()) {
      visit(text.substr(at, end - at), line_at(at));
      return;
    }
  }
  for (std::size_t begin = at; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view record = text.substr(begin, end - begin);
    if (skip_space(record, 0) < record.size()) visit(record, line_at(begin));
    begin = end + 1;
  }
}

/// Calls visit(record, line) with each parsed record.
///   throws  data_error with file and line if a record is not JSON
template <class Visit>
void for_each_record(const mapped_file& file, Visit&& visit) {
  for_each_record_text(file,
                       [&](std::string_view text, std::size_t line) { visit(parse_json<data_error>(text, file.path(), line), line); });
}

/// A string field of a record.
///   throws  data_error with file and line if it is missing or not a string
[[nodiscard]] inline std::string text_field(const json& record, const std::string& field, const std::string& path, std::size_t line) {
  require<data_error>(record.is_object(), path, ": line ", line, ": a record must be an object; it is ", record.type_name());
  const auto at = record.find(field);
  require<data_error>(at != record.end(), path, ": line ", line, ": a record must have '", field, "'; it is missing");
  require<data_error>(at->is_string(), path, ": line ", line, ": '", field, "' must be a string; it is ", at->type_name());
  return at->get<std::string>();
}

}  // namespace detail

/// How a JSON file of texts is read.
struct json_text_options {
  std::string field = "text";  ///< of every record
  row_layout layout = row_layout::stream;
  overlong when_too_long = overlong::refuse;  ///< for layouts of whole samples
};

/// The texts of all records, each a document.
///   throws  file_error, data_error with the line if a record is malformed
[[nodiscard]] inline dataset json_text_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                               const json_text_options& options = {}) {
  require<data_error>(!paths.empty(), "json_text_dataset: at least one path must be given");
  dataset all(paths.size() == 1 ? paths.front() : concat(paths.front(), " and ", paths.size() - 1, " more"), options.layout);
  all.when_too_long = options.when_too_long;
  for (const std::string& path : paths)
    detail::for_each_record(mapped_file(path), [&](const json& record, std::size_t line) {
      detail::add_document(all, with, detail::text_field(record, options.field, path, line));
    });
  all.finish();
  return all;
}
[[nodiscard]] inline dataset json_text_dataset(const std::string& path, const tokenizer& with, const json_text_options& options = {}) {
  return json_text_dataset(std::vector<std::string>{path}, with, options);
}
[[nodiscard]] inline dataset json_text_dataset(std::initializer_list<std::string> paths, const tokenizer& with,
                                               const json_text_options& options = {}) {
  return json_text_dataset(std::vector<std::string>(paths), with, options);
}

/// The prompt before an answer. {instruction} and {input} are replaced.
struct prompt_template {
  std::string with_input{};
  std::string without_input{};

  [[nodiscard]] std::string text(std::string_view instruction, std::string_view input) const {
    std::string result;
    const std::string_view form = input.empty() ? without_input : with_input;
    for (std::size_t i = 0; i < form.size();) {
      if (form.substr(i).starts_with("{instruction}")) {
        result += instruction;
        i += 13;
      } else if (form.substr(i).starts_with("{input}")) {
        result += input;
        i += 7;
      } else {
        result.push_back(form[i++]);
      }
    }
    return result;
  }
};

/// Stanford Alpaca's template.
[[nodiscard]] inline prompt_template alpaca_template() {
  return {
      .with_input =
          "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately "
          "completes the request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
      .without_input =
          "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### "
          "Instruction:\n{instruction}\n\n### Response:\n"};
}

/// How instructions are read.
struct instruct_options {
  bool train_on_input = false;  ///< the prompt contributes to the loss as well
  bool packed = false;          ///< several samples per sequence, kept apart
  prompt_template prompt = alpaca_template();
  overlong when_too_long = overlong::refuse;
};

/// Records of instruction, input (may be missing or empty) and output. The targets are the tokens that overlap the answer's
/// bytes, found by offsets, whatever the answer contains.
///   throws  file_error, data_error with the line if a record is malformed
[[nodiscard]] inline dataset instruct_dataset(const std::string& path, const tokenizer& with, const instruct_options& options = {}) {
  const mapped_file file(path);
  dataset all(path, options.packed ? row_layout::packed : row_layout::separate);
  all.when_too_long = options.when_too_long;
  const special_tokens& special = with.special();
  const std::vector<token> beginning = with.beginning(), ending = with.prompt_ending();
  detail::learned_text sample;
  detail::for_each_record(file, [&](const json& record, std::size_t line) {
    const std::string instruction = detail::text_field(record, "instruction", path, line);
    const std::string input =
        record.contains("input") && !record["input"].is_null() ? detail::text_field(record, "input", path, line) : std::string{};
    const std::string prompt = options.prompt.text(instruction, input);
    const std::string answer = detail::text_field(record, "output", path, line);
    const std::string text = prompt + answer;
    const text_span answered{prompt.size(), text.size()};
    sample.clear();
    for (const token id : beginning) sample.add(id, false);
    if (ending.empty()) {
      sample.add(text, 0, std::span(&answered, 1), with);
    } else {
      sample.add(prompt, 0, std::span(&answered, 1), with);
      for (const token id : ending) sample.add(id, false);
      sample.add(answer, prompt.size(), std::span(&answered, 1), with);
    }
    if (special.eos >= 0) sample.add(special.eos, true);
    sample.add_to(all, options.train_on_input);
  });
  all.finish();
  return all;
}

}  // namespace xtrain
