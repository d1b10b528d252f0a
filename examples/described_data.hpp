// The datasets of a run description.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/data/gpt_dataset.hpp>
#include <xtrain/data/grouped_text_dataset.hpp>
#include <xtrain/data/indexed_instructions.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/text.hpp>

#include "command_line.hpp"

namespace command_line {

/// The name of a record's field: the description's, else the format's.
[[nodiscard]] inline std::string column(const xtrain::data_description& data, const char* name) {
  const auto at = data.columns.find(name);
  if (at == data.columns.end()) return name;
  xtrain::require<usage_error>(at->is_string(), "data.columns.", name, ": must be the name of a field; given ", at->dump());
  return at->get<std::string>();
}

[[nodiscard]] inline xtrain::overlong when_too_long(const xtrain::data_description& data) {
  return data.when_too_long == "truncate" ? xtrain::overlong::truncate : data.when_too_long == "drop" ? xtrain::overlong::leave_out : xtrain::overlong::refuse;
}

/// Samples with another end token, if the tokenizer has it.
[[nodiscard]] inline xtrain::dataset ended_by(xtrain::dataset from, const std::string& name, const xtrain::tokenizer& tokenizer) {
  const xtrain::token end = tokenizer.find_token(name), eos = tokenizer.special().eos;
  if (end < 0 || end == eos) return from;
  xtrain::dataset all(from.source(), from.layout());
  all.when_too_long = from.when_too_long;
  std::vector<xtrain::token> tokens;
  for (std::size_t s = 0; s < from.size(); ++s) {
    const std::size_t first = from.begin(s), length = from.length(s) - (eos >= 0 ? 1 : 0);
    tokens.resize(length);
    for (std::size_t i = 0; i < length; ++i) tokens[i] = from.at(first + i);
    tokens.push_back(end);
    all.add(tokens, [&](std::size_t i) { return i == length || from.is_target(first + i); });
  }
  all.finish();
  return all;
}

/// One dataset of a description, from files of samples.
///   has_labels  preferences are answers with labels, not pairs
[[nodiscard]] inline xtrain::dataset described_data(const xtrain::data_description& data, const std::string& path, const xtrain::tokenizer& tokenizer,
                                                    const chat_flags& chat, bool has_labels = false) {
  const auto known = [&](std::initializer_list<const char*> names) {
    for (const auto& column : data.columns.items())
      xtrain::require<usage_error>(std::find(names.begin(), names.end(), column.key()) != names.end(), "data.columns.", column.key(),
                                   ": there is no such field in data of kind ", data.kind);
  };
  xtrain::require<usage_error>(data.split.empty() || data.split == "train" || data.kind == "indexed_instructions", "data.split ", data.split,
                               ": parts of a file are not supported; split the file, or leave it out");
  xtrain::require<usage_error>(data.system_prompt.empty() || data.kind == "chat" || data.kind == "preference",
                               "data.system_prompt: needs conversations; the data is of kind ", data.kind);
  if (data.kind == "alpaca") {
    known({"instruction", "input", "output"});
    xtrain::instruct_options options{.train_on_input = data.train_on_input, .packed = data.packed, .when_too_long = when_too_long(data)};
    if (!data.prompt_template.empty()) options.prompt.with_input = options.prompt.without_input = data.prompt_template;
    if (!data.prompt_template_without_input.empty()) options.prompt.without_input = data.prompt_template_without_input;
    options.instruction_field = column(data, "instruction");
    options.input_field = column(data, "input");
    options.output_field = column(data, "output");
    options.max_prompt_tokens = data.max_prompt_tokens;
    options.max_answer_tokens = data.max_answer_tokens;
    options.skips_empty = data.skips_empty;
    options.learns_prompt_ending = data.learns_prompt_ending;
    return xtrain::instruct_dataset(path, tokenizer, options);
  }
  if (data.kind == "chat") {
    const bool has_prompt = !data.prompt_template.empty();
    if (has_prompt) known({"instruction", "input", "output"});
    else if (data.form == "messages" || data.form == "conversations") known({data.form.c_str()});
    else known({});
    const auto form = data.form == "messages"        ? xtrain::chat_form::messages
                      : data.form == "conversations" ? xtrain::chat_form::conversations
                      : data.form == "instruction"   ? xtrain::chat_form::instruction
                      : data.form == "moss"          ? xtrain::chat_form::moss
                                                     : xtrain::chat_form::automatic;
    xtrain::chat_options options{.form = form, .train_on_input = data.train_on_input, .packed = data.packed, .when_too_long = when_too_long(data)};
    if (has_prompt) {
      options.prompt.with_input = data.prompt_template;
      options.prompt.without_input = data.prompt_template_without_input.empty() ? data.prompt_template : data.prompt_template_without_input;
      options.instruction_field = column(data, "instruction");
      options.input_field = column(data, "input");
      options.output_field = column(data, "output");
    } else if (!data.columns.empty()) {
      options.conversation_field = column(data, data.form.c_str());
    }
    options.system_prompt = data.system_prompt;
    return chat.form ? xtrain::chat_dataset(path, tokenizer, chat.with(tokenizer), options) : xtrain::chat_dataset(path, tokenizer, options);
  }
  if (data.kind == "preference") {
    known({"prompt", "chosen", "rejected"});
    const auto field = [&](const char* name) { return data.columns.contains(name) ? column(data, name) : std::string(); };
    const xtrain::preference_options options{.form = data.form == "text"       ? xtrain::preference_form::text
                                                     : data.form == "messages" ? xtrain::preference_form::messages
                                                                               : xtrain::preference_form::automatic,
                                             .fields = {field("prompt"), field("chosen"), field("rejected")},
                                             .system_prompt = data.system_prompt,
                                             .when_too_long = when_too_long(data)};
    const auto read = [&](const auto&... form) {
      return has_labels ? xtrain::unpaired_preference_dataset(path, tokenizer, form..., options)
                        : xtrain::preference_dataset(path, tokenizer, form..., options);
    };
    return chat.form ? read(chat.with(tokenizer)) : read();
  }
  known({});
  if (data.kind == "indexed_instructions") {
    xtrain::indexed_instruction_options options{.packed = data.packed, .when_too_long = when_too_long(data)};
    for (const auto& [name, part] : {std::pair{"train of ", xtrain::data_split::train}, {"validation of ", xtrain::data_split::validation}})
      if (data.split.starts_with(name)) {
        options.part = part;
        options.split = data.split.substr(std::string_view(name).size());
      }
    xtrain::require<usage_error>(data.split.empty() || options.part, "data.split: must be 'train of' or 'validation of' weights, as 969,30,1; given '",
                                 data.split, "'");
    return xtrain::indexed_instruction_dataset(path, options);
  }
  if (data.group_texts > 0)
    return xtrain::grouped_text_dataset(data.files, tokenizer,
                                        {.field = data.text_field, .block_size = data.block_size, .group = data.group_texts, .workers = data.group_workers});
  const auto files = find_text_files({path});
  if (files.are_records) {
    xtrain::dataset texts = xtrain::json_text_dataset(files.paths, tokenizer,
                                                      {.field = data.text_field,
                                                       .layout = data.packed                  ? xtrain::sequence_layout::packed
                                                                 : data.form == "separate" ? xtrain::sequence_layout::separate
                                                                                           : xtrain::sequence_layout::stream,
                                                       .when_too_long = when_too_long(data)});
    if (!data.end_token.empty()) return ended_by(std::move(texts), data.end_token, tokenizer);
    return texts;
  }
  xtrain::require<usage_error>(data.end_token.empty(), "data.end_token ", data.end_token, ": needs records; ", path, " is one stream of text");
  xtrain::require<usage_error>(!data.packed && data.form != "separate" && data.text_field == "text", path,
                               ": is one stream of text, without records that have fields or can be separate or packed");
  return xtrain::text_dataset(path, tokenizer);
}

/// All samples of several datasets, in their order.
[[nodiscard]] inline xtrain::dataset concatenated(std::vector<xtrain::dataset> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  std::string source;
  for (const xtrain::dataset& part : parts) source += (source.empty() ? "" : " + ") + part.source();
  xtrain::dataset all(source, parts.front().layout());
  all.when_too_long = parts.front().when_too_long;
  all.group_size = parts.front().group_size;
  std::vector<xtrain::token> tokens;
  for (const xtrain::dataset& part : parts) {
    xtrain::require<usage_error>(part.layout() == all.layout() && part.group_size == all.group_size && part.when_too_long == all.when_too_long, "data: ",
                                 part.source(), " must have the layout of ", parts.front().source(), ": all packed or none, all pairs or none");
    part.require_own_tokens("concatenated()");
    for (std::size_t s = 0; s < part.size(); ++s) {
      const std::size_t first = part.begin(s);
      tokens.resize(part.length(s));
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = part.at(first + i);
      all.add(tokens, [&](std::size_t i) { return part.is_target(first + i); });
    }
  }
  all.finish();
  return all;
}

/// Packed samples of at most `max_length` tokens (0: of any length), with `gap` positions behind each.
[[nodiscard]] inline xtrain::dataset spaced(const xtrain::dataset& from, std::size_t max_length, std::size_t gap) {
  xtrain::dataset all(from.source(), from.layout());
  all.when_too_long = from.when_too_long;
  from.require_own_tokens("spaced()");
  std::vector<xtrain::token> tokens;
  for (std::size_t s = 0; s < from.size(); ++s) {
    const std::size_t first = from.begin(s), length = max_length > 0 ? std::min(from.length(s), max_length) : from.length(s);
    tokens.resize(length);
    for (std::size_t i = 0; i < length; ++i) tokens[i] = from.at(first + i);
    if (length > 0) tokens.insert(tokens.end(), gap, tokens.back());
    all.add(tokens, [&](std::size_t i) { return i < length && from.is_target(first + i); });
  }
  all.finish();
  return all;
}

/// Tokens of the longest sample with tokenizer.max_length (torchtune's texts have one less). 0: no limit.
[[nodiscard]] inline std::size_t longest_sample(const xtrain::data_description& data, std::size_t max_length) {
  return max_length > 1 && data.kind == "text" ? max_length - 1 : max_length;
}

/// All datasets of a description except indexed ones.
///   max_length  the tokenizer's; 0: none
[[nodiscard]] inline xtrain::dataset described_data(const std::vector<xtrain::data_description>& all, const xtrain::tokenizer& tokenizer,
                                                    const chat_flags& chat, bool has_labels = false, std::size_t max_length = 0) {
  std::vector<xtrain::dataset> parts;
  for (const xtrain::data_description& one : all) {
    xtrain::require<usage_error>(one.kind != "indexed" && one.weight == 0.0, "data: ", one.files.front(),
                                 ": blends, and indexed data beside other data, are not supported");
    const auto read = [&](const std::string& path) {
      parts.push_back(for_flag("data", path, [&] {
        xtrain::dataset samples = described_data(one, path, tokenizer, chat, has_labels);
        if (one.pack_gap == 0) return samples;
        const std::size_t longest = longest_sample(one, max_length), ends = one.pack_gap - 1;  // tokens that were left out had these positions
        return spaced(samples, longest > ends ? longest - ends : longest, one.pack_gap);
      }));
    };
    if (one.group_texts > 0) read(one.files.front());
    else for (const std::string& path : one.files) read(path);
  }
  xtrain::require<usage_error>(!has_labels || parts.size() == 1, "data: must be one file for an objective that reads labels; given ", parts.size());
  return concatenated(std::move(parts));
}

}  // namespace command_line
