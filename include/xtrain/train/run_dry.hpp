#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/concepts.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/require_room.hpp>
#include <xtrain/train/run_settings.hpp>
#include <xtrain/train/training_step.hpp>

namespace xtrain::detail {

template <class Model, class Optimizer, class Objective>
[[nodiscard]] dry_run run_dry_step(Model& model, const training_config<Optimizer, Objective>& c) {
  using recipe = typename Model::recipe;
  training_step<Model> step(model, c, {});
  std::vector<batch_view> batches(c.gradient_accumulation_steps);
  const std::vector<std::size_t> rows = unequal_micro_batches(model, c);
  const std::size_t most = rows.empty() ? c.micro_batch_size : *std::max_element(rows.begin(), rows.end());
  const std::vector<token> zeros(most * c.seq_length);  // shared by all micro-batches: there may be thousands
  for (std::size_t m = 0; m < batches.size(); ++m) {
    batch_view& batch = batches[m];
    batch.b = rows.empty() ? c.micro_batch_size : rows[m];
    batch.t = c.seq_length;
    batch.target_count = batch.token_count = batch.b * batch.t;
    batch.tokens = batch.targets = batch.positions = batch.starts = std::span(zeros).first(batch.token_count);
    batch.first_sequence = m * c.micro_batch_size;
  }
  model.context().record() = {};  // excludes the model's construction
  const step_traffic before = traffic_of(model.parallel());
  step.require_batches(batches);
  step.forward_backward(batches, 0);
  const dry_record passes = model.context().record();
  step.update_weights(0.0, 0);
  dry_run found;
  found.sent = traffic_of(model.parallel()).since(before);
  found.record = model.context().record();
  found.update = found.record.since(passes);
  found.passes = step.high_water();
  found.parameters = model.parameters().count();
  found.trained = model.parameters().trained_count();
  found.num_tokens = c.micro_batch_size * c.gradient_accumulation_steps * c.seq_length;
  const memory_count counted = model.context().memory();
  found.in_files = recipe::offload::roles;
  found.host = static_cast<std::size_t>(bytes_of_batches(c.micro_batch_size, c.gradient_accumulation_steps, c.seq_length)) + found.sent.total().scratch +
               step.staging_bytes();
  if (model.parallel().world().size() > 1) {  // a whole parameter, and one rank's part
    std::size_t largest = 0;
    for (const auto& entry : model.parameters().entries()) largest = std::max(largest, entry.size());
    found.host += 2 * largest * sizeof(float);
  }
  for (std::size_t r = 0; r < memory_roles; ++r) found.bytes[r] = counted.now[r];
  found.bytes[static_cast<std::size_t>(memory_role::stash)] += step.stash_bytes(found.passes);
  found.bytes[static_cast<std::size_t>(memory_role::workspace)] += found.passes.workspace;
  found.is_on_host = keeps_on_host<typename recipe::offload>;
  return found;
}

/// For a model that does not exist yet.
template <class Model>
[[nodiscard]] dry_run run_dry(const typename Model::config_type& sizes, const typename Model::options& options,
                              const run_config_of<Model>& settings, const typename Model::device::properties& properties) {
  auto model = make_dry_model<Model>(sizes, options, properties);
  // micro-batches are alike: extrapolate from the last one; in a pipeline, from the last `depth`
  const auto all = complete_config(model, settings);
  std::size_t few = 8, together = 1;
  if constexpr (strategy_runs<Model> && requires { model.parallel().depth(); options.parallel.micro_batch_sizes; }) {
    together = model.parallel().depth();
    few = options.parallel.micro_batch_sizes.empty() ? 8 * together + all.gradient_accumulation_steps % together : all.gradient_accumulation_steps;
  } else if constexpr (strategy_runs<Model>) {
    few = all.gradient_accumulation_steps;
  }
  if (all.gradient_accumulation_steps <= few) return run_dry_step(model, all);
  auto fewer = all;
  fewer.gradient_accumulation_steps = few - together;
  const dry_run without = run_dry_step(model, fewer);
  auto again = make_dry_model<Model>(sizes, options, properties);
  fewer.gradient_accumulation_steps = few;
  return run_dry_step(again, fewer).with_more_micro_batches(without, (all.gradient_accumulation_steps - few) / together);
}

}  // namespace xtrain::detail
