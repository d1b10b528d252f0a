// Command lines of programs based on Hugging Face's Trainer, as run descriptions: Stanford Alpaca's train.py, and P-tuning of ChatGLM-6B.
// Component 'recipes'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/front_ends/program_flags.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

// run_description::from_hugging_face(words) translates
//
//   torchrun --nproc_per_node=8 --master_port=29001 train.py --model_name_or_path DIR --data_path alpaca_data.json --bf16 True ...
//   deepspeed --num_gpus=4 main.py --do_train --train_file train.json --prompt_column content --response_column summary --pre_seq_len 128 ...
//
// with or without launcher and script. --data_path selects Alpaca's train.py, --train_file ChatGLM-6B's ptuning/main.py. Flags and defaults are
// TrainingArguments' of transformers 4.28 to 5.24. Arithmetic and differences: examples/hugging_face.md. Reads only the DeepSpeed config, the FSDP config, and
// config.json and tokenizer_config.json of the model's folder, if it exists.
//   throws  config_error: an unknown flag, with the nearest known flag; an invalid value; contradicting flags; an unsupported feature

/// A translated command line.
struct hugging_face_command {
  bool trains = true;  ///< execute `run`; false: `program` of this library, for --do_predict
  run_description run{};
  std::string program{};
  std::vector<std::string> arguments{};
  std::vector<std::string> notes{};  ///< ineffective flags, each with the reason
};
/// As from_hugging_face, but also for command lines that predict.
[[nodiscard]] hugging_face_command read_hugging_face(const std::vector<std::string>& words);

/// The known flags of such a command line, and their use.
[[nodiscard]] std::vector<program_flags::known_flag> known_hugging_face_flags(const std::vector<std::string>& words);

/// The layer class that --fsdp_transformer_layer_cls_to_wrap must name for a config.json: Qwen2DecoderLayer, LlamaDecoderLayer, ...; empty: unknown.
[[nodiscard]] std::string transformers_layer_class(const json& config);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/hugging_face_impl.hpp>
#endif
