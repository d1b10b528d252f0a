// Definitions of report_page.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/report/html.hpp>
#include <xtrain/report/number_text.hpp>
#include <xtrain/report/report_charts.hpp>
#include <xtrain/report/report_page.hpp>
#include <xtrain/report/report_part.hpp>
#include <xtrain/report/report_resources.hpp>
#include <xtrain/report/report_results.hpp>
#include <xtrain/report/report_settings.hpp>
#include <xtrain/report/report_style.hpp>
#include <xtrain/report/run_log.hpp>

namespace xtrain {

namespace detail {

/// The page's frame, and its parts in order.
class report_writer : report_part {
 public:
  report_writer(std::span<const run_log> runs, const report_options& options, const report_facts& facts, std::string& body)
      : report_part(runs, facts, body), options_(options) {}

  std::string page() {
    header();
    warnings();
    if (runs_.size() == 1) report_results(runs_, facts_, body_).tiles();
    else report_results(runs_, facts_, body_).comparison(same_losses_);
    report_charts(runs_, facts_, body_).write();
    report_resources resources(runs_, facts_, body_);
    resources.memory();
    resources.ranks();
    report_settings(runs_, facts_, body_).write();
    course();
    const std::string title = escaped(options_.title, 300);
    // texts cannot contain this nonce: it depends on them
    const std::string own = checksum_text(concat(body_, report_script));
    return concat(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n",
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline';script-src 'nonce-", own,
        "';base-uri 'none';form-action 'none'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>", title, "</title>\n<style>:root{",
        report_light_colors, "}\n@media (prefers-color-scheme:dark){:root{", report_dark_colors, "}}\n:root:has(#theme-light:checked){", report_light_colors,
        "}\n:root:has(#theme-dark:checked){", report_dark_colors, "}", report_style, run_style(), "</style>\n</head>\n<body>\n", body_,
        "<footer>Written by <code>report</code> of xtrain from the ", runs_.size() == 1 ? "log" : "logs",
        " of metrics named above. Loss: mean over targets, natural logarithm. Sizes in binary units (1 KiB = 1024 B).</footer>\n<script nonce=\"", own, "\">",
        report_script, "</script>\n</body>\n</html>\n");
  }

 private:
  [[nodiscard]] std::string run_style() const {
    std::string style;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      style += concat(".r", r, "{", color(r), "}");
      if (several()) style += concat("body:has(#run-", r, ":not(:checked)) .chart .r", r, "{display:none}");
      if (r >= 8) style += concat(".line.r", r, "{stroke-dasharray:", 2 + r / 8 * 2, " ", 3 + r / 8, "}");  // colors repeat
    }
    return style;
  }

  void header() {
    put("<header><div><h1>", escaped(options_.title, 300), "</h1><p class=\"sub\">");
    if (several()) put(runs_.size(), " runs");
    else put(facts_.names[0], ", ", state_of(runs_[0]));
    std::size_t earliest = std::numeric_limits<std::size_t>::max(), latest = 0;
    for (const run_log& run : runs_)
      for (const run_part& part : run.parts)
        if (part.unix_time > 0) {
          earliest = std::min(earliest, part.unix_time);
          latest = std::max(latest, part.unix_time);
        }
    if (latest > 0) put(several() ? ", begun " : ". Begun ", date_text(earliest));
    if (latest > 0 && several() && date_text(latest) != date_text(earliest)) put(" to ", date_text(latest));
    put("</p></div><fieldset class=\"theme\"><legend class=\"seen\">Colors</legend>");
    for (const auto& [id, text, checked] : {std::tuple{"auto", "Auto", " checked"}, {"light", "Light", ""}, {"dark", "Dark", ""}})
      put("<label><input type=\"radio\" name=\"theme\" id=\"theme-", id, "\"", checked, "><span>", text, "</span></label>");
    put("</fieldset></header>\n<main>\n");
  }

  void warnings() {
    std::size_t count = 0;
    for (const run_log& run : runs_) count += run.problem_count;
    std::set<std::string> objectives, vocabularies;
    for (const run_log& run : runs_) {
      if (const std::string name = run.setting("recipe.objective"); !name.empty()) objectives.insert(name);
      if (const std::string size = run.setting("model.vocab_size"); !size.empty()) vocabularies.insert(size);
    }
    same_losses_ = objectives.size() < 2 && vocabularies.size() < 2;
    if (count == 0 && same_losses_) return;
    put("<section class=\"card warnings\" aria-label=\"Warnings\"><h2>Read this first</h2><ul>");
    if (objectives.size() > 1) put("<li>The runs have different objectives: their losses cannot be compared.</li>");
    if (vocabularies.size() > 1) put("<li>The runs have vocabularies of different sizes: losses per token of different tokenizers cannot be compared.</li>");
    for (const run_log& run : runs_) {
      for (const line_note& problem : run.problems) put("<li>", escaped(run.path, 300), ": line ", problem.line, ": ", escaped(problem.text, 400), "</li>");
      if (run.problem_count > run.problems.size())
        put("<li>", escaped(run.path, 300), ": ", run.problem_count - run.problems.size(), " more lines could not be used</li>");
    }
    put("</ul></section>\n");
  }

  void course() {
    put("<section aria-labelledby=\"course\"><h2 id=\"course\">What happened</h2><div class=\"grid\">");
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const run_log& run = runs_[r];
      put("<div class=\"card\"><div class=\"runhead\"><h3>", named(r), "</h3><span class=\"sub\">", state_of(run),
          "</span></div><ul class=\"plain\"><li><code>", escaped(run.path, 400), "</code>, ", grouped_text(run.lines), " lines</li>");
      for (std::size_t i = 0; i < run.parts.size(); ++i) {
        if (i == 20 && run.parts.size() > 40) {
          put("<li>", run.parts.size() - 40, " more resumptions</li>");
          i = run.parts.size() - 20;
        }
        const run_part& part = run.parts[i];
        put("<li>", part.first_step == 0 ? std::string("began") : concat("resumed after step ", grouped_text(part.first_step)), " (line ", part.line, ")");
        if (part.unix_time > 0) put(", ", date_text(part.unix_time));
        put("</li>");
      }
      if (run.parts.empty()) put("<li>its beginning is not recorded</li>");
      for (const std::string& change : run.changes) put("<li>", escaped(change, 600), "</li>");
      if (run.checkpoints > 0)
        put("<li>", grouped_text(run.checkpoints), run.checkpoints == 1 ? " checkpoint" : " checkpoints", ", the last of step ",
            grouped_text(run.last_checkpoint), "; training waited ", duration_text(run.checkpoint_seconds), "</li>");
      if (run.held_out.count + run.held_out.not_finite > 0)
        put("<li>", grouped_text(run.held_out.count + run.held_out.not_finite),
            run.held_out.count + run.held_out.not_finite == 1 ? " evaluation" : " evaluations", "</li>");
      for (const line_note& skip : run.skips) put("<li>step ", grouped_text(skip.line), " skipped: ", escaped(skip.text, 320), "</li>");
      if (run.skipped > run.skips.size()) put("<li>", grouped_text(run.skipped - run.skips.size()), " more skipped steps</li>");
      if (run.replaced > 0)
        put("<li>", grouped_text(run.replaced), run.replaced == 1 ? " line is" : " lines are",
            " left out, because a later part of the log has the same steps</li>");
      if (run.unknown_events > 0) put("<li>", grouped_text(run.unknown_events), " lines of other events are left out</li>");
      put("</ul></div>");
    }
    put("</div></section>\n</main>\n");
  }

  report_options options_;
  bool same_losses_ = true;
};

}  // namespace detail

XTRAIN_INLINE std::vector<std::string> short_run_names(std::span<const std::string> paths) {
  std::vector<std::vector<std::string>> parts;
  for (const std::string& path : paths) {
    std::string whole = path;
    for (const char* ending : {".jsonl", ".json"})
      if (whole.size() > std::string_view(ending).size() && whole.ends_with(ending)) {
        whole.resize(whole.size() - std::string_view(ending).size());
        break;
      }
    auto& all = parts.emplace_back();
    for (std::size_t begin = 0; begin <= whole.size();) {
      const std::size_t end = std::min(whole.find('/', begin), whole.size());
      if (end > begin) all.push_back(whole.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const auto name = [&](std::size_t i, std::size_t count) {
    std::string text;
    const auto& all = parts[i];
    for (std::size_t p = all.size() - std::min(count, all.size()); p < all.size(); ++p) text += concat(text.empty() ? "" : "/", all[p]);
    return text;
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::size_t count = 1, twins = 0;
    for (; count < parts[i].size(); ++count) {
      bool is_alone = true;
      for (std::size_t j = 0; j < parts.size(); ++j) is_alone = is_alone && (i == j || name(i, count) != name(j, count));
      if (is_alone) break;
    }
    for (std::size_t j = 0; j < i; ++j) twins += name(i, count) == name(j, parts[j].size()) || names[j] == name(i, count) ? 1 : 0;
    names.push_back(twins == 0 ? name(i, count) : concat(name(i, count), " (", twins + 1, ")"));
  }
  return names;
}

XTRAIN_INLINE std::string report_page(std::span<const run_log> runs, const report_options& options) {
  require<config_error>(!runs.empty() && runs.size() <= max_report_runs, "report: must be of 1 to ", max_report_runs, " runs; given ", runs.size());
  std::vector<std::string> paths;
  for (const run_log& run : runs) paths.push_back(run.path);
  const detail::report_facts facts(runs, short_run_names(paths));
  std::string body;
  return detail::report_writer(runs, options, facts, body).page();
}

}  // namespace xtrain
