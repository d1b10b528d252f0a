// Ranks that spread experts among them: within the ranks that see other rows, or other places, neighbours each hold some of every layer's experts. Rows go
// to the rank of their expert and come back.
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

/// Of the gradients of what ranks with different experts all have, each of these makes a part, which are added up first; then every gradient is among
/// the ranks that hold the same, block by block; and the norm counts everything once.
template <class Device, zero_stage Stage, divided_axes Axes>
class expert_state : public zero_state<Device, Stage, Axes> {
 public:
  using zero_state<Device, Stage, Axes>::zero_state;

  /// Memory for rows that have come to this rank's experts: how many only routing knows. Each place of each pass that is on its way has its
  /// own, and there is one more for what is temporary.
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
  std::map<std::pair<std::size_t, std::size_t>, growing_memory<Device>> kept_rows_;  // by pass and place
  std::optional<growing_memory<Device>> temporary_rows_;
};

template <class Device, zero_stage Stage, divided_axes Axes>
requires (Axes.experts)
struct state_of<Device, Stage, Axes> {
  using type = expert_state<Device, Stage, Axes>;
};

}  // namespace detail

/// Ranks each hold some of every layer's experts, and all of the rest. Where others divide layers or share rows as well (parallel<zero<1>, tensor_parallel,
/// expert_parallel>), those spread experts that have the same part of a layer.
struct expert_parallel {
  static constexpr std::string_view name = "expert";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  static constexpr bool spreads_experts = true;
  using config = rank_layout;
  template <class Device>
  using state = detail::expert_state<Device, stage, detail::divided_axes{.experts = true}>;
};

static_assert(parallel_strategy<expert_parallel> && parallel_strategy<parallel<zero<1>, tensor_parallel, expert_parallel>>);

}  // namespace xtrain
