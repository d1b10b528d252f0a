#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/adapt/lora_plus.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/require_room.hpp>

namespace xtrain::detail {

template <class Strategy>
[[nodiscard]] std::size_t ranks_sharding_sequences(Strategy& parallel) {
  return context_shard_of(parallel).ranks * sequence_parallel_ranks(parallel);
}
/// Divisor of sequence lengths: least common multiple of these ranks and the chunks of a sequence.
template <class Strategy>
[[nodiscard]] std::size_t seq_length_divisor(Strategy& parallel) {
  return std::lcm(ranks_sharding_sequences(parallel), context_shard_of(parallel).chunks());
}

template <class Optimizer, class Objective>
[[nodiscard]] std::size_t steps_of(const training_config<Optimizer, Objective>& c, std::size_t steps_per_epoch) {
  return c.max_steps > 0 ? c.max_steps : c.epochs * steps_per_epoch;
}
template <class Optimizer, class Objective>
[[nodiscard]] learning_rate_schedule lr_schedule_for(const training_config<Optimizer, Objective>& c, std::size_t steps) {
  require<config_error>(c.lr_decay_epochs == 0 || (c.lr_decay_steps == 0 && c.max_steps == 0),
                        "lr_decay_epochs: cannot be combined with lr_decay_steps and max_steps; given ", c.lr_decay_epochs);
  const std::size_t decay_steps = c.lr_decay_steps > 0 ? c.lr_decay_steps : c.lr_decay_epochs > 0 ? steps / c.epochs * c.lr_decay_epochs : steps;
  double warmup = static_cast<double>(c.warmup_steps);
  if (c.warmup_steps == 0) {
    warmup = c.warmup_ratio * static_cast<double>(decay_steps);
    if (c.round_warmup) warmup = std::ceil(warmup);
  }
  const bool ends = c.lr_schedule != lr_schedule_kind::constant && c.lr_schedule != lr_schedule_kind::inverse_sqrt;
  require<config_error>(c.lr_decay_steps == 0 || !ends || c.lr_continues || warmup < static_cast<double>(decay_steps),
                        "lr_decay_steps: must be greater than the warm-up of ", warmup, " steps, which it includes; given ", decay_steps);
  return learning_rate_schedule({.kind = c.lr_schedule,
                                 .peak = c.learning_rate,
                                 .warmup = warmup,
                                 .decay_steps = decay_steps,
                                 .min_lr_ratio = c.min_lr_ratio,
                                 .min_lr = c.min_lr,
                                 .warmup_init = c.lr_warmup_init,
                                 .from_zero = c.lr_from_zero,
                                 .as_deepspeed = c.lr_as_deepspeed,
                                 .log_warmup = c.lr_log_warmup,
                                 .continues = c.lr_continues,
                                 .num_cycles = c.lr_num_cycles,
                                 .power = c.lr_power,
                                 .timescale = c.lr_timescale,
                                 .warmup_shape = c.lr_warmup_shape,
                                 .decay_shape = c.lr_decay_shape,
                                 .final_steps = static_cast<double>(c.lr_final_steps),
                                 .stable_steps = c.lr_stable_steps});
}

/// longest: the model's max_position_embeddings; sharing, divisor: as above.
///   throws  config_error, memory_error
template <class Optimizer, class Objective>
[[nodiscard]] training_config<Optimizer, Objective> complete_config(training_config<Optimizer, Objective> c, std::size_t longest, std::size_t sharing,
                                                                    std::size_t divisor) {
  if (c.seq_length == 0) c.seq_length = longest;
  require<config_error>(c.seq_length <= longest, "seq_length: must not be longer than the model's ", longest, " tokens; given ", c.seq_length);
  require<config_error>(c.seq_length % divisor == 0, "seq_length: must be divisible by ", divisor > sharing ? "twice the " : "the ", sharing,
                        " ranks that shard sequences; given ", c.seq_length, " tokens");
  require_own_ranges(c);
  require<config_error>(c.max_steps > 0 || c.epochs > 0, "max_steps and epochs: one of them must be positive");
  require<config_error>(c.loraplus_lr_ratio > 0.0 || c.loraplus_lr_embedding == std::remove_cvref_t<decltype(c)>{}.loraplus_lr_embedding,
                        "loraplus_lr_embedding: needs a loraplus_lr_ratio, without which there is one learning rate; given ", c.loraplus_lr_embedding);
  require<config_error>(c.average_loss == loss_average::step || std::is_same_v<Objective, next_token> || has_hook<Objective, hook::averages_tokens>,
                        "average_loss: must be step for objectives other than next_token, distillation, ppo and ppo_value; the objective is ", Objective::name);
  require<config_error>(c.average_loss == loss_average::step || !c.capture_steps,
                        "average_loss: must be step with capture_steps: means of micro-batches are not in device memory");
  require<config_error>(!c.rampup_batch_size || (std::is_same_v<Objective, next_token> && c.max_steps_per_epoch == 0),
                        "rampup_batch_size: needs the objective next_token, and cannot be combined with max_steps_per_epoch; the objective is ",
                        Objective::name);
  require<config_error>(!c.lr_counts_sequences || (c.lr_from_zero && c.lr_decay_epochs == 0 && !c.lr_as_deepspeed),
                        "lr_counts_sequences: needs lr_from_zero, and cannot be combined with lr_decay_epochs and lr_as_deepspeed");
  require<config_error>(!c.lr_counts_updates || !c.late_metrics,
                        "lr_counts_updates: cannot be combined with late_metrics: with it a step is queued before it is known whether the one before counts");
  require<config_error>(!c.lr_counts_updates || !c.rampup_batch_size || c.lr_counts_sequences,
                        "lr_counts_updates: needs lr_counts_sequences where steps ", "differ in size (rampup_batch_size)");
  (void)lr_schedule_for(c, steps_of(c, 1));  // checks its settings
  require_host_room(c.micro_batch_size, c.gradient_accumulation_steps, c.seq_length);
  return c;
}
template <class Model, class Optimizer, class Objective>
[[nodiscard]] training_config<Optimizer, Objective> complete_config(const Model& model, training_config<Optimizer, Objective> c) {
  const std::size_t together = c.micro_batch_size * model.parallel().data().size();
  if (c.rampup_batch_size) (void)global_batch_sizes(together * c.gradient_accumulation_steps, c.rampup_batch_size, together);
  return complete_config(std::move(c), model.config().max_position_embeddings, ranks_sharding_sequences(model.parallel()),
                         seq_length_divisor(model.parallel()));
}

/// Sets weight decay and learning-rate factor of each parameter.
///   throws  config_error for LoRA+ without LoRA adapters, or with an optimizer that does not read factors
template <class Store, class Optimizer, class Objective>
void set_parameter_settings(Store& parameters, const training_config<Optimizer, Objective>& c) {
  parameters.set_weight_decay_of_all(c.weight_decay_of == decayed_parameters::all);
  lora_plus_factors factors;
  if (c.loraplus_lr_ratio > 0.0) {
    const auto& all = parameters.entries();
    const auto is_adapter = [](const auto& e) { return e.spec.trainable && !lora_names::module_beside(e.spec.name).empty(); };
    require<config_error>(std::any_of(all.begin(), all.end(), is_adapter),
                          "loraplus_lr_ratio: there must be a LoRA adapter (lora or qlora) with a B to give another learning rate; the model has none");
    const auto is_table = [](const auto& e) { return e.spec.trainable && e.spec.name.ends_with(lora_names::table_b); };
    const bool has_table = std::any_of(all.begin(), all.end(), is_table);
    require<config_error>(!has_table || c.learning_rate > 0.0,
                          "loraplus_lr_embedding: the learning_rate must be positive, of which the embedding's is a multiple; given ", c.learning_rate);
    factors = {c.loraplus_lr_ratio, has_table ? c.loraplus_lr_embedding / c.learning_rate : 1.0};
  }
  const bool any = parameters.set_learning_rate_factors([&](const auto& e) { return factors.of(e.spec.name, e.spec.shape.size()); });
  if constexpr (!has_hook<Optimizer, hook::has_learning_rate_factors>)
    require<config_error>(!any, Optimizer::name, ": must list the hook has_learning_rate_factors, and read parameter_slice::learning_rate_factor, for "
                                "parameters with learning rates of their own (loraplus_lr_ratio)");
}

template <class Model, class Optimizer, class Objective>
[[nodiscard]] std::vector<std::size_t> unequal_micro_batches([[maybe_unused]] const Model& model,
                                                             [[maybe_unused]] const training_config<Optimizer, Objective>& c) {
  if constexpr (strategy_runs<Model>) return model.parallel().micro_batch_sizes(c.micro_batch_size, c.gradient_accumulation_steps);
  else return {};
}

template <class Model, class Optimizer, class Objective>
[[nodiscard]] loader_config loader_settings_of(const Model& model, const training_config<Optimizer, Objective>& c) {
  return {.micro_batch_size = c.micro_batch_size,
          .gradient_accumulation_steps = c.gradient_accumulation_steps,
          .seq_length = c.seq_length,
          .shuffle = c.shuffle,
          .seed = c.seed,
          .ranks = model.parallel().data().size(),
          .rank = model.parallel().data().rank(),
          .pad_to_multiple_of = std::lcm(std::size_t{8}, seq_length_divisor(model.parallel())),
          .micro_batch_sizes = unequal_micro_batches(model, c),
          .drop_last = c.drop_last,
          .max_steps_per_epoch = c.max_steps_per_epoch,
          .rampup = c.rampup_batch_size};
}
[[nodiscard]] inline loader_config for_evaluation(loader_config settings) {
  settings.gradient_accumulation_steps = 1;
  settings.micro_batch_sizes.clear();
  settings.drop_last = false;
  settings.max_steps_per_epoch = 0;
  settings.rampup = {};
  settings.shuffle = false;
  return settings;
}

}  // namespace xtrain::detail
