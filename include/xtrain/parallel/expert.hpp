// Expert parallelism: among the data- and context-parallel ranks, adjacent ranks each hold some of every layer's experts. Tokens are
// dispatched to the rank of their expert, and the results are combined on the rank they came from.
//                     [Lepikhin et al. 2020, "GShard"; Fedus et al. 2021, "Switch transformers"; dropless: Gale et al. 2022]
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/tensor/growing.hpp>

namespace xtrain {

namespace detail {

/// The shared (non-expert) parameters are replicated over the expert-parallel ranks, which first sum their partial gradients. Then every
/// gradient is reduced over the ranks that hold the same parameters, block by block. The norm counts each gradient once.
template <class Device, zero_stage Stage, sharded_axes Axes>
class expert_state : public zero_state<Device, Stage, Axes> {
 public:
  using zero_state<Device, Stage, Axes>::zero_state;

  /// Receive buffers for the tokens dispatched to this rank's experts, whose number only the router knows. Each layer of each
  /// in-flight pass has its own, plus one for temporary data.
  template <class Context>
  [[nodiscard]] growing_memory<Device>& kept_rows(const Context& device, std::size_t pass, std::size_t place) {
    return kept_rows_.try_emplace({pass, place}, device, memory_role::stash).first->second;
  }
  template <class Context>
  [[nodiscard]] growing_memory<Device>& temporary_rows(const Context& device) {
    if (!temporary_rows_) temporary_rows_.emplace(device, memory_role::workspace);
    return *temporary_rows_;
  }

 private:
  std::map<std::pair<std::size_t, std::size_t>, growing_memory<Device>> kept_rows_;  // by pass and layer
  std::optional<growing_memory<Device>> temporary_rows_;
};

template <class Device, zero_stage Stage, sharded_axes Axes>
requires (Axes.expert)
struct state_of<Device, Stage, Axes> {
  using type = expert_state<Device, Stage, Axes>;
};

}  // namespace detail

/// Each rank holds some of every layer's experts, and all other parameters. Combined with tensor or context parallelism
/// (parallel<zero<1>, tensor_parallel, expert_parallel>), the experts are sharded over the ranks with the same shard of
/// the layers.
struct expert_parallel {
  static constexpr std::string_view name = "expert";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  static constexpr bool has_expert_parallel = true;
  using config = rank_layout;
  template <class Device>
  using state = detail::expert_state<Device, stage, detail::sharded_axes{.expert = true}>;
};

static_assert(parallel_strategy<expert_parallel> && parallel_strategy<parallel<zero<1>, tensor_parallel, expert_parallel>>);

}  // namespace xtrain
