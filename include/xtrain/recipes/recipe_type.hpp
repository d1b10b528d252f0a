// The recipe type of a run description: C++ policies per axis.
#pragma once

#include <string>
#include <vector>

#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// Policies by name, without namespace: {"cpu", "bf16_mixed", "parallel<zero<2>, tensor_parallel>", ...}. Other settings (sizes, rates, files) are run-time
/// values.
struct recipe_type {
  std::string device = "cpu", precision = "fp32", parallel = "single", optimizer = "adamw", objective = "next_token", recompute = "recompute_none",
              offload = "no_offload", adapter = "no_adapter";

  friend bool operator==(const recipe_type&, const recipe_type&) = default;

  /// The struct as C++ source.
  [[nodiscard]] std::string text(const std::string& name = "recipe") const;
  /// A file name: what differs from defaults, joined by dashes.
  [[nodiscard]] std::string key() const;
  /// The CMake call for a trainer of this type.
  [[nodiscard]] std::string cmake(const std::string& name, const std::string& source) const;
};

/// throws  config_error when no recipe type fits
[[nodiscard]] recipe_type recipe_of(const run_description& run);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/recipes/recipe_type_impl.hpp>
#endif
