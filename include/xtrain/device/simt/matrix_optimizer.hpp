// Optimizers over entire matrices, and AdamW with eight-bit moments.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/dynamic_code.hpp>
#include <xtrain/device/kernel/matrix_optimizer.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/optimizer.hpp>
#include <xtrain/device/simt/quantized.hpp>
#include <xtrain/device/simt/two_stage_sum.hpp>

namespace xtrain {

namespace simt {

/// Index of the fraction nearest to value / scale, as the reference's detail::dynamic_code_of.
XTRAIN_SIMT_FN std::uint8_t dynamic_code_of(const table_256& levels, float value, float scale, bool is_signed) {
  const float fraction = scale > 0.0f ? ::fabsf(value) / scale : 0.0f;
  const bool is_negative = is_signed && value < 0.0f;
  // first index from `low` on with midpoint not below the fraction; the largest fraction, 1, has no negative counterpart
  int low = is_signed ? dynamic_code::signed_zero : 0, high = is_negative ? 254 : 255;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (fraction > (levels.level[middle] + levels.level[middle + 1]) * 0.5f) low = middle + 1;
    else high = middle;
  }
  return static_cast<std::uint8_t>(is_negative ? 2 * dynamic_code::signed_zero - low : low);
}

/// A thread block per block of codes.
template <class P, class G, class M>
struct adamw_8bit_blocks {
  static constexpr int threads = static_cast<int>(dynamic_code::block);
  struct shared {
    warp_parts<float, threads> parts;
  };
  const kernel::step_scalars* scalars;
  const double* corrections;
  const G* gradient;
  weights<P, M> w;
  std::uint8_t *m_code, *v_code;
  float *m_scale, *v_scale;
  double learning_rate_factor, weight_decay, beta1, beta2;
  float epsilon;
  rounding_words words;
  std::size_t n;
  table_256 signed_levels, unsigned_levels;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    if (scalars->applies == 0) return;  // the entire grid
    const auto block = static_cast<std::size_t>(block_x());
    const std::size_t i = thread_of_grid(threads);
    const bool exists = i < n;
    float m = 0, v = 0;
    if (exists) {
      const double rate = scalars->learning_rate * learning_rate_factor;
      const auto correction1 = static_cast<float>(corrections[0]), correction2 = static_cast<float>(corrections[1]);
      const float g = widen(gradient[i]) * static_cast<float>(scalars->gradient_scale);
      m = static_cast<float>(beta1) * (signed_levels.level[m_code[i]] * m_scale[block]) + static_cast<float>(1.0 - beta1) * g;
      v = static_cast<float>(beta2) * (unsigned_levels.level[v_code[i]] * v_scale[block]) + static_cast<float>(1.0 - beta2) * g * g;
      float w_i = w.load(i);
      w_i -= static_cast<float>(rate * weight_decay) * w_i;
      w_i -= static_cast<float>(rate) * (m * correction1) / (sqrt(v * correction2) + epsilon);
      w.store(i, w_i, words.stochastic, words.of_parameter(*scalars, i));
    }
    const float m_largest = block_max<threads>(::fabsf(m), s.parts), v_largest = block_max<threads>(v, s.parts);
    if (exists) {
      m_code[i] = dynamic_code_of(signed_levels, m, m_largest, true);
      v_code[i] = dynamic_code_of(unsigned_levels, v, v_largest, false);
    }
    if (thread() == 0) m_scale[block] = m_largest, v_scale[block] = v_largest;  // all have read them before block_max's barriers
  }
};

template <class M, class G, class S, class U>
struct muon_momentum_work {
  kernel::muon_momentum<M, G, S, U> k;
  XTRAIN_SIMT_FN void operator()(std::size_t i) const {
    const kernel::step_scalars& scalars = *k.scalars_1.raw();
    if (scalars.applies == 0) {
      k.update_n.raw()[i] = rounded<U>(0.0f);
      return;
    }
    const auto beta = static_cast<float>(k.beta), rest = static_cast<float>(1.0 - k.beta);
    const float g = widen(k.gradient_n.raw()[i]) * static_cast<float>(scalars.gradient_scale);
    const float momentum = beta * widen(k.momentum_n.raw()[i]) + rest * g;
    k.momentum_n.raw()[i] = stored<S>(momentum, k.stochastic, rounding_words{k.random, k.stochastic}.of_state(scalars, i));
    k.update_n.raw()[i] = rounded<U>(k.nesterov ? beta * momentum + rest * g : momentum);
  }
};
template <class M, class U, class T>
struct muon_normalise_work {
  kernel::muon_normalise<M, U, T> k;
  XTRAIN_SIMT_FN void operator()(std::size_t i) const {
    const auto factor = static_cast<float>(1.0 / larger(::sqrt(*k.squares_1.raw()), k.epsilon));
    k.x_n.raw()[i] = rounded<T>(widen(k.u_n.raw()[i]) * factor);
  }
};
template <class M, class P, class Master>
struct muon_work {
  kernel::muon<M, P, Master> k;
  XTRAIN_SIMT_FN void operator()(std::size_t i) const {
    const kernel::step_scalars& scalars = *k.scalars_1.raw();
    if (scalars.applies == 0) return;
    const weights<P, Master> w{k.master_n.raw(), k.parameter_n.raw()};
    float w_i = w.load(i);
    w_i -= static_cast<float>(scalars.learning_rate * k.decay) * w_i;
    w_i -= static_cast<float>(scalars.learning_rate * k.rate) * widen(k.update_n.raw()[i]);
    w.store(i, w_i, k.stochastic, rounding_words{k.random, k.stochastic}.of_parameter(scalars, i));
  }
};

/// Elements of a range in their matrix.
struct matrix_range {
  std::size_t n, columns, first;
  XTRAIN_SIMT_FN std::size_t row(std::size_t i) const { return (first + i) / columns - first / columns; }
  XTRAIN_SIMT_FN std::size_t column(std::size_t i) const { return (first + i) % columns; }
  [[nodiscard]] std::size_t rows() const { return n == 0 ? 0 : (first + n - 1) / columns - first / columns + 1; }
};

/// A block per row: Σ g².
template <class G>
struct row_squares {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<double, threads> parts;
  };
  const kernel::step_scalars* scalars;
  const G* gradient;
  double* row_sum;
  matrix_range range;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const std::size_t row = static_cast<std::size_t>(block_x()), offset = range.first % range.columns;
    const std::size_t begin = row == 0 ? 0 : row * range.columns - offset, end = smaller((row + 1) * range.columns - offset, range.n);
    double sum = 0;
    for (std::size_t i = begin + static_cast<std::size_t>(thread()); i < end; i += threads) {
      const double g = static_cast<double>(widen(gradient[i])) * scalars->gradient_scale;
      sum += g * g;
    }
    sum = block_sum<threads>(sum, s.parts);
    if (thread() == 0) row_sum[row] += sum;
  }
};
/// A thread per column and group of rows; then groups in order.
template <class G>
struct column_squares {
  static constexpr int threads = row_threads;
  struct shared {};
  const kernel::step_scalars* scalars;
  const G* gradient;
  double* part;
  matrix_range range;
  std::size_t rows_of_group;

  XTRAIN_SIMT_FN void operator()(shared&) const {
    const std::size_t column = thread_of_grid(threads);
    if (column >= range.columns) return;
    const std::size_t offset = range.first % range.columns;
    double sum = 0;
    for (std::size_t row = static_cast<std::size_t>(block_y()) * rows_of_group;
         row < static_cast<std::size_t>(block_y() + 1) * rows_of_group; ++row) {
      const std::size_t of_matrix = row * range.columns + column;
      if (of_matrix < offset || of_matrix - offset >= range.n) continue;
      const double g = static_cast<double>(widen(gradient[of_matrix - offset])) * scalars->gradient_scale;
      sum += g * g;
    }
    part[static_cast<std::size_t>(block_y()) * range.columns + column] = sum;
  }
};
struct add_column_squares {
  const double* part;
  double* column_sum;
  std::size_t columns;
  int groups;
  XTRAIN_SIMT_FN void operator()(std::size_t j) const {
    double sum = 0;
    for (int g = 0; g < groups; ++g) sum += part[static_cast<std::size_t>(g) * columns + j];
    column_sum[j] += sum;
  }
};

template <class M, class F>
struct factors_block {
  static constexpr int threads = row_threads;
  struct shared {
    warp_parts<double, threads> parts;
  };
  kernel::adafactor_factors<M, F> k;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const kernel::step_scalars& scalars = *k.scalars_1.raw();
    const double added = ::pow(scalars.update, k.decay_rate);  // 1 − beta2
    const auto step = [&](F& factor, double mean) {
      if (scalars.applies != 0) factor = static_cast<F>((1.0 - added) * static_cast<double>(factor) + added * (mean + k.epsilon));
    };
    double sum = 0;
    for (auto i = static_cast<std::size_t>(thread()); i < k.rows; i += threads) {
      step(k.row_r.raw()[i], k.row_sum_r.raw()[i] / static_cast<double>(k.columns));
      sum += static_cast<double>(k.row_r.raw()[i]);
    }
    for (auto i = static_cast<std::size_t>(thread()); i < k.columns; i += threads)
      step(k.column_c.raw()[i], k.column_sum_c.raw()[i] / static_cast<double>(k.rows));
    sum = block_sum<threads>(sum, s.parts);
    if (thread() == 0) *k.mean_1.raw() = sum / static_cast<double>(k.rows);
  }
};

/// Σ g²/v; updates v.
template <class G, class F>
struct vector_term {
  const kernel::step_scalars* scalars;
  const G* gradient;
  F* v;
  double decay_rate, epsilon;

  XTRAIN_SIMT_FN double at(std::size_t i) const {
    if (scalars->applies == 0) return 0.0;
    const double added = ::pow(scalars->update, decay_rate), g = static_cast<double>(widen(gradient[i])) * scalars->gradient_scale;
    v[i] = static_cast<F>((1.0 - added) * static_cast<double>(v[i]) + added * (g * g + epsilon));
    return g * g / static_cast<double>(v[i]);
  }
};
template <class G, class F>
struct update_square_term {
  const kernel::step_scalars* scalars;
  const G* gradient;
  const F *row_factor, *column_factor;
  const double* mean;
  matrix_range range;

  XTRAIN_SIMT_FN double at(std::size_t i) const {
    if (scalars->applies == 0) return 0.0;
    const double g = static_cast<double>(widen(gradient[i])) * scalars->gradient_scale;
    return g * g / (static_cast<double>(row_factor[range.row(i)]) / *mean) / static_cast<double>(column_factor[range.column(i)]);
  }
};

template <class M, class P, class G, class Master, class S>
struct adafactor_launch {
  static constexpr int threads = 256;
  struct shared {
    shared_array<double, 2> step;  // scale of an update, decay
  };
  kernel::adafactor<M, P, G, Master, S> k;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const kernel::step_scalars& scalars = *k.scalars_1.raw();
    if (scalars.applies == 0) return;  // the entire grid
    if (thread() == 0) {
      const kernel::adafactor_rate& r = k.rate;
      const double own = scalars.learning_rate * r.learning_rate_factor;
      double rate = own;
      if (r.relative_step)
        rate = smaller(r.at_most_learning_rate ? own : r.warmup_init ? 1e-6 * scalars.update : 1e-2, 1.0 / ::sqrt(scalars.update));
      if (r.scale_parameter)
        rate *= larger(r.min_scale, ::sqrt((k.weight_squares_1.empty() ? 0.0 : *k.weight_squares_1.raw()) / r.elements));
      const double clip = larger(1.0, ::sqrt(*k.update_squares_1.raw() / r.elements) / r.clip_threshold);
      s.step[0] = rate / clip * scalars.gradient_scale;
      s.step[1] = rate * k.weight_decay;
    }
    sync();
    const std::size_t i = thread_of_grid(threads);
    if (i >= k.n) return;
    const matrix_range range{k.n, k.columns, k.first};
    float divisor = 0;  // square root of the second moment
    if (k.v_n.empty()) {
      const double of_row = ::sqrt(static_cast<double>(k.row_r.raw()[range.row(i)]) / *k.mean_1.raw());
      divisor = static_cast<float>(of_row) * sqrt(static_cast<float>(k.column_c.raw()[range.column(i)]));
    } else {
      divisor = sqrt(static_cast<float>(k.v_n.raw()[i]));
    }
    const rounding_words words{k.random, k.stochastic};
    float update = static_cast<float>(s.step[0]) * widen(k.gradient_n.raw()[i]) / divisor;
    if (!k.m_n.empty()) {
      update = static_cast<float>(k.beta1) * widen(k.m_n.raw()[i]) + static_cast<float>(1.0 - k.beta1) * update;
      k.m_n.raw()[i] = stored<S>(update, k.stochastic, words.of_state(scalars, i));
    }
    const weights<P, Master> w{k.master_n.raw(), k.parameter_n.raw()};
    float w_i = w.load(i);
    w_i -= static_cast<float>(s.step[1]) * w_i;
    w_i -= update;
    w.store(i, w_i, k.stochastic, words.of_parameter(scalars, i));
  }
};

inline constexpr std::size_t most_square_groups = 64;

}  // namespace simt

template <simt::launches S, class Memory, class P, class G, class M>
requires(simt::up_to_float<P>&& simt::up_to_float<M>) void run_kernel(S& stream, const kernel::adamw_8bit<Memory, P, G, M>& k,
                                                                      scratch_span<Memory>) {
  kernel::check_arity<17>(k);
  if (k.n == 0) return;
  stream.launch(simt::adamw_8bit_blocks<P, G, M>{k.scalars_1.raw(),
                                                 k.correction_2.raw(),
                                                 k.gradient_n.raw(),
                                                 {k.master_n.raw(), k.parameter_n.raw()},
                                                 k.m_code_n.raw(),
                                                 k.v_code_n.raw(),
                                                 k.m_scale_k.raw(),
                                                 k.v_scale_k.raw(),
                                                 k.learning_rate_factor,
                                                 k.weight_decay,
                                                 k.beta1,
                                                 k.beta2,
                                                 simt::narrowed(k.epsilon),
                                                 {k.random, k.stochastic},
                                                 k.n,
                                                 simt::table_of(dynamic_code::signed_levels),
                                                 simt::table_of(dynamic_code::unsigned_levels)},
                {simt::blocks_of(k.n, dynamic_code::block), 1, 1});
}
template <simt::launches S, class M, class G, class State, class U>
requires(simt::up_to_float<G>&& simt::up_to_float<State>) void run_kernel(S& stream, const kernel::muon_momentum<M, G, State, U>& k,
                                                                          scratch_span<M>) {
  kernel::check_arity<9>(k);
  simt::launch_items(stream, simt::muon_momentum_work<M, G, State, U>{k}, k.n);
}
template <simt::launches S, class M, class U, class T>
requires(simt::up_to_float<U>&& simt::up_to_float<T>) void run_kernel(S& stream, const kernel::muon_normalise<M, U, T>& k,
                                                                      scratch_span<M>) {
  kernel::check_arity<5>(k);
  simt::launch_items(stream, simt::muon_normalise_work<M, U, T>{k}, k.n);
}
template <simt::launches S, class M, class P, class Master>
requires(simt::up_to_float<P>&& simt::up_to_float<Master>) void run_kernel(S& stream, const kernel::muon<M, P, Master>& k,
                                                                           scratch_span<M>) {
  kernel::check_arity<9>(k);
  simt::launch_items(stream, simt::muon_work<M, P, Master>{k}, k.n);
}
template <simt::launches S, class M, class G>
requires simt::up_to_float<G>
void run_kernel(S& stream, const kernel::adafactor_squares<M, G>& k, scratch_span<M> scratch) {
  kernel::check_arity<7>(k);
  if (k.n == 0) return;
  const simt::matrix_range range{k.n, k.columns, k.first};
  const std::size_t rows = range.rows(), of_group = simt::parts_of(rows, simt::most_square_groups);
  const int groups = simt::blocks_of(rows, of_group);
  auto* const part = reinterpret_cast<double*>(scratch.raw());
  stream.launch(simt::row_squares<G>{k.scalars_1.raw(), k.gradient_n.raw(), k.row_sum_r.raw(), range}, {static_cast<int>(rows), 1, 1});
  stream.launch(simt::column_squares<G>{k.scalars_1.raw(), k.gradient_n.raw(), part, range, of_group},
                {simt::blocks_of(k.columns, 256), groups, 1});
  simt::launch_items(stream, simt::add_column_squares{part, k.column_sum_c.raw(), k.columns, groups}, k.columns);
}
template <simt::of_simt_device P, class M, class G>
requires simt::up_to_float<G>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::adafactor_squares<M, G>& k) {
  return simt::most_square_groups * k.columns * sizeof(double);
}
template <simt::launches S, class M>
void run_kernel(S& stream, const kernel::adafactor_factors<M, float>& k, scratch_span<M>) {
  kernel::check_arity<10>(k);
  stream.launch(simt::factors_block<M, float>{k}, {1, 1, 1});
}
template <simt::launches S, class M, class G>
requires simt::up_to_float<G>
void run_kernel(S& stream, const kernel::adafactor_vector<M, G, float>& k, scratch_span<M> scratch) {
  kernel::check_arity<7>(k);
  simt::launch_sum<1>(stream, simt::vector_term<G, float>{k.scalars_1.raw(), k.gradient_n.raw(), k.v_n.raw(), k.decay_rate, k.epsilon}, k.n,
                      false, k.squares_1.raw(), true, scratch.raw());
}
template <simt::of_simt_device P, class M, class G>
requires simt::up_to_float<G>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::adafactor_vector<M, G, float>&) { return simt::sum_scratch_bytes; }
template <simt::launches S, class M, class G>
requires simt::up_to_float<G>
void run_kernel(S& stream, const kernel::adafactor_update_squares<M, G, float>& k, scratch_span<M> scratch) {
  kernel::check_arity<9>(k);
  simt::launch_sum<1>(
      stream,
      simt::update_square_term<G, float>{
          k.scalars_1.raw(), k.gradient_n.raw(), k.row_r.raw(), k.column_c.raw(), k.mean_1.raw(), {k.n, k.columns, k.first}},
      k.n, false, k.squares_1.raw(), true, scratch.raw());
}
template <simt::of_simt_device P, class M, class G>
requires simt::up_to_float<G>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::adafactor_update_squares<M, G, float>&) { return simt::sum_scratch_bytes; }
template <simt::launches S, class M, class P, class G, class Master, class State>
requires(simt::up_to_float<P>&& simt::up_to_float<Master>) void run_kernel(S& stream, const kernel::adafactor<M, P, G, Master, State>& k,
                                                                           scratch_span<M>) {
  kernel::check_arity<19>(k);
  if (k.n > 0) stream.launch(simt::adafactor_launch<M, P, G, Master, State>{k}, {simt::blocks_of(k.n, 256), 1, 1});
}

}  // namespace xtrain
