// Memory by role, time by rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/report/number_text.hpp>
#include <xtrain/report/report_part.hpp>
#include <xtrain/report/run_log.hpp>

namespace xtrain::detail {

class report_resources : report_part {
 public:
  using report_part::report_part;

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
      put("</div><details><summary>Numbers</summary><div class=\"table\" tabindex=\"0\" role=\"region\" aria-label=\"Ranks of ", facts_.plain_names[r],
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

 private:
  using bytes_by_role = std::array<std::size_t, memory_roles>;
  /// Known memory of a run; equal bytes once.
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
};

}  // namespace xtrain::detail
