// Benchmarks as data: documents, prompts, metrics. Component 'io'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json_fwd.hpp>
#include <xtrain/eval/answer_filter.hpp>
#include <xtrain/eval/record_place.hpp>

namespace xtrain {

/// Request per document.
enum class request_kind : std::uint8_t {
  multiple_choice,  ///< log-likelihood of every choice
  log_likelihood,   ///< of one continuation
  rolling,          ///< of an entire text
  generation
};

/// One question.
struct benchmark_document {
  std::string text{};                   ///< prompt without the answer
  std::vector<std::string> choices{};   ///< continuations
  std::vector<std::string> contexts{};  ///< instead of choices: a prompt per choice, each continued by `target`
  std::vector<std::size_t> gold{};      ///< correct choices, any of which counts
  std::string target{};                 ///< answer, if there are no choices
  std::string id{};                     ///< name in the benchmark, if any
  std::size_t words = 0, bytes = 0;     ///< of an entire text as in the file

  friend bool operator==(const benchmark_document&, const benchmark_document&) = default;
};

/// File formats.
enum class benchmark_format : std::uint8_t {
  records,     ///< JSON Lines, JSON list, object with list 'examples', or CSV
  six_lines,   ///< per document: prompt, number of the correct ending, four endings
  cot_prompt   ///< BIG-Bench Hard: three dashes or more, description, questions with answers, separated by blank lines
};

/// How examples are chosen.
enum class few_shot_sampling : std::uint8_t {
  first_n,       ///< first of their file
  python_random  ///< drawn per document, as by random.Random(seed).sample
};

/// A benchmark's data, prompts and metrics.
struct benchmark_task {
  std::string name{};                 ///< lm-evaluation-harness's, if it has the task
  std::string subject{};              ///< name in data and few-shot templates
  std::vector<std::string> groups{};  ///< that include its results, weighted by numbers of documents
  std::string description{};          ///< begins every prompt
  request_kind kind = request_kind::multiple_choice;
  std::vector<std::string> metrics = {"acc"};
  bool weighs_choices = false;        ///< acc: the share of the correct choices' probability, instead of whether the likeliest is correct
  std::vector<std::string> files{}, fewshot_files{};  ///< below the data folder, in order of preference
  benchmark_format format = benchmark_format::records, fewshot_format = benchmark_format::records;
  std::vector<std::string> columns{};  ///< of a CSV file without names
  benchmark_document (*read)(const json& record, const record_place& at, const benchmark_task& task) = nullptr;
  std::string target_delimiter = " ";  ///< between prompt and answer
  few_shot_sampling sampling = few_shot_sampling::first_n;
  bool leaves_document_out = false;  ///< draws one example more: the document may be drawn
  std::size_t num_fewshot = 0;                    ///< default
  std::vector<benchmark_document> samples{};      ///< examples in the task
  std::vector<std::string> until{};               ///< ends of a generated answer
  std::size_t max_gen_toks = 256;                 ///< its most tokens
  std::vector<answer_filter> filters = {{}};      ///< a result each
  std::string (*compared)(std::string_view text) = nullptr;  ///< normalizes answer and target for comparing; null: no
  bool (*equals)(std::string_view answer, std::string_view target) = nullptr;  ///< replaces the comparison
};

/// Every built-in task.
[[nodiscard]] std::vector<benchmark_task> benchmark_tasks();

/// Tasks by comma-separated names of tasks and groups, each once.
///   throws  config_error, with a similar name, for an unknown name
[[nodiscard]] std::vector<benchmark_task> benchmark_tasks_named(const std::string& names);

/// Documents, and documents for examples. For benchmark_format::cot_prompt, sets the task's description.
///   data_dir   folder of the benchmark's folders
///   throws     file_error when no file exists; data_error, with file and line, for malformed records
[[nodiscard]] std::vector<benchmark_document> read_documents(const benchmark_task& task, const std::string& data_dir);
/// Documents for a task's few shots.
[[nodiscard]] std::vector<benchmark_document> read_examples(benchmark_task& task, const std::string& data_dir);

/// Path of the documents' file.
[[nodiscard]] std::string documents_file(const benchmark_task& task, const std::string& data_dir);

/// Documents of a file.
[[nodiscard]] std::vector<benchmark_document> read_documents(const benchmark_task& task, benchmark_format format, const std::string& path);

/// Examples as text before every question.
struct few_shots {
  std::string text{};
  std::optional<std::size_t> count{};  ///< number of examples, if the file has it
};

/// Examples by task or subject, as in AscendSpeed: a JSON object of texts; "few_shot" is for every task, "num_fewshot" the number of examples per text.
///   throws  file_error, data_error
[[nodiscard]] few_shots read_few_shots(const std::string& path, const benchmark_task& task);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/benchmark_task_impl.hpp>
#endif
