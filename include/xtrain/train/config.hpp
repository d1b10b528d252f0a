// The settings of a training run.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/optim/schedule.hpp>

namespace xtrain {

/// How to train. Every member has a default; say what is different: {.epochs = 3, .learning_rate = 2e-5}.
template <class Optimizer>
struct training_config {
  std::size_t epochs = 1;                      ///< passes over the data
  std::size_t steps = 0;                       ///< optimizer steps; 0: as many as the epochs need
  std::size_t batch = 8;                       ///< rows of a micro-batch
  std::size_t accumulate = 1;                  ///< micro-batches of a step
  std::size_t context = 0;                     ///< longest row in tokens; 0: the model's
  double learning_rate = 1e-3;                 ///< the highest
  double warmup_ratio = 0.0;                   ///< share of all steps in which the rate rises
  std::size_t warmup_steps = 0;                ///< the same as a count; if both are given, the count
  schedule shape = schedule::cosine;           ///< of the rate after the warm-up
  double floor = 0.0;                          ///< lowest rate, as a share of the highest
  typename Optimizer::config optimizer = {};   ///< betas, weight decay, …
  double max_gradient_norm = 1.0;              ///< longer gradients are shortened to this; 0: never
  dynamic_loss_scale::config loss_scale = {};  ///< for precisions that scale the loss
  std::size_t evaluate_every = 0;              ///< steps between evaluations; 0: at the end only
  std::size_t measure_ranks_every = 0;         ///< steps between looks at what every rank takes; 0: never. The same on all ranks
  std::size_t max_bad_steps = 8;               ///< steps in a row whose loss or gradients are not finite, before giving up
  bool shuffle = true;                         ///< rows in another order every epoch
  std::uint64_t seed = 42;                     ///< of the order, of dropout, of stochastic rounding
};

}  // namespace xtrain
