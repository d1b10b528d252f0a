// Definitions of preference_dataset.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_record.hpp>
#include <xtrain/chat/chat_template.hpp>
#include <xtrain/chat/preference_record.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text_span.hpp>
#include <xtrain/data/chat_encoder.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/preference_dataset.hpp>
#include <xtrain/data/text_with_loss_mask.hpp>
#include <xtrain/jinja/from_json.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// Tokenizes prompts with answers; only answers are targets.
class preference_encoder {
 public:
  ///   form   null: records are texts
  preference_encoder(const tokenizer& with, const chat_template* form, const chat_variables& variables) : with_(with), form_(form), variables_(variables) {
    if (form != nullptr) encoder_.emplace(with, *form);
  }

  /// A record's prompt, and an answer of any record.
  ///   unread  receives message fields that the template has not read
  ///   throws  data_error when the answer has no target
  [[nodiscard]] text_with_loss_mask encode(const preference_record& record, const preference_part& answer, std::vector<unread_field>& unread) const {
    text_with_loss_mask sample;
    unread.clear();
    if (record.is_text) add_text(record.prompt.text, answer.text, sample);
    else unread = add_messages(record, answer, sample);
    require<data_error>(std::find(sample.learned.begin(), sample.learned.end(), true) != sample.learned.end(),
                        "an answer must have tokens to train on; it is empty");
    return sample;
  }

 private:
  void add_text(const std::string& prompt, const std::string& answer, text_with_loss_mask& sample) const {
    for (const token id : with_.beginning()) sample.add(id, false);
    const std::string text = prompt + answer;
    const text_span answered{prompt.size(), text.size()};
    if (const std::vector<token> ending = with_.prompt_ending(); ending.empty()) {
      sample.add(text, 0, std::span(&answered, 1), with_);
    } else {
      sample.add(prompt, 0, std::span(&answered, 1), with_);
      for (const token id : ending) sample.add(id, false);
      sample.add(answer, prompt.size(), std::span(&answered, 1), with_);
    }
    const token eos = with_.special().eos;
    if (eos >= 0 && (answer.empty() || sample.tokens.empty() || sample.tokens.back() != eos)) sample.add(eos, true);
  }
  std::vector<unread_field> add_messages(const preference_record& record, const preference_part& answer, text_with_loss_mask& sample) const {
    require<data_error>(form_ != nullptr, "a record of messages needs a chat template; none is given");
    const chat_variables variables = variables_with(variables_, record.tools, record.variables);
    chat_record whole{.messages = record.prompt.messages, .tools = record.tools};
    whole.messages.insert(whole.messages.end(), answer.messages.begin(), answer.messages.end());
    chat_text chat = form_->apply_with_answers(jinja_value(whole.messages), variables, record.prompt.messages.size());
    // the prompt's assistant text is no target
    const std::string prompt = record.prompt.messages.empty() ? "" : form_->apply(jinja_value(record.prompt.messages), variables);
    const auto end =
        std::mismatch(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(std::min(prompt.size(), chat.text.size())), chat.text.begin());
    const auto begin = static_cast<std::size_t>(end.first - prompt.begin());
    std::erase_if(chat.answers, [&](const text_span& one) { return one.begin < begin; });
    encoder_->encode(chat, sample);
    if (with_.special().eos >= 0 && ends_open(chat, whole)) sample.add(with_.special().eos, true);
    return std::move(chat.unread);
  }

  const tokenizer& with_;
  const chat_template* form_;
  const chat_variables& variables_;
  std::optional<chat_encoder> encoder_{};
};

/// Runs work and adds the line to errors.
template <class Work>
void at_line(const std::string& path, std::size_t line, Work&& work) {
  try {
    work();
  } catch (const data_error& problem) {
    fail<data_error>(path, ": line ", line, ": ", problem.what());
  } catch (const config_error& problem) {
    fail<config_error>(path, ": line ", line, ": ", problem.what());
  }
}

/// Replaces a prompt's system message.
///   throws  data_error when the prompt is a text
inline void begin_with(preference_record& record, const std::string& system) {
  require<data_error>(!record.is_text, "a system prompt needs records of messages; this one has texts that are used as they are");
  std::vector<jinja_value>& messages = record.prompt.messages;
  std::erase_if(messages, [](const jinja_value& one) { return preference_record_reader::role_of_message(one) == "system"; });
  messages.insert(messages.begin(), preference_record_reader::message_of("system", system));
}

[[nodiscard]] inline dataset preferences(const std::string& path, const tokenizer& with, const chat_template* form, const preference_options& options) {
  const mapped_file file(path);
  dataset all(path, sequence_layout::separate);
  all.group_size = 2;
  all.when_too_long = options.when_too_long;
  const preference_encoder encoder(with, form, options.variables);
  unread_warnings warnings(options.warn);
  std::vector<unread_field> unread;
  for_each_record_text(file, [&](std::string_view text, std::size_t line) {
    const jinja_value value = jinja_value_from_json(text, path, line);
    preference_record record = preference_record_reader(path, line).read_pair(value, options.form, options.fields);
    at_line(path, line, [&] {
      if (!options.system_prompt.empty()) begin_with(record, options.system_prompt);
      for (const preference_part& answer : record.answers) {
        text_with_loss_mask sample = encoder.encode(record, answer, unread);
        if (form != nullptr) warnings.say(path, concat(path, ": line ", line), unread, record.variables, *form);
        if (options.scores_last_token) sample.add(sample.tokens.back(), true);
        sample.add_to(all, false);
      }
    });
  });
  all.finish();
  return all;
}

[[nodiscard]] inline dataset unpaired_preferences(const std::string& path, const tokenizer& with, const chat_template* form,
                                                  const preference_options& options) {
  require<config_error>(!options.scores_last_token, "unpaired_preference_dataset: scores_last_token is for pairs");
  require<config_error>(options.system_prompt.empty() && options.fields.prompt.empty() && options.fields.chosen.empty() && options.fields.rejected.empty(),
                        "unpaired_preference_dataset: fields and system_prompt are for pairs");
  const mapped_file file(path);
  dataset all(path, sequence_layout::separate);
  all.group_size = 2;
  all.when_too_long = options.when_too_long;
  const preference_encoder encoder(with, form, options.variables);
  unread_warnings warnings(options.warn);
  std::vector<unread_field> unread;
  struct read_record {
    preference_record record{};
    std::size_t line = 0;
  };
  std::optional<read_record> first, last;  // a sample needs the next record's answer, the last the first's
  const auto add = [&](const read_record& own, const read_record& other) {
    require<data_error>(own.record.is_text == other.record.is_text, path, ": line ", other.line,
                        ": a file's records must all be texts or all be messages; the record of line ", own.line, " is of the other kind");
    at_line(path, own.line, [&] {
      for (const read_record* from : {&own, &other}) {
        const text_with_loss_mask sample = encoder.encode(own.record, from->record.answers.front(), unread);
        if (form != nullptr) warnings.say(path, concat(path, ": line ", from->line), unread, own.record.variables, *form);
        all.add(sample.tokens, [&](std::size_t i) { return static_cast<bool>(sample.learned[i]); }, {.label = own.record.label});
      }
    });
  };
  for_each_record_text(file, [&](std::string_view text, std::size_t line) {
    read_record now{preference_record_reader(path, line).read_labelled(jinja_value_from_json(text, path, line), options.form), line};
    if (last) add(*last, now);
    else first = now;
    last = std::move(now);
  });
  require<data_error>(!first || first->line != last->line || all.size() > 0, path,
                      ": must have at least two records: the answer of another one is needed for every prompt; it has one");
  if (first) add(*last, *first);
  all.finish();
  return all;
}

}  // namespace detail

XTRAIN_INLINE dataset preference_dataset(const std::string& path, const tokenizer& with, const preference_options& options) {
  return detail::preferences(path, with, nullptr, options);
}
XTRAIN_INLINE dataset preference_dataset(const std::string& path, const tokenizer& with, const chat_template& form, const preference_options& options) {
  return detail::preferences(path, with, &form, options);
}
XTRAIN_INLINE dataset unpaired_preference_dataset(const std::string& path, const tokenizer& with, const preference_options& options) {
  return detail::unpaired_preferences(path, with, nullptr, options);
}
XTRAIN_INLINE dataset unpaired_preference_dataset(const std::string& path, const tokenizer& with, const chat_template& form,
                                                  const preference_options& options) {
  return detail::unpaired_preferences(path, with, &form, options);
}

}  // namespace xtrain
