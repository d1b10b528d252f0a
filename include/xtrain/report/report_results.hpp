// Results: final and held-out loss, tokens per second, time, memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <xtrain/core/text.hpp>
#include <xtrain/report/number_text.hpp>
#include <xtrain/report/report_part.hpp>
#include <xtrain/report/run_log.hpp>
#include <xtrain/report/step_bins.hpp>

namespace xtrain::detail {

class report_results : report_part {
 public:
  using report_part::report_part;

  /// For one run.
  void tiles() {
    const run_log& run = runs_[0];
    put("<dl class=\"tiles\" aria-label=\"Results\">");
    const summary sums = summarize(run);
    if (sums.has_loss)
      tile(facts_.time_constant > 0 ? "Final loss, smoothed" : "Final loss", digits_text(sums.final_loss),
           concat("last step ", digits_text(run.curve("loss")->last.value)));
    if (run.held_out.count > 0) tile("Best held-out loss", digits_text(run.held_out.least.value), held_out_text(run));
    if (!run.tokens_per_second.empty())
      tile("Median tokens/s", unit_text(run.tokens_per_second.median()), concat(unit_text(run.tokens), " tokens in all"));
    tile("Steps", grouped_text(run.last_step),
         run.max_steps > 0 ? concat("of ", grouped_text(run.max_steps), ", ", skipped_text(run), " skipped") : concat(skipped_text(run), " skipped"));
    tile("Time in steps", duration_text(run.seconds), "without evaluations and saving");
    tile("Peak memory", peak_text(run), "of a rank&#39;s device");
    if (run.parameters > 0)
      tile("Parameters", unit_text(static_cast<double>(run.parameters)),
           run.trainable_parameters == run.parameters ? "all trained" : concat(unit_text(static_cast<double>(run.trainable_parameters)), " trained"));
    put("</dl>\n");
  }

  /// For several runs.
  ///   same_losses  losses are comparable
  void comparison(bool same_losses) {
    const auto best = [&](auto&& value_of, bool least) {  // runs with a value
      double found = least ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
      for (const run_log& run : runs_)
        if (const auto [there, value] = value_of(run); there) found = least ? std::min(found, value) : std::max(found, value);
      return found;
    };
    const auto final_of = [&](const run_log& run) {
      const summary sums = summarize(run);
      return std::pair{sums.has_loss && same_losses, sums.final_loss};
    };
    const auto held_out_of = [&](const run_log& run) { return std::pair{run.held_out.count > 0 && same_losses, run.held_out.least.value}; };
    const auto rate_of = [](const run_log& run) { return std::pair{!run.tokens_per_second.empty(), run.tokens_per_second.median()}; };
    const double best_final = best(final_of, true), best_held_out = best(held_out_of, true), best_rate = best(rate_of, false);
    const auto cell = [&](bool there, bool is_best, const std::string& text, const std::string& more = {}) {
      put("<td>");
      if (!there) put("&ndash;");
      else put(is_best ? "<span class=\"best\">" : "<span>", text, is_best ? "<span class=\"seen\"> (best)</span>" : "", "</span>");
      if (there && !more.empty()) put("<small>", more, "</small>");
      put("</td>");
    };
    put("<section aria-labelledby=\"runs\"><h2 id=\"runs\">Runs</h2><div class=\"card table\" tabindex=\"0\" role=\"region\" aria-labelledby=\"runs\">"
        "<table><thead><tr>",
        "<th scope=\"col\">run</th><th scope=\"col\">final loss", facts_.time_constant > 0 ? "<small>smoothed</small>" : "",
        "</th><th scope=\"col\">best held-out loss</th><th scope=\"col\">median tokens/s</th><th scope=\"col\">steps</th><th scope=\"col\">skipped</th>"
        "<th scope=\"col\">tokens</th><th scope=\"col\">time in steps</th><th scope=\"col\">peak memory</th>"
        "<th scope=\"col\">parameters</th></tr></thead><tbody>");
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const run_log& run = runs_[r];
      const summary sums = summarize(run);
      put("<tr><th scope=\"row\">", named(r), "<small>", state_of(run), "</small></th>");
      cell(sums.has_loss, sums.has_loss && same_losses && sums.final_loss <= best_final, digits_text(sums.final_loss));
      cell(run.held_out.count > 0, run.held_out.count > 0 && same_losses && run.held_out.least.value <= best_held_out, digits_text(run.held_out.least.value),
           run.held_out.count > 0 ? concat("at step ", grouped_text(run.held_out.least.step)) : std::string());
      cell(!run.tokens_per_second.empty(), !run.tokens_per_second.empty() && run.tokens_per_second.median() >= best_rate,
           unit_text(run.tokens_per_second.median()));
      cell(true, false, grouped_text(run.last_step), run.max_steps > 0 ? concat("of ", grouped_text(run.max_steps)) : std::string());
      cell(true, false, skipped_text(run));
      cell(run.tokens > 0, false, unit_text(run.tokens));
      cell(run.seconds > 0, false, duration_text(run.seconds));
      cell(run.peak_memory > 0, false, peak_text(run));
      cell(run.parameters > 0, false, unit_text(static_cast<double>(run.parameters)));
      put("</tr>");
    }
    put("</tbody></table></div><p class=\"note\">&#9733; marks the best of a column. Time in steps leaves out evaluations and saving; "
        "peak memory is that of a rank&#39;s device.</p></section>\n");
  }

 private:
  struct summary {
    bool has_loss = false;
    double final_loss = 0;
  };
  [[nodiscard]] summary summarize(const run_log& run) const {
    const run_curve* loss = run.curve("loss");
    if (loss == nullptr) return {};
    const auto points = smoothed(loss->bins.bins(), facts_.time_constant);
    return {true, points.back().value};
  }

  void tile(const std::string& name, const std::string& value, const std::string& more = {}) {
    put("<div class=\"card\"><dt>", name, "</dt><dd>", value);
    if (!more.empty()) put("<small>", more, "</small>");
    put("</dd></div>");
  }
  [[nodiscard]] static std::string held_out_text(const run_log& run) {
    return concat("at step ", grouped_text(run.held_out.least.step), ", perplexity ", digits_text(std::exp(std::min(run.held_out.least.value, 700.0))));
  }
  [[nodiscard]] static std::string skipped_text(const run_log& run) { return grouped_text(run.skipped); }
};

}  // namespace xtrain::detail
