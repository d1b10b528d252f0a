// Which ranks a rank works with, and for what. Neighbours divide layers, then come those that share rows, or hold other experts: who talks most is
// nearest.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// The ranks of a run.
struct rank_layout {
  std::shared_ptr<transport> ranks{};  ///< none: one rank
  /// Ranks that divide every layer among them (`tensor_parallel`): neighbours, who talk most. The others see other rows.
  std::size_t tensor = 1;
  /// Ranks that share rows (`context_parallel`, `ring_context_parallel`): each has some places of every row. The next neighbours.
  std::size_t context = 1;
  /// Of the ranks that have the same weights, how many divide one copy of what they keep (zero<Stage>). 0: all.
  std::size_t shards = 0;
  /// Ranks that spread every layer's experts among them (`expert_parallel`): neighbours among those that have the same part of a layer. They see
  /// other rows, or other places of the same.
  std::size_t expert = 1;
};

namespace detail {

/// What beside rows ranks divide.
struct divided_axes {
  bool layers = false, between_layers = false, places = false;
  bool ring = false;  // of places: keys and values go round
  bool experts = false;
};

/// first, first + step, …
[[nodiscard]] inline std::vector<std::size_t> every(std::size_t first, std::size_t step, std::size_t count) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < count; ++i) members.push_back(first + i * step);
  return members;
}

/// How many ranks each axis has. Whatever they see, ranks with the same weights are counted together: those that divide one copy, then copies.
struct rank_axes {
  std::size_t tensor = 1, context = 1, expert = 1, shards = 1, replicas = 1;

  /// throws config_error when the ranks are not a multiple of the axes' sizes, or the strategy does not divide an axis that has a size
  rank_axes(const rank_layout& config, const divided_axes& divided) : tensor(config.tensor), context(config.context), expert(config.expert) {
    const std::size_t ranks = config.ranks ? config.ranks->size() : 1;
    require<config_error>(tensor > 0 && ranks % tensor == 0, "parallel: ranks must be a multiple of tensor; given ", ranks, " ranks and tensor ",
                          tensor);
    require<config_error>(divided.layers || tensor == 1, "parallel: tensor must be 1, because the strategy does not divide layers; given ", tensor,
                          ". Make it parallel<..., tensor_parallel>");
    require<config_error>(divided.experts || expert == 1, "parallel: expert must be 1, because the strategy does not spread experts; given ", expert,
                          ". Make it expert_parallel, or parallel<..., expert_parallel>");
    const std::size_t whole = ranks / tensor;  // layers
    require<config_error>(context > 0 && whole % context == 0, "parallel: ranks must be a multiple of tensor times context; given ", ranks,
                          " ranks, tensor ", tensor, " and context ", context);
    require<config_error>(divided.places || context == 1, "parallel: context must be 1, because ranks of the strategy do not share rows; given ",
                          context, ". Make it parallel<..., context_parallel>");
    require<config_error>(expert > 0 && whole % expert == 0, "parallel: ranks must be a multiple of tensor times expert; given ", ranks,
                          " ranks, tensor ", tensor, " and expert ", expert);
    const std::size_t same = whole / expert;
    shards = config.shards == 0 ? same : config.shards;
    require<config_error>(shards <= same && same % shards == 0, "parallel: ranks that see other rows must be a multiple of shards; given ", same,
                          " such ranks and ", shards, " shards");
    replicas = same / shards;
  }

  // Of a rank, those it works with, itself among them:
  /// who has the same weights
  [[nodiscard]] std::vector<std::size_t> alike(std::size_t rank) const { return every(rank % different(), different(), shards * replicas); }
  /// who sees the same places of other rows
  [[nodiscard]] std::vector<std::size_t> data(std::size_t rank) const {
    return every(rank % sharing(), sharing(), expert * shards * replicas / context);
  }
  /// who has other parts of the same layers
  [[nodiscard]] std::vector<std::size_t> layers(std::size_t rank) const { return every(rank / tensor * tensor, 1, tensor); }
  /// who sees other places of the same rows
  [[nodiscard]] std::vector<std::size_t> rows(std::size_t rank) const {
    return every(rank / sharing() * sharing() + rank % tensor, tensor, context);
  }
  /// who holds other experts
  [[nodiscard]] std::vector<std::size_t> expert_holders(std::size_t rank) const {
    return every(rank / different() * different() + rank % tensor, tensor, expert);
  }
  /// who keeps other parts of the same copy
  [[nodiscard]] std::vector<std::size_t> shard(std::size_t rank) const {
    const std::size_t together = different() * shards;
    return every(rank / together * together + rank % different(), different(), shards);
  }
  /// who keeps the same part of other copies
  [[nodiscard]] std::vector<std::size_t> same_shard(std::size_t rank) const {
    const std::size_t together = different() * shards;
    return every(rank % together, together, replicas);
  }

 private:
  /// Neighbours none of whom has all the weights of another.
  [[nodiscard]] std::size_t different() const { return tensor * expert; }
  /// Neighbours who see the same rows.
  [[nodiscard]] std::size_t sharing() const { return tensor * context; }
};

}  // namespace detail

}  // namespace xtrain
