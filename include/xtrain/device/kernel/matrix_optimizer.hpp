// Optimizers over entire matrices: muon and adafactor. They read `scalars_1` from device memory; if `applies` is 0, weights and state are unchanged.
//
// A rank may step only some elements: adafactor's kernels work on a range in row-major order. Operand element i is element `first` + i of rows of `columns`
// elements; operands by row and column have a value each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain::kernel {

/// Muon's momentum, and the update to orthogonalize.          [Jordan et al. 2024; torch.optim.Muon]
///   g = gradient · gradient_scale,   momentum = beta·momentum + (1−beta)·g
///   update = beta·momentum + (1−beta)·g with `nesterov`, else momentum
///   scalars_1    read      gradient_scale, applies (0: update is 0)
///   gradient_n   read
///   momentum_n   updated   rounded to nearest; if `stochastic`, stochastically by `random`
///   update_n     written
///   departs from  Jordan et al., who do not multiply the gradient by (1−beta): the scale of an orthogonalized update does not matter
template <class Memory, class G, class S, class U>
struct muon_momentum {
  static constexpr std::string_view name = "muon_momentum";
  template <class To>
  using on = muon_momentum<To, G, S, U>;

  std::size_t n = 0;
  double beta = 0;
  bool nesterov = true;
  bool stochastic = false;
  random_site random{};
  read<step_scalars, Memory> scalars_1{};
  read<G, Memory> gradient_n{};
  updated<S, Memory> momentum_n{};
  written<U, Memory> update_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.beta, s.nesterov, s.stochastic, s.random, s.scalars_1, s.gradient_n, s.momentum_n, s.update_n);
  }
  [[nodiscard]] constexpr double operations() const { return 7.0 * static_cast<double>(n); }
};

/// x = u / max(sqrt(squares), epsilon): divided by the Frobenius norm, singular values are at most 1.
///   squares_1   read      Σ u²
///   u_n         read
///   x_n         written   rounded once
template <class Memory, class U, class T>
struct muon_normalise {
  static constexpr std::string_view name = "muon_normalise";
  template <class To>
  using on = muon_normalise<To, U, T>;

  std::size_t n = 0;
  double epsilon = 0;
  read<double, Memory> squares_1{};
  read<U, Memory> u_n{};
  written<T, Memory> x_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.epsilon, s.squares_1, s.u_n, s.x_n);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n); }
};

/// w = w − learning_rate·decay·w − learning_rate·rate·update
///   scalars_1     read      learning_rate, applies
///   update_n      read      orthogonalized
///   master_n      updated   empty without master copy
///   parameter_n   updated   rounded as in adamw
template <class Memory, class P, class M>
struct muon {
  static constexpr std::string_view name = "muon";
  template <class To>
  using on = muon<To, P, M>;

  std::size_t n = 0;
  double rate = 1, decay = 0;
  bool stochastic = false;
  random_site random{};
  read<step_scalars, Memory> scalars_1{};
  read<P, Memory> update_n{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.rate, s.decay, s.stochastic, s.random, s.scalars_1, s.update_n, s.master_n, s.parameter_n);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n); }
};

/// row_sum_r += Σ g² by row, column_sum_c += Σ g² by column, g = gradient · gradient_scale.
///   scalars_1      read      gradient_scale
///   gradient_n     read
///   row_sum_r      updated   rows of the elements, in order
///   column_sum_c   updated
///   rounding       squares and sums in double, in an order independent of the number of threads
template <class Memory, class G>
struct adafactor_squares {
  static constexpr std::string_view name = "adafactor_squares";
  template <class To>
  using on = adafactor_squares<To, G>;

  std::size_t n = 0, columns = 0, first = 0;
  read<step_scalars, Memory> scalars_1{};
  read<G, Memory> gradient_n{};
  updated<double, Memory> row_sum_r{}, column_sum_c{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.columns, s.first, s.scalars_1, s.gradient_n, s.row_sum_r, s.column_sum_c);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n); }
};

/// Factors of a matrix's second moment.                                [Shazeer & Stern 2018, algorithm 4]
///   beta2 = 1 − update^decay_rate
///   row = beta2·row + (1−beta2)·(row_sum/columns + epsilon),   column = beta2·column + (1−beta2)·(column_sum/rows + epsilon)
///   mean = mean of row
///   scalars_1                  read      update, applies
///   row_sum_r, column_sum_c    read
///   row_r, column_c            updated   F: rounded once
///   mean_1                     written
template <class Memory, class F>
struct adafactor_factors {
  static constexpr std::string_view name = "adafactor_factors";
  template <class To>
  using on = adafactor_factors<To, F>;

  std::size_t rows = 0, columns = 0;
  double decay_rate = 0, epsilon = 0;
  read<step_scalars, Memory> scalars_1{};
  read<double, Memory> row_sum_r{}, column_sum_c{};
  updated<F, Memory> row_r{}, column_c{};
  written<double, Memory> mean_1{};

  template <class Self, class Visit>
  static constexpr decltype(auto) fields(Self& s, Visit&& f) {
    return f(s.rows, s.columns, s.decay_rate, s.epsilon, s.scalars_1, s.row_sum_r, s.column_sum_c, s.row_r, s.column_c, s.mean_1);
  }
  [[nodiscard]] constexpr double operations() const { return 5.0 * static_cast<double>(rows + columns); }
};

/// Unfactored second moment of a vector: v = beta2·v + (1−beta2)·(g² + epsilon); squares += Σ g²/v.
///   scalars_1    read      gradient_scale, update, applies (0: nothing is added)
///   gradient_n   read
///   v_n          updated   F: rounded once
///   squares_1    updated   in double, as in adafactor_squares
template <class Memory, class G, class F>
struct adafactor_vector {
  static constexpr std::string_view name = "adafactor_vector";
  template <class To>
  using on = adafactor_vector<To, G, F>;

  std::size_t n = 0;
  double decay_rate = 0, epsilon = 0;
  read<step_scalars, Memory> scalars_1{};
  read<G, Memory> gradient_n{};
  updated<F, Memory> v_n{};
  updated<double, Memory> squares_1{};

  template <class Self, class Visit>
  static constexpr decltype(auto) fields(Self& s, Visit&& f) {
    return f(s.n, s.decay_rate, s.epsilon, s.scalars_1, s.gradient_n, s.v_n, s.squares_1);
  }
  [[nodiscard]] constexpr double operations() const { return 8.0 * static_cast<double>(n); }
};

/// squares += Σ u², u = g / sqrt(row·column/mean), a matrix's update before clipping.
///   scalars_1                 read      gradient_scale, applies (0: nothing is added)
///   gradient_n                read
///   row_r, column_c, mean_1   read      after adafactor_factors
///   squares_1                 updated   in double, as in adafactor_squares
template <class Memory, class G, class F>
struct adafactor_update_squares {
  static constexpr std::string_view name = "adafactor_update_squares";
  template <class To>
  using on = adafactor_update_squares<To, G, F>;

  std::size_t n = 0, columns = 0, first = 0;
  read<step_scalars, Memory> scalars_1{};
  read<G, Memory> gradient_n{};
  read<F, Memory> row_r{}, column_c{};
  read<double, Memory> mean_1{};
  updated<double, Memory> squares_1{};

  template <class Self, class Visit>
  static constexpr decltype(auto) fields(Self& s, Visit&& f) {
    return f(s.n, s.columns, s.first, s.scalars_1, s.gradient_n, s.row_r, s.column_c, s.mean_1, s.squares_1);
  }
  [[nodiscard]] constexpr double operations() const { return 6.0 * static_cast<double>(n); }
};

/// Size of adafactor's steps.
struct adafactor_rate {
  bool scale_parameter = false, relative_step = false, warmup_init = false, at_most_learning_rate = false;
  double clip_threshold = 1, min_scale = 1e-3;
  double learning_rate_factor = 1;  ///< this parameter's
  double elements = 1;  ///< of the unsharded parameter

  friend bool operator==(const adafactor_rate&, const adafactor_rate&) = default;

  /// Factor on the update divided by its clipped root mean square. weight_squares: Σ w² over the unsharded parameter.
  [[nodiscard]] double step(const step_scalars& scalars, double weight_squares) const {
    const double own_rate = scalars.learning_rate * learning_rate_factor;
    double rate = own_rate;
    if (relative_step) {
      const double limit = at_most_learning_rate ? own_rate : warmup_init ? 1e-6 * scalars.update : 1e-2;
      rate = std::min(limit, 1.0 / std::sqrt(scalars.update));
    }
    return scale_parameter ? rate * std::max(min_scale, std::sqrt(weight_squares / elements)) : rate;
  }
  [[nodiscard]] double clip(double update_squares) const { return std::max(1.0, std::sqrt(update_squares / elements) / clip_threshold); }
};

/// Adafactor's step.                                              [Shazeer & Stern 2018, algorithms 4 and 5]
///   u = g / sqrt(row·column/mean), of a vector g / sqrt(v)
///   rate = learning_rate or min(limit, 1/sqrt(update)), times max(min_scale, rms(w)) if parameters are scaled
///   u = rate · u / max(1, rms(u)/clip_threshold),   with a first moment m = beta1·m + (1−beta1)·u, and u = m
///   w = w − rate·weight_decay·w − u
///   scalars_1                  read      learning_rate, gradient_scale, update, applies
///   gradient_n                 read
///   row_r, column_c, mean_1    read      of a matrix; empty for a vector
///   v_n                        read      of a vector; empty for a matrix
///   weight_squares_1           read      Σ w² over the unsharded parameter; empty if parameters are not scaled
///   update_squares_1           read      Σ u² over the unsharded parameter
///   master_n, parameter_n      updated   as in adamw
///   m_n                        updated   S: rounded as parameters; empty without first moment
template <class Memory, class P, class G, class M, class S>
struct adafactor {
  static constexpr std::string_view name = "adafactor";
  template <class To>
  using on = adafactor<To, P, G, M, S>;
  using factor = accumulate_t<S>;

  std::size_t n = 0, columns = 0, first = 0;
  adafactor_rate rate{};
  double beta1 = 0, weight_decay = 0;
  bool stochastic = false;
  random_site random{};
  read<step_scalars, Memory> scalars_1{};
  read<G, Memory> gradient_n{};
  read<factor, Memory> row_r{}, column_c{};
  read<double, Memory> mean_1{};
  read<factor, Memory> v_n{};
  read<double, Memory> weight_squares_1{}, update_squares_1{};
  updated<M, Memory> master_n{};
  updated<P, Memory> parameter_n{};
  updated<S, Memory> m_n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.columns, s.first, s.rate, s.beta1, s.weight_decay, s.stochastic, s.random, s.scalars_1, s.gradient_n, s.row_r, s.column_c,
             s.mean_1, s.v_n, s.weight_squares_1, s.update_squares_1, s.master_n, s.parameter_n, s.m_n);
  }
  [[nodiscard]] constexpr double operations() const { return 10.0 * static_cast<double>(n); }
};

}  // namespace xtrain::kernel
