#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// A recipe of torchtune, by its name.
struct torchtune_recipe {
  std::string name{};
  bool is_distributed = false;
  std::string refusal{};  ///< why it is unsupported; empty: supported
  std::string logged{};   ///< its name in torchtune's log: FullFinetuneRecipeSingleDevice
};

/// How `tune run` was started.
struct torchtune_launch {
  std::size_t ranks = 1;        ///< --nproc_per_node x --nnodes
  bool is_distributed = false;  ///< whether a flag of torchrun was given
  std::string log_name = "log.txt";  ///< of a DiskLogger without a filename
};

/// The translation of a recipe and its config.
struct torchtune_call {
  std::string program = "train";         ///< train, generate, generate_bf16, evaluate or convert; generate_cuda, evaluate_npu
  std::optional<run_description> run{};  ///< of train
  std::vector<std::string> arguments{};  ///< of the others
  std::string weights{};                 ///< of the others: the folder of weights, and the files that the config names there
  std::vector<std::string> weight_files{};
  std::string device = "cpu", dtype = "fp32";
  std::vector<std::string> notes{};      ///< keys without effect, with the reason
};

}  // namespace xtrain
