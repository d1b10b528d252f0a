// The settings of a training run.
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/objective/next_token.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/optim/schedule.hpp>

namespace xtrain {

/// How to train. Every member has a default; set what differs: {.epochs = 3, .learning_rate = 2e-5}.
template <class Optimizer, class Objective = next_token>
struct training_config {
  std::size_t epochs = 1;                                   ///< passes over the data
  std::size_t max_steps = 0;                                ///< optimizer steps; 0: as many as the epochs need
  std::size_t micro_batch_size = 8;                         ///< in sequences
  std::size_t gradient_accumulation_steps = 1;              ///< micro-batches per step
  std::size_t seq_length = 0;                               ///< maximum sequence length in tokens; 0: the model's
  double learning_rate = 1e-3;                              ///< at the peak
  double warmup_ratio = 0.0;                                ///< as a fraction of all steps
  std::size_t warmup_steps = 0;                             ///< takes precedence over the ratio
  lr_schedule_kind lr_schedule = lr_schedule_kind::cosine;  ///< after the warm-up
  double min_lr_ratio = 0.0;                                ///< minimum learning rate, as a fraction of the peak
  typename Optimizer::config optimizer = {};                ///< betas, weight decay, …
  typename Objective::config objective = {};                ///< label smoothing, beta, …
  double max_grad_norm = 1.0;                               ///< gradients are clipped to this norm; 0: no clipping
  dynamic_loss_scale::config loss_scale = {};               ///< for precisions with loss scaling
  std::size_t eval_steps = 0;                               ///< steps between evaluations; 0: only at the end
  std::size_t measure_ranks_every = 0;                      ///< steps between measurements of all ranks' step times; 0: never. The same on all ranks
  /// Loss and norm of a step are reported after the next step has been queued, so that the device never waits for the host. On a device that
  /// computes before it returns, as the cpu, this only delays the report.
  bool late_metrics = false;
  std::size_t max_bad_steps = 8;                            ///< consecutive steps with a loss or gradients that are not finite before the run fails
  bool shuffle = true;                                      ///< shuffle sequences in every epoch
  std::uint64_t seed = 42;                                  ///< of shuffling, dropout, stochastic rounding
};

}  // namespace xtrain
