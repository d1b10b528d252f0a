// The recipe type that a run description asks for: the policies of each axis, as C++ names.
#pragma once

#include <string>
#include <vector>

#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// Policies by their names in this library, without the namespace: {"cpu", "bf16_mixed", "parallel<zero<2>, tensor_parallel>", ...}. What a run description
/// says beyond them (sizes, rates, files) is a run-time value.
struct recipe_type {
  std::string device = "cpu", precision = "fp32", parallel = "single", optimizer = "adamw", objective = "next_token", recompute = "recompute_none",
              offload = "no_offload", adapter = "no_adapter";

  friend bool operator==(const recipe_type&, const recipe_type&) = default;

  /// The struct, as a program of one's own would have it.
  [[nodiscard]] std::string text(const std::string& name = "recipe") const;
  /// A file name for the type: what is not the default, joined by dashes.
  [[nodiscard]] std::string key() const;
  /// The call that makes a trainer of this type in a CMake project.
  [[nodiscard]] std::string cmake(const std::string& name, const std::string& source) const;
};

/// throws  config_error when no recipe type does what the description says
[[nodiscard]] recipe_type recipe_of(const run_description& run);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/recipes/recipe_type_impl.hpp>
#endif
