// Parameters by name.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/tensor/parameters.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// A parameter by its name in files.
///   throws  config_error when it does not exist (with the nearest name) or is on another rank; shape_error if its rank is not N
template <std::size_t N, class Store>
[[nodiscard]] tensor_view<typename Store::parameter_type, N, typename Store::memory> named_parameter(const Store& parameters,
                                                                                                     std::string_view name) {
  const auto* found = parameters.find(name);
  if (found == nullptr) {
    std::vector<std::string> known;
    for (const auto& entry : parameters.entries()) known.push_back(entry.spec.name);
    const std::string near = nearest_name(name, known);
    fail<config_error>("parameter '", name, "': must be a parameter of the model",
                       near.empty() ? "" : concat("; did you mean '", near, "'?"));
  }
  require<config_error>(found->is_here, "parameter '", name, "': must be on this rank; block ", found->block, " is on another");
  require<shape_error>(found->spec.shape.size() == N, "parameter '", name, "': has ", found->spec.shape.size(), " dims; asked for ", N);
  shape_of_rank<N> shape{};
  for (std::size_t i = 0; i < N; ++i) shape[i] = found->spec.shape[i];
  return {parameters.value(*found), shape};
}

}  // namespace xtrain
