// Small runs with optimizers over whole matrices.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/optim/adafactor.hpp>
#include <xtrain/optim/muon.hpp>

#include "ranks.hpp"

namespace {

template <class Parallel, class Optimizer, class Precision = fp32>
struct recipe_with : recipe<Parallel> {
  using optimizer = Optimizer;
  using precision = Precision;
};
template <class Parallel, class Optimizer, class Precision = fp32>
using model_with = llama<recipe_with<Parallel, Optimizer, Precision>>;

[[maybe_unused]] muon::config settings_of(muon) { return {.momentum = 0.9, .learning_rate_ratio = 2.0}; }
[[maybe_unused]] adafactor::config settings_of(adafactor) { return {.scale_parameter = true, .beta1 = 0.9, .weight_decay = 0.1}; }

/// 12 sequences per step.
template <class Optimizer>
training_config<Optimizer> settings(std::size_t steps, std::size_t ranks, double max_grad_norm = 1.0) {
  training_config<Optimizer> all;
  all.max_steps = steps;
  all.micro_batch_size = 2;
  all.gradient_accumulation_steps = 6 / ranks;
  all.learning_rate = std::is_same_v<Optimizer, muon> ? 1e-3 : 1e-2;
  all.lr_schedule = lr_schedule_kind::constant;
  all.max_grad_norm = max_grad_norm;
  all.optimizer = settings_of(Optimizer{});
  return all;
}

/// Steps on ranks of a strategy, with checkpoints in a folder; returns their losses and the final weights as saved. Single: the same model on one rank
template <class Model, class Single, class Layout>
outcome saved_run(const decoder_config& shape, const std::string& folder, std::size_t ranks, const Layout& layout, std::size_t steps,
                  std::size_t data_parallel_size, bool resumes) {
  using optimizer = typename Model::recipe::optimizer;
  const dataset data = sentences();
  std::vector<outcome> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Model::options options;
    if constexpr (!std::is_same_v<Layout, single::config>) {
      options.parallel = layout;
      options.parallel.ranks = network;
    }
    Model model(shape, {}, options);
    trainer trainer(model, settings<optimizer>(steps, data_parallel_size));
    history seen;
    trainer.attach(seen);
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
    if (resumes) CHECK(checkpoints.resume());
    trainer.attach(checkpoints);
    trainer.fit(data);
    trainer.save(folder + "/out");
    all[network->rank()].losses.assign(seen.losses().begin(), seen.losses().end());
  });
  for (const outcome& one : all) CHECK(one.losses == all[0].losses);
  all[0].weights = all_weights(Single::from_pretrained(folder + "/out"));
  return all[0];
}

}  // namespace
