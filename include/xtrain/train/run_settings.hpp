// What the settings of a run mean for a model: they are completed and checked, and give the settings of its loaders and its lr schedule.
#pragma once

#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/require_room.hpp>

namespace xtrain::detail {

/// The number of ranks that shard a sequence: context-parallel times sequence-parallel ranks.
template <class Strategy>
[[nodiscard]] std::size_t ranks_sharding_sequences(Strategy& parallel) {
  return context_shard_of(parallel).ranks * sequence_parallel_ranks(parallel);
}
/// What sequence lengths must be divisible by: that number of ranks, and the number of chunks of a sequence.
template <class Strategy>
[[nodiscard]] std::size_t seq_length_divisor(Strategy& parallel) {
  return std::lcm(ranks_sharding_sequences(parallel), context_shard_of(parallel).chunks());
}

/// longest, sharing, divisor: the model's max_position_embeddings, and the two numbers above.
///   throws  config_error, memory_error
template <class Optimizer, class Objective>
[[nodiscard]] training_config<Optimizer, Objective> complete_config(training_config<Optimizer, Objective> c, std::size_t longest, std::size_t sharing,
                                                                    std::size_t divisor) {
  if (c.seq_length == 0) c.seq_length = longest;
  require<config_error>(c.seq_length <= longest, "seq_length: must not be longer than the model's ", longest, " tokens; given ", c.seq_length);
  require<config_error>(c.seq_length % divisor == 0, "seq_length: must be divisible by ", divisor > sharing ? "twice the " : "the ", sharing,
                        " ranks that shard sequences; given ", c.seq_length, " tokens");
  require<config_error>(c.micro_batch_size > 0 && c.gradient_accumulation_steps > 0,
                        "micro_batch_size and gradient_accumulation_steps: must be positive; given ", c.micro_batch_size, " and ",
                        c.gradient_accumulation_steps);
  require<config_error>(c.max_steps > 0 || c.epochs > 0, "max_steps and epochs: one of them must be positive");
  require<config_error>(c.warmup_ratio >= 0.0 && c.warmup_ratio <= 1.0, "warmup_ratio: must be in [0, 1]; given ", c.warmup_ratio);
  require<config_error>(std::isfinite(c.learning_rate) && c.learning_rate >= 0.0,
                        "learning_rate: must be a number that is not negative; given ", c.learning_rate);
  require<config_error>(c.max_grad_norm >= 0.0, "max_grad_norm: must not be negative; given ", c.max_grad_norm);
  require_host_room(c.micro_batch_size, c.gradient_accumulation_steps, c.seq_length);
  return c;
}
template <class Model, class Optimizer, class Objective>
[[nodiscard]] training_config<Optimizer, Objective> complete_config(const Model& model, training_config<Optimizer, Objective> c) {
  return complete_config(std::move(c), model.config().max_position_embeddings, ranks_sharding_sequences(model.parallel()),
                         seq_length_divisor(model.parallel()));
}

/// Sequences per micro-batch, if the strategy is configured with unequal ones.
template <class Model, class Optimizer, class Objective>
[[nodiscard]] std::vector<std::size_t> unequal_micro_batches([[maybe_unused]] const Model& model,
                                                             [[maybe_unused]] const training_config<Optimizer, Objective>& c) {
  if constexpr (strategy_runs<Model>) return model.parallel().micro_batch_sizes(c.micro_batch_size, c.gradient_accumulation_steps);
  else return {};
}

/// How a dataset is read for training.
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
          .micro_batch_sizes = unequal_micro_batches(model, c)};
}
/// How it is read for evaluation.
[[nodiscard]] inline loader_config for_evaluation(loader_config settings) {
  settings.gradient_accumulation_steps = 1;
  settings.micro_batch_sizes.clear();
  settings.shuffle = false;
  return settings;
}

template <class Optimizer, class Objective>
[[nodiscard]] std::size_t steps_of(const training_config<Optimizer, Objective>& c, std::size_t steps_per_epoch) {
  return c.max_steps > 0 ? c.max_steps : c.epochs * steps_per_epoch;
}
template <class Optimizer, class Objective>
[[nodiscard]] learning_rate_schedule lr_schedule_for(const training_config<Optimizer, Objective>& c, std::size_t steps) {
  const auto warmup = c.warmup_steps > 0 ? c.warmup_steps : static_cast<std::size_t>(std::ceil(c.warmup_ratio * static_cast<double>(steps)));
  return {c.lr_schedule, c.learning_rate, warmup, steps, c.min_lr_ratio};
}

}  // namespace xtrain::detail
