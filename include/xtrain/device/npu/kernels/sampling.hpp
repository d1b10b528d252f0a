// The next token without random numbers, and rows that continue with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include <xtrain/device/kernel/sample.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>
#include <xtrain/device/npu/kernels/experts.hpp>

namespace xtrain::npu_kernels {

/// The first of the largest logits; `undecided` where one is not a number, or the largest is infinite.
inline void choose_largest(npu_sequence& s, const npu_view& logits_nv, const npu_view& token_n1) {
  const std::size_t n = logits_nv.dim(0), v = logits_nv.dim(1);
  const npu_view largest_n1 = s.fresh(npu_type::fp32, {n, 1}), rank_n1 = s.fresh(npu_type::fp32, {n, 1}), place_n1 = s.fresh(npu_type::int32, {n, 1});
  const npu_view hit_nv = s.fresh(npu_type::boolean, {n, v}), work_nv = s.fresh(npu_type::fp32, {n, v});
  // earlier tokens have larger ranks
  const npu_view rank_v = times(s, numbers_to(s, v), -1.0);
  add_number(s, rank_v, static_cast<double>(v));
  s.run(npu_op::max_dim, logits_nv, -1, true, largest_n1, place_n1);
  s.run(npu_op::equal, logits_nv, largest_n1, hit_nv);
  s.run(npu_op::where, hit_nv, rank_v, filled(s, npu_type::fp32, 0.0), work_nv);
  s.run(npu_op::max_dim, work_nv, -1, true, rank_n1, place_n1);
  s.run(npu_op::inplace_muls, rank_n1, npu_scalar{-1.0});
  add_number(s, rank_n1, static_cast<double>(v));
  store_integers(s, rank_n1, place_n1);
  // a number equals itself
  s.run(npu_op::equal, logits_nv, logits_nv, hit_nv);
  s.run(npu_op::cast, hit_nv, npu_type::fp32, work_nv);
  sum_last(s, work_nv, rank_n1);
  const auto holds = [&](const auto& op, const npu_view& of, double bound) {
    const npu_view which_n1 = s.fresh(npu_type::boolean, {n, 1});
    s.run(op, of, npu_scalar{bound}, which_n1);
    return which_n1;
  };
  constexpr double most = static_cast<double>(std::numeric_limits<float>::max());
  const npu_view is_low_n1 = holds(npu_op::at_least_number, largest_n1, -most), is_high_n1 = s.fresh(npu_type::boolean, {n, 1});
  s.run(npu_op::logical_not, holds(npu_op::greater_than, largest_n1, most), is_high_n1);
  const npu_view is_decided_n1 = both(s, both(s, is_low_n1, is_high_n1, is_low_n1), holds(npu_op::at_least_number, rank_n1, static_cast<double>(v)), is_low_n1);
  s.run(npu_op::where, is_decided_n1, place_n1, filled(s, npu_type::int32, static_cast<double>(kernel::undecided)), token_n1);
}

/// Draws, and penalties of tokens that a text has, are the host's.
template <class Memory>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::sample<Memory>& k) {
  return k.temperature != 0.0 || k.repetition_penalty != 1.0 || k.v >= most_exact;
}
template <class Memory>
void compose(npu_sequence& s, const kernel::sample<Memory>& k) {
  kernel::check_arity<15>(k);
  if (k.n == 0) return;
  const npu_view token_n1 = view_of(k.token_n, {k.n, 1});
  if (k.v == 0) return s.run(npu_op::inplace_fill, token_n1, integer(kernel::undecided));
  const npu_view logits_nv = view_of(k.logits_nv, {k.n, k.v});
  for_each_rows(s, k.n, 3 * k.v, [&](std::size_t first, std::size_t count) {
    choose_largest(s, logits_nv.slice(0, first, count), token_n1.slice(0, first, count));
  });
}

template <class Memory>
void compose(npu_sequence& s, const kernel::advance<Memory>& k) {
  kernel::check_arity<12>(k);
  if (k.n == 0) return;
  const auto column = [&](const auto& operand) { return view_of(operand, {k.n, 1}); };
  const npu_view token_n1 = column(k.token_n), count_n1 = column(k.count_n), has_token_n1 = s.fresh(npu_type::boolean, {k.n, 1}),
                 has_room_n1 = s.fresh(npu_type::boolean, {k.n, 1});
  s.run(npu_op::at_least_number, token_n1, integer(0), has_token_n1);
  s.run(npu_op::less, count_n1, column(k.room_n), has_room_n1);
  const npu_view goes_on_n1 = both(s, has_token_n1, has_room_n1, has_token_n1), one_n1 = s.fresh(npu_type::int32, {k.n, 1});
  s.run(npu_op::cast, goes_on_n1, npu_type::int32, one_n1);
  // the token in a column of rows that go on
  const auto put = [&](const npu_view& place_n1, const npu_view& to) {
    const npu_sequence::scope here(s);
    const npu_view hit = s.fresh_like(to, npu_type::boolean), chosen = s.fresh_like(to, to.type);
    s.run(npu_op::equal, place_n1, count_from(s, 0, to.dim(1)), hit);
    s.run(npu_op::where, both(s, hit, goes_on_n1, hit), token_n1, to, chosen);
    store(s, chosen, to);
  };
  const auto count_up = [&](const npu_view& number_n1) { s.run(npu_op::inplace_add, number_n1, one_n1, integer(1)); };
  if (k.most != 0) put(count_n1, view_of(k.taken_nm, {k.n, k.most}));
  const npu_view next_n1 = column(k.next_n), chosen_n1 = s.fresh(npu_type::int32, {k.n, 1});
  s.run(npu_op::where, goes_on_n1, token_n1, next_n1, chosen_n1);
  store(s, chosen_n1, next_n1);
  for (const npu_view& number_n1 : {count_n1, column(k.position_n), column(k.cached_n), column(k.place_n)}) count_up(number_n1);
  if (!k.text_nc.empty()) put(column(k.position_n), view_of(k.text_nc, {k.n, k.capacity}));
}

}  // namespace xtrain::npu_kernels
