// A config of `tune`.
#pragma once

#include <string>

namespace xtrain {

/// A config of ours, under a name that torchtune has, with its values.
struct torchtune_config {
  std::string name{};
  std::string recipe{};
  std::string text{};  ///< YAML
};

}  // namespace xtrain
