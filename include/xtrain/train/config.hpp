#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/core/kind_names.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/optim/schedule.hpp>

namespace xtrain {

/// What a step's loss averages: all targets of the step, or the means of the micro-batches of all data-parallel ranks.
enum class loss_average : std::uint8_t { step, micro_batch };

/// Weight of the load-balancing loss of a mixture of experts, when the loss is averaged by step. `targets`: a micro-batch's term counts by its targets, so the
/// sum is a mean for any accumulation. `micro_batches`: the terms of all micro-batches of all data-parallel ranks are added, so the sum grows with their
/// number, as in transformers' Trainer from 4.46 on. `none`: no term, as in that Trainer with label smoothing.
enum class balance_average : std::uint8_t { targets, micro_batches, none };

/// What weight decay applies to: matrices (not norms and biases), or all parameters, as in torch.optim over model.parameters().
enum class decayed_parameters : std::uint8_t { matrices, all };

template <>
struct kind_names<loss_average> {
  static constexpr named_kinds<loss_average, 2> all{{{"step", loss_average::step}, {"micro_batch", loss_average::micro_batch}}};
};
template <>
struct kind_names<balance_average> {
  static constexpr named_kinds<balance_average, 3> all{
      {{"targets", balance_average::targets}, {"micro_batches", balance_average::micro_batches}, {"none", balance_average::none}}};
};
template <>
struct kind_names<decayed_parameters> {
  static constexpr named_kinds<decayed_parameters, 2> all{{{"matrices", decayed_parameters::matrices}, {"all", decayed_parameters::all}}};
};

/// How to train. Every member has a default; set what differs: {.epochs = 3, .learning_rate = 2e-5}.
template <class Optimizer, class Objective = next_token>
struct training_config {
  std::size_t epochs = 1;                                   ///< passes over the data
  std::size_t max_steps = 0;                                ///< optimizer steps; 0: from epochs
  std::size_t max_steps_per_epoch = 0;  ///< ends an epoch early; the next epoch has a new order; 0: no limit
  std::size_t micro_batch_size = 8;                         ///< sequences
  std::size_t gradient_accumulation_steps = 1;              ///< micro-batches per step
  /// Ramp-up as Megatron-LM's --rampup-batch-size: early steps have fewer micro-batches. For the objective next_token, and data with samples for the
  /// whole run (gpt_dataset).
  batch_size_rampup rampup_batch_size = {};
  std::size_t seq_length = 0;                               ///< maximum length in tokens; 0: the model's
  double learning_rate = 1e-3;                              ///< peak
  double warmup_ratio = 0.0;                                ///< fraction of the decay steps
  std::size_t warmup_steps = 0;                             ///< takes precedence over the ratio
  lr_schedule_kind lr_schedule = lr_schedule_kind::cosine;  ///< after the warm-up
  double min_lr_ratio = 0.0;                                ///< minimum learning rate, as a fraction of the peak
  double min_lr = 0.0;                                      ///< minimum learning rate; takes precedence over the ratio if positive
  /// lr_schedule_settings::from_zero. false: the first warm-up step has peak / warmup, the last step of the run the minimum. true, as in transformers,
  /// torchtune and Megatron: the first warm-up step has lr_warmup_init, the step after the last one the minimum.
  bool lr_from_zero = false;
  /// The schedule counts sequences of all ranks, as Megatron-LM (samples): warmup_steps, lr_decay_steps and lr_timescale are in sequences.
  bool lr_counts_sequences = false;
  /// Skipped steps do not advance the schedule, as in Megatron-LM, DeepSpeed and transformers.
  bool lr_counts_updates = false;
  double lr_warmup_init = 0.0;     ///< learning rate where the warm-up begins
  std::size_t lr_decay_epochs = 0;  ///< decay length in epochs, without max_steps; 0: use lr_decay_steps
  bool lr_as_deepspeed = false;    ///< lr_schedule_settings::as_deepspeed
  bool lr_log_warmup = false;      ///< logarithmic warm-up, DeepSpeed's warmup_type log
  bool lr_continues = false;       ///< a cosine rises again after lr_decay_steps, as in transformers
  bool round_warmup = true;        ///< warmup_ratio is rounded up to steps, as in transformers; false: Megatron
  std::size_t lr_decay_steps = 0;  ///< end of the decay, warm-up included; later steps have the minimum; 0: all steps
  double lr_num_cycles = 0.0;      ///< cosine and cosine_with_restarts; 0: half a wave, or one cycle
  double lr_power = 1.0;           ///< polynomial
  lr_shape lr_warmup_shape = lr_shape::linear, lr_decay_shape = lr_shape::cosine;  ///< warmup_stable_decay
  std::size_t lr_final_steps = 0;  ///< warmup_stable_decay: steps of the decay
  double lr_stable_steps = -1.0;   ///< warmup_stable_decay: steps at the peak; negative: all remaining
  double lr_timescale = 0.0;       ///< inverse_sqrt and inverse_square_root: see lr_schedule_settings
  typename Optimizer::config optimizer = {};                ///< betas, weight decay, …
  typename Objective::config objective = {};                ///< label smoothing, beta, …
  decayed_parameters weight_decay_of = decayed_parameters::matrices;  ///< parameters with weight decay
  /// step: sum over all targets of a step / their number. micro_batch: mean over the targets of each micro-batch of each data-parallel rank, then the mean of
  /// these (0 without targets), as in Megatron, and in transformers' Trainer before 4.46; for the objectives next_token, distillation, ppo and ppo_value.
  /// Applies to reported losses; evaluations are means over all targets.
  loss_average average_loss = loss_average::step;
  balance_average average_balance = balance_average::targets;
  double max_grad_norm = 1.0;                               ///< clipping threshold; 0: no clipping
  /// Gradients are not cleared: a step starts from the sum of all earlier gradients, clipped to max_grad_norm, and adds to it; its update is not clipped. Same
  /// result as a PyTorch program that calls clip_grad_norm_ before backward() and never zero_grad(). For `single` and `data_parallel`. Checkpoints
  /// do not hold gradients: a resumed run starts from zero.
  bool keep_gradients = false;
  /// LoRA+: learning rate of LoRA's B and of trained vectors, as a multiple of A's [Hayou et al. 2024]; 0: the same rate. An adapted embedding then has
  /// `loraplus_lr_embedding` at the peak. Names and groups are PEFT's.
  double loraplus_lr_ratio = 0.0;
  double loraplus_lr_embedding = 1e-6;
  /// NEFTune: training adds uniform noise of magnitude alpha / sqrt(L · hidden_size) to the embeddings of each sequence, L its tokens without padding
  /// [Jain et al. 2023, algorithm 1]; 0: off. Not for packed sequences and not for encoders.
  double neftune_noise_alpha = 0.0;
  dynamic_loss_scale::config loss_scale = {};               ///< for precisions with loss scaling
  std::size_t eval_steps = 0;                               ///< steps between evaluations; 0: only at the end
  std::size_t measure_ranks_every = 0;                      ///< steps between measurements of ranks' step times; 0: never. Same on all ranks
  /// Loss and norm of a step are reported after the next step is queued, so that the device never waits for the host. On a synchronous device, such as the
  /// cpu, this only delays the report.
  bool late_metrics = false;
  /// Captures a step's work once per layout of batches, and replays it (CUDA graphs): the host launches once per step. Needs a device that captures
  /// work, one rank and the objective next_token.
  bool capture_steps = false;
  std::size_t max_bad_steps = 8;                            ///< consecutive non-finite steps before the run fails
  bool check_targets = true;                                ///< refuse micro-batches whose targets are their own tokens (causal models, next_token)
  bool shuffle = true;                                      ///< in every epoch
  bool drop_last = false;                                   ///< leave out the incomplete last step of an epoch
  std::uint64_t seed = 42;                                  ///< of shuffling, dropout, stochastic rounding

  /// Checkpoints record settings that decide results. Sizes and seed are recorded elsewhere, and must not change.
  template <class Self, class Visit>
  static constexpr void members(Self& c, Visit&& visit) {
    visit({.name = "epochs", .help = "passes over the data"}, c.epochs);
    visit({.name = "max_steps", .help = "optimizer steps; 0: as many as the epochs need"}, c.max_steps);
    visit({.name = "max_steps_per_epoch", .help = "steps that end an epoch; 0: it is not cut"}, c.max_steps_per_epoch);
    visit({.name = "micro_batch_size", .range = setting_range::positive, .unit = "sequences",
           .help = "micro-batch size", .compared = false}, c.micro_batch_size);
    visit({.name = "gradient_accumulation_steps", .range = setting_range::positive,
           .help = "micro-batches per step", .compared = false}, c.gradient_accumulation_steps);
    visit({.name = "rampup_batch_size", .help = "how the global batch grows", .compared = false}, c.rampup_batch_size);
    visit({.name = "seq_length", .unit = "tokens", .help = "maximum sequence length; 0: the model's", .compared = false}, c.seq_length);
    visit({.name = "learning_rate", .range = setting_range::non_negative, .help = "peak learning rate"}, c.learning_rate);
    visit({.name = "warmup_ratio", .range = setting_range::share, .help = "warm-up as a fraction of the decay steps"}, c.warmup_ratio);
    visit({.name = "warmup_steps", .unit = "steps", .help = "warm-up; takes precedence over the ratio"}, c.warmup_steps);
    visit({.name = "lr_schedule", .help = "the lr schedule after the warm-up"}, c.lr_schedule);
    visit({.name = "min_lr_ratio", .range = setting_range::share, .help = "minimum learning rate as a fraction of the peak"}, c.min_lr_ratio);
    visit({.name = "min_lr", .range = setting_range::non_negative, .help = "minimum learning rate"}, c.min_lr);
    visit({.name = "from_zero", .full_name = "lr_from_zero", .help = "steps are counted as in transformers, torchtune and Megatron"}, c.lr_from_zero);
    visit({.name = "counts_sequences", .full_name = "lr_counts_sequences",
           .help = "steps of the schedule are sequences (Megatron's samples)"}, c.lr_counts_sequences);
    visit({.name = "counts_updates", .full_name = "lr_counts_updates", .part = "schedule", .help = "skipped steps do not count"}, c.lr_counts_updates);
    visit({.name = "warmup_init", .full_name = "lr_warmup_init", .part = "schedule", .range = setting_range::non_negative,
           .help = "learning rate where the warm-up begins"}, c.lr_warmup_init);
    visit({.name = "decay_epochs", .full_name = "lr_decay_epochs", .part = "schedule", .unit = "epochs",
           .help = "decay length in epochs; 0: decay_steps"}, c.lr_decay_epochs);
    visit({.name = "as_deepspeed", .full_name = "lr_as_deepspeed", .part = "schedule",
           .help = "steps are counted as by DeepSpeed's schedulers"}, c.lr_as_deepspeed);
    visit({.name = "log_warmup", .full_name = "lr_log_warmup", .part = "schedule",
           .help = "a logarithmic warm-up: DeepSpeed's warmup_type log"}, c.lr_log_warmup);
    visit({.name = "continues", .full_name = "lr_continues", .part = "schedule", .help = "a cosine goes on after its end"}, c.lr_continues);
    visit({.name = "round_warmup", .part = "schedule", .help = "warmup_ratio is rounded up to whole steps"}, c.round_warmup);
    visit({.name = "decay_steps", .full_name = "lr_decay_steps", .unit = "steps", .help = "end of the decay; 0: all steps"}, c.lr_decay_steps);
    visit({.name = "num_cycles", .full_name = "lr_num_cycles", .part = "schedule", .range = setting_range::non_negative,
           .help = "of cosine and cosine_with_restarts; 0: half a wave, or one cycle"}, c.lr_num_cycles);
    visit({.name = "power", .full_name = "lr_power", .part = "schedule", .range = setting_range::positive, .help = "of polynomial"}, c.lr_power);
    visit({.name = "warmup_shape", .full_name = "lr_warmup_shape", .part = "schedule", .help = "of warmup_stable_decay"}, c.lr_warmup_shape);
    visit({.name = "decay_shape", .full_name = "lr_decay_shape", .part = "schedule", .help = "of warmup_stable_decay"}, c.lr_decay_shape);
    visit({.name = "final_steps", .full_name = "lr_final_steps", .part = "schedule", .unit = "steps",
           .help = "of warmup_stable_decay: steps of the decay"}, c.lr_final_steps);
    visit({.name = "stable_steps", .full_name = "lr_stable_steps", .part = "schedule", .unit = "steps",
           .help = "of warmup_stable_decay: steps at the peak; negative: what warm-up and decay leave"}, c.lr_stable_steps);
    visit({.name = "timescale", .full_name = "lr_timescale", .part = "schedule", .range = setting_range::non_negative, .unit = "steps",
           .help = "of inverse_sqrt and inverse_square_root"}, c.lr_timescale);
    visit({.name = "optimizer", .part = "optimizer", .help = "settings of the optimizer"}, c.optimizer);
    visit({.name = "objective", .part = "objective", .help = "settings of the objective"}, c.objective);
    visit({.name = "weight_decay_of", .help = "what weight decay applies to"}, c.weight_decay_of);
    visit({.name = "average_loss", .help = "what the loss is the mean of"}, c.average_loss);
    visit({.name = "average_balance", .help = "how the load-balancing loss of experts counts"}, c.average_balance);
    visit({.name = "max_grad_norm", .range = setting_range::non_negative, .help = "gradients are clipped to this norm; 0: no clipping"}, c.max_grad_norm);
    visit({.name = "keep_gradients", .help = "gradients are never cleared"}, c.keep_gradients);
    visit({.name = "loraplus_lr_ratio", .range = setting_range::non_negative,
           .help = "LoRA+: learning rate of B as a multiple; 0: the same"}, c.loraplus_lr_ratio);
    visit({.name = "loraplus_lr_embedding", .range = setting_range::non_negative,
           .help = "LoRA+: learning rate of adapted embeddings"}, c.loraplus_lr_embedding);
    visit({.name = "neftune_noise_alpha", .range = setting_range::non_negative, .help = "NEFTune: noise on embeddings; 0: none"}, c.neftune_noise_alpha);
    visit({.name = "loss_scale", .part = "loss_scale", .help = "settings of loss scaling"}, c.loss_scale);
    visit({.name = "eval_steps", .unit = "steps", .help = "steps between evaluations; 0: at the end", .compared = false}, c.eval_steps);
    visit({.name = "measure_ranks_every", .unit = "steps", .help = "steps between measurements of ranks; 0: never", .compared = false}, c.measure_ranks_every);
    visit({.name = "late_metrics", .help = "results of a step are read after the next is queued", .compared = false}, c.late_metrics);
    visit({.name = "capture_steps", .help = "the work of a step is captured and replayed", .compared = false}, c.capture_steps);
    visit({.name = "max_bad_steps", .unit = "steps", .help = "bad steps in a row before the run fails", .compared = false}, c.max_bad_steps);
    visit({.name = "check_targets", .help = "refuse micro-batches whose targets are their own tokens", .compared = false, .is_flag = false}, c.check_targets);
    visit({.name = "shuffle", .help = "shuffle sequences in every epoch"}, c.shuffle);
    visit({.name = "drop_last", .help = "leave out the last, smaller step of an epoch"}, c.drop_last);
    visit({.name = "seed", .help = "of shuffling, dropout and stochastic rounding", .compared = false}, c.seed);
  }
};

}  // namespace xtrain
