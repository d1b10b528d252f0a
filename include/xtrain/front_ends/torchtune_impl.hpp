#pragma once

#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/torchtune.hpp>
#include <xtrain/front_ends/torchtune_configs.hpp>
#include <xtrain/front_ends/torchtune_translation.hpp>
#include <xtrain/front_ends/torchtune_values.hpp>
#include <xtrain/front_ends/yaml.hpp>

namespace xtrain {

XTRAIN_INLINE const std::vector<torchtune_recipe>& torchtune_recipes() {
  const static std::vector<torchtune_recipe> all{
      {"full_finetune_single_device", false, "", "FullFinetuneRecipeSingleDevice"},
      {"full_finetune_distributed", true, "", "FullFinetuneRecipeDistributed"},
      {"lora_finetune_single_device", false, "", "LoRAFinetuneRecipeSingleDevice"},
      {"lora_dpo_single_device", false, "", "LoRADPORecipeSingleDevice"},
      {"lora_dpo_distributed", true, "", "LoRADPORecipeDistributed"},
      {"full_dpo_distributed", true, "", "FullDPORecipeDistributed"},
      {"ppo_full_finetune_single_device", false, "", "PPOFullFinetuneRecipeSingleDevice"},
      {"lora_finetune_distributed", true, "", "LoRAFinetuneRecipeDistributed"},
      {"dev/lora_finetune_distributed_multi_dataset", true, "it is for vision models; a list of datasets is what every recipe takes", ""},
      {"generate", false, "", "InferenceRecipe"},
      {"dev/generate_v2", false, "", "InferenceRecipe"},
      {"dev/generate_v2_distributed", true, "", "InferenceRecipe"},
      {"dev/early_exit_finetune_distributed", true, "there is no loss of early layers", ""},
      {"dev/grpo_full_finetune_distributed", true, "the program grpo is what there is of reinforcement learning", ""},
      {"eleuther_eval", false, "", "EleutherEvalRecipe"},
      {"quantize", false, "", "QuantizationRecipe"},
      {"qat_distributed", true, "", "QATRecipeDistributed"},
      {"qat_lora_finetune_distributed", true, "", "QATLoRAFinetuneRecipeDistributed"},
      {"knowledge_distillation_single_device", false, "", "KDRecipeSingleDevice"},
      {"knowledge_distillation_distributed", true, "", "KDRecipeDistributed"},
  };
  return all;
}

XTRAIN_INLINE const std::vector<torchtune_config>& torchtune_configs() {
  const static std::vector<torchtune_config> all = detail::own_tune_configs();
  return all;
}

XTRAIN_INLINE yaml_value torchtune_values(const std::string& file, const std::vector<std::string>& overrides) {
  yaml_value root;
  bool found = false;
  std::vector<std::string> names;
  for (const torchtune_config& own : torchtune_configs()) {
    names.push_back(own.name);
    if (own.name != file) continue;
    root = parse_yaml(own.text, file);
    found = true;
  }
  if (!found) {
    const bool is_file = file.ends_with(".yaml") || file.ends_with(".yml") || file_exists(file);
    const std::string near = nearest_name(file, names);
    require<config_error>(is_file, "--config: must be a file or a config that tune ls lists; given ", file,
                          near.empty() ? "" : concat("; did you mean ", near, "?"));
    root = read_yaml(file);
  }
  require<config_error>(root.is_map() && !root.items.empty(), file, ": must be a map of keys; it is ", root.items.empty() ? "empty" : root.type_name());
  require<config_error>(root.find("config") == nullptr, file, ": must not have a key 'config'");
  for (const std::string& one : overrides) detail::tune_override(root, one);
  return detail::tune_interpolation(root, file).all();
}

XTRAIN_INLINE void validate_torchtune(const std::string& file, const std::vector<std::string>& overrides) {
  const yaml_value root = torchtune_values(file, overrides);
  detail::check_components(root, file, false);
  // keys of any recipe: torchtune ignores others
  detail::tune_section top(root, file, "");
  top.asks_for({"output_dir",
                "model",
                "tokenizer",
                "checkpointer",
                "resume_from_checkpoint",
                "save_adapter_weights_only",
                "dataset",
                "seed",
                "shuffle",
                "batch_size",
                "epochs",
                "optimizer",
                "optimizer_in_bwd",
                "lr_scheduler",
                "loss",
                "max_steps_per_epoch",
                "gradient_accumulation_steps",
                "clip_grad_norm",
                "compile",
                "metric_logger",
                "log_every_n_steps",
                "log_peak_memory_stats",
                "log_level",
                "device",
                "dtype",
                "enable_activation_checkpointing",
                "enable_activation_offloading",
                "profiler",
                "collate_fn",
                "packed",
                "low_cpu_ram",
                "cudnn_deterministic_mode",
                "ac_mode",
                "ac_option",
                "num_workers"});
  top.asks_for({"fsdp_cpu_offload", "fsdp_reshard_after_forward", "custom_sharded_layers", "memory_efficient_fsdp_wrap", "fsdp", "tensor_parallel_dim",
                "tensor_parallel_plan", "data_parallel_shard_dim", "data_parallel_replicate_dim", "enable_async_checkpointing", "dataloader", "datasets"});
  top.asks_for({"teacher_model", "teacher_checkpointer", "kd_loss", "kd_ratio", "ref_checkpointer", "quantizer", "fake_quant_after_n_steps"});
  top.asks_for({"prompt", "max_new_tokens", "temperature", "top_k", "enable_kv_cache", "tasks", "limit", "max_seq_length", "include_path"});
  top.asks_for({"policy_model", "reward_and_value_model", "ref_policy_checkpointer", "reward_checkpointer", "value_checkpointer", "forward_batch_size",
                "max_generated_tokens", "num_steps", "ppo_epochs", "ppo_batch_size", "gamma", "lmbda", "kl_coeff", "whiten_rewards", "min_response_length",
                "penalise_no_eos", "reward_penalty", "stop_token_ids"});
  top.finish();
}

XTRAIN_INLINE torchtune_call torchtune_run(const std::string& recipe, const std::string& file, const std::vector<std::string>& overrides,
                                           const torchtune_launch& launch) {
  const auto& all = torchtune_recipes();
  const auto named = [&](const std::string& name) -> const torchtune_recipe& {
    std::vector<std::string> names;
    for (const torchtune_recipe& one : all) {
      if (one.name == name) return one;
      names.push_back(one.name);
    }
    const std::string near = nearest_name(name, names);
    fail<config_error>(name, ": must be a recipe that tune ls lists, not a Python file", near.empty() ? "" : concat("; did you mean ", near, "?"));
  };
  std::string name = recipe;
  if (!name.empty()) (void)named(name);
  const yaml_value root = torchtune_values(file, overrides);
  if (name.empty()) {
    for (const torchtune_config& own : torchtune_configs())
      if (own.name == file) name = own.recipe;
    if (name.empty()) name = detail::recipe_for(root);
  }
  const torchtune_recipe& chosen = named(name);
  require<config_error>(chosen.refusal.empty(), "recipe ", name, ": ", chosen.refusal);
  require<config_error>(!launch.is_distributed || chosen.is_distributed, "recipe ", name,
                        ": runs on one device; leave out --nproc_per_node and torchrun's other flags");
  detail::check_components(root, file, true);
  return detail::translated(root, file, chosen, launch);
}

XTRAIN_INLINE run_description run_description::from_torchtune(const std::string& file, const std::vector<std::string>& overrides, const std::string& recipe) {
  torchtune_call call = torchtune_run(recipe, file, overrides);
  require<config_error>(call.run.has_value(), "from_torchtune: the recipe must be one that trains; this one is a call of ", call.program);
  return *std::move(call.run);
}

}  // namespace xtrain
