// Conformance cases: expert routing, combine, load-balancing loss.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/device/kernel/grouped_matmul.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

/// The three products of an expert layer; experts with 0 rows, 1, more than a tile, all; rows without an expert.
template <class T, class Suite>
void check_grouped_products(Suite& suite) {
  struct size {
    std::size_t in, out, gap, distance;  // distances between rows, and between matrices
    std::vector<token> counts;
    std::size_t first, rows;  // of the first expert; of the batch
  };
  const std::array<size, 6> sizes{{{3, 5, 0, 0, {1}, 0, 1},
                                   {19, 33, 3, 7, {0, 6, 1, 0, 20}, 2, 31},
                                   {24, 40, 8, 16, {131, 0, 1, 150}, 5, 290},
                                   {16, 8, 0, 0, {0, 0, 40, 0}, 0, 40},
                                   {136, 150, 0, 0, {3, 0, 20}, 0, 23},
                                   {9, 4, 1, 1, {0, 0, 0}, 0, 7}}};
  for (const auto& s : sizes) {
    case_memory mem;
    const std::size_t experts = s.counts.size();
    const auto range = mem.fresh<token>(2 * experts);
    token next = static_cast<token>(s.first);
    for (std::size_t e = 0; e < experts; ++e) {
      range.raw()[2 * e] = next;
      range.raw()[2 * e + 1] = s.counts[e];
      next += s.counts[e];
    }
    const auto check = [&]<class C>(bool ta, bool tb, bool accumulate) {
      kernel::grouped_matmul<host_memory, T, C> products{.experts = experts};
      products.m = ta ? s.out : s.rows;
      products.n = ta || !tb ? s.in : s.out;
      products.k = ta ? s.rows : tb ? s.in : s.out;
      products.lda = (ta ? products.m : products.k) + s.gap;
      products.ldb = (tb ? products.k : products.n) + s.gap;
      products.ldc = products.n + s.gap;
      products.transpose_a = ta;
      products.transpose_b = tb;
      products.accumulate = accumulate;
      const std::size_t weight_rows = ta ? products.m : tb ? products.n : products.k, row = ta ? products.ldc : products.ldb;
      products.distance = weight_rows * row + s.distance;
      const std::size_t of_weights = (experts - 1) * products.distance + weight_rows * row;
      products.range_e2 = range;
      products.a = mem.numbers<T>(s.rows * products.lda);
      products.b = mem.numbers<T>(ta ? s.rows * products.ldb : of_weights);
      products.c = mem.numbers<C>(ta ? of_weights : s.rows * products.ldc);
      suite.template check_kernel<T>(products, static_cast<double>(products.k), std::sqrt(static_cast<double>(products.k)) + 2.0);
    };
    for (const bool accumulate : {false, true}) {
      check.template operator()<T>(false, true, accumulate);
      check.template operator()<T>(false, false, accumulate);
      check.template operator()<T>(true, false, accumulate);
      if constexpr (!std::is_same_v<T, accumulate_t<T>>) check.template operator()<accumulate_t<T>>(true, false, accumulate);
    }
  }
}

template <class T, class Suite>
void check_experts(Suite& suite) {
  check_grouped_products<T>(suite);
  using acc = accumulate_t<T>;
  struct size {
    std::size_t n, experts, choices, c;
  };
  const std::array<size, 5> expert_sizes{{{1, 1, 1, 1}, {7, 5, 3, 19}, {130, 8, 2, 37}, {67, 33, 6, 130}, {300, 4, 2, 8}}};
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
    const auto target_n = mem.tokens(n, 9);  // every third row is padding; other rows without a target are not
    for (std::size_t i = 0; i < n; i += 3) target_n.raw()[i] = padding_target;
    routing.target_n = device_span<const token, host_memory>(target_n);
    suite.template check_kernel<T>(routing, terms + static_cast<double>(n), static_cast<double>(n));
    // the backward kernels read the reference's output
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
