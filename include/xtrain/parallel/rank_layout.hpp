// Process groups of a rank. Axes with more communication are closer: tensor-parallel ranks are adjacent, then context- or expert-parallel ranks.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// The ranks of a run and the size of each parallel axis.
struct rank_layout {
  std::shared_ptr<transport> ranks{};  ///< null: one rank
  /// `tensor_parallel`: adjacent ranks with shards of every layer.
  std::size_t tensor_parallel_size = 1;
  /// `context_parallel`, `ring_context_parallel`: each rank has some tokens of every sequence. Next in order.
  std::size_t context_parallel_size = 1;
  /// Ranks per sharded copy, among ranks with the same weights (zero<Stage>). 0: all.
  std::size_t shards = 0;
  /// `expert_parallel`: adjacent among the ranks with the same shard of a layer. They process different sequences, or different tokens.
  std::size_t expert_parallel_size = 1;
  /// Expert parallelism on an asynchronous device: rows (copies of tokens) reserved per layer, as a multiple of the rows with balanced experts; a step with
  /// more rows fails. 0: the maximum.
  double expert_capacity = 0;
  /// The host waits for the row count in every expert layer and micro-batch: memory is as large as needed.
  bool expert_waits = false;
};

namespace detail {

struct sharded_axes {
  bool tensor = false, sequence = false, context = false;
  bool ring = false;  // with `context`: ring attention
  bool expert = false;
};

/// first, first + step, …
[[nodiscard]] inline std::vector<std::size_t> every(std::size_t first, std::size_t step, std::size_t count) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < count; ++i) members.push_back(first + i * step);
  return members;
}

/// The size of each axis. Ranks with the same weights (data- and context-parallel) = `shards` per copy x `replicas`.
struct rank_axes {
  std::size_t tensor = 1, context = 1, expert = 1, shards = 1, replicas = 1;

  /// throws config_error when ranks are not a multiple of the axis sizes, or the strategy does not shard an axis of size > 1
  rank_axes(const rank_layout& config, const sharded_axes& divided)
      : tensor(config.tensor_parallel_size), context(config.context_parallel_size), expert(config.expert_parallel_size) {
    const std::size_t ranks = config.ranks ? config.ranks->size() : 1;
    require<config_error>(tensor > 0 && ranks % tensor == 0, "parallel: ranks must be a multiple of tensor; given ", ranks, " ranks and tensor ",
                          tensor);
    require<config_error>(divided.tensor || tensor == 1, "parallel: tensor must be 1, because the strategy has no tensor parallelism; given ", tensor,
                          ". Make it parallel<..., tensor_parallel>");
    require<config_error>(divided.expert || expert == 1, "parallel: expert must be 1, because the strategy has no expert parallelism; given ", expert,
                          ". Make it expert_parallel, or parallel<..., expert_parallel>");
    const std::size_t whole = ranks / tensor;  // tensor-parallel groups
    require<config_error>(context > 0 && whole % context == 0, "parallel: ranks must be a multiple of tensor times context; given ", ranks,
                          " ranks, tensor ", tensor, " and context ", context);
    require<config_error>(divided.context || context == 1, "parallel: context must be 1, because the strategy has no context parallelism; given ",
                          context, ". Make it parallel<..., context_parallel>");
    require<config_error>(expert > 0 && whole % expert == 0, "parallel: ranks must be a multiple of tensor times expert; given ", ranks,
                          " ranks, tensor ", tensor, " and expert ", expert);
    require<config_error>(config.expert_capacity == 0 || (std::isfinite(config.expert_capacity) && config.expert_capacity >= 1.0),
                          "parallel: expert_capacity must be at least 1, the rows that come on average, or 0, all that may come; given ",
                          config.expert_capacity);
    const std::size_t same = whole / expert;
    shards = config.shards == 0 ? same : config.shards;
    require<config_error>(shards <= same && same % shards == 0, "parallel: data-parallel ranks must be a multiple of shards; given ", same,
                          " data-parallel ranks and ", shards, " shards");
    replicas = same / shards;
  }

  // Process groups of a rank, itself included:
  /// same weights
  [[nodiscard]] std::vector<std::size_t> alike(std::size_t rank) const { return every(rank % different(), different(), shards * replicas); }
  /// data-parallel: same positions of different sequences
  [[nodiscard]] std::vector<std::size_t> data(std::size_t rank) const {
    return every(rank % sharing(), sharing(), expert * shards * replicas / context);
  }
  /// tensor-parallel: different shards of the same layers
  [[nodiscard]] std::vector<std::size_t> layers(std::size_t rank) const { return every(rank / tensor * tensor, 1, tensor); }
  /// context-parallel: different tokens of the same sequences
  [[nodiscard]] std::vector<std::size_t> rows(std::size_t rank) const {
    return every(rank / sharing() * sharing() + rank % tensor, tensor, context);
  }
  /// expert-parallel: different experts
  [[nodiscard]] std::vector<std::size_t> expert_owners(std::size_t rank) const {
    return every(rank / different() * different() + rank % tensor, tensor, expert);
  }
  /// different shards of the same copy
  [[nodiscard]] std::vector<std::size_t> shard(std::size_t rank) const {
    const std::size_t together = different() * shards;
    return every(rank / together * together + rank % different(), different(), shards);
  }
  /// same shard of different copies
  [[nodiscard]] std::vector<std::size_t> same_shard(std::size_t rank) const {
    const std::size_t together = different() * shards;
    return every(rank % together, together, replicas);
  }

 private:
  /// Adjacent ranks with different weights.
  [[nodiscard]] std::size_t different() const { return tensor * expert; }
  /// Adjacent ranks with the same sequences.
  [[nodiscard]] std::size_t sharing() const { return tensor * context; }
};

}  // namespace detail

}  // namespace xtrain
