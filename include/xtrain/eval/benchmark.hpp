// Runs benchmarks: prompts, requests, metrics, results as lm-evaluation-harness writes them. Component 'io'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/eval/benchmark_task.hpp>
#include <xtrain/eval/language_model.hpp>

namespace xtrain {

/// Settings of run_benchmark.
struct benchmark_settings {
  std::string data_dir = ".";                  ///< folder of the benchmarks' folders
  std::optional<std::size_t> num_fewshot = {};  ///< examples in a prompt; none: the task's default
  std::size_t limit = 0;                       ///< documents of a task, the first ones; 0: all
  std::uint32_t fewshot_seed = 1234;           ///< for tasks that draw their examples
  std::string fewshot_template = {};           ///< file with examples as text, in place of the task's description and examples, see read_few_shots
  std::size_t max_gen_toks = 0;                ///< of generated answers; 0: the task's
  bool log_samples = false;                    ///< keep requests and responses
};

/// One number of a task.
struct benchmark_metric {
  std::string name{}, filter = "none";
  double value = 0;
  std::optional<double> standard_error{};  ///< sample standard deviation / sqrt(n); none: not a mean over at least two documents
};

/// What a benchmark found.
struct benchmark_result {
  std::string name{}, file{};  ///< of the task, and of its documents
  std::vector<std::string> groups{};
  std::vector<benchmark_metric> metrics{};
  std::optional<std::size_t> num_fewshot = 0;  ///< examples in a prompt; none: those of a template that does not say how many it has
  std::size_t documents = 0, of_documents = 0;  ///< evaluated, and in the file
  std::vector<std::string> samples{};      ///< a JSON object per document, with benchmark_settings::log_samples
  std::string split{};                     ///< "validation": the file is of that split, because the task's test split is not there; else empty
  std::vector<std::string> completions{};  ///< HumanEval: {"task_id", "completion"} per document, for its checker. Generated code is never run here
};

/// How results were made, under "config" in their file.
struct benchmark_record {
  std::string model{};
  std::size_t batch_size = 0, max_length = 0, limit = 0;
};

/// The prompt of every document: description, examples, question. Of a document with contexts, without these.
[[nodiscard]] std::vector<std::string> benchmark_prompts(benchmark_task task, std::span<const benchmark_document> documents,
                                                         const benchmark_settings& settings);

/// Evaluates a model on a task.
///   throws  config_error for more examples than there are, or settings that the task does not have; file_error, data_error
[[nodiscard]] benchmark_result run_benchmark(const text_evaluator& evaluator, const benchmark_task& task, const benchmark_settings& settings);

/// Results of groups all of whose tasks are among these: means weighted by numbers of documents, with pooled standard errors, of the metrics that all
/// tasks of the group have. num_fewshot is none where the tasks' differ.
[[nodiscard]] std::vector<benchmark_result> benchmark_groups(std::span<const benchmark_result> results);

/// {"results": {task: {"acc,none": ..., "acc_stderr,none": ...}}, "groups": ..., "n-shot": ..., "n-samples": ...}
[[nodiscard]] std::string benchmark_json(std::span<const benchmark_result> results, const benchmark_record& about = {});
/// The same as a table. Below it are the tasks whose documents are of another split than the task's.
[[nodiscard]] std::string benchmark_table(std::span<const benchmark_result> results);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/benchmark_impl.hpp>
#endif
