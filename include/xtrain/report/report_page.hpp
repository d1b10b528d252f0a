// A page about runs: curves, memory, ranks, settings and a comparison, as one HTML file that needs nothing else. Component 'io'.
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

/// The most runs of a page.
inline constexpr std::size_t max_report_runs = 64;

/// The page, in UTF-8. It refers to no other file and no address; texts of the logs are escaped, and its policy lets no script run but its own.
///   runs    1 to max_report_runs
///   throws  config_error for no runs or too many
[[nodiscard]] std::string report_page(std::span<const run_log> runs, const report_options& options = {});

/// A short name for each path: its last parts, as many as tell it from the others, without '.jsonl'.
[[nodiscard]] std::vector<std::string> short_run_names(std::span<const std::string> paths);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/report/report_page_impl.hpp>
#endif
