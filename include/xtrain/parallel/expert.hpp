// Expert parallelism: adjacent ranks among data- and context-parallel ranks hold different experts of every layer. Tokens are dispatched to their expert's
// rank, and results are combined on the token's rank.
//                     [Lepikhin et al. 2020, "GShard"; Fedus et al. 2021, "Switch transformers"; dropless: Gale et al. 2022]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <xtrain/comm/host_staging.hpp>
#include <xtrain/layers/expert_exchange.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/tensor/growing.hpp>

namespace xtrain {

namespace detail {

/// Expert-parallel ranks first sum partial gradients of shared (non-expert) parameters. Then every gradient is reduced over the ranks with the same
/// parameters, block by block. The norm counts each gradient once.
template <class Device, zero_stage Stage, sharded_axes Axes>
class expert_state : public zero_state<Device, Stage, Axes> {
 public:
  explicit expert_state(const rank_layout& config)
      : zero_state<Device, Stage, Axes>(config), capacity_(config.expert_capacity), waits_(config.expert_waits) {}

  /// Receive buffers for dispatched tokens, whose number only the router knows: one per layer and in-flight pass, and one for temporary data.
  template <class Context>
  [[nodiscard]] growing_memory<Device>& kept_rows(const Context& device, std::size_t pass, std::size_t place) {
    return kept_rows_.try_emplace({pass, place}, device, memory_role::stash).first->second;
  }
  template <class Context>
  [[nodiscard]] growing_memory<Device>& temporary_rows(const Context& device) {
    if (!temporary_rows_) temporary_rows_.emplace(device, memory_role::workspace);
    return *temporary_rows_;
  }

  /// Maximum rows when the host does not know the count; empty: it waits for the count.
  ///   tokens   of the largest micro-batch of a rank
  ///   choices  experts per token
  ///   owned    this rank's experts of a layer
  [[nodiscard]] std::optional<std::size_t> most_rows(std::size_t tokens, std::size_t choices, std::size_t owned) const {
    if (!queues_messages<Device> || waits_) return std::nullopt;
    const std::size_t all = this->expert_shard().ranks * tokens * std::min(choices, owned);
    const double room = std::ceil(capacity_ * static_cast<double>(tokens * choices));
    return capacity_ == 0 || room >= static_cast<double>(all) ? all : static_cast<std::size_t>(room);
  }
  /// Message sizes of a layer in a pass; only functions run by the stream read and write them.
  [[nodiscard]] expert_exchange& queued_exchange(std::size_t pass, std::size_t place, std::size_t experts) {
    return exchanges_.try_emplace({pass, place}, this->expert_shard().ranks, experts).first->second;
  }

 private:
  double capacity_;
  bool waits_;
  std::map<std::pair<std::size_t, std::size_t>, growing_memory<Device>> kept_rows_;  // by pass and layer
  std::optional<growing_memory<Device>> temporary_rows_;
  std::map<std::pair<std::size_t, std::size_t>, expert_exchange> exchanges_;
};

template <class Device, zero_stage Stage, sharded_axes Axes>
requires (Axes.expert)
struct state_of<Device, Stage, Axes> {
  using type = expert_state<Device, Stage, Axes>;
};

}  // namespace detail

/// Each rank holds some experts of every layer, and all other parameters. With tensor or context parallelism, experts are sharded over the ranks with the same
/// shard of the layers.
struct expert_parallel {
  static constexpr std::string_view name = "expert";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  static constexpr bool has_expert_parallel = true;
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = detail::expert_state<Device, stage, detail::sharded_axes{.expert = true}>;
};

static_assert(parallel_strategy<expert_parallel> && parallel_strategy<parallel<zero<1>, tensor_parallel, expert_parallel>>);

}  // namespace xtrain
