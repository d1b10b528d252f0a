// The settings of a training run.
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

/// What the loss of a step is the mean of: of all its targets, or of the means of its micro-batches, those of all data-parallel ranks.
enum class loss_average : std::uint8_t { step, micro_batch };

/// How the load-balancing loss of a mixture of experts counts where the loss is averaged by step. `targets`: the term of a micro-batch counts by its targets,
/// so that the sum is a mean, whatever the accumulation. `micro_batches`: the term of each micro-batch of each data-parallel rank is added whole, so that the
/// sum grows with their number: transformers' Trainer from 4.46 on. `none`: there is no such term: that Trainer with label smoothing.
enum class balance_average : std::uint8_t { targets, micro_batches, none };

/// What weight decay applies to: matrices, so that norms and biases do not decay; or all parameters, as in torch.optim over model.parameters().
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
  std::size_t max_steps = 0;                                ///< optimizer steps; 0: as many as the epochs need
  std::size_t max_steps_per_epoch = 0;  ///< every epoch ends after so many steps, and the next begins with an order of its own; 0: it is not cut
  std::size_t micro_batch_size = 8;                         ///< in sequences
  std::size_t gradient_accumulation_steps = 1;              ///< micro-batches per step
  /// The global batch grows to micro_batch_size x gradient_accumulation_steps x data-parallel ranks, as with Megatron-LM's --rampup-batch-size: steps
  /// have fewer micro-batches at first. For the objective next_token, and data whose samples are those of a whole run (gpt_dataset).
  batch_size_rampup rampup_batch_size = {};
  std::size_t seq_length = 0;                               ///< maximum sequence length in tokens; 0: the model's
  double learning_rate = 1e-3;                              ///< at the peak
  double warmup_ratio = 0.0;                                ///< as a fraction of the decay steps, which are all steps by default
  std::size_t warmup_steps = 0;                             ///< takes precedence over the ratio
  lr_schedule_kind lr_schedule = lr_schedule_kind::cosine;  ///< after the warm-up
  double min_lr_ratio = 0.0;                                ///< minimum learning rate, as a fraction of the peak
  double min_lr = 0.0;                                      ///< minimum learning rate; takes precedence over the ratio if positive
  /// How steps are counted: lr_schedule_settings::from_zero. false: the first step of a warm-up is at peak / warmup, and the last step of the run is at
  /// the minimum. true: as in transformers, torchtune and Megatron, the first step of a warm-up is at lr_warmup_init, and the step after the last
  /// one would be at the minimum.
  bool lr_from_zero = false;
  /// The schedule counts sequences, of all ranks, as Megatron-LM's (samples): warmup_steps, lr_decay_steps and lr_timescale are numbers of sequences.
  bool lr_counts_sequences = false;
  /// Steps that are skipped do not count for the schedule, as in Megatron-LM, DeepSpeed and transformers: the next step has the same learning rate.
  bool lr_counts_updates = false;
  double lr_warmup_init = 0.0;     ///< learning rate where the warm-up begins
  std::size_t lr_decay_epochs = 0;  ///< lr_decay_steps in whole epochs, of a run without max_steps; 0: it is not
  bool lr_as_deepspeed = false;    ///< steps are counted as DeepSpeed's schedulers count them: lr_schedule_settings::as_deepspeed
  bool lr_log_warmup = false;      ///< a warm-up by the logarithm of the step, DeepSpeed's warmup_type log
  bool lr_continues = false;       ///< a cosine goes on after lr_decay_steps, as in transformers: it rises again
  bool round_warmup = true;        ///< warmup_ratio is rounded up to whole steps, as in transformers; false: it is not, as in Megatron
  std::size_t lr_decay_steps = 0;  ///< steps until the end of the decay, warm-up included; later steps have the minimum; 0: all steps
  double lr_num_cycles = 0.0;      ///< of cosine and cosine_with_restarts; 0: half a wave, or one cycle
  double lr_power = 1.0;           ///< of polynomial
  lr_shape lr_warmup_shape = lr_shape::linear, lr_decay_shape = lr_shape::cosine;  ///< of warmup_stable_decay
  std::size_t lr_final_steps = 0;  ///< of warmup_stable_decay: steps of the decay
  double lr_stable_steps = -1.0;   ///< of warmup_stable_decay: steps at the peak; negative: all that warm-up and decay leave
  double lr_timescale = 0.0;       ///< of inverse_sqrt and inverse_square_root: see lr_schedule_settings; 0: as there
  typename Optimizer::config optimizer = {};                ///< betas, weight decay, …
  typename Objective::config objective = {};                ///< label smoothing, beta, …
  decayed_parameters weight_decay_of = decayed_parameters::matrices;  ///< what the optimizer's weight decay applies to
  /// step: the sum over all targets of a step, divided once by their number. micro_batch: the mean over the targets of each micro-batch of each
  /// data-parallel rank, then the mean over all of these (one without targets counts as 0), as in Megatron, and in transformers' Trainer before
  /// 4.46. Reported losses too; evaluations are means over all targets. micro_batch is for the objectives next_token, distillation, ppo
  /// and ppo_value.
  loss_average average_loss = loss_average::step;
  balance_average average_balance = balance_average::targets;  ///< of the load-balancing loss of experts, if the model has one
  double max_grad_norm = 1.0;                               ///< gradients are clipped to this norm; 0: no clipping
  /// Gradients are not cleared: a step begins with the sum of the gradients of all steps before it, clipped to max_grad_norm, and adds its own; its update is
  /// not clipped. This is what a PyTorch program computes that calls clip_grad_norm_ before backward() and never calls zero_grad(). For `single` and
  /// `data_parallel`. A checkpoint does not hold gradients: a resumed run begins without.
  bool keep_gradients = false;
  /// LoRA+: the learning rate of LoRA's B, and of vectors that are trained besides, as a multiple of that of A [Hayou et al. 2024]; 0: the same rate.
  /// With it the learning rate of an adapted embedding is `loraplus_lr_embedding` at the peak of the schedule. Names and groups are PEFT's.
  double loraplus_lr_ratio = 0.0;
  double loraplus_lr_embedding = 1e-6;
  /// NEFTune: while training, uniform noise of magnitude alpha / sqrt(L · hidden_size) is added to the embeddings of each sequence, L its tokens
  /// without padding [Jain et al. 2023, algorithm 1]; 0: none. Not for packed sequences and not for encoders.
  double neftune_noise_alpha = 0.0;
  dynamic_loss_scale::config loss_scale = {};               ///< for precisions with loss scaling
  std::size_t eval_steps = 0;                               ///< steps between evaluations; 0: only at the end
  std::size_t measure_ranks_every = 0;                      ///< steps between measurements of all ranks' step times; 0: never. The same on all ranks
  /// Loss and norm of a step are reported after the next step has been queued, so that the device never waits for the host. On a device that
  /// computes before it returns, as the cpu, this only delays the report.
  bool late_metrics = false;
  /// The work of a step is captured once for each layout of the batches, and replayed (CUDA graphs): a step then costs the host one launch. Needs a
  /// device that captures work; one rank and the objective next_token are what can be captured.
  bool capture_steps = false;
  std::size_t max_bad_steps = 8;                            ///< consecutive steps with a loss or gradients that are not finite before the run fails
  bool shuffle = true;                                      ///< shuffle sequences in every epoch
  bool drop_last = false;                                   ///< leave out the last step of an epoch where its sequences are fewer than a step's
  std::uint64_t seed = 42;                                  ///< of shuffling, dropout, stochastic rounding

  /// Checkpoints have the settings that decide results. Those of sizes and the seed are in them elsewhere, and must be the same.
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
    visit({.name = "shuffle", .help = "shuffle sequences in every epoch"}, c.shuffle);
    visit({.name = "drop_last", .help = "leave out the last, smaller step of an epoch"}, c.drop_last);
    visit({.name = "seed", .help = "of shuffling, dropout and stochastic rounding", .compared = false}, c.seed);
  }
};

}  // namespace xtrain
