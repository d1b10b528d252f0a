#pragma once

#include <cstddef>

namespace xtrain {

/// Memory that passes need.
struct pass_sizes {
  std::size_t layer_inputs = 0;  // bytes: checkpointed layer inputs
  std::size_t saved = 0;         // bytes: activations saved by blocks
  std::size_t workspace = 0;     // bytes: temporary
  std::size_t layer_input_entries = 0, saved_entries = 0;
  std::size_t deferred = 0;  // bytes: copied factors of deferred weight gradients
  std::size_t deferred_entries = 0;

  [[nodiscard]] std::size_t stash() const { return layer_inputs + saved; }
};

}  // namespace xtrain
