// What a trainer trains, for records of metrics and pages about a run. Component 'io'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/json.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/recorded_settings.hpp>

namespace xtrain {

namespace detail {

/// The lines of describe<Recipe>(), "axis  policy", as an object.
[[nodiscard]] inline json recipe_object(std::string_view lines) {
  json all = json::object();
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const std::size_t axis = std::min(line.find(' '), line.size()), policy = std::min(line.find_first_not_of(' ', axis), line.size());
    if (axis > 0) all[std::string(line.substr(0, axis))] = std::string(line.substr(policy));
  }
  return all;
}

}  // namespace detail

/// A JSON object in one line, for json_lines_record::describe():
///   recipe    the policy of every axis
///   model     the family and its sizes, with the names of config.json
///   settings  of the run, the optimizer, the objective, and loss scaling where the precision has it
///   ranks     number of ranks
///   plan      planned bytes of this rank's device memory by role, with a second model's
/// One rank or all may call it; nothing is sent.
template <class Trainer>
[[nodiscard]] std::string recorded_run(const Trainer& trainer) {
  using model_type = typename Trainer::model_type;
  using recipe = typename model_type::recipe;
  json all = json::object();
  all["recipe"] = detail::recipe_object(describe<recipe>());
  const auto& model = trainer.model();
  json_settings sizes;
  detail::record_model(sizes, model);
  if (!sizes.object().empty()) all["model"] = sizes.object();
  const auto& c = trainer.settings();
  json_settings to;
  detail::record_settings<recipe::precision::scales_loss>(to, c, written_settings::all);
  all["settings"] = to.object();
  all["ranks"] = static_cast<std::size_t>(model.parallel().world().size());
  json plan = json::object();
  for (std::size_t r = 0; r < memory_roles; ++r)
    if (const std::size_t bytes = trainer.plan().total_of(static_cast<memory_role>(r)); bytes > 0)
      plan[std::string(name_of(static_cast<memory_role>(r)))] = bytes;
  all["plan"] = plan;
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace xtrain
