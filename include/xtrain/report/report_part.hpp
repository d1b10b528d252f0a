// Base of page parts: runs, names, colors, output text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/report/html.hpp>
#include <xtrain/report/run_log.hpp>

namespace xtrain::detail {

/// Facts common to all runs.
struct report_facts {
  std::vector<std::string> names{}, plain_names{};  // escaped: with and without markup
  std::size_t first_step = 0, last_step = 0;
  std::size_t points = 600;  // per curve
  double time_constant = 0;  // of moving averages, in steps; 0: not smoothed

  report_facts(std::span<const run_log> runs, const std::vector<std::string>& short_names) {
    for (const std::string& name : short_names) {
      plain_names.push_back(escaped(name, 120));
      names.push_back(concat("<span class=\"name\">", plain_names.back(), "</span>"));
    }
    for (const run_log& run : runs) last_step = std::max(last_step, run.last_step);
    first_step = last_step;
    for (const run_log& run : runs)
      for (const auto& [key, curve] : run.curves)
        if (const auto bins = curve.bins.bins(1); !bins.empty()) first_step = std::min(first_step, bins.front().first);
    if (first_step * 4 <= last_step) first_step = 0;
    points = std::clamp<std::size_t>(3000 / runs.size(), 100, 600);
    // equal for all runs, for comparison
    const double steps = static_cast<double>(last_step - first_step);
    time_constant = steps >= 20 ? std::max(1.0, std::round(steps / 80)) : 0;
  }
};

/// Appends to the page's text.
class report_part {
 public:
  report_part(std::span<const run_log> runs, const report_facts& facts, std::string& body) : runs_(runs), facts_(facts), body_(body) {}

 protected:
  template <class... Parts>
  void put(const Parts&... parts) {
    (append(body_, parts), ...);
  }

  [[nodiscard]] static std::string color(std::size_t run) { return concat("color:var(--c", run % 8, ")"); }
  [[nodiscard]] std::string chip(std::size_t run) const { return concat("<span class=\"chip\" style=\"", color(run), "\" aria-hidden=\"true\"></span>"); }
  [[nodiscard]] std::string named(std::size_t run) const { return runs_.size() == 1 ? facts_.names[run] : chip(run) + facts_.names[run]; }
  [[nodiscard]] bool several() const { return runs_.size() > 1; }

  [[nodiscard]] static std::string state_of(const run_log& run) {
    if (run.has_end) return run.stopped ? "stopped" : "finished";
    return "no end recorded: killed, or still running";
  }
  [[nodiscard]] static std::string peak_text(const run_log& run) { return run.peak_memory > 0 ? bytes_text(run.peak_memory) : std::string("&ndash;"); }

  std::span<const run_log> runs_;
  const report_facts& facts_;
  std::string& body_;
};

}  // namespace xtrain::detail
