// What a model is made with besides its sizes.
#pragma once

#include <cstdint>

namespace xtrain {

/// Everything about making a model that is not its size. Two recipes with the same adapter and strategy share the type.
template <class Adapter, class Parallel>
struct model_options {
  typename Adapter::config adapter = {};
  typename Parallel::config parallel = {};
  std::uint64_t seed = 42;  ///< of initial values
};

}  // namespace xtrain
