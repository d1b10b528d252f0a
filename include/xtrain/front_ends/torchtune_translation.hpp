// A torchtune config for one recipe, as a run description or a call.
#pragma once

#include <string>

#include <xtrain/front_ends/torchtune_call.hpp>
#include <xtrain/front_ends/torchtune_components.hpp>
#include <xtrain/front_ends/torchtune_programs.hpp>
#include <xtrain/front_ends/torchtune_training.hpp>
#include <xtrain/front_ends/yaml.hpp>

namespace xtrain::detail {

[[nodiscard]] inline torchtune_call translated(const yaml_value& root, const std::string& file, const torchtune_recipe& recipe,
                                               const torchtune_launch& launch) {
  tune_programs programs(root, file, recipe, launch);
  if (recipe.name.find("generate") != std::string::npos) return programs.generate();
  if (recipe.name == "eleuther_eval") return programs.evaluate();
  if (recipe.name == "quantize") return programs.convert();
  return tune_training(root, file, recipe, launch).train();
}

/// The single-device recipe for a config's components.
[[nodiscard]] inline std::string recipe_for(const yaml_value& root) {
  const auto component = [&](const char* key) -> std::string {
    const yaml_value* section = root.find(key);
    const yaml_value* name = section == nullptr ? nullptr : section->find("_component_");
    return name == nullptr ? "" : name->text;
  };
  const tune_model_use model = tune_model_named(component("model"));
  if (root.find("tasks") != nullptr) return "eleuther_eval";
  if (root.find("prompt") != nullptr) return "generate";
  if (root.find("policy_model") != nullptr) return "ppo_full_finetune_single_device";
  if (root.find("kd_loss") != nullptr) return "knowledge_distillation_single_device";
  if (root.find("loss") == nullptr && root.find("quantizer") != nullptr) return "quantize";
  if (const yaml_value* q = root.find("quantizer"); q != nullptr && !q->is_null()) return model.lora ? "qat_lora_finetune_distributed" : "qat_distributed";
  const bool dpo = component("loss").find("rlhf") != std::string::npos;
  if (dpo) return model.lora ? "lora_dpo_single_device" : "full_dpo_distributed";
  return model.lora ? "lora_finetune_single_device" : "full_finetune_single_device";
}

}  // namespace xtrain::detail
