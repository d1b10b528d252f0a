// Definitions of benchmark_task.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/eval/benchmark_records.hpp>
#include <xtrain/eval/benchmark_subjects.hpp>
#include <xtrain/eval/benchmark_task.hpp>
#include <xtrain/eval/language_model.hpp>
#include <xtrain/eval/math_answer.hpp>

namespace xtrain {

namespace detail {

[[nodiscard]] inline std::string with_replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

/// Removes spaces inside brackets and quotes: `( a )` becomes `(a)`.
[[nodiscard]] inline std::string tight_inside(std::string_view text, char open, char close) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find(open, at), end = begin == std::string_view::npos ? begin : text.find(close, begin + 1);
    if (end == std::string_view::npos) return result + std::string(text.substr(at));
    result += std::string(text.substr(at, begin + 1 - at)) + stripped(text.substr(begin + 1, end - begin - 1)) + close;
    at = end + 1;
  }
  return result;
}

/// Undoes WikiText's tokenization, as lm-evaluation-harness does.
[[nodiscard]] inline std::string wikitext_detokenized(std::string text) {
  text = with_replaced(std::move(text), "s '", "s'");
  for (char digit = '0'; digit <= '9'; ++digit) text = with_replaced(std::move(text), concat("/' ", digit, "/"), "/'[0-9]/");
  for (const char* number : {"-", ",", "."}) text = with_replaced(std::move(text), concat(" @", number, "@ "), number);
  for (const char* mark : {":", ";", ".", "!", "?", ","}) text = with_replaced(std::move(text), concat(" ", mark, " "), concat(mark, " "));
  for (const auto& [open, close] : {std::pair{'(', ')'}, {'[', ']'}, {'{', '}'}, {'"', '"'}, {'\'', '\''}}) text = tight_inside(text, open, close);
  for (const auto& [from, to] : {std::pair{"= = = =", "===="},
                                 {"= = =", "==="},
                                 {"= =", "=="},
                                 {" \xC2\xB0 ", "\xC2\xB0"},
                                 {" \n", "\n"},
                                 {"\n ", "\n"},
                                 {" N ", " 1 "},
                                 {" 's", "'s"}})
    text = with_replaced(std::move(text), from, to);
  return text;
}

/// Number of parts of re.split(r"\s+", text).
[[nodiscard]] inline std::size_t words_of(std::string_view text) {
  std::size_t words = 1;
  while (!text.empty()) {
    const std::size_t space = space_at_begin(text);
    words += space > 0 ? 1 : 0;
    text.remove_prefix(space);
    while (!text.empty() && space_at_begin(text) == 0) {
      do text.remove_prefix(1);
      while (!text.empty() && (static_cast<unsigned char>(text.front()) & 0xC0U) == 0x80U);
    }
  }
  return words;
}

/// HellaSwag's texts without WikiHow's marks.
[[nodiscard]] inline std::string hellaswag_text(std::string text) {
  text = with_replaced(stripped(text), " [title]", ". ");
  for (std::size_t at = text.find('['); at != std::string::npos;) {  // \[.*?\], within a line
    const std::size_t end = text.find(']', at), line = text.find('\n', at);
    if (end != std::string::npos && end < line) text.erase(at, end + 1 - at);
    else ++at;
    at = text.find('[', at);
  }
  return with_replaced(std::move(text), "  ", " ");
}
/// str.capitalize() of Python, ASCII only.
[[nodiscard]] inline std::string capitalized(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    char& c = text[i];
    if (i == 0 && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    else if (i > 0 && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return text;
}

[[nodiscard]] inline bool has_field(const json& record, const char* field) { return record.is_object() && record.contains(field); }

// Records to documents.

[[nodiscard]] inline benchmark_document boolq_document(const json& record, const record_place& at, const benchmark_task&) {
  benchmark_document d{.text = concat(text_in(record, "passage", at), "\nQuestion: ", text_in(record, "question", at), "?\nAnswer:"),
                       .choices = {"no", "yes"}};
  if (has_field(record, "label")) d.gold = {index_in(record, "label", 2, at)};
  else d.gold = {field_of(record, "answer", "true or false", at, [](const json& v) { return v.is_boolean(); }).get<bool>() ? std::size_t{1} : 0};
  return d;
}

/// A question with answers in fields A to D.
[[nodiscard]] inline benchmark_document four_choices(const json& record, const record_place& at, const char* asks) {
  std::string text = stripped(text_in(record, "question", at));
  for (const char* letter : {"A", "B", "C", "D"}) text += concat("\n", letter, ". ", text_in(record, letter, at));
  return {.text = concat(text, "\n", asks), .choices = {"A", "B", "C", "D"}, .gold = {letter_index(text_in(record, "answer", at), 4, "answer", at)}};
}
[[nodiscard]] inline benchmark_document mmlu_document(const json& record, const record_place& at, const benchmark_task&) {
  return four_choices(record, at, "Answer:");
}
[[nodiscard]] inline benchmark_document ceval_document(const json& record, const record_place& at, const benchmark_task&) {
  return four_choices(record, at, "答案：");
}

/// In AGIEval, Gaokao's English is an English subject.
[[nodiscard]] inline bool agieval_is_english(std::string_view subject) {
  return subject == "gaokao-english" || !(subject.starts_with("gaokao-") || subject.starts_with("jec-qa-") || subject == "logiqa-zh");
}
[[nodiscard]] inline benchmark_document agieval_document(const json& record, const record_place& at, const benchmark_task& task) {
  const bool is_english = agieval_is_english(task.subject);
  const std::string passage = has_field(record, "passage") && !record["passage"].is_null() ? text_in(record, "passage", at) : "";
  benchmark_document d{.choices = texts_in(record, "options", at)};
  const std::size_t count = d.choices.size();
  require<data_error>(count <= 7, at.path, ": line ", at.line, ": there must be at most 7 options; there are ", count);
  std::string options;
  for (const std::string& one : d.choices) options += (options.empty() ? "" : " ") + one;
  const char last = static_cast<char>('A' + static_cast<char>(count > 1 ? count : is_english ? 5 : 4) - 1);
  d.text = is_english ? concat(passage, "Q: ", text_in(record, "question", at), " Answer Choices: ", options, "\nA: Among A through ", last,
                               ", the answer is")
                      : concat(passage, "问题：", text_in(record, "question", at), " 选项：", options, "\n答案：从A到", last, ", 我们应选择");
  const json& label = field_of(record, "label", "a letter, or a list of letters", at, [](const json& v) { return v.is_string() || v.is_array(); });
  if (label.is_array())
    for (const std::string& letter : texts_in(record, "label", at)) d.gold.push_back(letter_index(letter, count, "label", at));
  else
    for (const char letter : label.get<std::string>()) d.gold.push_back(letter_index(std::string_view(&letter, 1), count, "label", at));
  require<data_error>(!d.gold.empty(), at.path, ": line ", at.line, ": 'label' must be a letter, or a list of letters; it is empty");
  return d;
}

/// AGIEval's questions with formulas as answers.
[[nodiscard]] inline benchmark_document agieval_cloze_document(const json& record, const record_place& at, const benchmark_task& task) {
  const auto has_text = [&](const char* field) { return has_field(record, field) && !record[field].is_null() && record[field] != ""; };
  const std::string passage = has_text("passage") ? text_in(record, "passage", at) : "", question = text_in(record, "question", at);
  return {.text = task.subject == "math" ? concat(passage, "Q: ", question, "\nA: The answer is") : concat(passage, "问题：", question, "\n答案："),
          .target = text_in(record, has_text("label") ? "label" : "answer", at)};
}

/// llm-foundry's multiple choice: a query with choices.
[[nodiscard]] inline benchmark_document query_document(const json& record, const record_place& at, std::string_view asks) {
  benchmark_document d{.text = concat(stripped(text_in(record, "query", at)), asks), .choices = texts_in(record, "choices", at)};
  d.gold = {index_in(record, "gold", d.choices.size(), at)};
  return d;
}
/// Options of ARC and OpenBookQA: {"text": [...], "label": [...]}, or a list of objects with text and label.
inline void read_options(const json& options, const json& record, const record_place& at, benchmark_document& d) {
  std::vector<std::string> labels;
  if (options.is_array()) {
    for (const json& one : options) {
      d.choices.push_back(text_in(one, "text", at));
      labels.push_back(text_in(one, "label", at));
    }
  } else {
    d.choices = texts_in(options, "text", at);
    labels = texts_in(options, "label", at);
  }
  const std::string key = stripped(text_in(record, "answerKey", at));
  const auto right = std::find(labels.begin(), labels.end(), key);
  require<data_error>(right != labels.end() && labels.size() == d.choices.size(), at.path, ": line ", at.line,
                      ": 'answerKey' must be the label of one of ", d.choices.size(), " choices; given '", key, "'");
  d.gold = {static_cast<std::size_t>(right - labels.begin())};
}
[[nodiscard]] inline benchmark_document arc_document(const json& record, const record_place& at, const benchmark_task&) {
  if (has_field(record, "query")) return query_document(record, at, "\nAnswer:");
  const auto any = [](const json&) { return true; };
  benchmark_document d;
  const json& question = field_of(record, "question", "a question", at, any);
  const bool is_nested = question.is_object();
  d.text = concat("Question: ", is_nested ? text_in(question, "stem", at) : text_in(record, "question", at), "\nAnswer:");
  read_options(field_of(is_nested ? question : record, "choices", "choices", at, any), record, at, d);
  return d;
}
[[nodiscard]] inline benchmark_document openbookqa_document(const json& record, const record_place& at, const benchmark_task&) {
  if (has_field(record, "query")) return query_document(record, at, "");
  const auto any = [](const json&) { return true; };
  benchmark_document d;
  const bool is_nested = has_field(record, "question") && record["question"].is_object();
  const json& holder = is_nested ? record["question"] : record;
  d.text = text_in(holder, is_nested ? "stem" : "question_stem", at);
  read_options(field_of(holder, "choices", "choices", at, any), record, at, d);
  return d;
}
[[nodiscard]] inline benchmark_document piqa_document(const json& record, const record_place& at, const benchmark_task&) {
  if (has_field(record, "query")) return query_document(record, at, "\nAnswer:");
  return {.text = concat("Question: ", text_in(record, "goal", at), "\nAnswer:"),
          .choices = {text_in(record, "sol1", at), text_in(record, "sol2", at)},
          .gold = {index_in(record, "label", 2, at)}};
}
[[nodiscard]] inline benchmark_document winogrande_document(const json& record, const record_place& at, const benchmark_task&) {
  benchmark_document d;
  if (has_field(record, "context_options")) {
    d.contexts = texts_in(record, "context_options", at);
    d.target = text_in(record, "continuation", at);
    d.gold = {index_in(record, "gold", d.contexts.size(), at)};
    return d;
  }
  const std::string sentence = text_in(record, "sentence", at), answer = text_in(record, "answer", at);
  const std::size_t blank = sentence.find('_');
  require<data_error>(blank != std::string::npos && (answer == "1" || answer == "2"), at.path, ": line ", at.line,
                      ": a sentence must have a blank, '_', and an answer of 1 or 2; given '", sentence, "' and '", answer, "'");
  for (const char* option : {"option1", "option2"}) d.contexts.push_back(sentence.substr(0, blank) + text_in(record, option, at));
  d.target = stripped(std::string_view(sentence).substr(blank + 1));
  d.gold = {answer == "1" ? std::size_t{0} : 1};
  return d;
}
[[nodiscard]] inline benchmark_document hellaswag_document(const json& record, const record_place& at, const benchmark_task&) {
  benchmark_document d{.text = hellaswag_text(concat(text_in(record, "activity_label", at), ": ", text_in(record, "ctx_a", at), " ",
                                                     capitalized(text_in(record, "ctx_b", at))))};
  for (const std::string& ending : texts_in(record, "endings", at)) d.choices.push_back(hellaswag_text(ending));
  d.gold = {index_in(record, "label", d.choices.size(), at)};
  return d;
}
/// TruthfulQA: {"choices": [...], "labels": [1, 0, ...]} of its dataset, or {choice: label, ...} of its authors' mc_task.json.
[[nodiscard]] inline benchmark_document truthfulqa_document(const json& record, const record_place& at, const benchmark_task& task) {
  const char* const field = task.weighs_choices ? "mc2_targets" : "mc1_targets";
  benchmark_document d{.text = concat("Q: ", text_in(record, "question", at), "\nA:")};
  const json& targets = field_of(record, field, "choices with labels", at, [](const json& v) { return v.is_object(); });
  std::vector<json> labels;
  const auto is_list = [&](const char* name) { return targets.contains(name) && targets[name].is_array(); };
  if (is_list("choices") || is_list("labels")) {
    d.choices = texts_in(targets, "choices", at);
    labels = field_of(targets, "labels", "a list", at, [](const json& v) { return v.is_array(); }).get<std::vector<json>>();
    require<data_error>(labels.size() == d.choices.size(), at.path, ": line ", at.line, ": '", field, "' must have a label for each of ", d.choices.size(),
                        " choices; it has ", labels.size());
  } else {
    require<data_error>(!at.text.empty(), at.path, ": line ", at.line, ": '", field, "' must be lists of choices and labels in a list 'examples'");
    d.choices = names_in_order(field, at);
    for (const std::string& choice : d.choices) labels.push_back(targets[choice]);
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    require<data_error>(labels[i] == 0 || labels[i] == 1, at.path, ": line ", at.line, ": a label in '", field, "' must be 0 or 1; that of choice ", i + 1,
                        " is ", labels[i].dump());
    require<data_error>(!d.choices[i].empty(), at.path, ": line ", at.line, ": a choice in '", field, "' must be a text; choice ", i + 1, " is empty");
    if (labels[i] == 1) d.gold.push_back(i);
  }
  if (task.weighs_choices)
    require<data_error>(!d.gold.empty() && d.gold.size() < labels.size(), at.path, ": line ", at.line, ": '", field,
                        "' must have true choices and false ones; given ", d.gold.size(), " of label 1 among ", labels.size());
  else  // lm-evaluation-harness takes the first, whatever the labels
    require<data_error>(d.gold == std::vector<std::size_t>{0}, at.path, ": line ", at.line, ": '", field,
                        "' must have label 1 at its first choice and 0 at the others; given ", json(labels).dump());
  return d;
}
[[nodiscard]] inline benchmark_document lambada_document(const json& record, const record_place& at, const benchmark_task&) {
  if (has_field(record, "continuation")) return {.text = text_in(record, "context", at), .target = " " + text_in(record, "continuation", at)};
  const std::string text = text_in(record, "text", at);
  const std::size_t last = text.rfind(' ');
  require<data_error>(last != std::string::npos, at.path, ": line ", at.line, ": 'text' must have at least two words; given '", text, "'");
  return {.text = text.substr(0, last), .target = text.substr(last)};
}
[[nodiscard]] inline benchmark_document gsm8k_document(const json& record, const record_place& at, const benchmark_task&) {
  return {.text = concat("Question: ", text_in(record, "question", at), "\nAnswer:"), .target = text_in(record, "answer", at)};
}
[[nodiscard]] inline benchmark_document gsm8k_cot_document(const json& record, const record_place& at, const benchmark_task&) {
  const std::string answer = text_in(record, "answer", at);
  const std::size_t hashes = answer.rfind("####");
  return {.text = concat("Q: ", text_in(record, "question", at), "\nA:"),
          .target = stripped(hashes == std::string::npos ? answer : answer.substr(hashes + 4))};
}
[[nodiscard]] inline benchmark_document bbh_document(const json& record, const record_place& at, const benchmark_task&) {
  return {.text = concat("Q: ", text_in(record, "input", at), "\nA:"), .target = text_in(record, "target", at)};
}
[[nodiscard]] inline benchmark_document bbh_cot_document(const json& record, const record_place& at, const benchmark_task&) {
  return {.text = concat("Q: ", text_in(record, "input", at), "\nA: Let's think step by step.\n"), .target = text_in(record, "target", at)};
}
[[nodiscard]] inline benchmark_document humaneval_document(const json& record, const record_place& at, const benchmark_task&) {
  return {.text = text_in(record, "prompt", at), .id = text_in(record, "task_id", at)};
}
[[nodiscard]] inline benchmark_document page_document(const json& record, const record_place& at, const benchmark_task&) {
  const std::string page = text_in(record, "page", at);
  return {.target = wikitext_detokenized(page), .words = words_of(page), .bytes = page.size()};
}
[[nodiscard]] inline benchmark_document text_document(const json& record, const record_place& at, const benchmark_task&) {
  const std::string text = text_in(record, "text", at);
  return {.target = text, .words = words_of(text), .bytes = text.size()};
}

/// Examples of BIG-Bench Hard; answers are chains of thought, or their conclusions.
[[nodiscard]] inline std::vector<benchmark_document> cot_examples(const mapped_file& file, benchmark_task& task) {
  constexpr std::string_view thinks = "\nA: Let's think step by step.", question = "Q: ", conclusion = "the answer is ";
  std::string_view text = file.text();
  const auto malformed = [&](std::string_view where, const char* why) {
    fail<data_error>(file.path(), ": line ", line_of(file.text(), static_cast<std::size_t>(where.data() - file.data())),
                     ": must be the prompt of BIG-Bench Hard; ", why);
  };
  if (const std::size_t dashes = text.find("\n---"); dashes != std::string_view::npos) {  // above it: a note for collectors of texts
    const std::size_t end = text.find('\n', dashes + 1);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t begin = text.find("\n\nQ: ");
  if (begin == std::string_view::npos) malformed(text, "it has no description and questions");
  task.description = concat(text.substr(0, begin), "\n\n");
  const bool chains = task.target_delimiter.empty();
  std::vector<benchmark_document> examples;
  for (std::size_t at = begin + 2; at < text.size();) {
    std::size_t end = std::min(text.find("\n\nQ: ", at), text.size());
    const std::string_view one = text.substr(at, end - at);
    at = end + 2;
    const std::size_t answer = one.find(thinks);
    if (answer == std::string_view::npos || one.size() <= answer + thinks.size()) malformed(one, "a question has no answer");
    const std::string_view asked = one.substr(question.size(), answer - question.size()), thought = one.substr(answer + thinks.size() + 1);
    if (chains) {
      examples.push_back({.text = concat("Q: ", asked, "\nA: Let's think step by step.\n"), .target = std::string(thought)});
      continue;
    }
    const std::size_t concludes = thought.rfind(conclusion);
    if (concludes == std::string_view::npos || !thought.ends_with('.')) malformed(one, "an answer does not end with 'the answer is ...'");
    const std::size_t from = concludes + conclusion.size();
    examples.push_back({.text = concat("Q: ", asked, "\nA:"), .target = std::string(thought.substr(from, thought.size() - 1 - from))});
  }
  return examples;
}

/// Six lines per document, as llama.cpp's HellaSwag.
[[nodiscard]] inline std::vector<benchmark_document> six_line_documents(const mapped_file& file) {
  std::vector<benchmark_document> documents;
  std::vector<std::string> lines;
  std::size_t number = 0;
  const std::string_view text = file.text();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
    ++number;
    if (lines.size() < 6) continue;
    require<data_error>(lines[1].size() == 1 && lines[1][0] >= '0' && lines[1][0] <= '3', file.path(), ": line ", number - 4,
                        ": must be the number of the correct ending, 0 to 3; given '", lines[1], "'");
    documents.push_back(
        {.text = lines[0], .choices = {lines[2], lines[3], lines[4], lines[5]}, .gold = {static_cast<std::size_t>(lines[1][0] - '0')}});
    lines.clear();
  }
  require<data_error>(lines.empty(), file.path(), ": line ", number, ": a document must have six lines; the last has ", lines.size());
  return documents;
}

/// The first existing file.
///   throws  file_error
[[nodiscard]] inline std::string first_file(const std::vector<std::string>& files, const std::string& data_dir, const std::string& name,
                                            const char* what) {
  std::string looked;
  for (const std::string& file : files) {
    const std::string path = concat(data_dir, "/", file);
    if (file_exists(path)) return path;
    looked += (looked.empty() ? "" : ", ") + path;
  }
  for (const std::string& file : files) {  // AscendSpeed's form: boolq/test/dev.jsonl
    const std::size_t slash = std::min(file.find('/'), file.size());
    const std::string path = concat(data_dir, "/", file.substr(0, slash), "/test", file.substr(slash));
    if (file_exists(path)) return path;
  }
  require<config_error>(!files.empty(), name, ": --num-fewshot must be 0, because the task has no ", what);
  fail<file_error>(name, ": must have its ", what, "; looked for ", looked);
}

[[nodiscard]] inline std::string underscored(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

}  // namespace detail

XTRAIN_INLINE std::vector<benchmark_document> read_documents(const benchmark_task& task, benchmark_format format, const std::string& path) {
  std::vector<benchmark_document> documents;
  if (format == benchmark_format::six_lines || (task.format == benchmark_format::six_lines && path.ends_with(".txt"))) {
    documents = detail::six_line_documents(mapped_file(path));
  } else if (path.ends_with(".txt") && task.kind == request_kind::rolling) {
    const mapped_file file(path);
    json record = json::object();
    record["text"] = std::string(file.text());
    documents.push_back(task.read(record, {path, 1, {}}, task));
  } else {
    detail::for_each_benchmark_record(path, task.columns, [&](const json& record, const record_place& at) {
      documents.push_back(task.read(record, at, task));
    });
  }
  require<data_error>(!documents.empty(), path, ": must have documents; it is empty");
  return documents;
}

XTRAIN_INLINE std::vector<benchmark_document> read_documents(const benchmark_task& task, const std::string& data_dir) {
  return read_documents(task, benchmark_format::records, documents_file(task, data_dir));
}

XTRAIN_INLINE std::string documents_file(const benchmark_task& task, const std::string& data_dir) {
  return detail::first_file(task.files, data_dir, task.name, "documents");
}

XTRAIN_INLINE std::vector<benchmark_document> read_examples(benchmark_task& task, const std::string& data_dir) {
  if (!task.samples.empty()) return task.samples;
  const std::string path = detail::first_file(task.fewshot_files, data_dir, task.name, "few-shot examples");
  if (task.fewshot_format == benchmark_format::cot_prompt) return detail::cot_examples(mapped_file(path), task);
  return read_documents(task, task.fewshot_format, path);
}

XTRAIN_INLINE few_shots read_few_shots(const std::string& path, const benchmark_task& task) {
  const json all = read_json(path);
  require<data_error>(all.is_object(), path, ": must be a JSON object of texts by subject; it is ", all.type_name());
  auto at = all.find(task.subject.empty() ? task.name : task.subject);
  if (at == all.end()) at = all.find(task.name);
  if (at == all.end()) at = all.find("few_shot");
  require<data_error>(at != all.end(), path, ": must have a text for ", task.subject.empty() ? task.name : task.subject,
                      ", or for all, 'few_shot'; it has neither");
  require<data_error>(at->is_string(), path, ": the examples of ", task.name, " must be a text; they are ", at->type_name());
  few_shots found{.text = at->get<std::string>()};
  if (const auto count = all.find("num_fewshot"); count != all.end()) {
    require<data_error>(count->is_number_unsigned(), path, ": 'num_fewshot' must be a whole number, the examples of each text; it is ", count->dump());
    found.count = count->get<std::size_t>();
  }
  return found;
}

XTRAIN_INLINE std::vector<benchmark_task> benchmark_tasks() {
  std::vector<benchmark_task> all;
  const std::vector<std::string> by_length = {"acc", "acc_norm"};
  all.push_back({.name = "boolq",
                 .files = {"boolq/dev.jsonl", "boolq/val.jsonl", "BoolQ/val.jsonl"},
                 .fewshot_files = {"boolq/train.jsonl", "BoolQ/train.jsonl"},
                 .read = detail::boolq_document,
                 .sampling = few_shot_sampling::python_random,
                 .leaves_document_out = true});
  for (const auto& [category, subjects] : detail::mmlu_subjects())
    for (const std::string& subject : subjects) {
      const std::string spaced = detail::with_replaced(subject, "_", " ");
      all.push_back({.name = "mmlu_" + subject, .subject = subject, .groups = {"mmlu", category},
                     .description = concat("The following are multiple choice questions (with answers) about ", spaced, ".\n\n"),
                     .files = {concat("mmlu/test/", subject, "_test.csv"), concat("mmlu/data/test/", subject, "_test.csv")},
                     .fewshot_files = {concat("mmlu/dev/", subject, "_dev.csv"), concat("mmlu/data/dev/", subject, "_dev.csv")},
                     .columns = {"question", "A", "B", "C", "D", "answer"}, .read = detail::mmlu_document, .num_fewshot = 5});
    }
  for (const auto& [subject, named] : detail::ceval_subjects())
    all.push_back({.name = "ceval-valid_" + subject,
                   .subject = subject,
                   .groups = {"ceval-valid"},
                   .description = concat("以下是中国关于", named, "的单项选择题，请选出其中的正确答案。\n\n"),
                   .metrics = by_length,
                   .files = {concat("ceval/val/", subject, "_val.csv")},
                   .fewshot_files = {concat("ceval/dev/", subject, "_dev.csv")},
                   .read = detail::ceval_document,
                   .num_fewshot = 5});
  for (const char* subject : {"aqua-rat", "gaokao-biology", "gaokao-chemistry", "gaokao-chinese", "gaokao-english", "gaokao-geography",
                              "gaokao-history", "gaokao-mathcloze", "gaokao-mathqa", "gaokao-physics", "jec-qa-ca", "jec-qa-kd", "logiqa-en",
                              "logiqa-zh", "lsat-ar", "lsat-lr", "lsat-rc", "math", "sat-en-without-passage", "sat-en", "sat-math"}) {
    static const std::vector<std::string> nous = {"aqua-rat", "logiqa-en", "lsat-ar", "lsat-lr", "lsat-rc", "sat-en-without-passage",
                                                  "sat-en",   "sat-math"};
    benchmark_task task{.name = "agieval_" + detail::underscored(subject),
                        .subject = subject,
                        .groups = {"agieval", detail::agieval_is_english(subject) ? "agieval_en" : "agieval_cn"},
                        .metrics = by_length,
                        .files = {concat("agieval/", subject, ".jsonl"), concat("agieval/data/v1/", subject, ".jsonl")},
                        .read = detail::agieval_document};
    if (std::find(nous.begin(), nous.end(), subject) != nous.end()) task.groups.emplace_back("agieval_nous");
    if (task.subject == "math" || task.subject == "gaokao-mathcloze") {
      task.kind = request_kind::generation;
      task.metrics = {"acc"};
      task.read = detail::agieval_cloze_document;
      task.until = {"Q:"};
      task.max_gen_toks = 32;
      task.equals = answer::is_same_formula;
    }
    all.push_back(std::move(task));
  }
  for (const std::string& subject : detail::bbh_subjects()) {
    benchmark_task task{.name = "bbh_cot_fewshot_" + subject, .subject = subject, .groups = {"bbh_cot_fewshot"}, .kind = request_kind::generation,
                        .metrics = {"exact_match"}, .files = {concat("bbh/bbh/", subject, ".json"), concat("BIG-Bench-Hard/bbh/", subject, ".json")},
                        .fewshot_files = {concat("bbh/cot-prompts/", subject, ".txt"), concat("BIG-Bench-Hard/cot-prompts/", subject, ".txt")},
                        .fewshot_format = benchmark_format::cot_prompt, .read = detail::bbh_cot_document, .target_delimiter = "", .num_fewshot = 3,
                        .until = {"</s>", "Q", "\n\n"}, .max_gen_toks = 1024, .filters = {{"get-answer", answer::rest_of_sentence}}};
    all.push_back(task);
    task.name = "bbh_fewshot_" + subject;
    task.groups = {"bbh_fewshot"};
    task.read = detail::bbh_document;
    task.target_delimiter = " ";
    task.max_gen_toks = 256;
    task.filters = {{}};
    all.push_back(task);
  }
  const std::vector<std::string> gsm8k = {"gsm8k/test.jsonl", "gsm8k/main/test.jsonl"};
  all.push_back({.name = "gsm8k", .kind = request_kind::generation, .metrics = {"exact_match"}, .files = gsm8k,
                 .fewshot_files = {"gsm8k/train.jsonl", "gsm8k/main/train.jsonl"}, .read = detail::gsm8k_document,
                 .sampling = few_shot_sampling::python_random, .num_fewshot = 5, .until = {"Question:", "</s>", "<|im_end|>"},
                 .filters = {{"strict-match", answer::after_hashes}, {"flexible-extract", answer::last_number}}, .compared = answer::as_number});
  std::vector<benchmark_document> chains;
  for (const auto& [question, answer] : detail::gsm8k_chains_of_thought())
    chains.push_back({.text = concat("Q: ", question, "\nA:"), .target = answer});
  all.push_back({.name = "gsm8k_cot",
                 .kind = request_kind::generation,
                 .metrics = {"exact_match"},
                 .files = gsm8k,
                 .read = detail::gsm8k_cot_document,
                 .num_fewshot = 8,
                 .samples = chains,
                 .until = {"Q:", "</s>", "<|im_end|>"},
                 .filters = {{"strict-match", answer::number_of_sentence}, {"flexible-extract", answer::last_number}},
                 .compared = answer::as_number});
  all.push_back({.name = "humaneval",
                 .kind = request_kind::generation,
                 .metrics = {},
                 .files = {"humaneval/HumanEval.jsonl", "humaneval/HumanEval.jsonl.gz"},
                 .read = detail::humaneval_document,
                 .until = {"\nclass", "\ndef", "\n#", "\nif", "\nprint"},
                 .max_gen_toks = 1024});
  all.push_back({.name = "hellaswag",
                 .metrics = by_length,
                 .files = {"hellaswag/hellaswag_val.jsonl", "hellaswag/hellaswag_val_first1000.txt", "hellaswag/hellaswag_val_full.txt"},
                 .fewshot_files = {"hellaswag/hellaswag_train.jsonl"},
                 .format = benchmark_format::six_lines,
                 .read = detail::hellaswag_document,
                 .sampling = few_shot_sampling::python_random,
                 .leaves_document_out = true});
  for (const auto& [name, folder] : {std::pair{"arc_easy", "ARC-Easy"}, {"arc_challenge", "ARC-Challenge"}})
    all.push_back({.name = name,
                   .groups = {"ai2_arc"},
                   .metrics = by_length,
                   .files = {concat("arc/", folder, "-test.jsonl"), concat("ARC-V1-Feb2018-2/", folder, "/", folder, "-Test.jsonl"),
                             concat("arc/", folder, "-validation.jsonl"), concat("llmfoundry/", name, ".jsonl")},
                   .fewshot_files = {concat("arc/", folder, "-train.jsonl"), concat("ARC-V1-Feb2018-2/", folder, "/", folder, "-Train.jsonl")},
                   .read = detail::arc_document,
                   .sampling = few_shot_sampling::python_random});
  all.push_back({.name = "openbookqa",
                 .metrics = by_length,
                 .files = {"openbookqa/test.jsonl", "OpenBookQA-V1-Sep2018/Data/Main/test.jsonl", "llmfoundry/openbook_qa.jsonl"},
                 .fewshot_files = {"openbookqa/train.jsonl", "OpenBookQA-V1-Sep2018/Data/Main/train.jsonl"},
                 .read = detail::openbookqa_document,
                 .sampling = few_shot_sampling::python_random});
  all.push_back({.name = "piqa", .metrics = by_length, .files = {"piqa/valid.jsonl", "llmfoundry/piqa.jsonl"}, .fewshot_files = {"piqa/train.jsonl"},
                 .read = detail::piqa_document, .sampling = few_shot_sampling::python_random, .leaves_document_out = true});
  all.push_back({.name = "winogrande",
                 .files = {"winogrande/dev.jsonl", "llmfoundry/winogrande.jsonl"},
                 .fewshot_files = {"winogrande/train_xl.jsonl"},
                 .read = detail::winogrande_document,
                 .sampling = few_shot_sampling::python_random,
                 .leaves_document_out = true});
  for (const char* targets : {"mc1", "mc2"}) {
    const bool is_weighed = targets == std::string_view("mc2");
    all.push_back({.name = concat("truthfulqa_", targets),
                   .description = detail::truthfulqa_questions,
                   .weighs_choices = is_weighed,
                   .files = {"truthfulqa/validation.jsonl", "truthfulqa/validation.json", "truthfulqa/mc_task.json", "truthful_qa/validation.jsonl",
                             "truthful_qa/validation.json", "truthful_qa/multiple_choice/validation.jsonl", "TruthfulQA/data/mc_task.json"},
                   .read = detail::truthfulqa_document});
  }
  all.push_back({.name = "lambada_openai",
                 .kind = request_kind::log_likelihood,
                 .metrics = {"perplexity", "acc"},
                 .files = {"lambada/lambada_test_en.jsonl", "lambada/test.jsonl", "llmfoundry/lambada_openai.jsonl"},
                 .read = detail::lambada_document});
  for (const auto& [name, file, read] :
       {std::tuple{"wikitext", "wikitext/test.jsonl", &detail::page_document}, {"text", "text/test.jsonl", &detail::text_document}})
    all.push_back({.name = name,
                   .kind = request_kind::rolling,
                   .metrics = {"word_perplexity", "byte_perplexity", "bits_per_byte"},
                   .files = {file},
                   .read = read});
  all.back().files.emplace_back("text/test.txt");
  return all;
}

XTRAIN_INLINE std::vector<benchmark_task> benchmark_tasks_named(const std::string& names) {
  const std::vector<benchmark_task> all = benchmark_tasks();
  std::vector<std::string> known;
  for (const benchmark_task& task : all) {
    known.push_back(task.name);
    for (const std::string& group : task.groups)
      if (std::find(known.begin(), known.end(), group) == known.end()) known.push_back(group);
  }
  std::vector<benchmark_task> chosen;
  const auto add = [&](const benchmark_task& task) {
    if (std::none_of(chosen.begin(), chosen.end(), [&](const benchmark_task& other) { return other.name == task.name; })) chosen.push_back(task);
  };
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    const std::string near = nearest_name(name, known);
    require<config_error>(std::find(known.begin(), known.end(), name) != known.end(), "there is no task or group '", name, "'",
                          near.empty() ? "" : concat("; did you mean '", near, "'?"));
    for (const benchmark_task& task : all)
      if (task.name == name || std::find(task.groups.begin(), task.groups.end(), name) != task.groups.end()) add(task);
  }
  return chosen;
}

}  // namespace xtrain
