// Data parallelism, and ZeRO's three stages, which shard the model state over data-parallel ranks. Memory and traffic: parallel/README.md.
//                          [Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models";
//                           stage 3 with replicas: Zhao et al. 2023, "PyTorch FSDP"]
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/rank_layout.hpp>
#include <xtrain/parallel/zero_state.hpp>

namespace xtrain {

namespace detail {
using hooks_of_ranks = hooks<hook::ranks, hook::steps_are_queued, hook::collects_with_index, hook::collect_state, hook::combines_matrices>;
}  // namespace detail

/// Every rank stores everything; the all-reduce of gradients overlaps the backward pass.
struct data_parallel {
  static constexpr std::string_view name = "data";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, stage, detail::sharded_axes{}>;
};

/// Stage 1 shards the optimizer state, stage 2 also the gradients, stage 3 also the weights.
template <int Stage>
struct zero {
  static_assert(Stage >= 1 && Stage <= 3, "xtrain zero<Stage>: stages are 1 (optimizer state), 2 (and gradients), 3 (and weights); see parallel/README.md");
  static constexpr std::string_view name = Stage == 1 ? "zero-1" : Stage == 2 ? "zero-2" : "zero-3";
  static constexpr auto stage = static_cast<detail::zero_stage>(Stage);
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, stage, detail::sharded_axes{}>;
};

/// Adjacent ranks hold shards of every layer: attention heads, feed-forward channels, and vocabulary rows of embedding and head.
///                                                                         [Shoeybi et al. 2019, "Megatron-LM"]
struct tensor_parallel {
  static constexpr std::string_view name = "tensor";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::sharded_axes{.tensor = true}>;
};

/// Tensor parallelism with norms, residuals and dropout between layers sharded along the sequence: each rank stores 1/n of the hidden states there. All-reduces
/// become reduce-scatters and all-gathers; the backward gathers the input of every first matrix again.
///                                                                          [Korthikanti et al. 2022, section 4.2.2]
struct sequence_parallel {
  static constexpr std::string_view name = "tensor and sequence";
  static constexpr bool has_sequence_parallel = true;
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::sharded_axes{.tensor = true, .sequence = true}>;
};

/// Adjacent ranks have different tokens of every sequence; for attention, all tokens of some heads.
///                                                                         [Jacobs et al. 2023, "DeepSpeed Ulysses"]
struct context_parallel {
  static constexpr std::string_view name = "context";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::sharded_axes{.context = true}>;
};

/// Each rank has two chunks of every sequence and, for attention, all their heads: keys and values circulate. There may be more ranks than heads.
///    [Liu et al. 2023, "Ring attention with blockwise transformers"]
struct ring_context_parallel {
  static constexpr std::string_view name = "ring";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::sharded_axes{.context = true, .ring = true}>;
};

struct expert_parallel;

namespace detail {

template <class Device, zero_stage Stage, sharded_axes Axes>
struct state_of {
  using type = zero_state<Device, Stage, Axes>;
};

/// "zero-1 x tensor x context"
template <class First, class... Others>
struct names_joined {
  static constexpr std::size_t size = (First::name.size() + ... + (Others::name.size() + 3));
  static constexpr std::array<char, size> letters = [] {
    std::array<char, size> all{};
    std::size_t at = 0;
    const auto put = [&](std::string_view text) {
      for (const char letter : text) all[at++] = letter;
    };
    put(First::name);
    ((put(" x "), put(Others::name)), ...);
    return all;
  }();
};

template <class Axis, class... All>
inline constexpr bool is_among = (std::is_same_v<Axis, All> || ...);

template <class Axis>
inline constexpr bool is_of_rows = is_among<Axis, context_parallel, ring_context_parallel>;

template <class Axis>
inline constexpr bool is_of_layers = is_among<Axis, tensor_parallel, sequence_parallel>;

/// At least one axis, and at most one of each kind: tensor, context, expert.
template <class... Axes>
inline constexpr bool fit_together =
    sizeof...(Axes) > 0 && ((is_of_layers<Axes> || is_of_rows<Axes> || is_among<Axes, expert_parallel>) && ...) &&
    (std::size_t{is_of_layers<Axes>} + ...) <= 1 && (std::size_t{is_of_rows<Axes>} + ...) <= 1 &&
    (std::size_t{is_among<Axes, expert_parallel>} + ...) <= 1;

}  // namespace detail

/// Combined strategies: parallel<zero<2>, tensor_parallel>, parallel<zero<1>, tensor_parallel, context_parallel>.
template <class Rows, class... Axes>
struct parallel {
  static_assert(requires { Rows::stage; } && detail::fit_together<Axes...>,
                "xtrain parallel<Rows, Axes...>: Rows must be data_parallel or zero<Stage>, Axes must be tensor_parallel or sequence_parallel, "
                "context_parallel or ring_context_parallel, expert_parallel, one of each kind at most; see parallel/README.md");
  static constexpr std::string_view name{detail::names_joined<Rows, Axes...>::letters.data(), detail::names_joined<Rows, Axes...>::size};
  static constexpr detail::zero_stage stage = Rows::stage;
  static constexpr bool has_sequence_parallel = detail::is_among<sequence_parallel, Axes...>;
  static constexpr bool has_expert_parallel = detail::is_among<expert_parallel, Axes...>;
  using hooks = detail::hooks_of_ranks;
  using config = rank_layout;
  template <class Device>
  using state = typename detail::state_of<Device, Rows::stage,
                                          detail::sharded_axes{.tensor = detail::is_among<tensor_parallel, Axes...> || has_sequence_parallel,
                                                               .sequence = has_sequence_parallel,
                                                               .context = (detail::is_of_rows<Axes> || ...),
                                                               .ring = detail::is_among<ring_context_parallel, Axes...>,
                                                               .expert = has_expert_parallel}>::type;
};

static_assert(parallel_strategy<data_parallel> && parallel_strategy<zero<3>> && parallel_strategy<parallel<zero<2>, tensor_parallel>> &&
              parallel_strategy<context_parallel> && parallel_strategy<parallel<zero<1>, tensor_parallel, context_parallel>>);

}  // namespace xtrain
