// Benchmarks as data: where documents are, how one becomes a prompt, what is measured. Component 'io'.
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

/// What is asked of the model for a document.
enum class request_kind : std::uint8_t {
  multiple_choice,  ///< the log-likelihood of every choice
  log_likelihood,   ///< of one continuation
  rolling,          ///< of a whole text
  generation        ///< a continuation
};

/// One question.
struct benchmark_document {
  std::string text{};                   ///< the prompt, without its answer
  std::vector<std::string> choices{};   ///< continuations
  std::vector<std::string> contexts{};  ///< instead: prompts, one per choice, which `target` continues
  std::vector<std::size_t> gold{};      ///< correct choices: one of them is right
  std::string target{};                 ///< the answer, where there are no choices
  std::string id{};                     ///< its name in the benchmark, if it has one
  std::size_t words = 0, bytes = 0;     ///< of a whole text, as it is in the file

  friend bool operator==(const benchmark_document&, const benchmark_document&) = default;
};

/// How a benchmark's files are written.
enum class benchmark_format : std::uint8_t {
  records,     ///< JSON Lines, a JSON list, an object with the list 'examples', or CSV
  six_lines,   ///< of a document: the prompt, the number of the correct ending, four endings
  cot_prompt   ///< of BIG-Bench Hard: three dashes or more, a description, and questions with answers, separated by blank lines
};

/// Which documents are examples in a prompt.
enum class few_shot_sampling : std::uint8_t {
  first_n,       ///< the first ones of their file
  python_random  ///< drawn for every document, as by random.Random(seed).sample
};

/// A benchmark: its data, prompts and metrics.
struct benchmark_task {
  std::string name{};                 ///< lm-evaluation-harness's, where it has the task
  std::string subject{};              ///< its name in the data and in few-shot templates
  std::vector<std::string> groups{};  ///< whose results contain its results, weighted by numbers of documents
  std::string description{};          ///< at the beginning of every prompt
  request_kind kind = request_kind::multiple_choice;
  std::vector<std::string> metrics = {"acc"};
  bool weighs_choices = false;        ///< acc is the probability of the correct choices among all, not whether the likeliest one is correct
  std::vector<std::string> files{}, fewshot_files{};  ///< below the data folder, in order of preference
  benchmark_format format = benchmark_format::records, fewshot_format = benchmark_format::records;
  std::vector<std::string> columns{};  ///< of a CSV file without a line of names
  benchmark_document (*read)(const json& record, const record_place& at, const benchmark_task& task) = nullptr;
  std::string target_delimiter = " ";  ///< between a prompt and its answer
  few_shot_sampling sampling = few_shot_sampling::first_n;
  bool leaves_document_out = false;  ///< draws one example more, because the document may be among them
  std::size_t num_fewshot = 0;                    ///< by default
  std::vector<benchmark_document> samples{};      ///< examples that are part of the task
  std::vector<std::string> until{};               ///< ends of a generated answer
  std::size_t max_gen_toks = 256;                 ///< its most tokens
  std::vector<answer_filter> filters = {{}};      ///< results are reported for each
  std::string (*compared)(std::string_view text) = nullptr;  ///< how answer and target are written to compare them; none: as they are
  bool (*equals)(std::string_view answer, std::string_view target) = nullptr;  ///< instead: whether they are the same answer
};

/// Every task that is built in.
[[nodiscard]] std::vector<benchmark_task> benchmark_tasks();

/// Tasks by names of tasks and groups, separated by commas. Each occurs once.
///   throws  config_error, with a similar name, for one that does not exist
[[nodiscard]] std::vector<benchmark_task> benchmark_tasks_named(const std::string& names);

/// The documents of a file, and those that are examples. For benchmark_format::cot_prompt, sets the task's description.
///   data_dir   folder of the benchmark's folders
///   throws     file_error when no file is there; data_error, with file and line, for records that are not as the benchmark publishes them
[[nodiscard]] std::vector<benchmark_document> read_documents(const benchmark_task& task, const std::string& data_dir);
/// The documents from which a task takes its few shots.
[[nodiscard]] std::vector<benchmark_document> read_examples(benchmark_task& task, const std::string& data_dir);

/// The file that has them.
[[nodiscard]] std::string documents_file(const benchmark_task& task, const std::string& data_dir);

/// The documents of one file.
[[nodiscard]] std::vector<benchmark_document> read_documents(const benchmark_task& task, benchmark_format format, const std::string& path);

/// Examples as a text, which stands before every question as it is.
struct few_shots {
  std::string text{};
  std::optional<std::size_t> count{};  ///< how many examples it has, where the file says so
};

/// Examples for prompts by task or subject, as AscendSpeed has them: a JSON object of texts; "few_shot" is for every task. A whole number
/// "num_fewshot" in it says how many examples each text has, for results.
///   throws  file_error, data_error
[[nodiscard]] few_shots read_few_shots(const std::string& path, const benchmark_task& task);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/benchmark_task_impl.hpp>
#endif
