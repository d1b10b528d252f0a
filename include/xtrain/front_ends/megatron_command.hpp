#pragma once

#include <string>
#include <vector>

#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// A translated command line.
struct megatron_command {
  /// A program of this library, with its flags.
  struct call {
    std::string program{};
    std::vector<std::string> arguments{};
    friend bool operator==(const call&, const call&) = default;
  };

  std::string program{};  ///< the script's name: pretrain_llama, evaluation, ...
  bool trains = false;    ///< execute `run`; else `calls`, in order
  run_description run{};
  std::vector<call> calls{};
  std::vector<std::string> notes{};  ///< ineffective flags, each with the reason
};

}  // namespace xtrain
