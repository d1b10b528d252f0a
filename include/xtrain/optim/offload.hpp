// The offload axis: which memory lives elsewhere.
#pragma once

#include <concepts>
#include <string_view>

namespace xtrain {

namespace clause {

template <class O>
concept offload_has_a_name = requires {
  { O::name } -> std::convertible_to<std::string_view>;
};

/// moves_optimizer_state: the optimizer's arrays are not in the device's memory.
template <class O>
concept offload_says_what_moves = requires {
  { O::moves_optimizer_state } -> std::convertible_to<bool>;
};

}  // namespace clause

template <class O>
concept offload_policy = clause::offload_has_a_name<O> && clause::offload_says_what_moves<O>;

/// Everything is in the device's memory.
struct no_offload {
  static constexpr std::string_view name = "none";
  static constexpr bool moves_optimizer_state = false;
};

static_assert(offload_policy<no_offload>);

}  // namespace xtrain
