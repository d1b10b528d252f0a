// The settings of a training run, from a run description.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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

[[nodiscard]] inline xtrain::lora_config lora_of(const xtrain::adapter_description& adapter) {
  xtrain::lora_config lora{.rank = adapter.rank, .alpha = adapter.alpha, .dropout = adapter.dropout, .targets = adapter.targets,
                           .modules_to_save = adapter.modules_to_save};
  lora.rank_stabilised = adapter.rank_stabilised;
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
  c.epochs = run.epochs;
  c.max_steps = run.max_steps;
  c.micro_batch_size = run.micro_batch_size;
  c.gradient_accumulation_steps = run.gradient_accumulation_steps;
  c.rampup_batch_size = rampup_of(run);
  c.seq_length = run.seq_length;
  c.shuffle = run.shuffle;
  c.drop_last = run.drop_last;
  c.max_steps_per_epoch = run.max_steps_per_epoch;
  c.seed = run.seed;
  c.neftune_noise_alpha = run.neftune_noise_alpha;

  const xtrain::schedule_description& schedule = run.schedule;
  c.learning_rate = schedule.learning_rate;
  c.lr_schedule = xtrain::lr_schedule_named(schedule.kind);
  c.warmup_steps = schedule.warmup_steps;
  c.warmup_ratio = schedule.warmup_ratio;
  c.min_lr = schedule.min_learning_rate;
  c.lr_from_zero = schedule.from_zero;
  c.lr_decay_steps = schedule.decay_steps;
  c.lr_counts_sequences = schedule.counts == "sequences";
  set_described(c, schedule.settings, "schedule.settings", "schedule");

  set_described(c.optimizer, run.optimizer.settings, "optimizer.settings");
  c.weight_decay_of = run.optimizer.decays == "all" ? xtrain::decayed_parameters::all : xtrain::decayed_parameters::matrices;
  c.max_grad_norm = run.optimizer.max_grad_norm;
  c.keep_gradients = run.optimizer.keep_gradients;
  set_described(c.objective, run.objective.settings, "objective.settings");
  if constexpr (requires { c.objective.top_k, c.objective.renormalize; })
    xtrain::require<usage_error>(c.objective.top_k > 0 || !c.objective.renormalize, "objective.settings.renormalize: needs top_k");
  c.average_balance = for_flag("objective.balance", "", [&] { return xtrain::kind_named<xtrain::balance_average>(run.objective.balance); });
  c.average_loss = run.objective.average == "micro_batch" ? xtrain::loss_average::micro_batch : xtrain::loss_average::step;

  set_described(c.loss_scale, run.loss_scale, "loss_scale");
  c.eval_steps = run.output.eval_steps;
  return c;
}

}  // namespace command_line
