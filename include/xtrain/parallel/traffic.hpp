#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/comm/group.hpp>

namespace xtrain {

/// gradients, weights: over ranks with the same weights. partial_sums: partial gradients of replicated parameters, over tensor- or expert-parallel ranks.
/// expert_parallel: dispatch and combine. pipeline_parallel: between stages. tied_table: a tied head's gradients, between first and last stage.
/// optimizer: pieces and sums of whole matrices. scalars: target counts, losses, gradient norms.
enum class traffic_role : std::uint8_t {
  gradients,
  partial_sums,
  weights,
  tensor_parallel,
  context_parallel,
  expert_parallel,
  pipeline_parallel,
  tied_table,
  optimizer,
  scalars
};

/// The number of traffic roles.
inline constexpr std::size_t traffic_roles = 10;

[[nodiscard]] constexpr std::string_view name_of(traffic_role role) {
  constexpr std::array<std::string_view, traffic_roles> names{"gradients", "partial sums", "weights",    "tensor", "context",
                                                              "expert",    "stages",       "tied table", "optimizer", "scalars"};
  return names[static_cast<std::size_t>(role)];
}

/// Messages and bytes by role.
struct step_traffic {
  std::array<traffic, traffic_roles> sent{};

  [[nodiscard]] const traffic& of(traffic_role role) const { return sent[static_cast<std::size_t>(role)]; }
  [[nodiscard]] traffic& of(traffic_role role) { return sent[static_cast<std::size_t>(role)]; }
  [[nodiscard]] traffic total() const {
    traffic all;
    for (const traffic& one : sent) all += one;
    return all;
  }
  [[nodiscard]] step_traffic since(const step_traffic& before) const {
    step_traffic more = *this;
    for (std::size_t r = 0; r < traffic_roles; ++r) more.sent[r] = sent[r].since(before.sent[r]);
    return more;
  }
};

namespace clause {

struct any_traffic {
  void operator()(traffic_role, const traffic&) const {}
};

/// visit_traffic(visit): calls visit(role, traffic) with this rank's traffic so far, any number of times per role.
template <class State>
concept strategy_counts_traffic = requires(const State& state) {
  state.visit_traffic(any_traffic{});
};

}  // namespace clause

/// A strategy's traffic so far; 0 for strategies that do not count.
template <class State>
[[nodiscard]] step_traffic traffic_of(const State& strategy) {
  step_traffic all;
  if constexpr (clause::strategy_counts_traffic<State>)
    strategy.visit_traffic([&](traffic_role role, const traffic& more) { all.of(role) += more; });
  return all;
}

}  // namespace xtrain
