// A page about runs: curves, memory, ranks, settings, comparison, as one HTML file. Component 'io'.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <xtrain/report/run_log.hpp>

namespace xtrain {

/// Settings of report_page.
struct report_options {
  std::string title = "Training report";
};

/// Maximum number of runs per page.
inline constexpr std::size_t max_report_runs = 64;

/// The page in UTF-8, without references to files or addresses; log texts are escaped, and its policy allows only its script.
///   runs    1 to max_report_runs
///   throws  config_error for no runs or too many
[[nodiscard]] std::string report_page(std::span<const run_log> runs, const report_options& options = {});

/// Shortest distinct endings of the paths, without '.jsonl'.
[[nodiscard]] std::vector<std::string> short_run_names(std::span<const std::string> paths);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/report/report_page_impl.hpp>
#endif
