// What `tune run` is asked for: a recipe and its ranks; and what that comes to.
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
  std::string refusal{};  ///< why there is no such recipe here; empty: there is one
  std::string logged{};   ///< its name in torchtune's log: FullFinetuneRecipeSingleDevice
};

/// How `tune run` was started.
struct torchtune_launch {
  std::size_t ranks = 1;        ///< --nproc_per_node x --nnodes
  bool is_distributed = false;  ///< whether one of torchrun's flags was given
  std::string log_name = "log.txt";  ///< of a DiskLogger without a filename
};

/// What a recipe comes to.
struct torchtune_call {
  std::string program = "train";         ///< train, generate, generate_bf16, evaluate or convert; generate_cuda, evaluate_cuda
  std::optional<run_description> run{};  ///< of train
  std::vector<std::string> arguments{};  ///< of the others
  std::string weights{};                 ///< of the others: the folder of weights, and the files that the config names there
  std::vector<std::string> weight_files{};
  std::string device = "cpu", dtype = "fp32";
  std::vector<std::string> notes{};      ///< keys without an effect here, with the reason
};

}  // namespace xtrain
