// Definitions of json_dataset.hpp.
#pragma once

#include <algorithm>
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
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

XTRAIN_INLINE dataset json_text_dataset(const std::vector<std::string>& paths, const tokenizer& with, const json_text_options& options) {
  require<data_error>(!paths.empty(), "json_text_dataset: at least one path must be given");
  dataset all(paths.size() == 1 ? paths.front() : concat(paths.front(), " and ", paths.size() - 1, " more"), options.layout);
  all.when_too_long = options.when_too_long;
  for (const std::string& path : paths)
    detail::for_each_record(mapped_file(path), [&](const json& record, std::size_t line) {
      add_document(all, with, detail::text_field(record, options.field, path, line));
    });
  all.finish();
  return all;
}

XTRAIN_INLINE dataset json_text_dataset(const std::string& path, const tokenizer& with, const json_text_options& options) {
  return json_text_dataset(std::vector<std::string>{path}, with, options);
}

XTRAIN_INLINE dataset json_text_dataset(std::initializer_list<std::string> paths, const tokenizer& with, const json_text_options& options) {
  return json_text_dataset(std::vector<std::string>(paths), with, options);
}

XTRAIN_INLINE std::string prompt_template::text(std::string_view instruction, std::string_view input) const {
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

XTRAIN_INLINE prompt_template alpaca_template() {
  return {
      .with_input =
          "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately "
          "completes the request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
      .without_input =
          "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### "
          "Instruction:\n{instruction}\n\n### Response:\n"};
}

XTRAIN_INLINE dataset instruct_dataset(const std::string& path, const tokenizer& with, const instruct_options& options) {
  const mapped_file file(path);
  dataset all(path, options.packed ? sequence_layout::packed : sequence_layout::separate);
  all.when_too_long = options.when_too_long;
  const special_tokens& special = with.special();
  const std::vector<token> beginning = with.beginning(), ending = with.prompt_ending();
  detail::text_with_loss_mask sample;
  detail::for_each_record(file, [&](const json& record, std::size_t line) {
    const std::string instruction = detail::text_field(record, options.instruction_field, path, line);
    const auto given = record.find(options.input_field);
    const std::string input = given != record.end() && !given->is_null() ? detail::text_field(record, options.input_field, path, line) : std::string{};
    const std::string prompt = options.prompt.text(instruction, input);
    const std::string answer = detail::text_field(record, options.output_field, path, line);
    if (options.skips_empty && (instruction.empty() || answer.empty())) return;
    const std::string text = prompt + answer;
    const text_span answered{prompt.size(), text.size()};
    sample.clear();
    for (const token id : beginning) sample.add(id, false);
    if (ending.empty() && options.max_prompt_tokens == 0 && options.max_answer_tokens == 0) {
      sample.add(text, 0, std::span(&answered, 1), with);
    } else {
      const auto cut = [&](std::size_t from, std::size_t most) {
        if (most > 0) sample.shorten(std::min(sample.tokens.size(), from + most));
      };
      sample.add(prompt, 0, std::span(&answered, 1), with);
      cut(beginning.size(), options.max_prompt_tokens);
      for (std::size_t i = 0; i < ending.size(); ++i) sample.add(ending[i], options.learns_prompt_ending && i + 1 == ending.size());
      const std::size_t begin = sample.tokens.size();
      sample.add(answer, prompt.size(), std::span(&answered, 1), with);
      cut(begin, options.max_answer_tokens);
    }
    if (special.eos >= 0) sample.add(special.eos, true);
    sample.add_to(all, options.train_on_input);
  });
  all.finish();
  return all;
}

}  // namespace xtrain
