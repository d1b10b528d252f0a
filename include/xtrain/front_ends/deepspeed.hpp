// DeepSpeed's config file, as a part of a run description. Component 'recipes'.
#pragma once

#include <cstddef>
#include <string>

#include <xtrain/core/json.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// The program that reads a DeepSpeed config: transformers' Trainer (the defaults), or Megatron-DeepSpeed.
struct deepspeed_context {
  std::size_t data_parallel_ranks = 1;  ///< ranks with different samples
  /// true: "auto" means the run's value, as in transformers. false: refused, as by DeepSpeed.
  bool fills_auto = true;
  /// Batch sizes and precision must always agree with the run. true: other values too, as in transformers; a missing optimizer or scheduler is the run's.
  /// false: the config's values are used.
  bool must_agree = true;
  /// The program's names of values, for errors.
  std::string micro_batch_size = "--per_device_train_batch_size", gradient_accumulation_steps = "--gradient_accumulation_steps",
              learning_rate = "--learning_rate", betas = "--adam_beta1 and --adam_beta2", epsilon = "--adam_epsilon",
              weight_decay = "--weight_decay", max_grad_norm = "--max_grad_norm", warmup_steps = "--warmup_steps", fp16 = "--fp16",
              bf16 = "--bf16", max_steps = "--max_steps";
};

/// Applies a DeepSpeed config to a run, with the defaults of DeepSpeed 0.19.8 (recorded in run.follows); keys: examples/hugging_face.md. Keys that change no
/// result are accepted, with a reason in run.notes. The run must have the program's values already.
///   file    names the config in errors, before the path of a key: ds_config.json: zero_optimization.stage
///   throws  config_error: an unknown key, with the nearest known key; a wrong type; a contradiction with the run; an unsupported feature
void apply_deepspeed(run_description& run, const json& config, const std::string& file, const deepspeed_context& context = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/deepspeed_impl.hpp>
#endif
