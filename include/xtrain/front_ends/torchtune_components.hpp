// The components that torchtune's configs name: arguments, and sizes of models.               [torchtune 0.6.1]
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain::detail {

enum class tune_kind : std::uint8_t { model, tokenizer, data, optimizer, loss, schedule, checkpointer, logger, profiler, quantizer, plan, function, none };

/// Its name without the module, and its arguments.
struct tune_component {
  std::string_view name;
  tune_kind kind;
  std::string_view arguments;    ///< separated by spaces; "*": any others, too
  std::string_view refusal{};    ///< why no run supports it; empty: supported
};

inline constexpr std::string_view tune_data_arguments =
    "source column_map train_on_input new_system_prompt packed filter_fn split * name data_dir data_files num_proc streaming field";
inline constexpr std::string_view tune_checkpointer_arguments =
    "checkpoint_dir checkpoint_files model_type output_dir adapter_checkpoint recipe_checkpoint resume_from_checkpoint safe_serialization "
    "should_load_recipe_state";
inline constexpr std::string_view tune_adam_arguments =
    "lr betas eps weight_decay amsgrad foreach maximize capturable differentiable fused optim_bits args min_8bit_size percentile_clipping block_wise is_paged "
    "block_size bf16_stochastic_round";

inline constexpr std::array<tune_component, 67> tune_components{{
    {"torchtune.models.llama2.llama2_tokenizer", tune_kind::tokenizer, "path max_seq_len prompt_template"},
    {"torchtune.models.llama2.Llama2Tokenizer", tune_kind::tokenizer, "path max_seq_len prompt_template"},
    {"torchtune.models.llama3.llama3_tokenizer", tune_kind::tokenizer, "path special_tokens_path max_seq_len prompt_template"},
    {"torchtune.models.mistral.mistral_tokenizer", tune_kind::tokenizer, "path max_seq_len prompt_template"},
    {"torchtune.models.gemma.gemma_tokenizer", tune_kind::tokenizer, "path max_seq_len prompt_template"},
    {"torchtune.models.phi3.phi3_mini_tokenizer", tune_kind::tokenizer, "path special_tokens_path max_seq_len prompt_template"},
    {"torchtune.models.phi4.phi4_tokenizer", tune_kind::tokenizer, "vocab_path merges_path special_tokens_path max_seq_len prompt_template"},
    {"torchtune.models.qwen2.qwen2_tokenizer", tune_kind::tokenizer, "path merges_file special_tokens_path max_seq_len prompt_template"},
    {"torchtune.models.qwen2_5.qwen2_5_tokenizer", tune_kind::tokenizer, "path merges_file special_tokens_path max_seq_len prompt_template"},

    {"torchtune.datasets.alpaca_dataset", tune_kind::data,
     "source column_map train_on_input packed filter_fn split * name data_dir data_files num_proc streaming field"},
    {"torchtune.datasets.alpaca_cleaned_dataset", tune_kind::data,
     "source column_map train_on_input packed filter_fn split * name data_dir data_files num_proc streaming field"},
    {"torchtune.datasets.instruct_dataset", tune_kind::data, tune_data_arguments},
    {"torchtune.datasets.grammar_dataset", tune_kind::data, tune_data_arguments},
    {"torchtune.datasets.samsum_dataset", tune_kind::data, tune_data_arguments},
    {"torchtune.datasets.slimorca_dataset", tune_kind::data, tune_data_arguments},
    {"torchtune.datasets.chat_dataset", tune_kind::data,
     "source conversation_column conversation_style train_on_input new_system_prompt packed filter_fn split * name data_dir data_files num_proc "
     "streaming field"},
    {"torchtune.datasets.text_completion_dataset", tune_kind::data,
     "source column add_eos packed split_across_pack split filter_fn * name data_dir data_files num_proc streaming field"},
    {"torchtune.datasets.wikitext_dataset", tune_kind::data, "source subset max_seq_len packed filter_fn split * data_dir data_files num_proc streaming field"},
    {"torchtune.datasets.cnn_dailymail_articles_dataset", tune_kind::data,
     "source max_seq_len filter_fn split * name data_dir data_files num_proc streaming field"},
    {"torchtune.datasets.preference_dataset", tune_kind::data,
     "source column_map train_on_input new_system_prompt filter_fn split * name data_dir data_files num_proc streaming field"},
    {"torchtune.datasets.stack_exchange_paired_dataset", tune_kind::data,
     "source column_map train_on_input filter_fn split * name data_files num_proc streaming field"},
    {"torchtune.datasets.hh_rlhf_helpful_dataset", tune_kind::data,
     "source column_map train_on_input new_system_prompt filter_fn split * name data_dir data_files num_proc streaming field"},

    {"torch.optim.AdamW", tune_kind::optimizer, "lr betas eps weight_decay amsgrad foreach maximize capturable differentiable fused"},
    {"torch.optim.Adam", tune_kind::optimizer, "lr betas eps weight_decay amsgrad foreach maximize capturable differentiable fused"},
    {"torch.optim.SGD", tune_kind::optimizer, "lr momentum dampening weight_decay nesterov foreach maximize differentiable fused"},
    {"bitsandbytes.optim.AdamW", tune_kind::optimizer, tune_adam_arguments},
    {"bitsandbytes.optim.AdamW8bit", tune_kind::optimizer, tune_adam_arguments},
    {"bitsandbytes.optim.PagedAdamW", tune_kind::optimizer, tune_adam_arguments},
    {"bitsandbytes.optim.PagedAdamW8bit", tune_kind::optimizer, tune_adam_arguments},
    {"torchao.optim.AdamW8bit", tune_kind::optimizer, tune_adam_arguments},
    {"torchao.prototype.low_bit_optim.AdamW8bit", tune_kind::optimizer, tune_adam_arguments},
    {"torchao.optim.AdamW4bit", tune_kind::optimizer, tune_adam_arguments, "there is no optimizer with moments in four bits; AdamW8bit has eight"},
    {"torchao.prototype.low_bit_optim.AdamW4bit", tune_kind::optimizer, tune_adam_arguments,
     "there is no optimizer with moments in four bits; AdamW8bit has eight"},
    {"torchao.optim.AdamWFp8", tune_kind::optimizer, tune_adam_arguments, "there is no optimizer with moments in fp8; AdamW8bit has eight bits"},
    {"torchao.prototype.low_bit_optim.AdamWFp8", tune_kind::optimizer, tune_adam_arguments,
     "there is no optimizer with moments in fp8; AdamW8bit has eight bits"},
    {"torchao.prototype.low_bit_optim.CPUOffloadOptimizer", tune_kind::optimizer, "*", "a wrapped optimizer is not supported; name the optimizer itself"},

    {"torchtune.modules.loss.CEWithChunkedOutputLoss", tune_kind::loss, "num_output_chunks ignore_index"},
    {"torchtune.modules.loss.LinearCrossEntropyLoss", tune_kind::loss, "num_output_chunks ignore_index"},
    {"torch.nn.CrossEntropyLoss", tune_kind::loss, "weight size_average ignore_index reduce reduction label_smoothing"},
    {"torchtune.modules.loss.ForwardKLLoss", tune_kind::loss, "ignore_index"},
    {"torchtune.modules.loss.ReverseKLLoss", tune_kind::loss, "ignore_index"},
    {"torchtune.modules.loss.ForwardKLWithChunkedOutputLoss", tune_kind::loss, "num_output_chunks ignore_index"},
    {"torchtune.modules.loss.ReverseKLWithChunkedOutputLoss", tune_kind::loss, "num_output_chunks ignore_index"},
    {"torchtune.modules.loss.SymmetricKLLoss", tune_kind::loss, "sym_kd_ratio ignore_index", "the divergence must be forward or reverse"},
    {"torchtune.modules.loss.SymmetricKLWithChunkedOutputLoss", tune_kind::loss, "num_output_chunks sym_kd_ratio ignore_index",
     "the divergence must be forward or reverse"},
    {"torchtune.rlhf.loss.DPOLoss", tune_kind::loss, "beta label_smoothing"},
    {"torchtune.rlhf.loss.RSOLoss", tune_kind::loss, "gamma"},
    {"torchtune.rlhf.loss.PPOLoss", tune_kind::loss, "epsilon value_clip_range value_coeff"},

    {"torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup", tune_kind::schedule, "num_warmup_steps num_cycles"},
    {"torchtune.modules.get_cosine_schedule_with_warmup", tune_kind::schedule, "num_warmup_steps num_cycles"},
    {"torchtune.training.get_cosine_schedule_with_warmup", tune_kind::schedule, "num_warmup_steps num_cycles"},

    {"torchtune.training.FullModelHFCheckpointer", tune_kind::checkpointer, tune_checkpointer_arguments},
    {"torchtune.training.FullModelMetaCheckpointer", tune_kind::checkpointer, tune_checkpointer_arguments},
    {"torchtune.training.FullModelTorchTuneCheckpointer", tune_kind::checkpointer, tune_checkpointer_arguments,
     "a run reads Hugging Face folders; torchtune's own files have other names of tensors"},

    {"torchtune.training.metric_logging.DiskLogger", tune_kind::logger, "log_dir filename *"},
    {"torchtune.training.metric_logging.StdoutLogger", tune_kind::logger, "*"},
    {"torchtune.training.metric_logging.TensorBoardLogger", tune_kind::logger, "log_dir organize_logs *"},
    {"torchtune.training.metric_logging.WandBLogger", tune_kind::logger, "*",
     "metrics are not sent over the network; there are DiskLogger, StdoutLogger, TensorBoardLogger"},
    {"torchtune.training.metric_logging.CometLogger", tune_kind::logger, "*",
     "metrics are not sent over the network; there are DiskLogger, StdoutLogger, TensorBoardLogger"},
    {"torchtune.training.metric_logging.MLFlowLogger", tune_kind::logger, "*",
     "metrics are not sent over the network; there are DiskLogger, StdoutLogger, TensorBoardLogger"},

    {"torchtune.training.setup_torch_profiler", tune_kind::profiler,
     "enabled cpu cuda xpu profile_memory with_stack record_shapes with_flops wait_steps warmup_steps active_steps num_cycles output_dir"},

    {"torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer", tune_kind::quantizer, "groupsize padding_allowed precision scales_precision"},
    {"torchtune.training.quantization.Int4WeightOnlyQATQuantizer", tune_kind::quantizer, "groupsize inner_k_tiles precision scales_precision"},
    {"torchtune.training.quantization.Int8DynActInt4WeightQuantizer", tune_kind::quantizer, "groupsize"},
    {"torchtune.training.quantization.Int4WeightOnlyQuantizer", tune_kind::quantizer, "groupsize inner_k_tiles"},

    {"torchtune.models.llama3.base_llama_tp_plan", tune_kind::plan, ""},
    {"torchtune.data.padded_collate_sft", tune_kind::function, ""},
}};

/// The sizes of a model, as in its builder: a folder's config.json must agree.
struct tune_model {
  std::string_view module;   ///< llama2 of torchtune.models.llama2.llama2_7b
  std::string_view builder;
  std::string_view family;   ///< config.json's model_type
  std::string_view types;    ///< the checkpointer's model_type
  std::size_t vocab_size, layers, heads, kv_heads, hidden, intermediate;  ///< vocab_size 0: the config gives the sizes
  bool adapts_output = true;  ///< the builder with LoRA has apply_lora_to_output: not with tied embeddings

  [[nodiscard]] constexpr bool scores() const { return types == "REWARD"; }
};

/// A size argument of builders, and its member in config.json.
struct tune_size {
  std::string_view argument, member;  ///< empty member: limits lengths, changes no result
  bool is_real = false;               ///< need not be whole
};
inline constexpr std::array<tune_size, 15> tune_sizes{{
    {"vocab_size", "vocab_size"},
    {"num_layers", "num_hidden_layers"},
    {"num_heads", "num_attention_heads"},
    {"num_kv_heads", "num_key_value_heads"},
    {"embed_dim", "hidden_size"},
    {"intermediate_dim", "intermediate_size"},
    {"head_dim", "head_dim"},
    {"max_seq_len", ""},
    {"attn_dropout", "attention_dropout", true},
    {"norm_eps", "rms_norm_eps", true},
    {"rope_base", "rope_theta", true},
    {"hidden_capping_value", "attn_logit_softcapping", true},
    {"final_capping_value", "final_logit_softcapping", true},
    {"sliding_window_size", "sliding_window"},
    {"query_pre_attn_scalar", "query_pre_attn_scalar", true},
}};
inline constexpr std::string_view tune_size_arguments =
    "vocab_size num_layers num_heads num_kv_heads embed_dim intermediate_dim max_seq_len attn_dropout norm_eps rope_base";
/// Further size arguments of a module's builders.
[[nodiscard]] constexpr std::string_view tune_more_size_arguments(std::string_view module) {
  if (module == "gemma") return "head_dim";
  if (module == "gemma2") return "head_dim hidden_capping_value final_capping_value sliding_window_size query_pre_attn_scalar";
  if (module == "llama3_1") return "scale_factor";
  if (module == "llama3_2") return "scale_factor tie_word_embeddings";
  return module.starts_with("qwen2") ? "tie_word_embeddings" : "";
}

/// Maximum sequence length of a module's builders, absent in Meta's files. 0: the scaling of positions is absent too.
[[nodiscard]] constexpr std::size_t tune_longest_sequence(std::string_view module) {
  return module == "llama2" ? 4096 : module == "llama3" ? 8192 : module == "code_llama2" ? 16384 : 0;
}

inline constexpr std::array<tune_model, 52> tune_models{{
    {"llama2", "llama2", "llama", "LLAMA2", 0, 0, 0, 0, 0, 0},
    {"llama3", "llama3", "llama", "LLAMA3", 0, 0, 0, 0, 0, 0},
    {"llama3_1", "llama3_1", "llama", "LLAMA3", 0, 0, 0, 0, 0, 0},
    {"llama3_2", "llama3_2", "llama", "LLAMA3_2 LLAMA3", 0, 0, 0, 0, 0, 0},
    {"mistral", "mistral", "mistral", "MISTRAL", 0, 0, 0, 0, 0, 0},
    {"gemma", "gemma", "gemma", "GEMMA", 0, 0, 0, 0, 0, 0, false},
    {"gemma2", "gemma2", "gemma2", "GEMMA2", 0, 0, 0, 0, 0, 0, false},
    {"phi3", "phi3", "phi3", "PHI3_MINI", 0, 0, 0, 0, 0, 0},
    {"qwen2", "qwen2", "qwen2", "QWEN2", 0, 0, 0, 0, 0, 0},
    {"llama2", "llama2_7b", "llama", "LLAMA2", 32000, 32, 32, 32, 4096, 11008},
    {"llama2", "llama2_13b", "llama", "LLAMA2", 32000, 40, 40, 40, 5120, 13824},
    {"llama2", "llama2_70b", "llama", "LLAMA2", 32000, 80, 64, 8, 8192, 28672},
    {"llama2", "llama2_reward_7b", "llama", "REWARD", 32000, 32, 32, 32, 4096, 11008},
    {"llama2", "llama2_classifier", "llama", "REWARD", 0, 0, 0, 0, 0, 0},
    {"llama2", "_component_builders.llama2_classifier", "llama", "REWARD", 0, 0, 0, 0, 0, 0},
    {"code_llama2", "code_llama2_7b", "llama", "LLAMA2", 32016, 32, 32, 32, 4096, 11008},
    {"code_llama2", "code_llama2_13b", "llama", "LLAMA2", 32016, 40, 40, 40, 5120, 13824},
    {"code_llama2", "code_llama2_70b", "llama", "LLAMA2", 32016, 80, 64, 8, 8192, 28672},
    {"llama3", "llama3_8b", "llama", "LLAMA3", 128256, 32, 32, 8, 4096, 14336},
    {"llama3", "llama3_70b", "llama", "LLAMA3", 128256, 80, 64, 8, 8192, 28672},
    {"llama3_1", "llama3_1_8b", "llama", "LLAMA3", 128256, 32, 32, 8, 4096, 14336},
    {"llama3_1", "llama3_1_70b", "llama", "LLAMA3", 128256, 80, 64, 8, 8192, 28672},
    {"llama3_1", "llama3_1_405b", "llama", "LLAMA3", 128256, 126, 128, 8, 16384, 53248},
    {"llama3_2", "llama3_2_1b", "llama", "LLAMA3_2 LLAMA3", 128256, 16, 32, 8, 2048, 8192},
    {"llama3_2", "llama3_2_3b", "llama", "LLAMA3_2 LLAMA3", 128256, 28, 24, 8, 3072, 8192},
    {"llama3_3", "llama3_3_70b", "llama", "LLAMA3", 128256, 80, 64, 8, 8192, 28672},
    {"mistral", "mistral_7b", "mistral", "MISTRAL", 32000, 32, 32, 8, 4096, 14336},
    {"mistral", "mistral_reward_7b", "mistral", "REWARD", 32000, 32, 32, 8, 4096, 14336},
    {"mistral", "mistral_classifier", "mistral", "REWARD", 0, 0, 0, 0, 0, 0},
    {"mistral", "_component_builders.mistral_classifier", "mistral", "REWARD", 0, 0, 0, 0, 0, 0},
    {"gemma", "gemma_2b", "gemma", "GEMMA", 256000, 18, 8, 1, 2048, 16384, false},
    {"gemma", "gemma_7b", "gemma", "GEMMA", 256000, 28, 16, 16, 3072, 24576, false},
    {"gemma2", "gemma2_2b", "gemma2", "GEMMA2", 256000, 26, 8, 4, 2304, 9216, false},
    {"gemma2", "gemma2_9b", "gemma2", "GEMMA2", 256000, 42, 16, 8, 3584, 14336, false},
    {"gemma2", "gemma2_27b", "gemma2", "GEMMA2", 256000, 46, 32, 16, 4608, 36864, false},
    {"phi3", "phi3_mini", "phi3", "PHI3_MINI", 32064, 32, 32, 32, 3072, 8192},
    {"phi4", "phi4_14b", "phi3", "PHI4", 100352, 40, 40, 10, 5120, 17920},
    {"qwen2", "qwen2_0_5b", "qwen2", "QWEN2", 151936, 24, 14, 2, 896, 4864, false},
    {"qwen2", "qwen2_1_5b", "qwen2", "QWEN2", 151936, 28, 12, 2, 1536, 8960, false},
    {"qwen2", "qwen2_7b", "qwen2", "QWEN2", 152064, 28, 28, 4, 3584, 18944},
    {"qwen2_5", "qwen2_5_0_5b", "qwen2", "QWEN2", 151936, 24, 14, 2, 896, 4864, false},
    {"qwen2_5", "qwen2_5_1_5b_base", "qwen2", "QWEN2", 151936, 28, 12, 2, 1536, 8960, false},
    {"qwen2_5", "qwen2_5_1_5b_instruct", "qwen2", "QWEN2", 151936, 28, 12, 2, 1536, 8960, false},
    {"qwen2_5", "qwen2_5_3b", "qwen2", "QWEN2", 151936, 36, 16, 2, 2048, 11008, false},
    {"qwen2_5", "qwen2_5_7b_base", "qwen2", "QWEN2", 152064, 28, 28, 4, 3584, 18944},
    {"qwen2_5", "qwen2_5_7b_instruct", "qwen2", "QWEN2", 152064, 28, 28, 4, 3584, 18944},
    {"qwen2_5", "qwen2_5_14b_base", "qwen2", "QWEN2", 152064, 48, 40, 8, 5120, 13824},
    {"qwen2_5", "qwen2_5_14b_instruct", "qwen2", "QWEN2", 152064, 48, 40, 8, 5120, 13824},
    {"qwen2_5", "qwen2_5_32b_base", "qwen2", "QWEN2", 152064, 64, 40, 8, 5120, 27648},
    {"qwen2_5", "qwen2_5_32b_instruct", "qwen2", "QWEN2", 152064, 64, 40, 8, 5120, 27648},
    {"qwen2_5", "qwen2_5_72b_base", "qwen2", "QWEN2", 152064, 80, 64, 8, 8192, 29568},
    {"qwen2_5", "qwen2_5_72b_instruct", "qwen2", "QWEN2", 152064, 80, 64, 8, 8192, 29568},
}};

inline constexpr std::string_view tune_lora_arguments =
    "lora_attn_modules apply_lora_to_mlp apply_lora_to_output lora_rank lora_alpha lora_dropout use_dora quantize_base";
inline constexpr std::string_view tune_tied_lora_arguments = "lora_attn_modules apply_lora_to_mlp lora_rank lora_alpha lora_dropout use_dora quantize_base";

/// A model that a config names.
struct tune_model_use {
  const tune_model* model = nullptr;
  bool lora = false, qlora = false;  ///< qlora: lora with quantize_base

  [[nodiscard]] std::string arguments() const {
    const std::string sizes = model->vocab_size == 0 ? concat(tune_size_arguments, " ", tune_more_size_arguments(model->module))
                                                     : model->module == "llama3_2" ? "tie_word_embeddings" : "";
    if (model->scores() && model->vocab_size == 0) return concat("num_classes ", sizes);
    return lora ? concat(model->adapts_output ? tune_lora_arguments : tune_tied_lora_arguments, " ", sizes) : sizes;
  }
};

/// Null model: not a builder of a language model.
[[nodiscard]] inline tune_model_use tune_model_named(std::string_view name) {
  constexpr std::string_view before = "torchtune.models.";
  if (!name.starts_with(before)) return {};
  name.remove_prefix(before.size());
  for (const tune_model& one : tune_models) {
    if (!name.starts_with(one.module) || name.size() <= one.module.size() || name[one.module.size()] != '.') continue;
    const std::string_view builder = name.substr(one.module.size() + 1);
    if (builder == one.builder) return {&one, false, false};
    if (builder == concat("lora_", one.builder)) return {&one, true, false};
    if (one.vocab_size > 0 && builder == concat("qlora_", one.builder)) return {&one, true, true};
  }
  return {};
}

[[nodiscard]] inline const tune_component* tune_component_named(std::string_view name) {
  const auto at = std::find_if(tune_components.begin(), tune_components.end(), [&](const tune_component& one) { return one.name == name; });
  return at == tune_components.end() ? nullptr : &*at;
}

/// The most similar name of a component; empty: not similar.
[[nodiscard]] inline std::string tune_component_near(std::string_view name) {
  std::vector<std::string> known;
  for (const tune_component& one : tune_components) known.emplace_back(one.name);
  for (const tune_model& one : tune_models)
    for (const char* before : {"", "lora_", "qlora_"})
      if (*before == '\0' || !one.scores()) known.push_back(concat("torchtune.models.", one.module, ".", before, one.builder));
  return nearest_name(name, known);
}

/// A builder's sizes, as members of a config.json.
[[nodiscard]] inline json sizes_of(const tune_model& model) {
  return {{"vocab_size", model.vocab_size},        {"num_hidden_layers", model.layers}, {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.kv_heads}, {"hidden_size", model.hidden},       {"intermediate_size", model.intermediate}};
}

[[nodiscard]] inline std::vector<std::string> tune_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace xtrain::detail
