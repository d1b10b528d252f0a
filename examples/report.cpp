// A page about one or several training runs, from the logs that trainers write with --metrics.
//
//   report run.jsonl
//   report baseline.jsonl high-lr.jsonl --output comparison.html --title "Learning rates"
//
// The page is one HTML file, which needs neither a network nor a script.
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/report/report_page.hpp>
#include <xtrain/report/run_log.hpp>

#include "command_line.hpp"

namespace {

struct report_flags {
  std::vector<std::string> logs{};
  std::string output = "report.html", title{};

  void add(CLI::App& app) {
    app.add_option("logs", logs, "logs of runs, which trainers write with --metrics; several runs are compared")->required()->type_name("FILE...");
    app.add_option("--output", output, "the page to write")->type_name("FILE")->capture_default_str();
    app.add_option("--title", title, "title of the page; default: the name of the run")->type_name("TEXT");
  }
};

void report(const report_flags& flags) {
  xtrain::require<command_line::usage_error>(flags.logs.size() <= xtrain::max_report_runs, "logs: must be at most ", xtrain::max_report_runs, "; given ",
                                             flags.logs.size());
  xtrain::require<command_line::usage_error>(!flags.output.empty(), "--output: must not be empty");
  for (const std::string& log : flags.logs) {
    std::error_code ignored;
    xtrain::require<command_line::usage_error>(log != flags.output && !std::filesystem::equivalent(log, flags.output, ignored), "--output ", flags.output,
                                               ": must not be one of the logs, which would be overwritten");
  }
  std::vector<xtrain::run_log> runs;
  for (const std::string& log : flags.logs) {
    runs.push_back(xtrain::read_run_log(log));
    const xtrain::run_log& run = runs.back();
    for (const xtrain::line_note& problem : run.problems) std::fprintf(stderr, "warning: %s: line %zu: %s\n", log.c_str(), problem.line, problem.text.c_str());
    if (run.problem_count > run.problems.size())
      std::fprintf(stderr, "warning: %s: %zu more lines could not be used\n", log.c_str(), run.problem_count - run.problems.size());
  }
  const std::string title = !flags.title.empty() ? flags.title
                            : runs.size() == 1   ? "Training report: " + xtrain::short_run_names(flags.logs).front()
                                                 : "Training report";
  xtrain::write_file(flags.output, xtrain::report_page(runs, {.title = title}));
  std::printf("wrote %s: %zu %s\n", flags.output.c_str(), runs.size(), runs.size() == 1 ? "run" : "runs");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Writes a page about training runs: curves, memory, ranks, settings, a comparison.", "report");
  report_flags flags;
  flags.add(app);
  return command_line::run(app, argc, argv, [&] { report(flags); });
}
