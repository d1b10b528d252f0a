#pragma once

#include <cstddef>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// Layers of each stage, as equal as possible; the first stages get the remainder.
///   throws  config_error when there are fewer layers than stages
[[nodiscard]] inline std::vector<std::size_t> equal_layers(std::size_t layers, std::size_t stages) {
  require<config_error>(stages > 0 && stages <= layers, "pipeline: every stage must have a layer; given ", layers, " layers for ", stages,
                        " stages");
  std::vector<std::size_t> split(stages, layers / stages);
  for (std::size_t i = 0; i < layers % stages; ++i) ++split[i];
  return split;
}

/// Blocks of each stage. The first also has the embedding, the last the final norm and the head; only these two may have no layer.
///   split   layers of each stage; empty: equal
///   throws  config_error when they do not sum to the model's layers, or a stage is empty
[[nodiscard]] inline std::vector<block_range> stage_blocks(std::size_t layers, std::size_t stages, std::vector<std::size_t> split) {
  if (split.empty()) split = equal_layers(layers, stages);
  require<config_error>(split.size() == stages, "pipeline: layers must be given for each of ", stages, " stages (ranks x chunks); given for ",
                        split.size());
  std::vector<block_range> blocks;
  std::size_t next = 1;
  for (std::size_t s = 0; s < stages; ++s) {
    require<config_error>(split[s] > 0 || s == 0 || s + 1 == stages, "pipeline: a stage between the first and the last must have a layer; "
                          "stage ", s, " of ", stages, " has none");
    require<config_error>(split[s] <= layers + 1 - next, "pipeline: layers of all stages must be the model's ", layers,
                          "; the first ", s + 1, " stages have more");
    blocks.push_back({s == 0 ? 0 : next, next + split[s]});
    next += split[s];
  }
  require<config_error>(next == layers + 1, "pipeline: layers of all stages must be the model's ", layers, "; given ", next - 1);
  ++blocks.back().last;
  return blocks;
}

}  // namespace xtrain
