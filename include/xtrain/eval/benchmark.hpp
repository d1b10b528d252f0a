// Runs benchmarks: prompts, requests, metrics, results as lm-evaluation-harness. Component 'io'.
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
  std::optional<std::size_t> num_fewshot = {};  ///< examples per prompt; none: the task's default
  std::size_t limit = 0;                       ///< first documents of a task; 0: all
  std::uint32_t fewshot_seed = 1234;           ///< for tasks with drawn examples
  std::string fewshot_template = {};           ///< file with examples as text, in place of the task's; see read_few_shots
  std::size_t max_gen_toks = 0;                ///< 0: the task's
  bool log_samples = false;                    ///< store requests and responses
};

/// A metric of a task.
struct benchmark_metric {
  std::string name{}, filter = "none";
  double value = 0;
  std::optional<double> standard_error{};  ///< sample standard deviation / sqrt(n); none: not a mean of two or more documents
};

/// A task's result.
struct benchmark_result {
  std::string name{}, file{};  ///< of the task; its documents
  std::vector<std::string> groups{};
  std::vector<benchmark_metric> metrics{};
  std::optional<std::size_t> num_fewshot = 0;  ///< none: a template of unknown number
  std::size_t documents = 0, of_documents = 0;  ///< evaluated; in the file
  std::vector<std::string> samples{};      ///< a JSON object per document, with benchmark_settings::log_samples
  std::string split{};                     ///< "validation": the task's test split is missing; otherwise empty
  std::vector<std::string> completions{};  ///< HumanEval: {"task_id", "completion"} per document, for its checker. Generated code is never run here
};

/// For "config" in a results file.
struct benchmark_record {
  std::string model{};
  std::size_t batch_size = 0, max_length = 0, limit = 0;
};

/// Prompts: description, examples, question; without a document's contexts.
[[nodiscard]] std::vector<std::string> benchmark_prompts(benchmark_task task, std::span<const benchmark_document> documents,
                                                         const benchmark_settings& settings);

///   throws  config_error for too many examples or settings that the task lacks; file_error, data_error
[[nodiscard]] benchmark_result run_benchmark(const text_evaluator& evaluator, const benchmark_task& task, const benchmark_settings& settings);

/// Results of groups with all tasks present: means weighted by numbers of documents, pooled standard errors, for metrics of all tasks. num_fewshot is
/// none where tasks differ.
[[nodiscard]] std::vector<benchmark_result> benchmark_groups(std::span<const benchmark_result> results);

/// {"results": {task: {"acc,none": ..., "acc_stderr,none": ...}}, "groups": ..., "n-shot": ..., "n-samples": ...}
[[nodiscard]] std::string benchmark_json(std::span<const benchmark_result> results, const benchmark_record& about = {});
/// A table, and the tasks with documents of another split.
[[nodiscard]] std::string benchmark_table(std::span<const benchmark_result> results);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/benchmark_impl.hpp>
#endif
