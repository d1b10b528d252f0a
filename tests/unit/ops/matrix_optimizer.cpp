#include <doctest/doctest.h>

#include <array>
#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/ops/matrix_optimizer.hpp>

using namespace xtrain;

namespace {

struct bench {
  cpu::context on;
  cpu::stream stream{on};
  arena<cpu> workspace{on, std::size_t{1} << 16, memory_role::workspace};
  execution<cpu> where{stream, workspace, on.properties()};
  std::array<float, 12> a{}, b{}, c{};
  std::array<double, 4> sums{};
  kernel::step_scalars scalars{};

  [[nodiscard]] device_span<const kernel::step_scalars, host_memory> scalars_1() const { return span_of(&scalars, 1); }
};

template <class T, std::size_t N>
device_span<T, host_memory> first(std::array<T, N>& of, std::size_t n) {
  return span_of(of.data(), n);
}

}  // namespace

TEST_CASE("muon's operands must have the same number of elements") {
  bench t;
  kernel::muon_momentum<host_memory, float, float, float> momentum{
      .n = 6, .scalars_1 = t.scalars_1(), .gradient_n = first(t.a, 6), .momentum_n = first(t.b, 6), .update_n = first(t.c, 5)};
  CHECK_THROWS_WITH_AS(ops::muon_momentum(t.where, momentum),
                       "muon_momentum: gradient, momentum and update must all have 6 elements; given 6, 6, 5", shape_error);
  momentum.update_n = first(t.c, 6);
  momentum.scalars_1 = {};
  CHECK_THROWS_WITH_AS(ops::muon_momentum(t.where, momentum), "muon_momentum: scalars must be one element; given 0", shape_error);
  CHECK_THROWS_WITH_AS(ops::muon_normalise(t.where, kernel::muon_normalise<host_memory, float, float>{
                                                        .n = 6, .squares_1 = first(t.sums, 2), .u_n = first(t.a, 6), .x_n = first(t.b, 6)}),
                       "muon_normalise: u and x must both have 6 elements, squares one; given 6, 6 and 2", shape_error);
  CHECK_THROWS_WITH_AS(ops::muon(t.where, kernel::muon<host_memory, float, float>{.n = 6,
                                                                                  .scalars_1 = t.scalars_1(),
                                                                                  .update_n = first(t.a, 6),
                                                                                  .master_n = first(t.c, 3),
                                                                                  .parameter_n = first(t.b, 6)}),
                       "muon: update, parameter and master must all have 6 elements; given 6, 6, 3", shape_error);
}

TEST_CASE("adafactor's operands must be of the rows and columns that the elements are in") {
  bench t;
  // 6 elements from the third of a row of 4 on: rows 0 and 1
  kernel::adafactor_squares<host_memory, float> squares{.n = 6,
                                                        .columns = 4,
                                                        .first = 2,
                                                        .scalars_1 = t.scalars_1(),
                                                        .gradient_n = first(t.a, 6),
                                                        .row_sum_r = first(t.sums, 3),
                                                        .column_sum_c = first(t.sums, 4)};
  CHECK_THROWS_WITH_AS(ops::adafactor_squares(t.where, squares),
                       "adafactor_squares: gradient must have 6 elements, in 2 rows and 4 columns; given 6 elements and sums of 3 rows and 4 columns",
                       shape_error);
  CHECK_THROWS_AS(ops::adafactor_factors(t.where, kernel::adafactor_factors<host_memory, float>{.rows = 2, .columns = 4, .scalars_1 = t.scalars_1()}),
                  shape_error);
  CHECK_THROWS_AS(ops::adafactor_vector(t.where, kernel::adafactor_vector<host_memory, float, float>{.n = 2, .scalars_1 = t.scalars_1()}), shape_error);
  CHECK_THROWS_AS(ops::adafactor_update_squares(t.where, kernel::adafactor_update_squares<host_memory, float, float>{
                                                             .n = 2, .columns = 2, .scalars_1 = t.scalars_1()}),
                  shape_error);
  kernel::adafactor<host_memory, float, float, float, float> step{.n = 6,
                                                                  .columns = 4,
                                                                  .first = 2,
                                                                  .scalars_1 = t.scalars_1(),
                                                                  .gradient_n = first(t.a, 6),
                                                                  .row_r = first(t.c, 2),
                                                                  .column_c = first(t.c, 3),
                                                                  .mean_1 = first(t.sums, 1),
                                                                  .update_squares_1 = first(t.sums, 1),
                                                                  .parameter_n = first(t.b, 6)};
  CHECK_THROWS_WITH_AS(ops::adafactor(t.where, step), "adafactor: factors must be of 2 rows and 4 columns, or v of 6 elements; given 2, 3 and 0",
                       shape_error);
  step.m_n = first(t.c, 5);
  CHECK_THROWS_WITH_AS(ops::adafactor(t.where, step), "adafactor: gradient, parameter, master and m must all have 6 elements; given 6, 6, 0, 5",
                       shape_error);
}
