// Definitions of benchmark.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/eval/benchmark.hpp>
#include <xtrain/eval/python_random.hpp>

namespace xtrain {

namespace detail {

[[nodiscard]] inline std::string json_text(const json& value, int indent = -1) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

/// A list of one list: two strings in braces would form an object.
[[nodiscard]] inline json one_list(json::initializer_list_t values) { return json::array({json::array(values)}); }

[[nodiscard]] inline std::string example_text(const benchmark_task& task, const benchmark_document& d) {
  const std::size_t gold = d.gold.empty() ? 0 : d.gold.front();
  const std::string& answer = d.choices.empty() ? d.target : d.choices[gold];
  return concat(d.contexts.empty() ? d.text : d.contexts[gold], answer.empty() ? "" : task.target_delimiter, answer, answer.empty() ? "" : "\n\n");
}

/// Drawn as by lm-evaluation-harness.
[[nodiscard]] inline std::vector<std::size_t> drawn_examples(const benchmark_task& task, std::span<const benchmark_document> examples,
                                                             const benchmark_document& of, std::size_t n, python_random& random) {
  if (!task.leaves_document_out) return random.sample(examples.size(), n);
  std::vector<std::size_t> others, drawn;
  for (const std::size_t i : random.sample(examples.size(), n + 1))
    if (!(examples[i] == of) && drawn.size() < n) drawn.push_back(i);
  if (drawn.size() == n) return drawn;
  drawn.clear();  // the document occurs more than once: draw again without it
  for (std::size_t i = 0; i < examples.size(); ++i)
    if (!(examples[i] == of)) others.push_back(i);
  for (const std::size_t i : random.sample(others.size(), n)) drawn.push_back(others[i]);
  return drawn;
}

/// A metric's values by document.
struct metric_values {
  std::string name{}, filter = "none";
  std::vector<double> values{};
};

[[nodiscard]] inline benchmark_metric mean_of(const metric_values& of) {
  const auto n = static_cast<double>(of.values.size());
  const double mean = std::accumulate(of.values.begin(), of.values.end(), 0.0) / n;
  benchmark_metric result{.name = of.name, .filter = of.filter, .value = mean};
  if (of.values.size() < 2) return result;
  double squares = 0;
  for (const double v : of.values) squares += (v - mean) * (v - mean);
  result.standard_error = std::sqrt(squares / (n - 1)) / std::sqrt(n);
  return result;
}

[[nodiscard]] inline std::size_t index_of_largest(std::span<const double> values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

/// Share of some choices: their e^ll over the sum of all, relative to the likeliest because e^-746 is 0 in fp64.
[[nodiscard]] inline double share_of(std::span<const std::size_t> some, std::span<const double> log_likelihoods) {
  const double largest = log_likelihoods[index_of_largest(log_likelihoods)];
  double sum = 0, of_some = 0;
  for (const double ll : log_likelihoods) sum += std::exp(ll - largest);
  for (const std::size_t i : some) of_some += std::exp(log_likelihoods[i] - largest);
  return of_some / sum;
}

/// State shared by a task's kinds of requests.
struct benchmark_run {
  const text_evaluator& evaluator;
  const benchmark_task& task;
  const benchmark_settings& settings;
  std::span<const benchmark_document> documents;
  std::span<const std::string> prompts;
  benchmark_result& result;

  template <class Arguments, class Responses>
  void sample(std::size_t document, const Arguments& arguments, const Responses& responses, const json& target,
              std::span<const metric_values> metrics) const {
    if (!settings.log_samples) return;
    json line{{"doc_id", document}, {"arguments", arguments}, {"resps", responses}, {"target", target}};
    for (const metric_values& m : metrics) line[m.filter == "none" ? m.name : concat(m.name, ",", m.filter)] = m.values[document];
    result.samples.push_back(json_text(line));
  }

  void multiple_choice() const {
    std::vector<text_evaluator::pair> requests;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const benchmark_document& d = documents[i];
      for (const std::string& context : d.contexts) requests.push_back({prompts[i] + context, task.target_delimiter + d.target});
      for (const std::string& choice : d.choices) requests.push_back({prompts[i], task.target_delimiter + choice});
    }
    const std::vector<token_score> scores = evaluator.log_likelihood(requests);
    std::vector<metric_values> metrics;
    for (const std::string& name : task.metrics) metrics.push_back({.name = name});
    std::size_t at = 0;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const benchmark_document& d = documents[i];
      const std::vector<std::string>& choices = d.contexts.empty() ? d.choices : d.contexts;
      std::vector<double> sums, by_characters, by_bytes;
      json arguments = json::array(), responses = json::array();
      for (const std::string& choice : choices) {
        sums.push_back(scores[at].log_likelihood);
        by_characters.push_back(sums.back() / static_cast<double>(characters_of(choice)));
        by_bytes.push_back(sums.back() / static_cast<double>(choice.size()));
        if (settings.log_samples) {
          arguments.push_back(json::array({requests[at].context, requests[at].continuation}));
          responses.push_back(json::array({scores[at].log_likelihood, scores[at].is_greedy}));
        }
        ++at;
      }
      for (metric_values& m : metrics) {
        if (task.weighs_choices) {
          m.values.push_back(share_of(d.gold, sums));
          continue;
        }
        const std::size_t choice = index_of_largest(m.name == "acc_norm" ? by_characters : m.name == "acc_bytes" ? by_bytes : sums);
        m.values.push_back(std::find(d.gold.begin(), d.gold.end(), choice) != d.gold.end() ? 1.0 : 0.0);
      }
      sample(i, arguments, responses, d.gold.size() == 1 ? json(d.gold.front()) : json(d.gold), metrics);
    }
    for (const metric_values& m : metrics) result.metrics.push_back(mean_of(m));
  }

  void log_likelihood() const {
    std::vector<text_evaluator::pair> requests;
    for (std::size_t i = 0; i < documents.size(); ++i) requests.push_back({prompts[i], documents[i].target});
    const std::vector<token_score> scores = evaluator.log_likelihood(requests);
    std::vector<metric_values> metrics{{.name = "perplexity"}, {.name = "acc"}};
    for (std::size_t i = 0; i < documents.size(); ++i) {
      metrics[0].values.push_back(scores[i].log_likelihood);
      metrics[1].values.push_back(scores[i].is_greedy ? 1.0 : 0.0);
      sample(i, one_list({requests[i].context, requests[i].continuation}), one_list({scores[i].log_likelihood, scores[i].is_greedy}),
             requests[i].continuation, metrics);
    }
    benchmark_metric perplexity = mean_of(metrics[0]);
    perplexity.value = std::exp(-perplexity.value);
    perplexity.standard_error.reset();
    result.metrics = {perplexity, mean_of(metrics[1])};
  }

  void rolling() const {
    std::vector<std::string> texts;
    for (const benchmark_document& d : documents) texts.push_back(d.target);
    const std::vector<double> sums = evaluator.log_likelihood_rolling(texts);
    double sum = 0, words = 0, bytes = 0;
    for (std::size_t i = 0; i < documents.size(); ++i) {
      sum += sums[i];
      words += static_cast<double>(documents[i].words);
      bytes += static_cast<double>(documents[i].bytes);
      const std::vector<metric_values> none;
      sample(i, one_list({texts[i]}), json::array({sums[i]}), texts[i], none);
    }
    result.metrics = {{.name = "word_perplexity", .value = std::exp(-sum / words)},
                      {.name = "byte_perplexity", .value = std::exp(-sum / bytes)},
                      {.name = "bits_per_byte", .value = -sum / bytes / std::log(2.0)}};
  }

  void generation() const {
    std::vector<text_evaluator::generation_request> requests;
    for (const std::string& prompt : prompts)
      requests.push_back(
          {.context = prompt, .until = task.until, .max_gen_toks = settings.max_gen_toks > 0 ? settings.max_gen_toks : task.max_gen_toks});
    const std::vector<std::string> answers = evaluator.generate_until(requests);
    std::vector<metric_values> metrics;
    const auto written = [&](const std::string& text) { return task.compared != nullptr ? task.compared(text) : text; };
    const auto is_right = [&](const std::string& answer, const std::string& target) {
      return task.equals != nullptr ? task.equals(answer, target) : written(answer) == written(target);
    };
    for (const std::string& name : task.metrics)
      for (const answer_filter& filter : task.filters) {
        metrics.push_back({.name = name, .filter = filter.name});
        for (std::size_t i = 0; i < documents.size(); ++i) {
          const std::string answer = filter.extract != nullptr ? filter.extract(answers[i]) : answers[i];
          metrics.back().values.push_back(is_right(answer, documents[i].target) ? 1.0 : 0.0);
        }
      }
    for (std::size_t i = 0; i < documents.size(); ++i) {
      const json how{{"until", requests[i].until}, {"max_gen_toks", requests[i].max_gen_toks}};
      sample(i, one_list({requests[i].context, how}), json::array({answers[i]}), documents[i].target, metrics);
      if (!documents[i].id.empty()) result.completions.push_back(json_text(json{{"task_id", documents[i].id}, {"completion", answers[i]}}));
    }
    for (const metric_values& m : metrics) result.metrics.push_back(mean_of(m));
  }
};

}  // namespace detail

XTRAIN_INLINE std::vector<std::string> benchmark_prompts(benchmark_task task, std::span<const benchmark_document> documents,
                                                         const benchmark_settings& settings) {
  std::vector<std::string> prompts;
  const auto finish = [&](const benchmark_document& d, std::string before) { prompts.push_back(std::move(before) + d.text); };
  const bool is_rolling = task.kind == request_kind::rolling;
  if (!settings.fewshot_template.empty()) {
    require<config_error>(!settings.num_fewshot && !is_rolling, task.name,
                          ": few-shot examples must be a template or a number of examples, and of a task with prompts");
    std::string text = read_few_shots(settings.fewshot_template, task).text;
    if (!text.ends_with('\n')) text += "\n\n";
    for (const benchmark_document& d : documents) finish(d, text);
    return prompts;
  }
  const std::size_t n = settings.num_fewshot.value_or(task.num_fewshot);
  require<config_error>(n == 0 || !is_rolling, task.name, ": the number of few-shot examples must be 0 for a whole text; given ", n);
  std::vector<benchmark_document> examples;
  if (n > 0 || task.fewshot_format == benchmark_format::cot_prompt) examples = read_examples(task, settings.data_dir);
  require<config_error>(n <= examples.size(), task.name, ": --num-fewshot must be at most the number of examples, ", examples.size(), "; given ", n);
  require<config_error>(n < examples.size() || n == 0 || !task.leaves_document_out, task.name,
                        ": --num-fewshot must be below the number of examples, ", examples.size(),
                        ", because one of them may be the document; given ", n);
  python_random random(settings.fewshot_seed);
  for (const benchmark_document& d : documents) {
    std::string before = task.description;
    if (n > 0 && task.sampling == few_shot_sampling::python_random) {
      for (const std::size_t i : detail::drawn_examples(task, examples, d, n, random)) before += detail::example_text(task, examples[i]);
    } else {
      for (std::size_t i = 0; i < n; ++i) before += detail::example_text(task, examples[i]);
    }
    finish(d, std::move(before));
  }
  return prompts;
}

XTRAIN_INLINE benchmark_result run_benchmark(const text_evaluator& evaluator, const benchmark_task& task, const benchmark_settings& settings) {
  std::vector<benchmark_document> documents = read_documents(task, settings.data_dir);
  benchmark_result result{
      .name = task.name, .file = documents_file(task, settings.data_dir), .groups = task.groups, .of_documents = documents.size()};
  if (result.file.ends_with("-validation.jsonl") && task.files.front().ends_with("-test.jsonl")) result.split = "validation";
  if (settings.limit > 0 && settings.limit < documents.size()) documents.resize(settings.limit);
  result.documents = documents.size();
  if (settings.fewshot_template.empty()) result.num_fewshot = settings.num_fewshot.value_or(task.num_fewshot);
  else result.num_fewshot = read_few_shots(settings.fewshot_template, task).count;
  const std::vector<std::string> prompts = benchmark_prompts(task, documents, settings);
  const detail::benchmark_run run{evaluator, task, settings, documents, prompts, result};
  switch (task.kind) {
    case request_kind::multiple_choice: run.multiple_choice(); break;
    case request_kind::log_likelihood: run.log_likelihood(); break;
    case request_kind::rolling: run.rolling(); break;
    case request_kind::generation: run.generation(); break;
  }
  return result;
}

XTRAIN_INLINE std::vector<benchmark_result> benchmark_groups(std::span<const benchmark_result> results) {
  std::map<std::string, std::size_t> tasks_of;  // of built-in groups
  for (const benchmark_task& task : benchmark_tasks())
    for (const std::string& group : task.groups) ++tasks_of[group];
  std::map<std::string, std::vector<const benchmark_result*>> members;
  std::vector<std::string> order;
  for (const benchmark_result& one : results)
    for (const std::string& group : one.groups) {
      if (members[group].empty()) order.push_back(group);
      members[group].push_back(&one);
    }
  std::vector<benchmark_result> groups;
  for (const std::string& name : order) {
    const auto& of = members[name];
    if (const auto all = tasks_of.find(name); all != tasks_of.end() && of.size() < all->second) continue;
    benchmark_result group{.name = name, .num_fewshot = of.front()->num_fewshot};
    for (const benchmark_result* one : of) {
      if (one->num_fewshot != group.num_fewshot) group.num_fewshot.reset();
      group.documents += one->documents;
      group.of_documents += one->of_documents;
    }
    for (const benchmark_metric& first : of.front()->metrics) {
      benchmark_metric mean{.name = first.name, .filter = first.filter};
      double sum = 0, variance = 0;
      bool has_errors = true, is_of_all = true;
      for (const benchmark_result* one : of) {
        const auto found = std::find_if(one->metrics.begin(), one->metrics.end(),
                                        [&](const benchmark_metric& m) { return m.name == first.name && m.filter == first.filter; });
        is_of_all = found != one->metrics.end();
        if (!is_of_all) break;
        const auto size = static_cast<double>(one->documents);
        sum += found->value * size;
        has_errors = has_errors && found->standard_error.has_value();
        if (has_errors) variance += (size - 1) * *found->standard_error * *found->standard_error * size;
      }
      if (!is_of_all) continue;
      const auto total = static_cast<double>(group.documents);
      mean.value = sum / total;
      if (has_errors) mean.standard_error = std::sqrt(variance / (total - static_cast<double>(of.size())) / total);
      group.metrics.push_back(mean);
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

XTRAIN_INLINE std::string benchmark_json(std::span<const benchmark_result> results, const benchmark_record& about) {
  json all{{"results", json::object()}, {"n-shot", json::object()}, {"n-samples", json::object()}, {"config", json::object()}};
  all["config"] = {{"model", about.model}, {"batch_size", about.batch_size}, {"max_length", about.max_length}, {"limit", about.limit}};
  const auto add = [](json& to, const benchmark_result& one) {
    json& entry = to[one.name] = json{{"alias", one.name}};
    for (const benchmark_metric& m : one.metrics) {
      entry[concat(m.name, ",", m.filter)] = m.value;
      entry[concat(m.name, "_stderr,", m.filter)] = m.standard_error ? json(*m.standard_error) : json("N/A");
    }
  };
  for (const benchmark_result& one : results) {
    add(all["results"], one);
    all["config"]["files"][one.name] = one.file;
    if (!one.split.empty()) all["config"]["splits"][one.name] = one.split;
    all["n-shot"][one.name] = one.num_fewshot ? json(*one.num_fewshot) : json(nullptr);
    all["n-samples"][one.name] = {{"original", one.of_documents}, {"effective", one.documents}};
  }
  for (const benchmark_result& group : benchmark_groups(results)) {
    add(all["results"], group);
    add(all["groups"], group);
  }
  return detail::json_text(all, 2) + "\n";
}

XTRAIN_INLINE std::string benchmark_table(std::span<const benchmark_result> results) {
  std::vector<std::vector<std::string>> rows{{"Tasks", "Filter", "n-shot", "Metric", "Value", "Stderr"}};
  const auto add = [&](const benchmark_result& one) {
    for (const benchmark_metric& m : one.metrics)
      rows.push_back({&m == one.metrics.data() ? one.name : "", m.filter, one.num_fewshot ? concat(*one.num_fewshot) : "N/A", m.name, fixed(m.value, 4),
                      m.standard_error ? fixed(*m.standard_error, 4) : "N/A"});
  };
  for (const benchmark_result& one : results) add(one);
  for (const benchmark_result& group : benchmark_groups(results)) add(group);
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string table;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const std::string fill(widths[c] - rows[r][c].size(), ' ');
      table += concat("|", c < 2 || c == 3 ? rows[r][c] + fill : fill + rows[r][c]);
    }
    table += "|\n";
    if (r > 0) continue;
    for (std::size_t c = 0; c < widths.size(); ++c) table += concat("|", std::string(widths[c] - 1, '-'), c < 2 || c == 3 ? "-" : ":");
    table += "|\n";
  }
  for (const benchmark_result& one : results)
    if (!one.split.empty()) table += concat(one.name, ": of the ", one.split, " split, ", one.file, ", because the task's own is not there\n");
  return table;
}

}  // namespace xtrain
