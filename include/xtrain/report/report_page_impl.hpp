// Definitions of report_page.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/report/html.hpp>
#include <xtrain/report/report_page.hpp>
#include <xtrain/report/report_style.hpp>
#include <xtrain/report/run_log.hpp>
#include <xtrain/report/step_bins.hpp>

namespace xtrain {

namespace detail {

// ---- numbers as text ----

/// A number with so many significant digits: 0.00015, 2.081, 3e-07.
[[nodiscard]] inline std::string digits_text(double value, int digits = 4) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return text.data();
}
/// The same, from 10,000 on with a decimal unit: 86.79k.
[[nodiscard]] inline std::string unit_text(double value, int digits = 4) {
  constexpr std::array<const char*, 5> units{"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  if (std::abs(value) >= 1e4)
    while (std::abs(value) >= 1000 && unit + 1 < units.size()) {
      value /= 1000;
      ++unit;
    }
  return concat(digits_text(value, digits), units[unit]);
}
/// A count with separators: 12,345.
[[nodiscard]] inline std::string grouped_text(std::size_t count) {
  std::string text = concat(count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}
[[nodiscard]] inline std::string duration_text(double seconds) {
  if (!(seconds < 1e9)) return concat(digits_text(seconds), " s");
  if (seconds < 60) return concat(digits_text(seconds, 3), " s");
  const auto whole = static_cast<std::size_t>(seconds + 0.5);
  const std::size_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  if (days > 0) return concat(days, " d ", hours, " h");
  if (hours > 0) return concat(hours, " h ", minutes, " min");
  return concat(minutes, " min ", whole % 60, " s");
}
[[nodiscard]] inline std::string date_text(std::size_t unix_time) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm date{};
  std::array<char, 40> text{};
  if (::gmtime_r(&seconds, &date) == nullptr || std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &date) == 0) return concat(unix_time);
  return text.data();
}

// ---- axes ----

struct axis_tick {
  double at = 0;  // 0 to 1
  std::string text{};
};

/// From numbers to 0..1.
struct chart_axis {
  double low = 0, high = 1;
  bool is_log = false;

  [[nodiscard]] double at(double value) const {
    const double part = is_log ? (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low)) : (value - low) / (high - low);
    return std::clamp(part, 0.0, 1.0);
  }

  /// Ticks at round numbers, about `wanted` of them.
  template <class Text>
  [[nodiscard]] std::vector<axis_tick> ticks(double wanted, Text&& text) const {
    std::vector<axis_tick> all;
    const auto add = [&](double value, double step) { all.push_back({at(value), text(value, step)}); };
    if (is_log && high / low >= 8) {
      const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9)) - 1, last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
      const int every = std::max(1, static_cast<int>(static_cast<double>(last - first) / wanted));
      for (int decade = first; decade <= last; decade += every)
        for (const double digit : {1.0, 2.0, 5.0}) {
          const double value = digit * std::pow(10.0, decade);
          if (digit > 1 && last - first > 3) continue;
          if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) add(value, std::pow(10.0, decade));
        }
      if (all.size() >= 2) return all;
      all.clear();
    }
    const double rough = (high - low) / wanted, decade = std::pow(10.0, std::floor(std::log10(rough)));
    double step = 10 * decade;
    for (const double digit : {1.0, 2.0, 5.0})
      if (digit * decade >= rough * 0.999) {
        step = digit * decade;
        break;
      }
    const double first = std::ceil(low / step - 1e-9);
    for (int i = 0; i < 40; ++i) {
      const double value = (first + i) * step;
      if (!(value <= high + step * 1e-9)) break;
      if (!is_log || value > 0) add(value == 0 ? 0.0 : value, step);
    }
    return all;
  }
};

/// A tick's number, with as many decimals as steps between ticks need.
[[nodiscard]] inline std::string tick_text(double value, double step) {
  const double size = std::max(std::abs(value), step);
  if (value == 0) return "0";
  if (size >= 1e15 || size < 1e-3) {
    std::string text = digits_text(value, static_cast<int>(std::clamp(std::ceil(std::log10(size / step) - 1e-9) + 1, 1.0, 6.0)));
    for (const char* zero : {"e-0", "e+0"})
      if (const std::size_t at = text.find(zero); at != std::string::npos) text.erase(at + 2, 1);
    return text;
  }
  double divisor = 1;
  const char* unit = "";
  for (const auto& [each, name] : {std::pair{1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}})
    if (size >= each * 0.9999 && (each > 1e3 || size >= 9999)) {
      divisor = each;
      unit = name;
    }
  const int decimals = static_cast<int>(std::clamp(-std::floor(std::log10(step / divisor) + 1e-9), 0.0, 6.0));
  return concat(fixed(value / divisor, decimals), unit);
}

// ---- charts ----

/// A curve of a run in a chart.
struct chart_line {
  std::size_t run = 0;
  bool is_held_out = false;
  std::vector<step_bin> bins{};
  std::vector<step_value> points{};  // the line
};

struct chart {
  std::string id, title, unit;
  bool from_zero = true;   // its axis begins at 0
  bool may_be_log = false;
  bool is_smoothed = true;
  double scale = 1;  // of the numbers, for percent
  std::vector<chart_line> lines{};
};

class report_writer {
 public:
  report_writer(std::span<const run_log> runs, const report_options& options) : runs_(runs), options_(options) {
    std::vector<std::string> paths;
    for (const run_log& run : runs) {
      paths.push_back(run.path);
      last_step_ = std::max(last_step_, run.last_step);
    }
    for (const std::string& name : short_run_names(paths)) names_.push_back(concat("<span class=\"name\">", escaped(name, 120), "</span>"));
    plain_names_ = short_run_names(paths);
    for (std::string& name : plain_names_) name = escaped(name, 120);
    first_step_ = last_step_;
    for (const run_log& run : runs)
      for (const auto& [key, curve] : run.curves)
        if (const auto bins = curve.bins.bins(1); !bins.empty()) first_step_ = std::min(first_step_, bins.front().first);
    if (first_step_ * 4 <= last_step_) first_step_ = 0;
    points_ = std::clamp<std::size_t>(3000 / runs.size(), 100, 600);
    // in steps; the same for all runs, so that they can be compared
    const double steps = static_cast<double>(last_step_ - first_step_);
    time_constant_ = steps >= 20 ? std::max(1.0, std::round(steps / 80)) : 0;
  }

  std::string page() {
    header();
    warnings();
    if (runs_.size() == 1) tiles();
    else comparison();
    charts();
    memory();
    ranks();
    settings();
    course();
    const std::string title = escaped(options_.title, 300);
    // a text cannot know the number that the page gives its own script
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
  template <class... Parts>
  void put(const Parts&... parts) {
    (append(body_, parts), ...);
  }

  // ---- runs: color and name ----

  [[nodiscard]] static std::string color(std::size_t run) { return concat("color:var(--c", run % 8, ")"); }
  [[nodiscard]] std::string chip(std::size_t run) const { return concat("<span class=\"chip\" style=\"", color(run), "\" aria-hidden=\"true\"></span>"); }
  [[nodiscard]] std::string named(std::size_t run) const { return runs_.size() == 1 ? names_[run] : chip(run) + names_[run]; }
  [[nodiscard]] bool several() const { return runs_.size() > 1; }

  [[nodiscard]] std::string run_style() const {
    std::string style;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      style += concat(".r", r, "{", color(r), "}");
      if (several()) style += concat("body:has(#run-", r, ":not(:checked)) .chart .r", r, "{display:none}");
      if (r >= 8) style += concat(".line.r", r, "{stroke-dasharray:", 2 + r / 8 * 2, " ", 3 + r / 8, "}");  // the colors repeat
    }
    return style;
  }

  [[nodiscard]] static std::string state_of(const run_log& run) {
    if (run.has_end) return run.stopped ? "stopped" : "finished";
    return "no end recorded: killed, or still running";
  }
  [[nodiscard]] static std::string peak_text(const run_log& run) { return run.peak_memory > 0 ? bytes_text(run.peak_memory) : std::string("&ndash;"); }

  // ---- parts of the page ----

  void header() {
    put("<header><div><h1>", escaped(options_.title, 300), "</h1><p class=\"sub\">");
    if (several()) put(runs_.size(), " runs");
    else put(names_[0], ", ", state_of(runs_[0]));
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

  struct summary {
    bool has_loss = false;
    double final_loss = 0;
  };
  [[nodiscard]] summary summarize(const run_log& run) const {
    const run_curve* loss = run.curve("loss");
    if (loss == nullptr) return {};
    const auto points = smoothed(loss->bins.bins(), time_constant_);
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

  void tiles() {
    const run_log& run = runs_[0];
    put("<dl class=\"tiles\" aria-label=\"Results\">");
    const summary sums = summarize(run);
    if (sums.has_loss)
      tile(time_constant_ > 0 ? "Final loss, smoothed" : "Final loss", digits_text(sums.final_loss),
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

  void comparison() {
    const auto best = [&](auto&& value_of, bool least) {  // the runs that have it
      double found = least ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
      for (const run_log& run : runs_)
        if (const auto [there, value] = value_of(run); there) found = least ? std::min(found, value) : std::max(found, value);
      return found;
    };
    const auto final_of = [&](const run_log& run) {
      const summary sums = summarize(run);
      return std::pair{sums.has_loss && same_losses_, sums.final_loss};
    };
    const auto held_out_of = [&](const run_log& run) { return std::pair{run.held_out.count > 0 && same_losses_, run.held_out.least.value}; };
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
        "<th scope=\"col\">run</th><th scope=\"col\">final loss", time_constant_ > 0 ? "<small>smoothed</small>" : "",
        "</th><th scope=\"col\">best held-out loss</th><th scope=\"col\">median tokens/s</th><th scope=\"col\">steps</th><th scope=\"col\">skipped</th>"
        "<th scope=\"col\">tokens</th><th scope=\"col\">time in steps</th><th scope=\"col\">peak memory</th>"
        "<th scope=\"col\">parameters</th></tr></thead><tbody>");
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const run_log& run = runs_[r];
      const summary sums = summarize(run);
      put("<tr><th scope=\"row\">", named(r), "<small>", state_of(run), "</small></th>");
      cell(sums.has_loss, sums.has_loss && same_losses_ && sums.final_loss <= best_final, digits_text(sums.final_loss));
      cell(run.held_out.count > 0, run.held_out.count > 0 && same_losses_ && run.held_out.least.value <= best_held_out, digits_text(run.held_out.least.value),
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

  // ---- curves ----

  /// The line of a curve, if a run has it.
  void add_line(chart& to, std::size_t run, const run_curve& curve, bool is_held_out) const {
    if (curve.count == 0) return;
    chart_line line{.run = run, .is_held_out = is_held_out, .bins = curve.bins.bins(points_), .points = {}};
    for (step_bin& bin : line.bins) {
      bin.low *= to.scale;
      bin.high *= to.scale;
      bin.mean *= to.scale;
    }
    line.points = smoothed(line.bins, to.is_smoothed && !is_held_out ? time_constant_ : 0);
    to.lines.push_back(std::move(line));
  }

  void charts() {
    std::vector<chart> all;
    const auto add = [&](chart one, const std::string& key, bool held_out = false) {
      for (std::size_t r = 0; r < runs_.size(); ++r) {
        if (const run_curve* curve = runs_[r].curve(key)) add_line(one, r, *curve, false);
        if (held_out) add_line(one, r, runs_[r].held_out, true);
      }
      if (!one.lines.empty()) all.push_back(std::move(one));
    };
    std::string unit = "nats per token";
    for (const run_log& run : runs_)
      if (run.setting("recipe.objective") != "next_token") unit = "mean over the losses of a step, natural logarithm";
    add({.id = "loss", .title = "Loss", .unit = unit, .from_zero = false, .may_be_log = true}, "loss", true);
    add({.id = "lr", .title = "Learning rate", .unit = "", .is_smoothed = false}, "lr");
    add({.id = "norm", .title = "Gradient norm", .unit = "before clipping", .may_be_log = true}, "grad_norm");
    add({.id = "rate", .title = "Throughput", .unit = "tokens per second"}, "tokens_per_second");
    add({.id = "time", .title = "Step time", .unit = "seconds", .may_be_log = true}, "seconds");
    add({.id = "mfu", .title = "Model FLOPs utilization", .unit = "% of the device&#39;s peak", .scale = 100}, "mfu");
    bool is_scaled = false;
    std::set<std::string> others;
    for (const run_log& run : runs_)
      for (const auto& [key, curve] : run.curves) {
        if (curve.count == 0) continue;
        if (key == "loss_scale") is_scaled = is_scaled || curve.least.value < 1 || curve.least.value > 1 || curve.last.value > 1;
        else if (key != "loss" && key != "lr" && key != "grad_norm" && key != "tokens_per_second" && key != "seconds" && key != "mfu") others.insert(key);
      }
    if (is_scaled) add({.id = "scale", .title = "Loss scale", .unit = "", .may_be_log = true, .is_smoothed = false}, "loss_scale");
    chart of_ranks{.id = "ranks", .title = "Step time of ranks", .unit = "seconds, the mean of all ranks", .is_smoothed = false};
    for (std::size_t r = 0; r < runs_.size(); ++r)
      if (runs_[r].ranks.size() > 1) add_line(of_ranks, r, runs_[r].rank_seconds, false);
    if (!of_ranks.lines.empty()) all.push_back(std::move(of_ranks));
    std::size_t number = 0;
    for (const std::string& key : others) add({.id = concat("other-", number++), .title = escaped(key, 80), .unit = "", .from_zero = false}, key);

    put("<section aria-labelledby=\"curves\"><h2 id=\"curves\">Curves</h2>");
    if (all.empty()) {
      put("<p class=\"card\">No step is recorded yet.</p></section>\n");
      return;
    }
    std::string note;
    if (time_constant_ > 0)
      note += concat("Lines are moving averages with a time constant of ", grouped_text(static_cast<std::size_t>(time_constant_)),
                     time_constant_ > 1 ? " steps" : " step",
                     "; behind them is every step, or of a long run the least and the greatest number of some steps. Learning rates are not smoothed. ");
    const auto any = [&](auto&& holds) { return std::any_of(runs_.begin(), runs_.end(), holds); };
    if (any([](const run_log& run) { return run.held_out.count > 0; })) note += "Dashed, with dots: held-out data. ";
    if (any([](const run_log& run) { return run.skipped > 0; }))
      note += concat("Ticks below the loss: skipped steps, the first ", run_log::max_skips, " of a run. ");
    if (any([](const run_log& run) { return run.parts.size() > 1; })) note += "Dotted, upright: a resumption. ";
    if (!note.empty()) put("<p class=\"note\">", note, "</p>");
    if (several()) {
      put("<ul class=\"legend\" aria-label=\"Runs that are shown\">");
      for (std::size_t r = 0; r < runs_.size(); ++r)
        put("<li><label style=\"", color(r), "\"><input type=\"checkbox\" checked id=\"run-", r, "\">", chip(r), names_[r], "</label></li>");
      put("</ul>");
    }
    put("<div class=\"grid curves\">\n");
    for (const chart& one : all) draw(one);
    put("</div></section>\n");
  }

  static constexpr int box_width = 2000, box_height = 1000;  // of drawings, which the page stretches
  [[nodiscard]] static int x_of(const chart_axis& axis, double value) { return static_cast<int>(std::lround(axis.at(value) * box_width)); }
  [[nodiscard]] static int y_of(const chart_axis& axis, double value) { return static_cast<int>(std::lround((1 - axis.at(value)) * box_height)); }

  void draw(const chart& one) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    bool has_band = false;
    std::size_t width = 1;
    for (const chart_line& line : one.lines) {
      for (const step_bin& bin : line.bins) {
        low = std::min(low, bin.low);
        high = std::max(high, bin.high);
        has_band = has_band || bin.count > 1;
        if (!line.is_held_out) width = std::max(width, bin.last - bin.first + 1);
      }
    }
    const bool is_smoothed = one.is_smoothed && time_constant_ > 0;
    const bool can_be_log = one.may_be_log && low > 1e-100 && high < 1e100 && high / low > 1.5;
    chart_axis value_axis{low, high};
    if (one.from_zero && low >= 0) value_axis.low = 0;
    if (!(value_axis.high > value_axis.low)) {
      const double room = value_axis.high == 0 ? 1 : std::abs(value_axis.high) * 0.1;
      value_axis = {value_axis.low - room, value_axis.high + room};
    } else {
      const double room = (value_axis.high - value_axis.low) * 0.04;
      value_axis.high += room;
      if (value_axis.low != 0) value_axis.low -= room;
    }
    if (low >= 0 && value_axis.low < 0) value_axis.low = 0;

    put("<figure class=\"card chart", one.id == "loss" ? " wide" : "", "\" aria-labelledby=\"chart-", one.id, "\">");
    if (can_be_log) put("<input type=\"checkbox\" class=\"log\" id=\"log-", one.id, "\">");
    put("<figcaption><h3 id=\"chart-", one.id, "\">", one.title, "</h3><span class=\"unit\">", one.unit, "</span>");
    if (can_be_log) put("<label class=\"log-label\" for=\"log-", one.id, "\">log scale<span class=\"seen\"> of ", one.title, "</span></label>");
    put("</figcaption>");
    plot(one, value_axis, "linear", low, high);
    if (can_be_log) plot(one, {low / std::pow(high / low, 0.03), high * std::pow(high / low, 0.03), true}, "logarithmic", low, high);

    std::string note;
    if (has_band && one.id == "ranks") note += "Area: from the fastest rank to the slowest. ";
    if (has_band && width > 1 && !is_smoothed && one.id != "ranks")
      note += concat("Line: the mean of every ", grouped_text(width), " steps; area: the least and the greatest. ");
    if (has_band && width > 1 && is_smoothed) note += concat("Area: the least and the greatest of every ", grouped_text(width), " steps. ");
    std::size_t not_finite = 0;
    for (const run_log& run : runs_)
      if (const auto at = run.curves.find(key_of(one.id)); at != run.curves.end()) not_finite += at->second.not_finite;
    if (not_finite > 0)
      note += concat(grouped_text(not_finite), not_finite > 1 ? " numbers that are not finite are left out. " : " number that is not finite is left out. ");
    if (!note.empty()) put("<p class=\"note\">", note, "</p>");
    numbers(one);
    put("</figure>\n");
  }
  [[nodiscard]] static std::string key_of(const std::string& id) {
    for (const auto& [chart_id, key] :
         {std::pair{"loss", "loss"}, {"lr", "lr"}, {"norm", "grad_norm"}, {"rate", "tokens_per_second"}, {"time", "seconds"}, {"mfu", "mfu"}})
      if (id == chart_id) return key;
    return {};
  }

  [[nodiscard]] chart_axis step_axis() const {
    return {static_cast<double>(first_step_), static_cast<double>(std::max(last_step_, first_step_ + 1))};
  }

  void plot(const chart& one, const chart_axis& values, const char* kind, double low, double high) {
    const chart_axis steps = step_axis();
    put("<div class=\"plot ", kind, "\" data-from=\"", first_step_, "\" data-to=\"", static_cast<std::size_t>(steps.high), "\"><svg viewBox=\"0 0 ", box_width,
        " ", box_height, "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", one.title, values.is_log ? ", logarithmic" : "", ", from ",
        unit_text(low), " to ", unit_text(high), ", over steps ", first_step_, " to ", last_step_, "; numbers are in the table below\">");
    const auto value_ticks = values.ticks(5, tick_text);
    put("<path class=\"gridline\" d=\"");
    for (const axis_tick& tick : value_ticks) put("M0 ", static_cast<int>(std::lround((1 - tick.at) * box_height)), "H", box_width);
    put("\"/><path class=\"baseline\" d=\"M0 ", box_height, "H", box_width, "\"/>");
    for (std::size_t r = 0; r < runs_.size(); ++r) marks(one, r, steps);
    for (const chart_line& line : one.lines) draw_spread(line, steps, values, one.is_smoothed && time_constant_ > 0);
    for (const chart_line& line : one.lines) draw_line(line, steps, values);
    put("</svg><div class=\"y\" aria-hidden=\"true\">");
    for (const axis_tick& tick : value_ticks) put("<span class=\"tick\" style=\"bottom:", digits_text(tick.at * 100), "%\">", tick.text, "</span>");
    put("</div><div class=\"x\" aria-hidden=\"true\">");
    std::size_t number = 0;
    for (const axis_tick& tick : steps.ticks(one.id == "loss" ? 10 : 6, tick_text_of_steps))
      put("<span class=\"tick", number++ % 2 == 1 ? " odd" : "", "\" style=\"left:", digits_text(tick.at * 100), "%\">", tick.text, "</span>");
    put("<span class=\"axis\">step</span></div></div>");
  }
  [[nodiscard]] static std::string tick_text_of_steps(double value, double step) {
    return step < 1 && value != std::floor(value) ? std::string() : tick_text(value, std::max(step, 1.0));
  }

  /// Where a run was resumed, and which steps were skipped.
  void marks(const chart& one, std::size_t r, const chart_axis& steps) {
    const run_log& run = runs_[r];
    std::string resumed, skips;
    for (std::size_t i = 0; i < run.parts.size() && i < 100; ++i)
      if (run.parts[i].first_step > 0) resumed += concat("M", x_of(steps, static_cast<double>(run.parts[i].first_step)), " 0V", box_height);
    if (one.id == "loss")
      for (const line_note& skip : run.skips) skips += concat("M", x_of(steps, static_cast<double>(skip.line)), " ", box_height - 30, "V", box_height);
    if (!resumed.empty()) put("<path class=\"resumed r", r, "\" d=\"", resumed, "\"/>");
    if (!skips.empty()) put("<path class=\"skips r", r, "\" d=\"", skips, "\"/>");
  }

  /// What lies behind a line: every step, or the range of every bin.
  void draw_spread(const chart_line& line, const chart_axis& steps, const chart_axis& values, bool is_smoothed) {
    if (line.is_held_out) return;
    const bool has_ranges = std::any_of(line.bins.begin(), line.bins.end(), [](const step_bin& bin) { return bin.count > 1; });
    if (!has_ranges && !is_smoothed) return;
    put(has_ranges ? "<polygon class=\"band r" : "<polyline class=\"raw r", line.run, "\" points=\"");
    for (const step_bin& bin : line.bins) put(x_of(steps, static_cast<double>(bin.step())), ",", y_of(values, bin.high), " ");
    if (has_ranges)
      for (auto bin = line.bins.rbegin(); bin != line.bins.rend(); ++bin) put(x_of(steps, static_cast<double>(bin->step())), ",", y_of(values, bin->low), " ");
    put("\"/>");
  }

  void draw_line(const chart_line& line, const chart_axis& steps, const chart_axis& values) {
    if (line.is_held_out || line.points.size() == 1) {
      put("<path class=\"dots r", line.run, "\" d=\"");
      for (const step_value& point : line.points) put("M", x_of(steps, static_cast<double>(point.step)), " ", y_of(values, point.value), "h0");
      put("\"/>");
    }
    put("<polyline class=\"line", line.is_held_out ? " held" : "", " r", line.run, "\" points=\"");
    for (const step_value& point : line.points) put(x_of(steps, static_cast<double>(point.step)), ",", y_of(values, point.value), " ");
    put("\"");
    if (!values.is_log) {  // for the numbers under the pointer
      put(" data-name=\"", several() ? plain_names_[line.run] : std::string(), line.is_held_out ? (several() ? ", held-out" : "held-out") : "", "\" data-x=\"");
      for (std::size_t i = 0; i < line.points.size(); ++i) put(i > 0 ? " " : "", line.points[i].step);
      put("\" data-v=\"");
      for (std::size_t i = 0; i < line.points.size(); ++i) put(i > 0 ? " " : "", unit_text(line.points[i].value));
      put("\"");
    }
    put("/>");
  }

  /// The lines of a chart at some steps, as a table.
  void numbers(const chart& one) {
    constexpr std::size_t rows = 12;
    std::vector<std::size_t> steps;
    const std::size_t span = last_step_ - first_step_;
    for (std::size_t i = 0; i <= rows; ++i) {
      const auto step = first_step_ + static_cast<std::size_t>(std::lround(static_cast<double>(span) * static_cast<double>(i) / rows));
      if (step > 0 && (steps.empty() || steps.back() != step)) steps.push_back(step);
    }
    put("<details><summary>Numbers</summary><div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Numbers of ", one.title, "\"><table><caption>",
        one.is_smoothed && time_constant_ > 0 ? "The lines above, at the nearest step that is drawn" : "At the nearest step that is drawn",
        "</caption><thead><tr><th scope=\"col\">step</th>");
    for (const chart_line& line : one.lines) {
      put("<th scope=\"col\">", named(line.run));
      if (line.is_held_out) put("<small>held-out</small>");
      put("</th>");
    }
    put("</tr></thead><tbody>");
    const double near = std::max(static_cast<double>(span) / rows / 2, 1.0);
    for (const std::size_t step : steps) {
      put("<tr><th scope=\"row\">", grouped_text(step), "</th>");
      for (const chart_line& line : one.lines) {
        const auto distance = [&](const step_value& point) { return std::abs(static_cast<double>(point.step) - static_cast<double>(step)); };
        const auto nearest =
            std::min_element(line.points.begin(), line.points.end(), [&](const step_value& a, const step_value& b) { return distance(a) < distance(b); });
        if (distance(*nearest) <= near) put("<td>", unit_text(nearest->value), "</td>");
        else put("<td>&ndash;</td>");
      }
      put("</tr>");
    }
    put("</tbody></table></div></details>");
  }

  // ---- memory ----

  void memory() {
    struct bar {
      std::size_t run;
      const char* name;
      const std::array<std::size_t, memory_roles>* bytes;
    };
    std::vector<bar> bars;
    std::array<bool, memory_roles> used{};
    double most = 0;
    for (std::size_t r = 0; r < runs_.size(); ++r)
      for (const auto& [name, bytes] : kinds_of_memory(runs_[r])) {
        double sum = 0;
        for (std::size_t role = 0; role < memory_roles; ++role) {
          used[role] = used[role] || (*bytes)[role] > 0;
          sum += static_cast<double>((*bytes)[role]);
        }
        most = std::max(most, sum);
        if (sum > 0) bars.push_back({r, name, bytes});
      }
    if (bars.empty()) return;
    put("<section aria-labelledby=\"memory\"><h2 id=\"memory\">Memory</h2><div class=\"card\"><p class=\"note\">Device memory of the first rank, by role. "
        "Peaks of roles need not come at "
        "the same time; the peak of a run is in the ",
        several() ? "table" : "numbers", " above.</p><ul class=\"legend\">");
    for (std::size_t role = 0; role < memory_roles; ++role)
      if (used[role])
        put("<li><span class=\"chip\" style=\"color:var(--c", role, ")\" aria-hidden=\"true\"></span>", role_name(role), "</li>");
    put("</ul><div class=\"bars\" aria-hidden=\"true\">");
    for (const bar& one : bars) {
      double sum = 0;
      put("<div class=\"row\"><span>", several() ? named(one.run) + " " : std::string(), "<span class=\"sub\">", one.name, "</span></span><div class=\"bar\">");
      for (std::size_t role = 0; role < memory_roles; ++role) {
        const auto bytes = static_cast<double>((*one.bytes)[role]);
        sum += bytes;
        if (bytes > 0) put("<i style=\"color:var(--c", role, ");width:", digits_text(100 * bytes / most, 6), "%\"></i>");
      }
      put("</div><span>", bytes_text(sum), "</span></div>");
    }
    put("</div><details><summary>Numbers</summary><div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Memory by role\">"
        "<table><thead><tr><th scope=\"col\">role</th>");
    for (const bar& one : bars) put("<th scope=\"col\">", several() ? named(one.run) : std::string(), "<small>", one.name, "</small></th>");
    put("</tr></thead><tbody>");
    for (std::size_t role = 0; role < memory_roles; ++role) {
      if (!used[role]) continue;
      put("<tr><th scope=\"row\">", role_name(role), "</th>");
      for (const bar& one : bars) put("<td>", (*one.bytes)[role] > 0 ? bytes_text((*one.bytes)[role]) : std::string("&ndash;"), "</td>");
      put("</tr>");
    }
    put("</tbody></table></div></details></div></section>\n");
  }
  using bytes_by_role = std::array<std::size_t, memory_roles>;
  /// What is known of a run's memory; the same bytes once.
  [[nodiscard]] static std::vector<std::pair<const char*, const bytes_by_role*>> kinds_of_memory(const run_log& run) {
    const bool has_peak = run.peak != bytes_by_role{};
    const bytes_by_role& used = has_peak ? run.peak : run.allocated;
    if (run.planned == used) return {{has_peak ? "planned, and peak" : "planned, and at the beginning", &run.planned}};
    return {{"planned", &run.planned}, {has_peak ? "peak of each role" : "at the beginning", &used}};
  }
  [[nodiscard]] static std::string role_name(std::size_t role) {
    const auto which = static_cast<memory_role>(role);
    return which == memory_role::stash ? std::string("stash (saved activations)") : std::string(name_of(which));
  }

  // ---- ranks ----

  void ranks() {
    bool any = false;
    double slowest = 0;
    for (const run_log& run : runs_)
      for (const auto& [number, rank] : run.ranks) {
        any = true;
        slowest = std::max(slowest, rank.seconds);
      }
    if (!any) return;
    put("<section aria-labelledby=\"rank-times\"><h2 id=\"rank-times\">Ranks</h2><p class=\"note\">Mean time of a step of each rank; "
        "the pale part it waited for other ranks. "
        "Ranks that wait least are the stragglers.</p><div class=\"grid\">");
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      if (runs_[r].ranks.empty()) continue;
      constexpr std::size_t most_bars = 64, most_of_many = 32;
      std::vector<std::pair<std::size_t, rank_log>> shown(runs_[r].ranks.begin(), runs_[r].ranks.end());
      const std::size_t all = shown.size();
      if (all > most_bars) {
        std::stable_sort(shown.begin(), shown.end(), [](const auto& a, const auto& b) { return a.second.waiting < b.second.waiting; });
        shown.resize(most_of_many);
      }
      put("<div class=\"card\"><div class=\"runhead\"><h3>", named(r), "</h3><span class=\"sub\">", all, all == 1 ? " rank" : " ranks");
      if (all > shown.size()) put("; the ", shown.size(), " that waited least are shown");
      put("</span></div><div class=\"bars", shown.size() > 16 ? " many" : "", "\" aria-hidden=\"true\">");
      for (const auto& [number, rank] : shown) {
        const double scale = slowest > 0 ? 100 / slowest : 0;
        put("<div class=\"row\"><span>rank ", number, "</span><div class=\"bar\" style=\"", color(r),
            "\"><i style=\"width:", digits_text((rank.seconds - rank.waiting) * scale, 6),
            "%\"></i><i class=\"waiting\" style=\"width:", digits_text(rank.waiting * scale, 6), "%\"></i></div><span>", duration_text(rank.seconds),
            "</span></div>");
      }
      put("</div><details><summary>Numbers</summary><div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Ranks of ", plain_names_[r],
          "\"><table><thead><tr><th scope=\"col\">rank</th><th scope=\"col\">step time</th><th scope=\"col\">waiting</th><th scope=\"col\">tokens per step</th>"
          "<th scope=\"col\">peak memory</th><th scope=\"col\">measured</th></tr></thead><tbody>");
      for (const auto& [number, rank] : shown)
        put("<tr><th scope=\"row\">", number, "</th><td>", duration_text(rank.seconds), "</td><td>", duration_text(rank.waiting), "<small>",
            digits_text(rank.seconds > 0 ? 100 * rank.waiting / rank.seconds : 0, 3), " %</small></td><td>", unit_text(rank.tokens), "</td><td>",
            rank.peak_memory > 0 ? bytes_text(rank.peak_memory) : std::string("&ndash;"), "</td><td>", grouped_text(rank.measurements),
            rank.measurements == 1 ? " time</td></tr>" : " times</td></tr>");
      put("</tbody></table></div></details></div>");
    }
    put("</div></section>\n");
  }

  // ---- settings ----

  struct setting_row {
    std::string name;
    std::vector<std::string> values;  // of each run, empty where there is none
    bool differs = false;
  };
  struct setting_group {
    std::string key, title;
    std::vector<setting_row> rows{};
  };

  void settings() {
    std::vector<setting_group> groups{{"run", "Run"}, {"recipe", "Recipe"}, {"settings", "Settings"}, {"model", "Model"}};
    const auto add = [&](std::size_t r, const std::string& group, const std::string& name, const std::string& value) {
      auto at = std::find_if(groups.begin(), groups.end(), [&](const setting_group& one) { return one.key == group; });
      if (at == groups.end()) at = groups.insert(groups.end(), {group, escaped(group, 60)});
      auto row = std::find_if(at->rows.begin(), at->rows.end(), [&](const setting_row& one) { return one.name == name; });
      if (row == at->rows.end()) row = at->rows.insert(at->rows.end(), {name, std::vector<std::string>(runs_.size())});
      row->values[r] = value;
    };
    std::string without;
    std::vector<bool> has(runs_.size());
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const run_log& run = runs_[r];
      for (const auto& [name, count] : {std::pair{"parameters", run.parameters},
                                        {"trainable_parameters", run.trainable_parameters},
                                        {"max_steps", run.max_steps},
                                        {"global_batch_size", run.global_batch_size},
                                        {"seq_length", run.seq_length}})
        if (count > 0) add(r, "run", name, grouped_text(count));
      has[r] = !run.settings.empty();
      if (run.settings.empty()) without += concat(without.empty() ? "" : ", ", names_[r]);
      for (const auto& [key, value] : run.settings) {
        const std::size_t dot = key.find('.');
        if (dot == std::string::npos) add(r, "run", key, value);
        else add(r, key.substr(0, dot), key.substr(dot + 1), value);
      }
    }
    std::size_t different = 0;
    for (setting_group& group : groups)
      for (setting_row& row : group.rows) {
        std::set<std::string> values;
        for (std::size_t r = 0; r < runs_.size(); ++r)
          if (!row.values[r].empty() || (has[r] && group.key != "run")) values.insert(row.values[r]);
        row.differs = values.size() > 1;
        different += row.differs ? 1 : 0;
      }
    put("<section aria-labelledby=\"settings\"><h2 id=\"settings\">", several() ? "Recipes and settings" : "Recipe and settings", "</h2>");
    if (!without.empty())
      put("<p class=\"note\">Recipe and settings are not recorded in the log of ", without,
          ": a program of an earlier version, or of one&#39;s own, has written it.</p>");
    if (several() && different > 0) {
      setting_group differences{"differences", "What differs", {}};
      const auto is_known = [&](const setting_row& row) {  // the run has a number of steps, and so have its settings
        return std::any_of(differences.rows.begin(), differences.rows.end(), [&](const setting_row& one) { return one.name == row.name; });
      };
      for (const setting_group& group : groups)
        for (const setting_row& row : group.rows)
          if (row.differs && !(group.key == "settings" && is_known(row))) {
            differences.rows.push_back(row);
            differences.rows.back().name = group.key == "run" ? row.name : concat(group.key, ".", row.name);
          }
      put("<div class=\"card\">");
      setting_table(differences);
      put("</div>");
    } else if (several()) {
      put("<p>What is recorded of the runs is the same.</p>");
    }
    put("<div class=\"grid\" style=\"margin-top:1rem\">");
    for (const setting_group& group : groups) {
      if (group.rows.empty()) continue;
      put("<div class=\"card\">");
      if (several()) put("<details><summary>", group.title, ", ", group.rows.size(), group.rows.size() == 1 ? " entry" : " entries", "</summary>");
      setting_table(group);
      if (several()) put("</details>");
      put("</div>");
    }
    put("</div></section>\n");
  }

  /// A name with places where a line may end.
  [[nodiscard]] static std::string breakable(const std::string& name) {
    std::string text;
    for (const char c : escaped(name, 200)) {
      text += c;
      if (c == '_' || c == '.') text += "<wbr>";
    }
    return text;
  }

  void setting_table(const setting_group& group) {
    put("<div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"", group.title, "\"><table><thead><tr><th scope=\"col\">", group.title, "</th>");
    if (several())
      for (std::size_t r = 0; r < runs_.size(); ++r) put("<th scope=\"col\" class=\"text\">", named(r), "</th>");
    else put("<th scope=\"col\" class=\"text\"><span class=\"seen\">value</span></th>");
    put("</tr></thead><tbody>");
    for (const setting_row& row : group.rows) {
      put("<tr", row.differs ? " class=\"differs\"" : "", "><th scope=\"row\"><code>", breakable(row.name), "</code></th>");
      for (const std::string& value : row.values) put("<td class=\"text\">", value.empty() ? std::string("&ndash;") : escaped(value, 420), "</td>");
      put("</tr>");
    }
    put("</tbody></table></div>");
  }

  // ---- what happened ----

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

  std::span<const run_log> runs_;
  report_options options_;
  std::vector<std::string> names_{}, plain_names_{};  // escaped: with markup, and without
  std::size_t first_step_ = 0, last_step_ = 0, points_ = 600;
  double time_constant_ = 0;
  bool same_losses_ = true;
  std::string body_{};
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
  return detail::report_writer(runs, options).page();
}

}  // namespace xtrain
