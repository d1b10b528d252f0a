// Conformance cases: optimizers over entire matrices.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/matrix_optimizer.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

/// n elements of a matrix with rows of `columns`, from element `first` of a row.
struct matrix_range {
  std::size_t n = 0, columns = 0, first = 0;

  [[nodiscard]] std::size_t rows() const { return (first + n - 1) / columns + 1; }
};

template <class T, class Suite>
void check_matrix_optimizers(Suite& suite) {
  using acc = accumulate_t<T>;
  // a step, and a skipped step
  static constexpr std::array<kernel::step_scalars, 2> all_scalars{
      {{.learning_rate = 0.01, .gradient_scale = 0.5, .update = 3, .number = 2},
       {.learning_rate = 0.01, .gradient_scale = 0.5, .update = 3, .applies = 0}}};
  // part of a row; of several; whole rows; rows longer than a thread's chunk
  static constexpr std::array<matrix_range, 5> ranges{{{1, 1, 0}, {5, 9, 3}, {67, 10, 7}, {60 * 70, 70, 0}, {50000, 20001, 11}}};
  const random_site random{.seed = 11, .step = 3, .site = 1, .first = 6};
  for (const kernel::step_scalars& scalars : all_scalars) {
    const auto read_scalars = span_of(&scalars, 1);
    for (const matrix_range& range : ranges) {
      const std::size_t n = range.n, rows = range.rows(), columns = range.columns;
      const auto muon = [&]<class G, class M, class S>(bool master, bool stochastic) {
        case_memory mem;
        kernel::muon_momentum<host_memory, G, S, acc> momentum{
            .n = n, .beta = 0.9, .nesterov = !stochastic, .stochastic = stochastic, .random = random, .scalars_1 = read_scalars};
        momentum.gradient_n = mem.numbers<G>(n);
        momentum.momentum_n = mem.numbers<S>(n);
        momentum.update_n = mem.numbers<acc>(n);
        suite.template check_kernel<T>(momentum, 4.0, 1.0);
        kernel::muon<host_memory, T, M> step{
            .n = n, .rate = 2.0, .decay = 0.5, .stochastic = stochastic, .random = random, .scalars_1 = read_scalars};
        step.update_n = mem.numbers<T>(n);
        if (master) step.master_n = mem.numbers<M>(n);
        step.parameter_n = mem.numbers<T>(n);
        suite.template check_kernel<T>(step, 4.0, 1.0);
      };
      const auto adafactor = [&]<class G, class M, class S>(bool master, bool stochastic) {
        using factor = accumulate_t<S>;
        case_memory mem;
        kernel::adafactor_squares<host_memory, G> squares{.n = n, .columns = columns, .first = range.first, .scalars_1 = read_scalars};
        squares.gradient_n = mem.uneven_numbers<G>(n, 1e-3);
        squares.row_sum_r = mem.numbers<double>(rows);
        squares.column_sum_c = mem.numbers<double>(columns);
        suite.template check_kernel<T>(squares, static_cast<double>(n), static_cast<double>(n));
        kernel::adafactor_update_squares<host_memory, G, factor> updates{
            .n = n, .columns = columns, .first = range.first, .scalars_1 = read_scalars};
        updates.gradient_n = squares.gradient_n;
        updates.row_r = mem.numbers<factor>(rows, 0.1, 1.0);
        updates.column_c = mem.numbers<factor>(columns, 0.1, 1.0);
        updates.mean_1 = mem.numbers<double>(1, 0.5, 1.0);
        updates.squares_1 = mem.numbers<double>(1);
        suite.template check_kernel<T>(updates, static_cast<double>(n), 10.0 * static_cast<double>(n));
        kernel::adafactor_vector<host_memory, G, factor> vector{.n = n, .decay_rate = -0.8, .epsilon = 1e-30, .scalars_1 = read_scalars};
        vector.gradient_n = squares.gradient_n;
        vector.v_n = mem.numbers<factor>(n, 0.1, 1.0);
        vector.squares_1 = mem.numbers<double>(1);
        suite.template check_kernel<T>(vector, static_cast<double>(n), 10.0 * static_cast<double>(n));
        for (const bool is_vector : {false, true}) {
          kernel::adafactor<host_memory, T, G, M, S> step{
              .n = n,
              .columns = columns,
              .first = range.first,
              .rate = {.scale_parameter = master, .relative_step = stochastic, .warmup_init = master, .elements = static_cast<double>(n)},
              .beta1 = 0.9,
              .weight_decay = 0.1,
              .stochastic = stochastic,
              .random = random,
              .scalars_1 = read_scalars};
          step.gradient_n = squares.gradient_n;
          if (is_vector) {
            step.v_n = mem.numbers<factor>(n, 0.1, 1.0);
          } else {
            step.row_r = updates.row_r;
            step.column_c = updates.column_c;
            step.mean_1 = updates.mean_1;
          }
          if (master) step.weight_squares_1 = mem.numbers<double>(1, 1.0, 2.0);
          step.update_squares_1 = mem.numbers<double>(1, 0.5 * static_cast<double>(n), 2.0 * static_cast<double>(n));
          if (master) step.master_n = mem.numbers<M>(n);
          step.parameter_n = mem.numbers<T>(n);
          if (!is_vector || stochastic) step.m_n = mem.numbers<S>(n);
          suite.template check_kernel<T>(step, 8.0, 2.0);
        }
      };
      for (const bool stochastic : {false, true}) {
        muon.template operator()<T, acc, acc>(true, stochastic);
        muon.template operator()<T, T, T>(false, stochastic);
        adafactor.template operator()<T, acc, acc>(true, stochastic);
        adafactor.template operator()<T, T, T>(false, stochastic);
        if constexpr (!std::is_same_v<T, acc>) {
          muon.template operator()<acc, acc, acc>(true, stochastic);
          adafactor.template operator()<acc, acc, acc>(true, stochastic);
        }
      }
      case_memory mem;
      kernel::muon_normalise<host_memory, acc, T> normalise{.n = n, .epsilon = 1e-7};
      normalise.squares_1 = mem.numbers<double>(1, 1.0, 2.0);
      normalise.u_n = mem.numbers<acc>(n);
      normalise.x_n = mem.numbers<T>(n);
      suite.template check_kernel<T>(normalise, 1.0, 1.0);
      kernel::adafactor_factors<host_memory, acc> factors{
          .rows = rows, .columns = columns, .decay_rate = -0.8, .epsilon = 1e-30, .scalars_1 = read_scalars};
      factors.row_sum_r = mem.numbers<double>(rows, 0.1, 1.0);
      factors.column_sum_c = mem.numbers<double>(columns, 0.1, 1.0);
      factors.row_r = mem.numbers<acc>(rows, 0.1, 1.0);
      factors.column_c = mem.numbers<acc>(columns, 0.1, 1.0);
      factors.mean_1 = mem.numbers<double>(1);
      suite.template check_kernel<T>(factors, 4.0, 1.0);
    }
  }
}

}  // namespace xtrain::testing::detail
