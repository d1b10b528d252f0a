// Definitions of chat_dataset.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_record.hpp>
#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/chat_dataset.hpp>
#include <xtrain/data/chat_encoder.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/json_dataset.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/jinja/from_json.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

XTRAIN_INLINE std::vector<token> encode_chat(std::string_view text, const tokenizer& with, const chat_template& form) {
  detail::text_with_loss_mask sample;
  detail::chat_encoder(with, form).encode({std::string(text), {}}, sample);
  return std::move(sample.tokens);
}

namespace detail {

[[nodiscard]] inline chat_record chat_of_record(const chat_record_reader& reader, const jinja_value& record, const chat_options& options) {
  const bool has_prompt = !options.prompt.with_input.empty() || !options.prompt.without_input.empty();
  chat_record result;
  if (has_prompt) {
    const auto asked = reader.read_question(record, options.instruction_field, options.input_field, options.output_field);
    result = chat_record_reader::dialogue(options.prompt.text(asked.instruction, asked.input), asked.output);
  } else {
    result = reader.read(record, options.form, options.conversation_field);
  }
  if (!options.system_prompt.empty()) {
    reader.require_messages(result);
    chat_record_reader::set_system(result, options.system_prompt);
  }
  return result;
}

///   form   null: records must be texts
[[nodiscard]] inline dataset chats(const std::string& path, const tokenizer& with, const chat_template* form, const chat_options& options) {
  const bool has_prompt = !options.prompt.with_input.empty() || !options.prompt.without_input.empty();
  require<config_error>(!has_prompt || options.form == chat_form::instruction, "chat_dataset: a prompt template needs the form instruction");
  const bool renamed = options.instruction_field != "instruction" || options.input_field != "input" || options.output_field != "output";
  require<config_error>(!renamed || has_prompt, "chat_dataset: names of the fields instruction, input and output need a prompt template");
  require<config_error>(options.conversation_field.empty() || options.form == chat_form::messages || options.form == chat_form::conversations,
                        "chat_dataset: conversation_field needs the form messages or conversations; given '", options.conversation_field, "'");
  const mapped_file file(path);
  dataset all(path, options.packed ? sequence_layout::packed : sequence_layout::separate);
  all.when_too_long = options.when_too_long;
  const chat_record_encoder encoder(with, form);
  unread_warnings warnings(options.warn);
  for_each_record_text(file, [&](std::string_view text, std::size_t line) {
    const jinja_value value = jinja_value_from_json(text, path, line);
    const chat_record record = chat_of_record(chat_record_reader(path, line), value, options);
    const std::string place = concat(path, ": line ", line);
    try {
      text_with_loss_mask sample;
      const std::vector<unread_field> unread = encoder.encode(record, options.variables, sample);
      require<data_error>(options.train_on_input || std::find(sample.learned.begin(), sample.learned.end(), true) != sample.learned.end(),
                          "a conversation must have an answer to train on; it has none");
      if (form != nullptr) warnings.say(path, place, unread, record.variables, *form);
      sample.add_to(all, options.train_on_input);
    } catch (const data_error& problem) {
      fail<data_error>(place, ": ", problem.what());
    } catch (const config_error& problem) {
      fail<config_error>(place, ": ", problem.what());
    }
  });
  all.finish();
  return all;
}

}  // namespace detail

XTRAIN_INLINE dataset chat_dataset(const std::string& path, const tokenizer& with, const chat_template& form, const chat_options& options) {
  return detail::chats(path, with, &form, options);
}
XTRAIN_INLINE dataset chat_dataset(const std::string& path, const tokenizer& with, const chat_options& options) {
  return detail::chats(path, with, nullptr, options);
}

XTRAIN_INLINE bool holds_text_completions(const std::string& path) {
  const json record = first_record(path);
  if (!record.is_object()) return false;
  const auto is_text = [&](const char* name) { return record.contains(name) && record[name].is_string(); };
  return is_text("prompt") && is_text("completion");
}

}  // namespace xtrain
