// Configs with torchtune's names and values, from a table: for `tune ls`, `tune cp` and `tune cat`.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/torchtune_config.hpp>

namespace xtrain::detail {

/// A training config; other values are equal in all configs.
struct tune_config_row {
  std::string_view name, recipe, output;  ///< output: of /tmp/torchtune/
  std::string_view model, tokenizer;      ///< components of torchtune.models.
  std::string_view folder, vocabulary;    ///< of /tmp/; the tokenizer's file in it
  std::string_view type;                  ///< the checkpointer's model_type
  std::size_t files;                      ///< weight files; 1: model.safetensors
  bool binaries;                          ///< pytorch_model-00001-of-0000N.bin
  std::string_view dataset;
  std::size_t batch_size, accumulation;
  std::string_view optimizer, rate, decay;  ///< decay empty: the optimizer's
  std::size_t warmup;                       ///< 0: no schedule
  std::size_t rank, alpha;                  ///< of LoRA; 0: off
  bool recomputes, in_backward;
};

inline constexpr std::array<tune_config_row, 22> tune_config_rows{{
    {"llama2/7B_full", "full_finetune_distributed", "llama2_7B/full",
     "llama2.llama2_7b", "llama2.llama2_tokenizer", "Llama-2-7b-hf", "tokenizer.model", "LLAMA2", 2, true,
     "alpaca_dataset", 2, 1, "torch.optim.AdamW", "2e-5", "", 0, 0, 0, true, false},
    {"llama2/7B_lora_single_device", "lora_finetune_single_device", "llama2_7B/lora_single_device",
     "llama2.lora_llama2_7b", "llama2.llama2_tokenizer", "Llama-2-7b-hf", "tokenizer.model", "LLAMA2", 2, true,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "3e-4", "0.01", 100, 8, 16, true, false},
    {"llama2/7B_qlora_single_device", "lora_finetune_single_device", "llama2_7B/qlora_single_device",
     "llama2.qlora_llama2_7b", "llama2.llama2_tokenizer", "Llama-2-7b-hf", "tokenizer.model", "LLAMA2", 2, true,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "3e-4", "0.01", 100, 8, 16, true, false},
    {"llama2/7B_lora_dpo", "lora_dpo_distributed", "llama2_7B/lora_dpo",
     "llama2.lora_llama2_7b", "llama2.llama2_tokenizer", "Llama-2-7b-hf", "tokenizer.model", "LLAMA2", 2, true,
     "stack_exchange_paired_dataset", 4, 8, "torch.optim.AdamW", "5e-4", "0.05", 100, 8, 16, true, false},
    {"llama2/7B_qat_full", "qat_distributed", "llama2_7B/qat_full",
     "llama2.llama2_7b", "llama2.llama2_tokenizer", "Llama-2-7b-hf", "tokenizer.model", "LLAMA2", 2, true,
     "alpaca_dataset", 2, 1, "torch.optim.AdamW", "2e-5", "", 0, 0, 0, true, false},
    {"llama3_1/8B_lora_dpo_single_device", "lora_dpo_single_device", "llama3_1_8B/lora_dpo_single_device",
     "llama3_1.lora_llama3_1_8b", "llama3.llama3_tokenizer", "Meta-Llama-3.1-8B-Instruct", "original/tokenizer.model", "LLAMA3", 4, false,
     "stack_exchange_paired_dataset", 4, 8, "torch.optim.AdamW", "5e-4", "0.05", 100, 8, 16, true, false},
    {"llama3_1/8B_full_dpo", "full_dpo_distributed", "llama3_1_8B/full_dpo",
     "llama3_1.llama3_1_8b", "llama3.llama3_tokenizer", "Meta-Llama-3.1-8B-Instruct", "original/tokenizer.model", "LLAMA3", 4, false,
     "stack_exchange_paired_dataset", 4, 8, "torch.optim.AdamW", "2e-5", "0.05", 20, 0, 0, true, false},
    {"llama3_2/1B_full_single_device", "full_finetune_single_device", "llama3_2_1B/full_single_device",
     "llama3_2.llama3_2_1b", "llama3.llama3_tokenizer", "Llama-3.2-1B-Instruct", "original/tokenizer.model", "LLAMA3_2", 1, false,
     "alpaca_dataset", 4, 1, "bitsandbytes.optim.PagedAdamW8bit", "2e-5", "", 0, 0, 0, false, true},
    {"llama3_2/1B_full", "full_finetune_distributed", "llama3_2_1B/full",
     "llama3_2.llama3_2_1b", "llama3.llama3_tokenizer", "Llama-3.2-1B-Instruct", "original/tokenizer.model", "LLAMA3_2", 1, false,
     "alpaca_dataset", 4, 8, "torch.optim.AdamW", "2e-5", "", 0, 0, 0, false, false},
    {"llama3_2/1B_lora_single_device", "lora_finetune_single_device", "llama3_2_1B/lora_single_device",
     "llama3_2.lora_llama3_2_1b", "llama3.llama3_tokenizer", "Llama-3.2-1B-Instruct", "original/tokenizer.model", "LLAMA3_2", 1, false,
     "alpaca_cleaned_dataset", 4, 8, "torch.optim.AdamW", "3e-4", "0.01", 100, 64, 128, false, false},
    {"llama3_2/1B_lora", "lora_finetune_distributed", "llama3_2_1B/lora",
     "llama3_2.lora_llama3_2_1b", "llama3.llama3_tokenizer", "Llama-3.2-1B-Instruct", "original/tokenizer.model", "LLAMA3_2", 1, false,
     "alpaca_cleaned_dataset", 4, 8, "torch.optim.AdamW", "3e-4", "0.01", 100, 64, 128, false, false},
    {"llama3_2/1B_qat_lora", "qat_lora_finetune_distributed", "llama3_2_1B/qat_lora",
     "llama3_2.lora_llama3_2_1b", "llama3.llama3_tokenizer", "Llama-3.2-1B-Instruct", "original/tokenizer.model", "LLAMA3_2", 1, false,
     "alpaca_cleaned_dataset", 4, 8, "torch.optim.AdamW", "3e-4", "0.01", 100, 64, 128, false, false},
    {"mistral/7B_full_low_memory", "full_finetune_single_device", "mistral_7B/full_low_memory",
     "mistral.mistral_7b", "mistral.mistral_tokenizer", "Mistral-7B-v0.1", "tokenizer.model", "MISTRAL", 2, true,
     "alpaca_dataset", 2, 1, "bitsandbytes.optim.PagedAdamW", "5e-6", "", 0, 0, 0, true, true},
    {"gemma2/2B_lora_single_device", "lora_finetune_single_device", "gemma2_2B/lora_single_device",
     "gemma2.lora_gemma2_2b", "gemma.gemma_tokenizer", "gemma-2-2b", "tokenizer.model", "GEMMA2", 3, false,
     "alpaca_dataset", 8, 8, "torch.optim.AdamW", "2e-5", "", 10, 64, 128, true, false},
    {"phi3/mini_full", "full_finetune_distributed", "phi3_mini/full",
     "phi3.phi3_mini", "phi3.phi3_mini_tokenizer", "Phi-3-mini-4k-instruct", "tokenizer.model", "PHI3_MINI", 2, false,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "5e-6", "", 0, 0, 0, true, false},
    {"qwen2/0.5B_full_single_device", "full_finetune_single_device", "qwen2_0_5B/full_single_device",
     "qwen2.qwen2_0_5b", "qwen2.qwen2_tokenizer", "Qwen2-0.5B-Instruct", "vocab.json", "QWEN2", 1, false,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "2e-5", "", 0, 0, 0, false, false},
    {"qwen2/1.5_to_0.5B_KD_lora_single_device", "knowledge_distillation_single_device", "qwen2_1_5_to_0_5B/KD_lora_single_device",
     "qwen2.lora_qwen2_0_5b", "qwen2.qwen2_tokenizer", "Qwen2-0.5B-Instruct", "vocab.json", "QWEN2", 1, false,
     "alpaca_cleaned_dataset", 8, 8, "torch.optim.AdamW", "3e-4", "0.01", 100, 32, 64, false, false},
    {"qwen2/1.5_to_0.5B_KD_lora_distributed", "knowledge_distillation_distributed", "qwen2_1_5_to_0_5B/KD_lora_distributed",
     "qwen2.lora_qwen2_0_5b", "qwen2.qwen2_tokenizer", "Qwen2-0.5B-Instruct", "vocab.json", "QWEN2", 1, false,
     "alpaca_cleaned_dataset", 8, 8, "torch.optim.AdamW", "3e-4", "0.01", 100, 32, 64, false, false},
    {"qwen2_5/0.5B_full_single_device", "full_finetune_single_device", "qwen2_5_0_5B/full_single_device",
     "qwen2_5.qwen2_5_0_5b", "qwen2_5.qwen2_5_tokenizer", "Qwen2.5-0.5B-Instruct", "vocab.json", "QWEN2", 1, false,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "2e-5", "", 0, 0, 0, false, false},
    {"qwen2_5/0.5B_full", "full_finetune_distributed", "qwen2_5_0_5B/full",
     "qwen2_5.qwen2_5_0_5b", "qwen2_5.qwen2_5_tokenizer", "Qwen2.5-0.5B-Instruct", "vocab.json", "QWEN2", 1, false,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "2e-5", "", 0, 0, 0, false, false},
    {"qwen2_5/0.5B_lora_single_device", "lora_finetune_single_device", "qwen2_5_0_5B/lora_single_device",
     "qwen2_5.lora_qwen2_5_0_5b", "qwen2_5.qwen2_5_tokenizer", "Qwen2.5-0.5B-Instruct", "vocab.json", "QWEN2", 1, false,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "2e-3", "0.01", 100, 32, 64, false, false},
    {"qwen2_5/0.5B_lora", "lora_finetune_distributed", "qwen2_5_0_5B/lora",
     "qwen2_5.lora_qwen2_5_0_5b", "qwen2_5.qwen2_5_tokenizer", "Qwen2.5-0.5B-Instruct", "vocab.json", "QWEN2", 1, false,
     "alpaca_cleaned_dataset", 2, 8, "torch.optim.AdamW", "2e-3", "0.01", 100, 32, 64, false, false}
}};

[[nodiscard]] inline std::string tune_checkpointer_text(const char* key, std::string_view folder, std::string_view type, std::size_t files, bool binaries,
                                                        bool trains) {
  std::string text = concat(key, ":\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: /tmp/", folder, "\n  checkpoint_files:\n");
  for (std::size_t i = 1; i <= files; ++i) {
    if (files == 1) text += "    - model.safetensors\n";
    else text += concat("    - ", binaries ? "pytorch_model" : "model", "-0000", i, "-of-0000", files, binaries ? ".bin\n" : ".safetensors\n");
  }
  if (trains) text += "  recipe_checkpoint: null\n";
  return text + concat("  output_dir: ${output_dir}\n  model_type: ", type, "\n");
}

[[nodiscard]] inline std::string tune_config_text(const tune_config_row& row) {
  const bool is_dpo = row.dataset.find("paired") != std::string_view::npos, lora = row.rank > 0;
  const bool distributed = row.recipe.find("distributed") != std::string_view::npos, distils = row.recipe.starts_with("knowledge");
  std::string text =
      concat("# For: tune run ", distributed ? "--nproc_per_node 2 " : "", row.recipe, " --config ", row.name, "\n# The weights are expected in /tmp/",
             row.folder, ". Data of your own: dataset.source=json dataset.data_files=FILE\n\noutput_dir: /tmp/torchtune/", row.output,
             "\n\nmodel:\n  _component_: torchtune.models.", row.model, "\n");
  if (lora) {
    text += "  lora_attn_modules: [q_proj, v_proj, output_proj]\n  apply_lora_to_mlp: True\n";
    text += concat("  lora_rank: ", row.rank, "  # higher: more is trained, and more memory is taken\n  lora_alpha: ", row.alpha, "\n  lora_dropout: 0.0\n");
  }
  if (distils) text += "\nteacher_model:\n  _component_: torchtune.models.qwen2.qwen2_1_5b\n";
  text += concat("\ntokenizer:\n  _component_: torchtune.models.", row.tokenizer, "\n  path: /tmp/", row.folder, "/", row.vocabulary, "\n");
  if (row.vocabulary == "vocab.json") text += concat("  merges_file: /tmp/", row.folder, "/merges.txt\n");
  text +=
      concat("  max_seq_len: ", is_dpo ? "1024" : "null", "\n\n", tune_checkpointer_text("checkpointer", row.folder, row.type, row.files, row.binaries, true));
  if (distils) text += "\n" + tune_checkpointer_text("teacher_checkpointer", "Qwen2-1.5B-Instruct", row.type, 1, false, true);
  if (is_dpo && !lora) text += "\n" + tune_checkpointer_text("ref_checkpointer", row.folder, row.type, row.files, row.binaries, true);
  text += "resume_from_checkpoint: False\n";
  if (lora && !distils) text += "save_adapter_weights_only: False\n";
  text += concat("\ndataset:\n  _component_: torchtune.datasets.", row.dataset, "\n",
                 is_dpo ? "" : "  packed: False  # True: several samples per sequence; needs tokenizer.max_seq_len\n",
                 "seed: null\nshuffle: True\n\nbatch_size: ", row.batch_size, "\nepochs: 1\nmax_steps_per_epoch: ", is_dpo ? "1000" : "null",
                 "\ngradient_accumulation_steps: ", row.accumulation, "\n");
  text += concat("\noptimizer:\n  _component_: ", row.optimizer, "\n  lr: ", row.rate, "\n");
  if (!row.decay.empty()) text += concat("  weight_decay: ", row.decay, "\n");
  if (row.optimizer.starts_with("torch.")) text += "  fused: True\n";
  if (!lora && !is_dpo) text += concat("optimizer_in_bwd: ", row.in_backward ? "True" : "False", "\n");
  if (row.warmup > 0)
    text += concat("lr_scheduler:\n  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup\n  num_warmup_steps: ", row.warmup, "\n");
  text += concat("loss:\n  _component_: torchtune.", is_dpo ? "rlhf.loss.DPOLoss" : "modules.loss.CEWithChunkedOutputLoss", "\n");
  if (is_dpo) text += concat("  beta: ", lora ? "0.1" : "0.05", "\n  label_smoothing: 0\n");
  else text += "clip_grad_norm: null\n";
  if (distils) text += "kd_loss:\n  _component_: torchtune.modules.loss.ForwardKLWithChunkedOutputLoss\nkd_ratio: 0.5\n";
  if (row.recipe.starts_with("qat")) text += "quantizer:\n  _component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer\n  groupsize: 256\n";
  text += concat(
      "\ndevice: cuda\ndtype: bf16\ncompile: False\nenable_activation_checkpointing: ", row.recomputes ? "True" : "False",
      "  # True: less memory, more time\nenable_activation_offloading: ", row.name.starts_with("mistral") ? "True" : "False",
      "\n\nmetric_logger:\n  _component_: torchtune.training.metric_logging.DiskLogger\n  log_dir: ${output_dir}/logs\nlog_every_n_steps: 1\n"
      "log_peak_memory_stats: True\n");
  return text;
}

[[nodiscard]] inline std::vector<torchtune_config> own_tune_configs() {
  std::vector<torchtune_config> all;
  for (const tune_config_row& row : tune_config_rows) all.push_back({std::string(row.name), std::string(row.recipe), tune_config_text(row)});
  const std::string llama2 =
      concat("output_dir: ./\n\nmodel:\n  _component_: torchtune.models.llama2.llama2_7b\n\n",
             tune_checkpointer_text("checkpointer", "Llama-2-7b-hf", "LLAMA2", 2, true, false),
             "\ntokenizer:\n  _component_: torchtune.models.llama2.llama2_tokenizer\n  path: /tmp/Llama-2-7b-hf/tokenizer.model\n  max_seq_len: null\n");
  all.push_back(
      {"generation", "generate",
       concat(
           "# For: tune run generate --config generation prompt.user=\"Tell me a joke.\"\n\n", llama2,
           "  prompt_template: null\n\nprompt:\n  system: null\n  user: Tell me a joke.\nmax_new_tokens: 300\ntemperature: 0.6\ntop_k: 300\n"
           "enable_kv_cache: True\nquantizer: null\n\ndevice: cpu\ndtype: bf16\nseed: 1234\n")});
  all.push_back(
      {"eleuther_evaluation", "eleuther_eval",
       concat(
           "# For: tune run eleuther_eval --config eleuther_evaluation tasks=[truthfulqa_mc2,hellaswag]\n\n", llama2,
           "\ntasks: [truthfulqa_mc2]\nlimit: null\nmax_seq_length: 4096\nbatch_size: 8\nenable_kv_cache: True\nquantizer: null\n\n"
           "device: cpu\ndtype: bf16\nseed: 1234\n")});
  const auto score = [](const char* key, const char* output) {
    std::string text = tune_checkpointer_text(key, "RM-Mistral-7B", "REWARD", 3, false, false);
    return text.replace(text.find("${output_dir}"), std::string_view("${output_dir}").size(), output);
  };
  all.push_back(
      {"mistral/7B_full_ppo_low_memory", "ppo_full_finetune_single_device",
       concat("# For: tune run ppo_full_finetune_single_device --config mistral/7B_full_ppo_low_memory\n# The weights are expected in "
              "/tmp/Mistral-7B-Instruct-v0.2 and /tmp/RM-Mistral-7B. Data of your own: dataset.source=json dataset.data_files=FILE\n\n"
              "output_dir: /tmp/torchtune/mistral_7B/full_ppo_low_memory\n\n"
              "tokenizer:\n  _component_: torchtune.models.mistral.mistral_tokenizer\n  path: /tmp/Mistral-7B-Instruct-v0.2/tokenizer.model\n"
              "  max_seq_len: 512\n\ndataset:\n  _component_: torchtune.datasets.text_completion_dataset\n"
              "  source: trl-internal-testing/sentiment-trl-style\n  split: train\n  column: prompt\n  add_eos: False\n\n"
              "policy_model:\n  _component_: torchtune.models.mistral.mistral_7b\n\n"
              "# the reward model has one token more, for padding\n"
              "reward_and_value_model:\n  _component_: torchtune.models.mistral._component_builders.mistral_classifier\n  attn_dropout: 0.0\n"
              "  embed_dim: 4096\n  intermediate_dim: 14336\n  max_seq_len: 32768\n  norm_eps: 1.0e-05\n  num_classes: 1\n  num_heads: 32\n"
              "  num_kv_heads: 8\n  num_layers: 32\n  vocab_size: 32001\n\n",
              tune_checkpointer_text("checkpointer", "Mistral-7B-Instruct-v0.2", "MISTRAL", 3, true, true), "\n",
              tune_checkpointer_text("ref_policy_checkpointer", "Mistral-7B-Instruct-v0.2", "MISTRAL", 3, true, false),
              "\n# what the value model begins with\n", score("value_checkpointer", "${output_dir}/value"), "\n",
              score("reward_checkpointer", "${output_dir}/value"),
              "\nresume_from_checkpoint: False\nseed: null\nshuffle: True\n\ndevice: cuda\n\n"
              "batch_size: 128  # prompts, answered once each\nnum_steps: 10000  # prompts of the whole run\nppo_epochs: 1\nppo_batch_size: 128\n"
              "gradient_accumulation_steps: 1\n\ncompile: True\noptimizer:\n  _component_: bitsandbytes.optim.PagedAdamW\n  lr: 3e-6\n"
              "optimizer_in_bwd: True\nlog_peak_memory_stats: True\nenable_activation_checkpointing: True\nenable_kv_cache: True\ndtype: bf16\n\n"
              "forward_batch_size: 128  # answers that are generated at the same time\nmax_generated_tokens: 58\ntemperature: 0.7\ntop_k: null\n\n"
              "min_response_length: 18\npenalise_no_eos: True\nreward_penalty: -3\nstop_token_ids: [2, 28723]  # </s> and the full stop\n"
              "whiten_rewards: False\n\ngamma: 1\nlmbda: 0.95\nloss:\n  _component_: torchtune.rlhf.loss.PPOLoss\n  epsilon: 0.2\n"
              "  value_coeff: 0.1\n  value_clip_range: 0.2\nkl_coeff: 0.01\n\n"
              "metric_logger:\n  _component_: torchtune.training.metric_logging.DiskLogger\n  log_dir: ${output_dir}/logs\nlog_every_n_steps: 1\n")});
  all.push_back({"quantization", "quantize",
                 concat("# For: tune run quantize --config quantization\n\noutput_dir: /tmp/torchtune/llama2_7B/quantized\n\n"
                        "model:\n  _component_: torchtune.models.llama2.llama2_7b\n\n",
                        tune_checkpointer_text("checkpointer", "Llama-2-7b-hf", "LLAMA2", 2, true, true),
                        "\ndevice: cpu\ndtype: bf16\nseed: 1234\n\n"
                        "quantizer:\n  _component_: torchtune.training.quantization.Int8DynActInt4WeightQuantizer\n  groupsize: 256\n")});
  return all;
}

}  // namespace xtrain::detail
