// Recipes and settings of runs, and differences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/report/html.hpp>
#include <xtrain/report/number_text.hpp>
#include <xtrain/report/report_part.hpp>
#include <xtrain/report/run_log.hpp>

namespace xtrain::detail {

class report_settings : report_part {
 public:
  using report_part::report_part;

  void write() {
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
      if (run.settings.empty()) without += concat(without.empty() ? "" : ", ", facts_.names[r]);
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
      const auto is_known = [&](const setting_row& row) {  // the run has steps, hence settings
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

 private:
  struct setting_row {
    std::string name;
    std::vector<std::string> values;  // per run; empty: none
    bool differs = false;
  };
  struct setting_group {
    std::string key, title;
    std::vector<setting_row> rows{};
  };

  /// A name that may break after '_' and '.'.
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
};

}  // namespace xtrain::detail
