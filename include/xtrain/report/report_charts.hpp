// Curves as charts: a drawing and a table each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/report/chart_axis.hpp>
#include <xtrain/report/html.hpp>
#include <xtrain/report/number_text.hpp>
#include <xtrain/report/report_part.hpp>
#include <xtrain/report/run_log.hpp>
#include <xtrain/report/step_bins.hpp>

namespace xtrain::detail {

/// A run's curve in a chart.
struct chart_line {
  std::size_t run = 0;
  bool is_held_out = false;
  std::vector<step_bin> bins{};
  std::vector<step_value> points{};
};

struct chart {
  std::string id, title, unit;
  bool from_zero = true;   // axis begins at 0
  bool may_be_log = false;
  bool is_smoothed = true;
  double scale = 1;
  std::vector<chart_line> lines{};
};

class report_charts : report_part {
 public:
  using report_part::report_part;

  void write() {
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
    if (facts_.time_constant > 0)
      note += concat("Lines are moving averages with a time constant of ", grouped_text(static_cast<std::size_t>(facts_.time_constant)),
                     facts_.time_constant > 1 ? " steps" : " step",
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
        put("<li><label style=\"", color(r), "\"><input type=\"checkbox\" checked id=\"run-", r, "\">", chip(r), facts_.names[r], "</label></li>");
      put("</ul>");
    }
    put("<div class=\"grid curves\">\n");
    for (const chart& one : all) draw(one);
    put("</div></section>\n");
  }

 private:
  /// Adds the curve if it has values.
  void add_line(chart& to, std::size_t run, const run_curve& curve, bool is_held_out) const {
    if (curve.count == 0) return;
    chart_line line{.run = run, .is_held_out = is_held_out, .bins = curve.bins.bins(facts_.points), .points = {}};
    for (step_bin& bin : line.bins) {
      bin.low *= to.scale;
      bin.high *= to.scale;
      bin.mean *= to.scale;
    }
    line.points = smoothed(line.bins, to.is_smoothed && !is_held_out ? facts_.time_constant : 0);
    to.lines.push_back(std::move(line));
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
    const bool is_smoothed = one.is_smoothed && facts_.time_constant > 0;
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
    return {static_cast<double>(facts_.first_step), static_cast<double>(std::max(facts_.last_step, facts_.first_step + 1))};
  }

  void plot(const chart& one, const chart_axis& values, const char* kind, double low, double high) {
    const chart_axis steps = step_axis();
    put("<div class=\"plot ", kind, "\" data-from=\"", facts_.first_step, "\" data-to=\"", static_cast<std::size_t>(steps.high),
        "\"><svg viewBox=\"0 0 ", box_width, " ", box_height, "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"", one.title, values.is_log ? ", logarithmic" : "", ", from ",
        unit_text(low), " to ", unit_text(high), ", over steps ", facts_.first_step, " to ", facts_.last_step, "; numbers are in the table below\">");
    const auto value_ticks = values.ticks(5, tick_text);
    put("<path class=\"gridline\" d=\"");
    for (const axis_tick& tick : value_ticks) put("M0 ", static_cast<int>(std::lround((1 - tick.at) * box_height)), "H", box_width);
    put("\"/><path class=\"baseline\" d=\"M0 ", box_height, "H", box_width, "\"/>");
    for (std::size_t r = 0; r < runs_.size(); ++r) marks(one, r, steps);
    for (const chart_line& line : one.lines) draw_spread(line, steps, values, one.is_smoothed && facts_.time_constant > 0);
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

  /// Resumptions and skipped steps.
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

  /// Behind a line: every step, or each bin's range.
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
    if (!values.is_log) {  // for numbers under the pointer
      put(" data-name=\"", several() ? facts_.plain_names[line.run] : std::string(), line.is_held_out ? (several() ? ", held-out" : "held-out") : "",
          "\" data-x=\"");
      for (std::size_t i = 0; i < line.points.size(); ++i) put(i > 0 ? " " : "", line.points[i].step);
      put("\" data-v=\"");
      for (std::size_t i = 0; i < line.points.size(); ++i) put(i > 0 ? " " : "", unit_text(line.points[i].value));
      put("\"");
    }
    put("/>");
  }

  /// A table of the lines at some steps.
  void numbers(const chart& one) {
    constexpr std::size_t rows = 12;
    std::vector<std::size_t> steps;
    const std::size_t span = facts_.last_step - facts_.first_step;
    for (std::size_t i = 0; i <= rows; ++i) {
      const auto step = facts_.first_step + static_cast<std::size_t>(std::lround(static_cast<double>(span) * static_cast<double>(i) / rows));
      if (step > 0 && (steps.empty() || steps.back() != step)) steps.push_back(step);
    }
    put("<details><summary>Numbers</summary><div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Numbers of ", one.title, "\"><table><caption>",
        one.is_smoothed && facts_.time_constant > 0 ? "The lines above, at the nearest step that is drawn" : "At the nearest step that is drawn",
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
};

}  // namespace xtrain::detail
