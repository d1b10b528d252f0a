// Evaluates a model on benchmarks. The table goes to standard output, everything else to standard error.
//
//   evaluate --model DIR --tasks boolq,mmlu --data-dir benchmarks --output-path results.json
//   evaluate --model DIR --wikitext103 wikitext-103/wiki.test.tokens --overlapping-eval 32
//
// Policies (device, precision, ...) are chosen at compile time: see xtrain_add_trainer.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/eval/benchmark.hpp>
#include <xtrain/eval/log_likelihood.hpp>
#include <xtrain/eval/wikitext103.hpp>
#include <xtrain/train/forward_only.hpp>

#include "ranks.hpp"
#include "readable_adapter.hpp"
#include "recipe.hpp"

namespace {

struct evaluate_flags {
  std::string model{}, adapter{}, tokenizer{}, tasks{}, output{}, wikitext103{};
  std::size_t batch_size = 8, max_length = 0;
  std::optional<std::size_t> num_fewshot{};
  bool lists = false, no_bos = false;
  xtrain::wikitext103_settings windows{};
  xtrain::benchmark_settings how{};
  command_line::config_flags config{};
  command_line::vocabulary_flags vocabulary{};
  command_line::device_flags device{};
  command_line::rank_flags parallel{};

  void add(CLI::App& app) {
    app.add_option("--model", model, "folder with config.json and safetensors, or a GGUF file")->type_name("DIR");
    app.add_option("--adapter", adapter, "folder or GGUF file with a LoRA adapter for the model")->type_name("PATH");
    app.add_option("--tokenizer", tokenizer, "byte, a folder or a file; default: the adapter's folder if it has one, or else the model's")
        ->type_name("byte|DIR|FILE");
    auto* of_tasks = app.add_option("--tasks", tasks, "names of tasks and groups")->type_name("a,b");
    app.add_flag("--list-tasks", lists, "print the names of all tasks and groups, and exit");
    app.add_option("--data-dir", how.data_dir, "folder with a folder for each benchmark")->type_name("DIR")->capture_default_str();
    auto* fewshot = app.add_option("--num-fewshot", num_fewshot, "examples in a prompt; default: the task's")
                        ->check(command_line::whole_number())
                        ->type_name("N");
    app.add_option("--fewshot-template", how.fewshot_template,
                   "JSON file with the examples of each subject as text, which stand before every question as they are")
        ->type_name("FILE")
        ->excludes(fewshot);
    app.add_option("--fewshot-seed", how.fewshot_seed, "random seed of tasks that draw their examples")
        ->check(command_line::number_from<std::uint32_t>(0, std::numeric_limits<std::uint32_t>::max(), "a whole number below 2^32"))
        ->type_name("N")
        ->capture_default_str();
    auto* limit = app.add_option("--limit", how.limit, "evaluate the first N documents of each task; 0: all")
                      ->check(command_line::whole_number())
                      ->type_name("N");
    app.add_option("--batch-size", batch_size, "sequences at once")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--max-length", max_length, "longest sequence in tokens; longer prompts lose their beginning; default: the model's")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    auto* gen_toks = app.add_option("--max-gen-toks", how.max_gen_toks, "maximum number of tokens of a generated answer; default: the task's")
        ->check(command_line::positive_whole_number())
        ->type_name("N");
    app.add_option("--output-path", output, "write the results to this JSON file")->type_name("FILE");
    auto* samples = app.add_flag("--log-samples", how.log_samples, "write requests and responses beside --output-path, a file per task")
                        ->needs("--output-path");
    auto* wikitext = app.add_option("--wikitext103", wikitext103, "instead of --tasks: this file, as Megatron-LM's task WIKITEXT103 evaluates it")
                         ->type_name("FILE");
    for (auto* other : {of_tasks, fewshot, limit, gen_toks, samples}) wikitext->excludes(other);
    for (const char* other : {"--data-dir", "--fewshot-template", "--fewshot-seed"}) wikitext->excludes(app.get_option(other));
    app.add_option("--overlapping-eval", windows.overlapping_eval, "targets of every window but the first; its other tokens are context")
        ->check(command_line::positive_whole_number())
        ->type_name("N")
        ->capture_default_str()
        ->needs(wikitext);
    app.add_flag("--no-bos", no_bos, "the text does not begin with the tokenizer's begin-of-text token")->needs(wikitext);
    config.add(app);
    vocabulary.add_size(app);
    device.add(app);
    parallel.add<recipe::parallel>(app);
  }
  /// A file beside --output-path.
  [[nodiscard]] std::string beside(const std::string& name) const {
    const std::size_t slash = output.rfind('/');
    return (slash == std::string::npos ? "" : output.substr(0, slash + 1)) + name;
  }
  /// Checks before hours of work that results can be written.
  void check_output() const {
    if (output.empty()) return;
    command_line::for_flag("--output-path", output, [&] {
      xtrain::require<xtrain::file_error>(!xtrain::is_directory(output), output, ": must be a file; it is a folder");
      const xtrain::atomic_file unused(output);  // removed at once
    });
  }
  void write(const xtrain::benchmark_result& of) const {
    const auto lines = [](const std::vector<std::string>& all) {
      std::string text;
      for (const std::string& line : all) text += line + "\n";
      return text;
    };
    if (!of.samples.empty()) xtrain::write_file(beside("samples_" + of.name + ".jsonl"), lines(of.samples));
    if (of.completions.empty()) return;
    const std::string path = beside(of.name + "_completions.jsonl");
    xtrain::write_file(path, lines(of.completions));
    std::fprintf(stderr, "%s: %zu completions in %s; evaluate_functional_correctness runs them\n", of.name.c_str(), of.completions.size(),
                 path.c_str());
  }
};

void list_tasks() {
  std::vector<std::string> groups;
  for (const xtrain::benchmark_task& task : xtrain::benchmark_tasks()) {
    std::puts(task.name.c_str());
    for (const std::string& group : task.groups)
      if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  for (const std::string& group : groups) std::puts(group.c_str());
}

template <class Model>
void evaluate(evaluate_flags flags, const std::vector<xtrain::benchmark_task>& tasks, const xtrain::json_settings& settings,
              typename Model::recipe::parallel::config layout, bool first_rank) {
  if (first_rank) flags.check_output();
  for (const xtrain::benchmark_task& task : tasks) (void)xtrain::documents_file(task, flags.how.data_dir);
  if (!flags.wikitext103.empty())
    (void)command_line::for_flag("--wikitext103", flags.wikitext103, [&] { return xtrain::mapped_file(flags.wikitext103).size(); });
  const auto& family = command_line::for_flag("--model", flags.model, [&]() -> const auto& { return Model::family_of(settings); });
  const command_line::tokenizer_place place = command_line::tokenizer_place_of(flags.tokenizer, flags.adapter, flags.model);
  const auto tokenizer = command_line::tokenizer_of(place.flag, place.path);
  if (first_rank) command_line::warn_of_tokenizer(tokenizer);
  const auto on = command_line::open_device<typename Model::device>(flags.device, flags.parallel, layout, first_rank);
  const auto config = flags.config.apply(settings, family, first_rank);
  auto sizes = command_line::for_flag("--model", flags.model, [&] { return xtrain::sizes_of(config, family); });
  sizes.vocab_size = flags.vocabulary.size(sizes.vocab_size, tokenizer);
  bool resizes = flags.vocabulary.resizes();
  if (!flags.adapter.empty() && !resizes) {
    const std::size_t rows = command_line::for_flag("--adapter", flags.adapter, [&] { return xtrain::adapter_vocabulary(flags.adapter, family, sizes); });
    resizes = rows != std::exchange(sizes.vocab_size, rows);
  }
  typename Model::options options;
  options.parallel = layout;
  auto model = command_line::for_flag("--model", flags.model, [&] {
    return xtrain::load_as<Model>(flags.model, sizes, on, options, {.resize_vocabulary = resizes});
  });
  if (!flags.adapter.empty()) {
    xtrain::require<command_line::usage_error>(flags.parallel.ranks == 1, "--adapter: is merged on one rank; given are --ranks ", flags.parallel.ranks);
    command_line::for_flag("--adapter", flags.adapter, [&] { merge_adapter(model, flags.adapter); });
  }

  using passes_type = xtrain::forward_only<xtrain::shared_model<Model>>;
  const xtrain::forward_only_config batches{.micro_batch_size = flags.batch_size, .seq_length = flags.max_length};
  auto passes = command_line::for_flags([&] { return std::make_unique<passes_type>(model, batches); });
  auto scorer = command_line::for_flags([&] { return std::make_unique<xtrain::log_likelihood_scorer<passes_type>>(*passes); });
  using generator_type = xtrain::generator<xtrain::shared_model<Model>>;
  xtrain::scored_language_model language_model(*scorer, flags.batch_size, [&] {
    return std::make_unique<generator_type>(model, flags.batch_size, scorer->max_length());
  });
  std::vector<xtrain::token> ends = model.config().eos;
  for (const xtrain::token t : xtrain::generation_stop_tokens(flags.model)) ends.push_back(t);
  const auto evaluator = command_line::for_flags([&] { return xtrain::text_evaluator(language_model, tokenizer, ends); });

  std::vector<xtrain::benchmark_result> results;
  std::string report;
  if (!flags.wikitext103.empty()) {
    flags.windows.begins_text = !flags.no_bos;
    const auto found = command_line::for_flags([&] { return xtrain::evaluate_wikitext103(language_model, tokenizer, flags.wikitext103, flags.windows); });
    report = xtrain::wikitext103_report(found);
    results.push_back({.name = "wikitext103",
                       .file = flags.wikitext103,
                       .metrics = {{.name = "loss", .value = found.loss},
                                   {.name = "perplexity", .value = found.perplexity},
                                   {.name = "adjusted_perplexity", .value = found.adjusted_perplexity},
                                   {.name = "token_ratio", .value = found.token_ratio}},
                       .documents = 1,
                       .of_documents = 1});
  }
  for (const xtrain::benchmark_task& task : tasks) {
    results.push_back(command_line::for_flags([&] { return xtrain::run_benchmark(evaluator, task, flags.how); }));
    if (!first_rank) continue;
    std::fprintf(stderr, "%s: %zu of %zu documents of %s\n", task.name.c_str(), results.back().documents, results.back().of_documents,
                 results.back().file.c_str());
    if (!flags.output.empty()) flags.write(results.back());
    results.back().samples.clear();
  }
  if (!first_rank) return;
  const xtrain::benchmark_record about{
      .model = flags.model, .batch_size = flags.batch_size, .max_length = scorer->max_length(), .limit = flags.how.limit};
  if (!flags.output.empty())
    command_line::for_flag("--output-path", flags.output, [&] { xtrain::write_file(flags.output, xtrain::benchmark_json(results, about)); });
  command_line::print(report.empty() ? xtrain::benchmark_table(results) : report);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Evaluates a model on benchmarks. The table goes to standard output, everything else to standard error.", "evaluate");
  evaluate_flags flags;
  flags.add(app);
  return command_line::run(app, argc, argv, [&] {
    if (flags.lists) return list_tasks();
    xtrain::require<command_line::usage_error>(!flags.model.empty() && (!flags.tasks.empty() || !flags.wikitext103.empty()),
                                               "--model, and --tasks or --wikitext103, must be given");
    flags.how.num_fewshot = flags.num_fewshot;
    std::vector<xtrain::benchmark_task> tasks;
    if (!flags.tasks.empty()) tasks = command_line::for_flag("--tasks", flags.tasks, [&] { return xtrain::benchmark_tasks_named(flags.tasks); });
    for (const xtrain::benchmark_task& task : tasks)
      xtrain::require<command_line::usage_error>(
          task.name != "humaneval" || !flags.output.empty(),
          "--tasks humaneval: --output-path must be given, beside which the completions are written for their checker");
    const xtrain::json_settings config = command_line::for_flag("--model", flags.model, [&] { return xtrain::read_config(flags.model); });
    const command_line::readable_adapter adapter(flags.adapter, [&] { return config; });
    flags.adapter = adapter.path();
    command_line::on_ranks<recipe::parallel, processes>(
        flags.parallel, [&](const auto& layout, bool first_rank) { evaluate<model_of<recipe>>(flags, tasks, config, layout, first_rank); });
  });
}
