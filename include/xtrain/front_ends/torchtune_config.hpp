#pragma once

#include <string>

namespace xtrain {

/// A config of this library under torchtune's name, with torchtune's values.
struct torchtune_config {
  std::string name{};
  std::string recipe{};
  std::string text{};  ///< YAML
};

}  // namespace xtrain
