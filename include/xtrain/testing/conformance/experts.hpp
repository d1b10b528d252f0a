// Cases of the conformance suite: expert routing, combine, and the load-balancing loss.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_experts(Suite& suite) {
  using acc = accumulate_t<T>;
  struct size {
    std::size_t n, experts, choices, c;
  };
  const std::array<size, 4> expert_sizes{{{1, 1, 1, 1}, {7, 5, 3, 19}, {130, 8, 2, 37}, {67, 33, 6, 130}}};
  for (const auto [n, experts, choices, c] : expert_sizes) {
    const std::size_t slots = n * choices;
    const auto terms = static_cast<double>(experts);
    case_memory mem;
    kernel::expert_ranges<host_memory> ranges{.experts = experts};
    ranges.count_e = mem.tokens(experts, 9);
    ranges.range_e2 = mem.tokens(2 * experts, 9);
    suite.template check_kernel<T>(ranges, 0.0, 0.0);
    kernel::expert_routing<host_memory, T> routing{.n = n, .experts = experts, .choices = choices};
    routing.logits_ne = mem.numbers<T>(n * experts, -3.0, 3.0);
    routing.probability_ne = mem.numbers<acc>(n * experts);
    routing.weight_nk = mem.numbers<acc>(slots);
    for (auto* places : {&routing.choice_nk, &routing.slot_nk, &routing.row_s}) *places = mem.tokens(slots, 9);
    routing.count_e = mem.tokens(experts, 9);
    suite.template check_kernel<T>(routing, terms, 4.0);
    routing.load_e = mem.numbers<acc>(experts);
    routing.counted_e = mem.tokens(experts, 9);
    suite.template check_kernel<T>(routing, terms + static_cast<double>(n), static_cast<double>(n));
    const auto target_n = mem.tokens(n, 9);  // every third row is padding, and others without a target are not
    for (std::size_t i = 0; i < n; i += 3) target_n.raw()[i] = padding_target;
    routing.target_n = device_span<const token, host_memory>(target_n);
    suite.template check_kernel<T>(routing, terms + static_cast<double>(n), static_cast<double>(n));
    // the backward kernels read what the reference has written
    for (const bool balanced : {false, true}) {
      kernel::expert_routing_backward<host_memory, T> backward{.n = n, .experts = experts, .choices = choices};
      backward.probability_ne = device_span<const acc, host_memory>(routing.probability_ne);
      backward.weight_nk = device_span<const acc, host_memory>(routing.weight_nk);
      backward.dweight_nk = mem.numbers<acc>(slots);
      if (balanced) backward.dprobability_e = mem.numbers<acc>(experts);
      backward.choice_nk = device_span<const token, host_memory>(routing.choice_nk);
      backward.dlogits_ne = mem.numbers<T>(n * experts);
      suite.template check_kernel<T>(backward, terms, 8.0);
      backward.target_n = device_span<const token, host_memory>(target_n);
      suite.template check_kernel<T>(backward, terms, 8.0);
      kernel::expert_combine<host_memory, T> combine{.n = n, .c = c, .choices = choices, .accumulate = balanced};
      combine.slot_nk = device_span<const token, host_memory>(routing.slot_nk);
      combine.weight_nk = mem.numbers<acc>(slots);
      combine.x_sc = mem.numbers<T>(slots * c);
      combine.y_nc = mem.numbers<T>(n * c);
      suite.template check_kernel<T>(combine, static_cast<double>(choices), static_cast<double>(choices) + 1.0);
      combine.weight_nk = {};
      suite.template check_kernel<T>(combine, static_cast<double>(choices), static_cast<double>(choices) + 1.0);
    }
    kernel::expert_combine_backward<host_memory, T> scatter{.n = n, .c = c, .choices = choices};
    scatter.slot_nk = device_span<const token, host_memory>(routing.slot_nk);
    scatter.weight_nk = device_span<const acc, host_memory>(routing.weight_nk);
    scatter.x_sc = mem.numbers<T>(slots * c);
    scatter.dy_nc = mem.numbers<T>(n * c);
    scatter.dx_sc = mem.numbers<T>(slots * c);
    scatter.dweight_nk = mem.numbers<acc>(slots);
    suite.template check_kernel<T>(scatter, static_cast<double>(c), std::sqrt(static_cast<double>(c)) + 1.0);
    scatter.dx_sc = mem.copy(scatter.x_sc);  // in place
    scatter.x_sc = scatter.dx_sc;
    suite.template check_kernel<T>(scatter, static_cast<double>(c), std::sqrt(static_cast<double>(c)) + 1.0);
    constexpr std::size_t layers = 3, v = 11;
    kernel::expert_balance<host_memory, T> balance{
        .n = n, .v = v, .layers = layers, .experts = experts, .choices = choices, .weight = 0.25, .gradient_scale = 0.125};
    balance.count_le = mem.tokens(layers * experts, slots);
    balance.target_n = mem.tokens(n, v);
    balance.load_le = mem.numbers<acc>(layers * experts, 0.0, static_cast<double>(n));
    balance.loss_n = mem.numbers<acc>(n);
    balance.dprobability_e = mem.numbers<acc>(experts);
    suite.template check_kernel<T>(balance, terms * layers, terms * static_cast<double>(choices));
    const auto nothing = mem.tokens(layers * experts, 1);  // all rows are padding
    std::fill_n(nothing.raw(), layers * experts, token{0});
    balance.count_le = device_span<const token, host_memory>(nothing);
    suite.template check_kernel<T>(balance, terms * layers, terms * static_cast<double>(choices));
  }
}

}  // namespace xtrain::testing::detail
