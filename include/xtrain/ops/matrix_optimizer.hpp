#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/matrix_optimizer.hpp>
#include <xtrain/ops/launch.hpp>

namespace xtrain::ops {

namespace detail {

/// Rows that n elements from element `first` touch.
[[nodiscard]] constexpr std::size_t rows_of(std::size_t n, std::size_t columns, std::size_t first) {
  return n == 0 || columns == 0 ? 0 : (first % columns + n - 1) / columns + 1;
}
template <class Kernel>
void require_scalars(const Kernel& step) {
  require<shape_error>(step.scalars_1.size() == 1, Kernel::name, ": scalars must be one element; given ", step.scalars_1.size());
}

}  // namespace detail

/// See kernel::muon_momentum.
template <class Device, class M, class G, class S, class U>
void muon_momentum(execution<Device>& on, const kernel::muon_momentum<M, G, S, U>& step) {
  const std::size_t n = step.n;
  detail::require_scalars(step);
  require<shape_error>(step.gradient_n.size() == n && step.momentum_n.size() == n && step.update_n.size() == n,
                       "muon_momentum: gradient, momentum and update must all have ", n, " elements; given ", step.gradient_n.size(), ", ",
                       step.momentum_n.size(), ", ", step.update_n.size());
  launch(on, step);
}

/// See kernel::muon_normalise.
template <class Device, class M, class U, class T>
void muon_normalise(execution<Device>& on, const kernel::muon_normalise<M, U, T>& step) {
  require<shape_error>(step.u_n.size() == step.n && step.x_n.size() == step.n && step.squares_1.size() == 1,
                       "muon_normalise: u and x must both have ", step.n, " elements, squares one; given ", step.u_n.size(), ", ", step.x_n.size(),
                       " and ", step.squares_1.size());
  launch(on, step);
}

/// See kernel::muon.
template <class Device, class M, class P, class W>
void muon(execution<Device>& on, const kernel::muon<M, P, W>& step) {
  const std::size_t n = step.n;
  detail::require_scalars(step);
  require<shape_error>(step.update_n.size() == n && step.parameter_n.size() == n && (step.master_n.empty() || step.master_n.size() == n),
                       "muon: update, parameter and master must all have ", n, " elements; given ", step.update_n.size(), ", ",
                       step.parameter_n.size(), ", ", step.master_n.size());
  launch(on, step);
}

/// See kernel::adafactor_squares.
template <class Device, class M, class G>
void adafactor_squares(execution<Device>& on, const kernel::adafactor_squares<M, G>& step) {
  const std::size_t rows = detail::rows_of(step.n, step.columns, step.first);
  detail::require_scalars(step);
  require<shape_error>(step.gradient_n.size() == step.n && step.row_sum_r.size() == rows && step.column_sum_c.size() == step.columns,
                       "adafactor_squares: gradient must have ", step.n, " elements, in ", rows, " rows and ", step.columns, " columns; given ",
                       step.gradient_n.size(), " elements and sums of ", step.row_sum_r.size(), " rows and ", step.column_sum_c.size(), " columns");
  launch(on, step);
}

/// See kernel::adafactor_factors.
template <class Device, class M, class F>
void adafactor_factors(execution<Device>& on, const kernel::adafactor_factors<M, F>& step) {
  const std::size_t r = step.rows, c = step.columns;
  detail::require_scalars(step);
  require<shape_error>(step.row_sum_r.size() == r && step.row_r.size() == r && step.column_sum_c.size() == c && step.column_c.size() == c &&
                           step.mean_1.size() == 1,
                       "adafactor_factors: sums and factors must be of ", r, " rows and ", c, " columns; given sums of ", step.row_sum_r.size(),
                       " and ", step.column_sum_c.size(), ", factors of ", step.row_r.size(), " and ", step.column_c.size());
  launch(on, step);
}

/// See kernel::adafactor_vector.
template <class Device, class M, class G, class F>
void adafactor_vector(execution<Device>& on, const kernel::adafactor_vector<M, G, F>& step) {
  detail::require_scalars(step);
  require<shape_error>(step.gradient_n.size() == step.n && step.v_n.size() == step.n && step.squares_1.size() == 1,
                       "adafactor_vector: gradient and v must both have ", step.n, " elements, squares one; given ", step.gradient_n.size(), ", ",
                       step.v_n.size(), " and ", step.squares_1.size());
  launch(on, step);
}

/// See kernel::adafactor_update_squares.
template <class Device, class M, class G, class F>
void adafactor_update_squares(execution<Device>& on, const kernel::adafactor_update_squares<M, G, F>& step) {
  const std::size_t rows = detail::rows_of(step.n, step.columns, step.first);
  detail::require_scalars(step);
  require<shape_error>(step.gradient_n.size() == step.n && step.row_r.size() == rows && step.column_c.size() == step.columns &&
                           step.mean_1.size() == 1 && step.squares_1.size() == 1,
                       "adafactor_update_squares: gradient must have ", step.n, " elements, in ", rows, " rows and ", step.columns,
                       " columns; given ", step.gradient_n.size(), " elements and factors of ", step.row_r.size(), " rows and ",
                       step.column_c.size(), " columns");
  launch(on, step);
}

/// See kernel::adafactor.
template <class Device, class M, class P, class G, class W, class S>
void adafactor(execution<Device>& on, const kernel::adafactor<M, P, G, W, S>& step) {
  const std::size_t n = step.n, rows = detail::rows_of(n, step.columns, step.first);
  detail::require_scalars(step);
  require<shape_error>(step.gradient_n.size() == n && step.parameter_n.size() == n && (step.master_n.empty() || step.master_n.size() == n) &&
                           (step.m_n.empty() || step.m_n.size() == n) && step.update_squares_1.size() == 1,
                       "adafactor: gradient, parameter, master and m must all have ", n, " elements; given ", step.gradient_n.size(), ", ",
                       step.parameter_n.size(), ", ", step.master_n.size(), ", ", step.m_n.size());
  const bool is_vector = step.row_r.empty() && step.column_c.empty() && step.v_n.size() == n;
  const bool is_matrix = step.row_r.size() == rows && step.column_c.size() == step.columns && step.mean_1.size() == 1 && step.v_n.empty();
  require<shape_error>(n == 0 || is_vector || is_matrix, "adafactor: factors must be of ", rows, " rows and ", step.columns, " columns, or v of ", n,
                       " elements; given ", step.row_r.size(), ", ", step.column_c.size(), " and ", step.v_n.size());
  launch(on, step);
}

}  // namespace xtrain::ops
