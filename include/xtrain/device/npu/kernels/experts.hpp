// Mixture of experts. Integers are exact in fp32 below 2^24: more slots run on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/device/kernel/grouped_matmul.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>
#include <xtrain/device/npu/kernels/matmul.hpp>

namespace xtrain::npu_kernels {

/// Fewer are counted exactly in fp32, and taken by CANN's fused operators.
inline constexpr std::size_t most_exact = (std::size_t{1} << 24) - 1;

/// Sums of fp32 over one dim, which is dropped.
inline void sum_over(npu_sequence& s, const npu_view& x, std::int64_t dim, const npu_view& sum) {
  s.run(npu_op::reduce_sum, x, npu_ints{dim}, false, static_cast<int>(npu_type::fp32), sum);
}
/// fp32 as integers.
inline void store_integers(npu_sequence& s, const npu_view& from, const npu_view& to) { s.run(npu_op::cast, from, npu_type::int32, to); }
/// The integers from 0 on, in fp32.
[[nodiscard]] inline npu_view numbers_to(npu_sequence& s, std::size_t n) { return wide(s, count_from(s, 0, n)); }
/// 1 where index [.., 1] is the column's number, else 0.
[[nodiscard]] inline npu_view one_hot(npu_sequence& s, const npu_view& index, const npu_view& column_e) {
  npu_view like = index;
  like.dims[like.rank - 1] = static_cast<std::int64_t>(column_e.dim(0));
  const npu_view hit = s.fresh_like(like, npu_type::boolean);
  s.run(npu_op::equal, index, column_e, hit);
  return wide(s, hit);
}

/// Slots of the choices, sorted by expert, then by row: those of lower experts, and of the same expert in earlier rows.
///   hit_ae    a choice's expert
inline void write_slots(npu_sequence& s, const npu_view& hit_ae, const npu_view& slot_a, const npu_view& count_e) {
  const std::size_t all = hit_ae.dim(0), experts = hit_ae.dim(1);
  const npu_view sum_ae = s.fresh_like(hit_ae), number_e = s.fresh(npu_type::fp32, {experts}), end_e = s.fresh_like(number_e);
  const npu_view slot = s.fresh(npu_type::fp32, {all, 1});
  s.run(npu_op::cumsum, hit_ae, 0, static_cast<int>(npu_type::fp32), sum_ae);
  sum_over(s, hit_ae, 0, number_e);
  store_integers(s, number_e, count_e);
  s.run(npu_op::cumsum, number_e, 0, static_cast<int>(npu_type::fp32), end_e);
  s.run(npu_op::inplace_sub, end_e, number_e, npu_scalar{1});
  add_number(s, end_e, -1.0);
  s.run(npu_op::inplace_add, sum_ae, end_e, npu_scalar{1});
  s.run(npu_op::inplace_mul, sum_ae, hit_ae);
  sum_last(s, sum_ae, slot);
  store_integers(s, slot.as({all}), slot_a);
}
/// Rows of x_ac, moved to their slots. Slots are different: each sum has one term.
[[nodiscard]] inline npu_view in_slots(npu_sequence& s, const npu_view& x_ac, const npu_view& slot_a) {
  const npu_view all = s.fresh_like(x_ac);
  s.run(npu_op::embedding_backward, x_ac, clamped(s, slot_a, 0, x_ac.dim(0)), x_ac.dim(0), ~std::uint64_t{0}, false, all);
  return all;
}

/// CANN's fused operators of experts take so many choices of a row. The last argument before the results is for padded rows: there are none.
[[nodiscard]] inline bool takes_fused_choices(const npu_sequence& s, std::size_t choices) { return s.rules().has_fused() && choices <= 512; }
inline constexpr npu_ints no_padding{1};

/// expert_routing without element types.
struct routing_task {
  npu_view logits_ne{}, probability_ne{}, weight_nk{}, choice_nk{}, slot_a{}, row_s{}, count_e{};
  npu_view load_e = absent, target_n = absent, counted_e{};
};
inline void route(npu_sequence& s, const routing_task& task) {
  const std::size_t n = task.choice_nk.dim(0), choices = task.choice_nk.dim(1), experts = task.logits_ne.dim(1);
  const npu_view left_ne = wide_copy(s, task.logits_ne), column_e = count_from(s, 0, experts), hit_nke = s.fresh(npu_type::fp32, {n, choices, experts});
  s.run(npu_op::softmax, left_ne, -1, task.probability_ne);
  // the first of the largest that are left: what comes earlier has the larger rank
  const npu_view rank_e = times(s, numbers_to(s, experts), -1.0);
  add_number(s, rank_e, static_cast<double>(experts));
  const npu_view zero = filled(s, npu_type::fp32, 0.0), chosen_n1 = s.fresh(npu_type::fp32, {n, 1});
  for (std::size_t j = 0; j < choices; ++j) {
    const npu_sequence::scope here(s);
    const npu_view largest_n1 = s.fresh(npu_type::fp32, {n, 1}), place_n1 = s.fresh(npu_type::int32, {n, 1}), choice_n1 = task.choice_nk.slice(1, j, 1),
                   best_ne = s.fresh(npu_type::boolean, {n, experts}), hit_ne = s.fresh(npu_type::boolean, {n, experts}),
                   rank_ne = s.fresh(npu_type::fp32, {n, experts});
    s.run(npu_op::max_dim, left_ne, -1, true, largest_n1, place_n1);
    s.run(npu_op::equal, left_ne, largest_n1, best_ne);
    s.run(npu_op::where, best_ne, rank_e, zero, rank_ne);
    s.run(npu_op::max_dim, rank_ne, -1, true, largest_n1, place_n1);
    s.run(npu_op::inplace_muls, largest_n1, npu_scalar{-1.0});
    add_number(s, largest_n1, static_cast<double>(experts));
    store_integers(s, largest_n1, place_n1);
    s.run(npu_op::clamp, place_n1, integer(0), end_of(0, experts - 1), choice_n1);  // logits that are not numbers have no largest
    s.run(npu_op::equal, choice_n1, column_e, hit_ne);
    s.run(npu_op::inplace_masked_fill, left_ne, hit_ne, npu_scalar{-std::numeric_limits<double>::infinity()});
    const npu_view hit = hit_nke.slice(1, j, 1).as({n, experts}).with_strides({choices * experts, 1});
    s.run(npu_op::cast, hit_ne, npu_type::fp32, hit);
    s.run(npu_op::mul, hit, task.probability_ne, rank_ne);
    sum_last(s, rank_ne, task.weight_nk.slice(1, j, 1));
  }
  sum_last(s, task.weight_nk, chosen_n1);
  s.run(npu_op::inplace_div, task.weight_nk, chosen_n1);
  const npu_view hit_ae = hit_nke.as({n * choices, experts});
  if (takes_fused_choices(s, choices)) {  // rows are moved into slots: here their numbers
    const npu_view row_s = s.fresh(npu_type::fp32, {n * choices, 1}), number_e = s.fresh(npu_type::fp32, {experts});
    s.run(npu_op::moe_permute, numbers_to(s, n).as({n, 1}), task.choice_nk, 0, false, row_s, task.slot_a);
    store_integers(s, row_s.as({n * choices}), task.row_s);
    sum_over(s, hit_ae, 0, number_e);
    store_integers(s, number_e, task.count_e);
  } else {
    write_slots(s, hit_ae, task.slot_a, task.count_e);
    const npu_view row_a = s.fresh(npu_type::fp32, {n, choices});
    s.run(npu_op::inplace_copy, row_a, numbers_to(s, n).as({n, 1}));
    store_integers(s, in_slots(s, row_a.as({n * choices, 1}), task.slot_a).as({n * choices}), task.row_s);
  }
  if (task.load_e.elements() == 0) return;
  npu_view probability_ne = task.probability_ne, counted_nke = hit_nke;
  if (task.target_n.elements() != 0) {
    const npu_view is_counted_n = s.fresh(npu_type::boolean, {n});
    s.run(npu_op::not_equal, task.target_n, integer(padding_target), is_counted_n);
    const npu_view counts_n = wide(s, is_counted_n);
    probability_ne = product(s, probability_ne, counts_n.as({n, 1}), probability_ne);
    counted_nke = product(s, hit_nke, counts_n.as({n, 1, 1}), hit_nke);
  }
  sum_over(s, probability_ne, 0, task.load_e);
  const npu_view number_e = s.fresh(npu_type::fp32, {experts});
  sum_over(s, counted_nke.as({n * choices, experts}), 0, number_e);
  store_integers(s, number_e, task.counted_e);
}

template <class Memory, class T>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::expert_routing<Memory, T>& k) {
  return k.n * k.choices >= most_exact;
}
template <class Memory, class T>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::expert_combine_backward<Memory, T>& k) {
  return k.n * k.choices >= most_exact;
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::expert_routing<Memory, T>& k) {
  kernel::check_arity<13>(k);
  if (k.n == 0 || k.experts == 0 || k.choices == 0) {
    if (!k.count_e.empty()) s.run(npu_op::inplace_zero, view_of(k.count_e, {k.experts}));
    if (!k.load_e.empty()) s.run(npu_op::inplace_zero, view_of(k.load_e, {k.experts}));
    if (!k.counted_e.empty()) s.run(npu_op::inplace_zero, view_of(k.counted_e, {k.experts}));
    return;
  }
  route(s, {.logits_ne = view_of(k.logits_ne, {k.n, k.experts}),
            .probability_ne = view_of(k.probability_ne, {k.n, k.experts}),
            .weight_nk = view_of(k.weight_nk, {k.n, k.choices}),
            .choice_nk = view_of(k.choice_nk, {k.n, k.choices}),
            .slot_a = view_of(k.slot_nk, {k.n * k.choices}),
            .row_s = view_of(k.row_s, {k.n * k.choices}),
            .count_e = view_of(k.count_e, {k.experts}),
            .load_e = view_of(k.load_e, {k.load_e.size()}),
            .target_n = view_of(k.target_n, {k.target_n.size()}),
            .counted_e = view_of(k.counted_e, {k.experts})});
}

template <class Memory>
void compose(npu_sequence& s, const kernel::expert_ranges<Memory>& k) {
  kernel::check_arity<3>(k);
  if (k.experts == 0) return;
  const npu_view range_e2 = view_of(k.range_e2, {k.experts, 2}), count_e = wide(s, view_of(k.count_e, {k.experts})), end_e = s.fresh_like(count_e);
  s.run(npu_op::cumsum, count_e, 0, static_cast<int>(npu_type::fp32), end_e);
  s.run(npu_op::inplace_sub, end_e, count_e, npu_scalar{1});
  store_integers(s, end_e.as({k.experts, 1}), range_e2.slice(1, 0, 1));
  store_integers(s, count_e.as({k.experts, 1}), range_e2.slice(1, 1, 1));
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::expert_routing_backward<Memory, T>& k) {
  kernel::check_arity<10>(k);
  if (k.n == 0 || k.experts == 0) return;
  const npu_view p_ne = view_of(k.probability_ne, {k.n, k.experts}), weight_nk = view_of(k.weight_nk, {k.n, k.choices}),
                 dweight_nk = view_of(k.dweight_nk, {k.n, k.choices}), d_ne = s.fresh_like(p_ne), chosen_ne = s.fresh_like(p_ne);
  const npu_view hit_nke = one_hot(s, view_of(k.choice_nk, {k.n, k.choices, 1}), count_from(s, 0, k.experts));
  sum_over(s, hit_nke, 1, chosen_ne);
  // forward: w = p / Σ_chosen p
  const npu_view part_ne = product(s, chosen_ne, p_ne, p_ne), sum_n1 = sum_last(s, part_ne);
  const npu_view change_nk = wide_copy(s, dweight_nk);
  s.run(npu_op::inplace_sub, change_nk, sum_last(s, product(s, dweight_nk, weight_nk, weight_nk)), npu_scalar{1});
  s.run(npu_op::inplace_div, change_nk, sum_n1);
  s.run(npu_op::inplace_mul, hit_nke, change_nk.as({k.n, k.choices, 1}));
  sum_over(s, hit_nke, 1, d_ne);
  if (!k.dprobability_e.empty()) {
    const npu_view dp_e = view_of(k.dprobability_e, {k.experts});
    if (k.target_n.empty()) {
      add_to(s, dp_e, d_ne);
    } else {
      const npu_view is_counted_n = s.fresh(npu_type::boolean, {k.n});
      s.run(npu_op::not_equal, view_of(k.target_n, {k.n}), integer(padding_target), is_counted_n);
      s.run(npu_op::inplace_addcmul, d_ne, wide(s, is_counted_n).as({k.n, 1}), dp_e, npu_scalar{1});
    }
  }
  // forward: p = softmax(logits)
  s.run(npu_op::mul, p_ne, d_ne, part_ne);
  s.run(npu_op::inplace_sub, d_ne, sum_last(s, part_ne), npu_scalar{1});
  s.run(npu_op::inplace_mul, d_ne, p_ne);
  store(s, d_ne, view_of(k.dlogits_ne, {k.n, k.experts}));
}

/// Calls f(first, count) for some of n rows: `elements` of fp32 of each exist at the same time.
template <class F>
void for_each_rows(npu_sequence& s, std::size_t n, std::size_t elements, F&& f) {
  const std::size_t rows = std::max<std::size_t>(1, s.rules().settings.chunk_bytes / std::max<std::size_t>(1, elements * sizeof(float)));
  for (std::size_t first = 0; first < n; first += rows) {
    const npu_sequence::scope here(s);
    f(first, std::min(rows, n - first));
  }
}
/// Rows of a table.
[[nodiscard]] inline npu_view rows_of(npu_sequence& s, const npu_view& table, const npu_view& index) {
  const npu_view rows = s.fresh(table.type, {index.dim(0), table.dim(1)});
  s.run(npu_op::embedding, table, clamped(s, index, 0, table.dim(0)), rows);
  return rows;
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::expert_combine<Memory, T>& k) {
  kernel::check_arity<8>(k);
  if (k.n == 0 || k.c == 0 || k.choices == 0) {
    if (k.n != 0 && k.c != 0 && !k.accumulate) s.run(npu_op::inplace_zero, view_of(k.y_nc, {k.n, k.c}));
    return;
  }
  const std::size_t choices = k.choices;
  const npu_view x_sc = view_of(k.x_sc, {k.n * choices, k.c}), slot_a = view_of(k.slot_nk, {k.n * choices}), y_nc = view_of(k.y_nc, {k.n, k.c}),
                 weight_nk = view_of(k.weight_nk, {k.weight_nk.empty() ? 0 : k.n, choices});
  if (takes_fused_choices(s, choices) && !k.accumulate && k.n * choices < most_exact) {
    if (weight_nk.elements() == 0) return s.run(npu_op::moe_permute_grad, x_sc, slot_a, choices, false, y_nc);
    return s.run(npu_op::moe_unpermute, x_sc, slot_a, weight_nk, false, no_padding, y_nc);
  }
  for_each_rows(s, k.n, 2 * choices * k.c, [&](std::size_t first, std::size_t count) {
    const npu_view rows = rows_of(s, x_sc, slot_a.slice(0, first * choices, count * choices)).as({count, choices, x_sc.dim(1)});
    const npu_view all = weight_nk.elements() == 0 ? wide(s, rows) : wide_copy(s, rows), sum = s.fresh(npu_type::fp32, {count, x_sc.dim(1)});
    if (weight_nk.elements() != 0) s.run(npu_op::inplace_mul, all, weight_nk.slice(0, first, count).as({count, choices, 1}));
    sum_over(s, all, 1, sum);
    store(s, sum, y_nc.slice(0, first, count), k.accumulate);
  });
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::expert_combine_backward<Memory, T>& k) {
  kernel::check_arity<9>(k);
  if (k.n == 0 || k.choices == 0) return;
  const std::size_t choices = k.choices, all = k.n * choices, c = k.c;
  const npu_view slot_a = view_of(k.slot_nk, {all}), dweight_a1 = view_of(k.dweight_nk, {all, 1});
  if (c == 0) return s.run(npu_op::inplace_zero, dweight_a1);
  const npu_view x_sc = view_of(k.x_sc, {all, c}), dx_sc = view_of(k.dx_sc, {all, c}), dy_nc = view_of(k.dy_nc, {k.n, c});
  if (takes_fused_choices(s, choices)) {
    const npu_view result_sc = s.fresh_like(x_sc, x_sc.type);  // dx may be x's memory
    s.run(npu_op::moe_unpermute_grad, x_sc, dy_nc, slot_a, view_of(k.weight_nk, {k.n, choices}), false, no_padding, result_sc, dweight_a1.as({k.n, choices}));
    return store(s, result_sc, dx_sc);
  }
  // each slot's row and weight
  const npu_view of_a2 = s.fresh(npu_type::fp32, {k.n, choices, 2}), row_s = s.fresh(npu_type::int32, {all}), dot_s1 = s.fresh(npu_type::fp32, {all, 1});
  s.run(npu_op::inplace_copy, of_a2.slice(2, 0, 1), numbers_to(s, k.n).as({k.n, 1, 1}));
  s.run(npu_op::inplace_copy, of_a2.slice(2, 1, 1), view_of(k.weight_nk, {k.n, choices, 1}));
  const npu_view of_s2 = in_slots(s, of_a2.as({all, 2}), slot_a);
  store_integers(s, of_s2.slice(1, 0, 1), row_s.as({all, 1}));
  for_each_rows(s, all, 4 * c, [&](std::size_t first, std::size_t count) {
    const npu_view dy = rows_of(s, dy_nc, row_s.slice(0, first, count)), wide_dy = wide(s, dy), x = wide(s, x_sc.slice(0, first, count));
    // forward: y += weight · x
    const npu_view work = product(s, wide_dy, x, x);
    sum_last(s, work, dot_s1.slice(0, first, count));
    s.run(npu_op::mul, wide_dy, of_s2.slice(0, first, count).slice(1, 1, 1), work);
    store(s, work, dx_sc.slice(0, first, count));
  });
  s.run(npu_op::embedding, dot_s1, clamped(s, slot_a, 0, all), dweight_a1);
}

template <class Memory, class T>
requires is_number<T>
void compose(npu_sequence& s, const kernel::expert_balance<Memory, T>& k) {
  kernel::check_arity<13>(k);
  if (k.experts == 0) return;
  const std::size_t places = k.layers * k.experts;
  const npu_view count_e = s.fresh(npu_type::fp32, {k.experts}), load_e = s.fresh(npu_type::fp32, {k.experts}), dp_e = view_of(k.dprobability_e, {k.experts});
  if (places == 0) return s.run(npu_op::inplace_zero, dp_e);
  sum_over(s, wide(s, view_of(k.count_le, {k.layers, k.experts})), 0, count_e);
  sum_over(s, view_of(k.load_le, {k.layers, k.experts}), 0, load_e);
  const auto number = [&] { return s.fresh(npu_type::fp32, {1}); };
  const npu_view rows_1 = number(), has_rows_1 = s.fresh(npu_type::boolean, {1}), one = filled(s, npu_type::fp32, 1.0);
  sum_last(s, count_e, rows_1);
  // an integer: a quarter of a slot keeps it there
  add_number(s, rows_1, 0.25);
  s.run(npu_op::inplace_muls, rows_1, npu_scalar{1.0 / static_cast<double>(k.choices)});
  const npu_view whole_1 = s.fresh(npu_type::int32, {1});
  store_integers(s, rows_1, whole_1);
  store(s, whole_1, rows_1);
  s.run(npu_op::greater_than, rows_1, npu_scalar{0}, has_rows_1);
  const npu_view divisor_1 = number();
  s.run(npu_op::where, has_rows_1, rows_1, one, divisor_1);  // without rows all counts are 0
  s.run(npu_op::inplace_div, count_e, divisor_1);
  s.run(npu_op::inplace_div, load_e, divisor_1);
  const double weight = k.weight * static_cast<double>(k.experts);
  s.run(npu_op::inplace_mul, load_e, count_e);
  const npu_view balance_1 = number(), targets_1 = number();
  sum_last(s, load_e, balance_1);
  s.run(npu_op::inplace_muls, balance_1, npu_scalar{weight});
  if (k.n == 0) return s.run(npu_op::inplace_zero, dp_e);
  const npu_view counts_n = wide(s, inside(s, view_of(k.target_n, {k.n}), 0, k.v));
  sum_last(s, counts_n, targets_1);
  s.run(npu_op::inplace_addcmul, view_of(k.loss_n, {k.n}), counts_n, balance_1, npu_scalar{1});
  s.run(npu_op::inplace_muls, targets_1, npu_scalar{weight * k.gradient_scale});
  if (!k.gradient_factor_1.empty()) s.run(npu_op::inplace_mul, targets_1, wide(s, view_of(k.gradient_factor_1, {1})));
  s.run(npu_op::inplace_div, count_e, divisor_1);
  s.run(npu_op::mul, count_e, targets_1, dp_e);
}

/// Whether a row is an expert's: [e, rows].
[[nodiscard]] inline npu_view rows_of_experts(npu_sequence& s, const npu_view& range_e2, std::size_t rows) {
  const std::size_t experts = range_e2.dim(0);
  const npu_view row_r = count_from(s, 0, rows), first_e1 = range_e2.slice(1, 0, 1), end_e1 = s.fresh(npu_type::int32, {experts, 1});
  s.run(npu_op::add, first_e1, range_e2.slice(1, 1, 1), integer(1), end_e1);
  const npu_view after_er = s.fresh(npu_type::boolean, {experts, rows}), before_er = s.fresh_like(after_er, npu_type::boolean);
  s.run(npu_op::at_least, row_r, first_e1, after_er);
  s.run(npu_op::less, row_r, end_e1, before_er);
  return both(s, after_er, before_er, after_er);
}

/// Each expert's product is formed of all rows, and its rows are taken: the host does not know them.
template <class Memory, class T, class C>
requires(is_number<T>&& is_number<C>) void compose(npu_sequence& s, const kernel::grouped_matmul<Memory, T, C>& k) {
  kernel::check_arity<15>(k);
  if (k.experts == 0 || k.m == 0 || k.n == 0) return;
  if (!k.transpose_a && k.k == 0 && k.accumulate) return;
  const auto matrix = [](const auto& operand, std::size_t at, std::size_t rows, std::size_t columns, std::size_t stride) {
    return view_of(operand, {rows, columns}).with_strides({stride, 1}).from(at);
  };
  const std::size_t rows = k.rows();
  const npu_view range_e2 = view_of(k.range_e2, {k.experts, 2});
  if (rows == 0) {
    for (std::size_t e = 0; e < k.experts && k.transpose_a && !k.accumulate; ++e) s.run(npu_op::inplace_zero, matrix(k.c, e * k.distance, k.m, k.n, k.ldc));
    return;
  }
  const npu_view mine_er = rows_of_experts(s, range_e2, rows);
  const auto column_of = [&](std::size_t e) { return mine_er.slice(0, e, 1).as({rows, 1}); };
  if (k.transpose_a) {
    const npu_view a = matrix(k.a, 0, rows, k.m, k.lda), b = matrix(k.b, 0, rows, k.n, k.ldb), zero = filled(s, npu_type_of<T>, 0.0);
    for (std::size_t e = 0; e < k.experts; ++e) {
      const npu_sequence::scope here(s);
      const npu_view own_a = s.fresh_like(a, a.type), own_b = s.fresh_like(b, b.type);
      s.run(npu_op::where, column_of(e), a, zero, own_a);
      s.run(npu_op::where, column_of(e), b, zero, own_b);
      multiply(s, own_a.transposed(), own_b, nullptr, matrix(k.c, e * k.distance, k.m, k.n, k.ldc), 1.0, k.accumulate);
    }
    return;
  }
  const npu_view a = matrix(k.a, 0, rows, k.k, k.lda), c = matrix(k.c, 0, rows, k.n, k.ldc);
  for_each_rows(s, rows, 4 * k.n + k.k, [&](std::size_t first, std::size_t count) {
    const npu_view own_a = a.slice(0, first, count), own_c = c.slice(0, first, count);
    const npu_view results[2] = {s.fresh_like(own_c, c.type), s.fresh_like(own_c, c.type)};
    npu_view current = own_c;
    for (std::size_t e = 0; e < k.experts; ++e) {
      const npu_sequence::scope here(s);
      const npu_view b = k.transpose_b ? matrix(k.b, e * k.distance, k.n, k.k, k.ldb).transposed() : matrix(k.b, e * k.distance, k.k, k.n, k.ldb);
      const npu_view one = s.fresh_like(own_c, c.type);
      if (k.accumulate) store(s, own_c, one);
      multiply(s, own_a, b, nullptr, one, 1.0, k.accumulate);
      s.run(npu_op::where, column_of(e).slice(0, first, count), one, current, results[e % 2]);
      current = results[e % 2];
    }
    store(s, current, own_c);
  });
}

}  // namespace xtrain::npu_kernels
