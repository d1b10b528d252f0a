// Generates answers to records with known answers, and scores them, as --do_predict of ChatGLM-6B's ptuning/main.py.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/utf8.hpp>
#include <xtrain/data/record_source.hpp>
#include <xtrain/eval/text_overlap.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/text/tokenizer.hpp>

#include "command_line.hpp"
#include "log_styles_hugging_face.hpp"

namespace command_line {

struct prediction_flags {
  std::string folder{}, prompt_field = "prompt", answer_field{}, prompt_prefix{};
  std::size_t max_prompt_tokens = 0, max_answer_tokens = 0, max_length = 0, max_samples = 0;

  /// Returns the flag that asks for predictions.
  CLI::Option* add(CLI::App& app, CLI::Option* prompts) {
    auto* const predicts =
        app.add_option("--predictions", folder,
                       "--prompts is a file of records (.json, .jsonl, .csv) whose answers are known; writes generated_predictions.txt and "
                       "predict_results.json, and prints BLEU and ROUGE, as a program of Hugging Face's Trainer does with --do_predict")
            ->needs(prompts)
            ->type_name("DIR");
    app.add_option("--prompt-field", prompt_field, "the field of a record that is the prompt")->needs(predicts)->type_name("NAME")->capture_default_str();
    auto* const answer = app.add_option("--answer-field", answer_field, "the field of a record that is its answer")->needs(predicts)->type_name("NAME");
    predicts->needs(answer);
    app.add_option("--prompt-prefix", prompt_prefix, "text before every prompt")->needs(predicts)->type_name("TEXT");
    const auto count = [&](const char* flag, std::size_t& to, const char* help) {
      app.add_option(flag, to, help)->needs(predicts)->check(positive_whole_number())->type_name("N");
    };
    count("--max-prompt-tokens", max_prompt_tokens, "prompts are cut at the right to as many tokens, with those that the tokenizer adds");
    count("--max-answer-tokens", max_answer_tokens, "the records' answers are cut to as many tokens, with those that the tokenizer adds");
    count("--max-length", max_length,
          "tokens of a prompt and its answer, in place of --max-new-tokens, where a prompt has as many as the longest of each 1000 records");
    count("--max-samples", max_samples, "only the first records");
    return predicts;
  }
  [[nodiscard]] bool given() const { return !folder.empty(); }
};

/// The prompts and answers of a file, without records in which one is empty.
class answered_prompts {
 public:
  /// throws  usage_error, file_error, data_error
  answered_prompts(const prediction_flags& flags, const std::string& file) {
    const auto formats = xtrain::record_formats();
    const auto* const format = xtrain::find_format(formats, file);
    xtrain::require<usage_error>(format != nullptr, "--prompts: must be a file of records with --predictions: .json, .jsonl or .csv; given '", file, "'");
    std::size_t read = 0;
    format->read(file, {}, [&](xtrain::source_record&& record) {
      if (flags.max_samples > 0 && read >= flags.max_samples) return;
      const std::size_t group = read++ / together;
      const xtrain::source_place place = record.place;
      const xtrain::json fields = std::move(record).parsed();
      const auto text = [&](const std::string& field) {
        const auto at = fields.find(field);
        return at != fields.end() && at->is_null() ? std::string() : xtrain::detail::string_field(fields, field, place);
      };
      std::string prompt = text(flags.prompt_field), answer = text(flags.answer_field);
      if (prompt.empty() || answer.empty()) return;
      prompts.push_back(flags.prompt_prefix + prompt);
      answers.push_back(std::move(answer));
      groups.push_back(group);
    });
    xtrain::require<xtrain::data_error>(!prompts.empty(), file, ": must have a record with a '", flags.prompt_field, "' and a '", flags.answer_field,
                                        "' that are not empty; it has none");
  }
  std::vector<std::string> prompts{}, answers{};
  std::vector<std::size_t> groups{};  ///< the thousand of the file's records that a record belongs to: batches of `datasets`' map

 private:
  static constexpr std::size_t together = 1000;
};

/// Cuts a prompt at the right, but not the tokens after it.
inline void cut_prompt(std::vector<xtrain::token>& prompt, std::size_t most, const xtrain::tokenizer& tokenizer) {
  if (most == 0 || prompt.size() <= most) return;
  const std::size_t ending = tokenizer.prompt_ending().size();
  xtrain::require<usage_error>(most > ending, "--max-prompt-tokens: must be more than the ", ending, " tokens behind every prompt; given ", most);
  prompt.erase(prompt.end() - static_cast<std::ptrdiff_t>(prompt.size() - most + ending), prompt.end() - static_cast<std::ptrdiff_t>(ending));
}

/// Texts as from transformers' batch_decode: without special tokens, with a replacement character for a byte that is not UTF-8, without spaces before English
/// punctuation.
[[nodiscard]] inline std::string cleaned_text(const xtrain::tokenizer& tokenizer, std::span<const xtrain::token> tokens) {
  const std::string decoded = tokenizer.decode(tokens, xtrain::special_text::left_out);
  std::string text;
  for (std::size_t at = 0; at < decoded.size();) {
    const auto c = xtrain::detail::character_at(decoded, at);
    xtrain::detail::append_character(text, c.code >= 0 ? c.code : 0xFFFD);
    at += c.bytes;
  }
  constexpr std::array<std::pair<const char*, const char*>, 10> clean{{{" .", "."},
                                                                       {" ?", "?"},
                                                                       {" !", "!"},
                                                                       {" ,", ","},
                                                                       {" ' ", "'"},
                                                                       {" n't", "n't"},
                                                                       {" 'm", "'m"},
                                                                       {" 's", "'s"},
                                                                       {" 've", "'ve"},
                                                                       {" 're", "'re"}}};
  for (const auto& [from, to] : clean) {
    const std::string_view old = from, now = to;
    for (std::size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + now.size())) text.replace(at, old.size(), now);
  }
  return text;
}

/// Python's str.strip().
[[nodiscard]] inline std::string_view stripped(std::string_view text) {
  while (!text.empty()) {
    const auto c = xtrain::detail::character_at(text, 0);
    if (!xtrain::detail::is_python_space(c.code)) break;
    text.remove_prefix(c.bytes);
  }
  while (!text.empty()) {
    const auto c = xtrain::detail::character_before(text, text.size());
    if (!xtrain::detail::is_python_space(c.code)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

/// Mean scores of texts, from 0 to 100; each text's are rounded to four decimals, as in main.py.
class prediction_scores {
 public:
  void add(std::string_view text, std::string_view reference) {
    const auto rouge = xtrain::character_rouge(text, reference);
    const std::array<double, 4> all{xtrain::character_bleu(text, reference), rouge.rouge_1, rouge.rouge_2, rouge.rouge_l};
    for (std::size_t i = 0; i < all.size(); ++i) sums_[i] += rounded_to(all[i] * 100.0, 4);
    ++count_;
  }
  [[nodiscard]] xtrain::json metrics() const {
    xtrain::json all = xtrain::json::object();
    const std::array<const char*, 4> names{"predict_bleu-4", "predict_character-rouge-1", "predict_character-rouge-2", "predict_character-rouge-l"};
    for (std::size_t i = 0; i < names.size(); ++i) all[names[i]] = sums_[i] / static_cast<double>(count_);
    return all;
  }

 private:
  std::array<double, 4> sums_{};
  std::size_t count_ = 0;
};

/// Prints metrics as the Trainer's log_metrics does.
inline void print_metrics(const char* split, const xtrain::json& metrics) {
  std::vector<std::pair<std::string, std::string>> lines;
  std::size_t names = 0, values = 0;
  for (const auto& [name, value] : metrics.items()) {
    std::string text;
    if (name.ends_with("_runtime")) {
      const double seconds = value.get<double>(), whole = std::floor(seconds);
      const auto all = static_cast<unsigned long>(whole);
      std::array<char, 64> form{};
      std::snprintf(form.data(), form.size(), "%lu:%02lu:%02lu.%02d", all / 3600 % 24, all / 60 % 60, all % 60, static_cast<int>((seconds - whole) * 100.0));
      text = form.data();
      if (all >= 86400) text = xtrain::concat(all / 86400, all < 172800 ? " day, " : " days, ", text);
    } else {
      text = value.is_number_float() ? python_number(rounded_to(value.get<double>(), 4)) : value.dump();
    }
    names = std::max(names, name.size());
    values = std::max(values, text.size());
    lines.emplace_back(name, std::move(text));
  }
  print(xtrain::concat("***** ", split, " metrics *****\n"));
  for (const auto& [name, text] : lines)
    print(xtrain::concat("  ", name, std::string(names - name.size(), ' '), " = ", std::string(values - text.size(), ' '), text, "\n"));
}

/// The results of all calls so far: a JSON object.
///   throws  file_error
[[nodiscard]] inline xtrain::json results_in(const std::string& file) {
  xtrain::json all = xtrain::file_exists(file) ? xtrain::read_json(file) : xtrain::json::object();
  xtrain::require<xtrain::file_error>(all.is_object(), file, ": must be a JSON object: the results of all calls");
  return all;
}
/// The JSON files of the Trainer's save_metrics: this call's, and one of all calls.
inline void save_metrics(const std::string& folder, const xtrain::json& metrics) {
  xtrain::write_file(folder + "/predict_results.json", metrics.dump(4));
  const std::string file = folder + "/all_results.json";
  xtrain::json all = results_in(file);
  all.update(metrics);
  xtrain::write_file(file, all.dump(4));
}

/// Generates an answer to every prompt and writes the files.
///   prompts   of `records`, encoded
///   settings  stop tokens and sampling
template <class Model>
void predict(Model& model, const prediction_flags& flags, const answered_prompts& records, const std::vector<std::vector<xtrain::token>>& prompts,
             xtrain::generate_config settings, std::size_t batch_size, const xtrain::tokenizer& tokenizer, bool first_rank) {
  // records tokenized together are padded to the longest prompt, which shortens the answers
  const std::size_t n = prompts.size();
  std::vector<std::size_t> padded(n, 0);
  for (std::size_t first = 0, end = 0; first < n; first = end) {
    std::size_t longest = 0;
    for (end = first; end < n && records.groups[end] == records.groups[first]; ++end) longest = std::max(longest, prompts[end].size());
    std::fill(padded.begin() + static_cast<std::ptrdiff_t>(first), padded.begin() + static_cast<std::ptrdiff_t>(end), longest);
  }
  const auto new_tokens = [&](std::size_t i) {
    if (flags.max_length == 0) return settings.max_new_tokens;
    xtrain::require<usage_error>(flags.max_length > padded[i], "--max-length: must be more than the longest prompt has, ", padded[i], " tokens; given ",
                                 flags.max_length);
    return flags.max_length - padded[i];
  };
  std::size_t longest = 0;
  for (std::size_t i = 0; i < n; ++i) longest = std::max(longest, prompts[i].size() + new_tokens(i));

  if (first_rank) std::fprintf(stderr, "***** Running Prediction *****\n  Num examples = %zu\n  Batch size = %zu\n", n, batch_size);
  if (first_rank) {  // before the work
    xtrain::make_folder(flags.folder);
    xtrain::require<xtrain::file_error>(::access(flags.folder.c_str(), W_OK) == 0, flags.folder, ": must be writable: predictions are written there");
    (void)results_in(flags.folder + "/all_results.json");
  }
  const auto begin = std::chrono::steady_clock::now();
  xtrain::generator generator(model, std::min(batch_size, n), std::min(model.config().max_position_embeddings, longest));
  std::string lines;
  prediction_scores scores;
  for (std::size_t first = 0, end = 0; first < n; first = end) {
    while (end < n && padded[end] == padded[first]) ++end;
    settings.max_new_tokens = new_tokens(first);
    settings.first_sequence = first;  // the same samples as in one call
    const auto made = generator.generate_sequences(std::span(prompts).subspan(first, end - first), settings);
    for (std::size_t i = first; i < end; ++i) {
      const xtrain::encoding whole = tokenizer.encode_whole(records.answers[i]);
      const auto added = static_cast<std::size_t>(std::count(whole.parts.begin(), whole.parts.end(), std::int8_t{-1}));
      std::vector<xtrain::token> answer = tokenizer.encode(records.answers[i]);
      if (flags.max_answer_tokens > 0) answer.resize(std::min(answer.size(), flags.max_answer_tokens - std::min(added, flags.max_answer_tokens)));
      const std::string text = cleaned_text(tokenizer, made[i - first].tokens), expected = cleaned_text(tokenizer, answer);
      scores.add(text, expected);
      const auto quoted = [](std::string_view one) { return xtrain::json(stripped(one)).dump(); };
      lines += xtrain::concat("{\"labels\": ", quoted(expected), ", \"predict\": ", quoted(text), "}\n");
    }
  }
  if (!first_rank) return;
  const double seconds = std::max(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1e-9);
  xtrain::json metrics = scores.metrics();
  metrics["predict_runtime"] = rounded_to(seconds, 4);
  metrics["predict_samples"] = n;
  metrics["predict_samples_per_second"] = rounded_to(static_cast<double>(n) / seconds, 3);
  metrics["predict_steps_per_second"] = rounded_to(static_cast<double>((n + batch_size - 1) / batch_size) / seconds, 3);
  xtrain::write_file(flags.folder + "/generated_predictions.txt", lines);
  print_metrics("predict", metrics);
  save_metrics(flags.folder, metrics);
}

}  // namespace command_line
