// The settings of a training run, from a run description.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_list.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/io/setting_values.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/text.hpp>

#include "command_line.hpp"

namespace command_line {

/// Sets members of a config to what an object of a run description has.
///   part    of the settings of a run; empty: all
///   throws  usage_error
template <class Config>
void set_described(Config& to, const xtrain::json& given, const char* where, std::string_view part = {}) {
  for_flags([&] {
    const auto all = xtrain::list_settings(to);
    xtrain::read_settings(part.empty() ? all : xtrain::settings_of_part(all, part), given, where);
  });
}

/// Sets every member of a config whose name an object of a run description has, too, with a value of the same kind.
template <class Described, class Config>
void copy_members(const Described& from, Config& to) {
  Described::members(from, [&](std::string_view name, const auto& value, const auto&...) {
    using given = std::remove_cvref_t<decltype(value)>;
    Config::members(to, [&](const xtrain::setting& about, auto& member) {
      using taken = std::remove_cvref_t<decltype(member)>;
      constexpr bool are_numbers = std::is_arithmetic_v<given> && std::is_arithmetic_v<taken> && std::is_same_v<given, bool> == std::is_same_v<taken, bool>;
      if constexpr (are_numbers || std::is_same_v<given, taken>)
        if (about.name == name) member = static_cast<taken>(value);
    });
  });
}

[[nodiscard]] inline xtrain::lora_config lora_of(const xtrain::adapter_description& adapter) {
  xtrain::lora_config lora;
  copy_members(adapter, lora);
  for (const auto& item : adapter.parts.items()) lora.parts[item.key()] = item.value().get<std::vector<std::string>>();
  lora.dora = adapter.kind == "dora" || adapter.kind == "qdora";
  return lora;
}

[[nodiscard]] inline xtrain::batch_size_rampup rampup_of(const xtrain::run_description& run) {
  const std::vector<std::size_t>& given = run.rampup_batch_size;
  return given.size() == 3 ? xtrain::batch_size_rampup{given[0], given[1], given[2]} : xtrain::batch_size_rampup{};
}

/// The settings of a run. What depends on the data (steps per epoch) is the trainer's to find out.
template <class Optimizer, class Objective>
[[nodiscard]] xtrain::training_config<Optimizer, Objective> described_config(const xtrain::run_description& run) {
  xtrain::training_config<Optimizer, Objective> c;
  copy_members(run, c);
  c.rampup_batch_size = rampup_of(run);

  const xtrain::schedule_description& schedule = run.schedule;
  copy_members(schedule, c);
  c.lr_schedule = xtrain::lr_schedule_named(schedule.kind);
  c.min_lr = schedule.min_learning_rate;
  c.lr_counts_sequences = schedule.counts == "sequences";
  set_described(c, schedule.settings, "schedule.settings", "schedule");

  copy_members(run.optimizer, c);
  set_described(c.optimizer, run.optimizer.settings, "optimizer.settings");
  c.weight_decay_of = run.optimizer.decays == "all" ? xtrain::decayed_parameters::all : xtrain::decayed_parameters::matrices;
  set_described(c.objective, run.objective.settings, "objective.settings");
  if constexpr (requires { c.objective.top_k, c.objective.renormalize; })
    xtrain::require<usage_error>(c.objective.top_k > 0 || !c.objective.renormalize, "objective.settings.renormalize: needs top_k");
  c.average_balance = for_flag("objective.balance", "", [&] { return xtrain::kind_named<xtrain::balance_average>(run.objective.balance); });
  c.average_loss = run.objective.average == "micro_batch" ? xtrain::loss_average::micro_batch : xtrain::loss_average::step;

  set_described(c.loss_scale, run.loss_scale, "loss_scale");
  copy_members(run.output, c);
  return c;
}

}  // namespace command_line
