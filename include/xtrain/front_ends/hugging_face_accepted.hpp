#pragma once

#include <string>

#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/hugging_face_part.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

class hugging_face_accepted : hugging_face_part {
 public:
  using hugging_face_part::hugging_face_part;

  void read(bool predicts) {
    flags_.without_effect(
        {"cache_dir", "use_fast", "trust_remote_code", "model_revision", "hub_model_id", "hub_token", "hub_strategy", "hub_private_repo",
         "hub_always_push", "hub_revision", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token"},
        "nothing is downloaded or uploaded, and no code of a model's folder is run", run_.notes);
    if (!predicts) flags_.without_effect({"per_device_eval_batch_size"}, "an evaluation is the mean over all targets, whatever its batches are", run_.notes);
    flags_.without_effect({"eval_accumulation_steps", "prediction_loss_only", "include_inputs_for_metrics",
                           "include_for_metrics", "eval_do_concat_batches", "eval_use_gather_object", "per_gpu_eval_batch_size"},
                          "an evaluation is the mean over all targets, whatever its batches are", run_.notes);
    flags_.without_effect({"dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor",
                           "dataloader_in_order", "dataloader_multiprocessing_context", "remove_unused_columns", "label_names",
                           "length_column_name", "accelerator_config", "dispatch_batches"},
                          "how batches are prepared changes no result", run_.notes);
    flags_.without_effect({"gradient_checkpointing_kwargs", "activation_checkpointing_kwargs", "torch_compile", "torch_compile_backend",
                           "torch_compile_mode", "torchdynamo", "jit_mode_eval", "use_ipex", "use_liger_kernel", "liger_kernel_config",
                           "torch_empty_cache_steps", "use_cache", "ray_scope"},
                          "how a step is computed changes no result", run_.notes);
    flags_.without_effect({"ddp_backend", "ddp_timeout", "ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_broadcast_buffers",
                           "ddp_static_graph", "xpu_backend", "tpu_num_cores", "tpu_metrics_debug", "mp_parameters", "sharded_ddp"},
                          "how ranks exchange messages changes no result", run_.notes);
    flags_.without_effect({"log_level", "log_level_replica", "log_on_each_node", "logging_nan_inf_filter", "disable_tqdm", "run_name",
                           "debug", "skip_memory_metrics", "include_tokens_per_second", "include_num_input_tokens_seen", "past_index",
                           "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"},
                          "what is printed changes no result", run_.notes);
    flags_.without_effect({"save_safetensors", "save_on_each_node", "save_only_model", "enable_jit_checkpoint",
                           "restore_callback_states_from_checkpoint"},
                          "checkpoints are this library's: safetensors, the optimizer's state, and the state of the run", run_.notes);
    flags_.without_effect({"metric_for_best_model", "greater_is_better"}, "no checkpoint is looked for as the best one", run_.notes);
    for (const char* name : {"no_cuda", "use_cpu"})
      if (flags_.is_true(name) && run_.device != "cpu") flags_.wrong(name, concat("False with --device ", run_.device));
    flags_.must_be_off({"parallelism_config", "tp_size"}, "ranks are data-parallel ranks, with --fsdp or --deepspeed if weights are divided");
    flags_.must_be_off({"split_batches"}, "it divides a batch over the ranks; divide --per_device_train_batch_size instead");
    if (const std::string given = flags_.text("accelerator_config"); !given.empty() && given != "None") {
      const json settings = given.starts_with("{") ? json_of("accelerator_config") : read_json(given);
      if (!settings.is_object()) flags_.wrong("accelerator_config", "a JSON object, or a file of one");
      if (settings.contains("split_batches") && settings.at("split_batches") != false)
        flags_.wrong("accelerator_config", "used without split_batches, which divides a batch over the ranks; divide --per_device_train_batch_size instead");
      if (const auto kwargs = settings.find("gradient_accumulation_kwargs"); kwargs != settings.end() && kwargs->is_object() && kwargs->contains("num_steps"))
        flags_.wrong("accelerator_config", "used without num_steps of gradient_accumulation_kwargs; give --gradient_accumulation_steps");
    }
    flags_.must_be_off({"use_mps_device"}, "the device is what --device says: cpu, cuda, npu or musa");
    if (flags_.has("data_path")) {
      if (flags_.has("do_train") && !flags_.is_true("do_train")) flags_.wrong("do_train", "True");
      flags_.must_be_off({"do_eval"}, "--eval_data_path and --eval_strategy say what is evaluated, and when");
      flags_.must_be_off({"do_predict"}, "this program trains");
    }
    if (const long rank = flags_.whole<long>("local_rank", -1, -1); rank > 0)
      flags_.wrong("local_rank",
                   "left out: ranks are threads of one process (--nproc_per_node N before the flags), or processes of mpirun or srun");
  }
};

}  // namespace xtrain::detail
