// Ranks that spread experts among them: within the ranks that see other rows, neighbours each hold some of every layer's experts. Rows go
// to the rank of their expert and come back.
//                     [Lepikhin et al. 2020, "GShard"; Fedus et al. 2021, "Switch transformers"; dropless: Gale et al. 2022]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/self.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/tensor/growing.hpp>

namespace xtrain {

namespace detail {

/// What neighbours do that have parts of the same layers, do those that hold other experts: gradients of what all of them have are added up
/// among them first, then every gradient among the ranks that hold the same, block by block; and the norm counts everything once. But layers
/// are whole, and all ranks see other rows.
template <class Device, zero_stage Stage>
class expert_state : public zero_state<Device, Stage, divided_axes{.layers = true}> {
  using neighbours_state = zero_state<Device, Stage, divided_axes{.layers = true}>;

 public:
  using typename neighbours_state::stream_type;

  /// throws config_error when the ranks are not a multiple of `expert`
  explicit expert_state(const rank_layout& config)
      : neighbours_state(neighbours_of(config)), rows_(neighbours_state::everyone().wires(), row_channel),
        experts_(rows_.wires(), neighbours(rows_.rank(), config.expert), row_channel + 1) {}

  [[nodiscard]] group& data() { return rows_; }
  [[nodiscard]] self& tensor() { return self_; }
  void layers() const = delete;
  /// Ranks that hold the other experts.
  [[nodiscard]] group& experts() { return experts_; }
  [[nodiscard]] layer_share expert_share() const { return {experts_.rank(), experts_.size()}; }

  /// What neighbours add up among them are gradients, and the norm of these.
  template <class Visit>
  void visit_traffic(Visit&& visit) const {
    neighbours_state::visit_traffic(
        [&](traffic_role role, const traffic& sent) { visit(role == traffic_role::layers ? traffic_role::gradients : role, sent); });
    visit(traffic_role::experts, experts_.sent());
    visit(traffic_role::numbers, rows_.sent());
  }

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
  static constexpr std::uint32_t row_channel = 16;  // those below are the neighbours'

  static rank_layout neighbours_of(const rank_layout& config) {
    const std::size_t ranks = config.ranks ? config.ranks->size() : 1;
    require<config_error>(config.expert > 0 && ranks % config.expert == 0, "parallel: ranks must be a multiple of expert; given ", ranks,
                          " ranks and expert ", config.expert);
    require<config_error>(config.tensor == 1, "parallel: tensor must be 1, because the strategy does not divide layers; given ", config.tensor);
    require<config_error>(config.context == 1, "parallel: context must be 1, because ranks of the strategy do not share rows; given ", config.context);
    return {.ranks = config.ranks, .tensor = config.expert, .shards = config.shards};
  }
  static std::vector<std::size_t> neighbours(std::size_t rank, std::size_t expert) {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < expert; ++i) members.push_back(rank / expert * expert + i);
    return members;
  }

  self self_;
  group rows_, experts_;
  std::map<std::pair<std::size_t, std::size_t>, growing_memory<Device>> kept_rows_;  // by pass and place
  std::optional<growing_memory<Device>> temporary_rows_;
};

}  // namespace detail

/// Neighbouring ranks each hold some of every layer's experts, and all of the rest.
struct expert_parallel {
  static constexpr std::string_view name = "expert";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  static constexpr bool spreads_experts = true;
  using config = rank_layout;
  template <class Device>
  using state = detail::expert_state<Device, stage>;
};

/// Ranks that hold the same experts divide what they keep: parallel<zero<1>, expert_parallel>.
template <class Rows>
struct parallel<Rows, expert_parallel> {
  static_assert(requires { Rows::stage; },
                "xtrain parallel<Rows, expert_parallel>: Rows must be data_parallel or zero<Stage>; see parallel/README.md");
  static constexpr std::string_view name{detail::names_joined<Rows, expert_parallel>::letters.data(),
                                         detail::names_joined<Rows, expert_parallel>::size};
  static constexpr detail::zero_stage stage = Rows::stage;
  static constexpr bool spreads_experts = true;
  using config = rank_layout;
  template <class Device>
  using state = detail::expert_state<Device, stage>;
};

static_assert(parallel_strategy<expert_parallel> && parallel_strategy<parallel<zero<1>, expert_parallel>>);

}  // namespace xtrain
