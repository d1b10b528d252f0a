// Command lines of Megatron-LM and AscendSpeed, as run descriptions and as calls of this library's programs. Component 'recipes'.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/front_ends/megatron_command.hpp>

namespace xtrain {

/// Scripts that read_megatron() knows:
///   pretrain_gpt, pretrain_llama, pretrain_llama2, pretrain_bloom, pretrain_baichuan, pretrain_internlm, pretrain_intern, pretrain_aquila
///   preprocess_data, convert_weights_from_huggingface, convert_weights_when_tp_pp_change
///   inference_*, generate_* of the families, inference_alpaca; evaluation, evaluation_llama, evaluation_bloom; Megatron-LM's tasks/main
/// with or without a folder and .py.
[[nodiscard]] bool is_megatron_program(std::string_view name);

/// Translates the words of a command line:
///   pretrain_llama --num-layers 32 ...
///   python -m torch.distributed.launch --nproc_per_node 8 pretrain_llama.py --num-layers 32 ...
///   torchrun --nproc_per_node 8 pretrain_gpt.py ...           deepspeed --num_gpus 8 pretrain_llama.py ...
/// A launcher's flags stand before the script's name, or among the script's flags; its ranks become threads of one process. Flags have one or two dashes, '_'
/// and '-' are equal, `--flag value` is `--flag=value`. Defaults and arithmetic: examples/ascendspeed.md. Reads only --deepspeed_config and the folder of
/// --load.
///
///   program  name of this program, if the words contain no script
///   throws   config_error: an unknown flag, with the nearest known flag; an invalid value; contradicting flags; an unsupported feature
[[nodiscard]] megatron_command read_megatron(const std::string& program, const std::vector<std::string>& words);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/megatron_impl.hpp>
#endif
