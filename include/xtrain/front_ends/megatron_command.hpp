// A command line of Megatron-LM or AscendSpeed, translated.
#pragma once

#include <string>
#include <vector>

#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// A command line, translated.
struct megatron_command {
  /// One of this library's programs, with its flags.
  struct call {
    std::string program{};
    std::vector<std::string> arguments{};
    friend bool operator==(const call&, const call&) = default;
  };

  std::string program{};  ///< the script's name: pretrain_llama, evaluation, ...
  bool trains = false;    ///< `run` is to be done; else `calls`, one after the other
  run_description run{};
  std::vector<call> calls{};
  std::vector<std::string> notes{};  ///< what was given and has no effect here, each with the reason
};

}  // namespace xtrain
