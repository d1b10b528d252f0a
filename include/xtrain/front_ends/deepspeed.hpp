// DeepSpeed's config file, as a part of a run description. Component 'recipes'.
#pragma once

#include <cstddef>
#include <string>

#include <xtrain/core/json.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// What the program knows that reads a DeepSpeed config: transformers' Trainer (the defaults), or Megatron-DeepSpeed.
struct deepspeed_context {
  std::size_t data_parallel_ranks = 1;  ///< of which each has its own samples
  /// true: "auto" means the run's own value, as in transformers. false: it is refused, as by DeepSpeed itself.
  bool fills_auto = true;
  /// Batch sizes and precision must always agree with the run. true: so must every other value that the run has, too, as in transformers, and without an
  /// optimizer or a scheduler in the config the run's are used. false: the config's are used.
  bool must_agree = true;
  /// What the program calls its own values, for errors.
  std::string micro_batch_size = "--per_device_train_batch_size", gradient_accumulation_steps = "--gradient_accumulation_steps",
              learning_rate = "--learning_rate", betas = "--adam_beta1 and --adam_beta2", epsilon = "--adam_epsilon",
              weight_decay = "--weight_decay", max_grad_norm = "--max_grad_norm", warmup_steps = "--warmup_steps", fp16 = "--fp16",
              bf16 = "--bf16", max_steps = "--max_steps";
};

/// Sets what a DeepSpeed config says of a run, with the defaults of DeepSpeed 0.19.8, which run.follows names:
///   zero_optimization   parallel.zero, parallel.shards (MiCS); offloading to nvme: offload, offload_folder
///   fp16, bf16          precision, loss_scale. bf16 with ZeRO adds gradients in bf16, unless data_types.grad_accum_dtype is fp32
///   optimizer           optimizer: AdamW, Adam, Lion. transformers then has one group of parameters, which all decay
///   scheduler           schedule: WarmupLR, WarmupDecayLR, WarmupCosineLR, whose first two steps both have the smallest learning rate
///   gradient_clipping   optimizer.max_grad_norm; without it, 1.0
///   train_batch_size    checked: micro-batch size x gradient accumulation x data-parallel ranks
/// Keys that change no result are accepted, and each is named in run.notes with the reason. The run must have the program's own values already.
///   file    names the config in errors, before the path of a key: ds_config.json: zero_optimization.stage
///   throws  config_error: an unknown key, with the nearest known one; a value of the wrong type; one that contradicts the run; what the library does not have
void apply_deepspeed(run_description& run, const json& config, const std::string& file, const deepspeed_context& context = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/deepspeed_impl.hpp>
#endif
