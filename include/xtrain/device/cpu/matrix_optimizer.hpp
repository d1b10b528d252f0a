// Optimizers over entire matrices: vectorized elementwise passes; sums in double, in an order independent of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/optimizer.hpp>
#include <xtrain/device/cpu/random.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/matrix_optimizer.hpp>

namespace xtrain {

namespace cpu_kernels {

template <class Arch, class G, class S, class U>
void muon_momentum_elements(const cpu_stream& stream, const kernel::muon_momentum<host_memory, G, S, U>& k) {
  using A = accumulate_t<S>;
  using batch = simd::batch<A, Arch>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const batch scale = of(scalars.gradient_scale), beta = of(k.beta), added = of(1.0 - k.beta);
  const bool applies = scalars.applies != 0;
  for_each_element<Arch, A>(stream, k.n, k.stochastic, kernel::random_of(k),
                            [&](std::size_t i, auto count, const std::uint32_t*, const std::uint32_t* words) XTRAIN_LAMBDA_INLINE {
                              if (!applies) return simd::store(k.update_n.raw() + i, batch(A{0}), count);
                              const batch g = simd::load<Arch>(k.gradient_n.raw() + i, count) * scale;
                              const batch momentum = beta * simd::load<Arch>(k.momentum_n.raw() + i, count) + added * g;
                              if (words != nullptr) store_stochastic(k.momentum_n.raw() + i, momentum, words, 0, count);
                              else simd::store(k.momentum_n.raw() + i, momentum, count);
                              simd::store(k.update_n.raw() + i, k.nesterov ? beta * momentum + added * g : momentum, count);
                            });
}

template <class Arch, class U, class T>
void muon_normalise_elements(const cpu_stream& stream, const kernel::muon_normalise<host_memory, U, T>& k) {
  using A = accumulate_t<U>;
  const simd::batch<A, Arch> factor(static_cast<A>(1.0 / std::max(std::sqrt(*k.squares_1.raw()), k.epsilon)));
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE {
      simd::store(k.x_n.raw() + i, simd::load<Arch>(k.u_n.raw() + i, count) * factor, count);
    });
  });
}

template <class Arch, class P, class M>
void muon_elements(const cpu_stream& stream, const kernel::muon<host_memory, P, M>& k) {
  using A = accumulate_t<M>;
  using batch = simd::batch<A, Arch>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const batch rate(static_cast<A>(scalars.learning_rate * k.rate)), decay(static_cast<A>(scalars.learning_rate * k.decay));
  const bool has_master = !k.master_n.empty();
  for_each_element<Arch, A>(
      stream, k.n, k.stochastic, kernel::random_of(k),
      [&](std::size_t i, auto count, const std::uint32_t* words, const std::uint32_t*) XTRAIN_LAMBDA_INLINE {
        batch weight = has_master ? simd::load<Arch>(k.master_n.raw() + i, count) : simd::load<Arch>(k.parameter_n.raw() + i, count);
        weight = weight - decay * weight;
        weight = weight - rate * simd::load<Arch>(k.update_n.raw() + i, count);
        if (words != nullptr) store_stochastic(k.parameter_n.raw() + i, weight, words, 0, count);
        else simd::store(k.parameter_n.raw() + i, weight, count);
        if (has_master) simd::store(k.master_n.raw() + i, weight, count);
      });
}

/// n elements in rows of `columns`, from element `first` of a row on.
struct row_pieces {
  std::size_t n = 0, columns = 1, first = 0;

  explicit row_pieces(std::size_t count, std::size_t width, std::size_t begin) : n(count), columns(std::max<std::size_t>(width, 1)), first(begin % columns) {}

  [[nodiscard]] std::size_t rows() const { return n == 0 ? 0 : (first + n - 1) / columns + 1; }
  [[nodiscard]] std::size_t rows_per_part() const { return std::max<std::size_t>(1, elements_per_part / columns); }
  [[nodiscard]] std::size_t parts() const { return (rows() + rows_per_part() - 1) / rows_per_part(); }
  [[nodiscard]] std::size_t begin(std::size_t row) const { return row == 0 ? 0 : row * columns - first; }
  [[nodiscard]] std::size_t end(std::size_t row) const { return std::min(n, (row + 1) * columns - first); }
  [[nodiscard]] std::size_t column(std::size_t row) const { return row == 0 ? first : 0; }
};

/// Σ value(i) over [begin, end) in eight sums, for vectorization.
template <class Value>
[[nodiscard]] XTRAIN_ALWAYS_INLINE double sum_in_lanes(std::size_t begin, std::size_t end, const Value& value) {
  constexpr std::size_t lanes = 8;
  std::array<double, lanes> sums{};
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += value(i + lane);
  for (; i < end; ++i) sums[(i - begin) % lanes] += value(i);
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

template <class G>
void adafactor_square_sums(const cpu_stream& stream, const kernel::adafactor_squares<host_memory, G>& k) {
  const double scale = k.scalars_1.raw()->gradient_scale;
  const row_pieces pieces(k.n, k.columns, k.first);
  const G* const gradient = k.gradient_n.raw();
  const auto square = [&](std::size_t i) {
    const double g = static_cast<double>(gradient[i]) * scale;
    return g * g;
  };
  stream.parallel_ranges(pieces.rows(), pieces.rows_per_part(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) k.row_sum_r.raw()[row] += sum_in_lanes(pieces.begin(row), pieces.end(row), square);
  });
  constexpr std::size_t columns_per_part = 256;
  stream.parallel_ranges(pieces.columns, columns_per_part, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = 0; row < pieces.rows(); ++row) {
      const std::size_t left = pieces.column(row), right = left + (pieces.end(row) - pieces.begin(row)), first = pieces.begin(row);
      for (std::size_t column = std::max(begin, left); column < std::min(end, right); ++column)
        k.column_sum_c.raw()[column] += square(first + (column - left));
    }
  });
}

template <class F>
void adafactor_step_factors(const kernel::adafactor_factors<host_memory, F>& k) {
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  const double added = std::pow(scalars.update, k.decay_rate);  // 1 − beta2
  const auto step = [&](F* factors, const double* sums, std::size_t n, std::size_t summed) {
    if (scalars.applies == 0) return;
    for (std::size_t i = 0; i < n; ++i)
      factors[i] = static_cast<F>((1.0 - added) * static_cast<double>(factors[i]) + added * (sums[i] / static_cast<double>(summed) + k.epsilon));
  };
  step(k.row_r.raw(), k.row_sum_r.raw(), k.rows, k.columns);
  step(k.column_c.raw(), k.column_sum_c.raw(), k.columns, k.rows);
  const double sum = sum_in_lanes(0, k.rows, [&](std::size_t i) { return static_cast<double>(k.row_r.raw()[i]); });
  *k.mean_1.raw() = sum / static_cast<double>(k.rows);
}

/// *to += sums of the parts, in order.
inline void add_parts(double* to, const double* sums, std::size_t parts) {
  double sum = 0;
  for (std::size_t part = 0; part < parts; ++part) sum += sums[part];
  *to += sum;
}

template <class G, class F>
void adafactor_step_vector(const cpu_stream& stream, const kernel::adafactor_vector<host_memory, G, F>& k, double* sums) {
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const double added = std::pow(scalars.update, k.decay_rate);
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    sums[begin / elements_per_part] = sum_in_lanes(begin, end, [&](std::size_t i) {
      const double g = static_cast<double>(k.gradient_n.raw()[i]) * scalars.gradient_scale;
      F& v = k.v_n.raw()[i];
      v = static_cast<F>((1.0 - added) * static_cast<double>(v) + added * (g * g + k.epsilon));
      return g * g / static_cast<double>(v);
    });
  });
  add_parts(k.squares_1.raw(), sums, (k.n + elements_per_part - 1) / elements_per_part);
}

template <class G, class F>
void adafactor_sum_updates(const cpu_stream& stream, const kernel::adafactor_update_squares<host_memory, G, F>& k, double* sums) {
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const row_pieces pieces(k.n, k.columns, k.first);
  stream.parallel_ranges(pieces.rows(), pieces.rows_per_part(), [&](std::size_t begin, std::size_t end) {
    double sum = 0;
    for (std::size_t row = begin; row < end; ++row) {
      const G* const gradient = k.gradient_n.raw() + pieces.begin(row);
      const F* const factor = k.column_c.raw() + pieces.column(row);
      const double of_row = sum_in_lanes(0, pieces.end(row) - pieces.begin(row), [&](std::size_t i) {
        const double g = static_cast<double>(gradient[i]) * scalars.gradient_scale;
        return g * g / static_cast<double>(factor[i]);
      });
      sum += of_row / (static_cast<double>(k.row_r.raw()[row]) / *k.mean_1.raw());
    }
    sums[begin / pieces.rows_per_part()] = sum;
  });
  add_parts(k.squares_1.raw(), sums, pieces.parts());
}

template <class Arch, class P, class G, class M, class S>
void adafactor_elements(const cpu_stream& stream, const kernel::adafactor<host_memory, P, G, M, S>& k) {
  using A = accumulate_t<M>;
  using batch = simd::batch<A, Arch>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const double step = k.rate.step(scalars, k.weight_squares_1.empty() ? 0.0 : *k.weight_squares_1.raw());
  const batch scale = of(step / k.rate.clip(*k.update_squares_1.raw()) * scalars.gradient_scale), decay = of(step * k.weight_decay);
  const batch beta1 = of(k.beta1), added = of(1.0 - k.beta1);
  const random_site random = kernel::random_of(k);
  const bool has_master = !k.master_n.empty(), is_vector = !k.v_n.empty(), has_moment = !k.m_n.empty();
  // elements first … last - 1; second moment row · column[i - first], or column[i - first]
  const auto range = [&](std::size_t first, std::size_t last, double row, const auto* column) {
    const batch row_root = of(std::sqrt(row));
    std::array<std::uint32_t, words_at_once> words{}, state_words{};
    for (std::size_t at = first; at < last; at += words_at_once) {
      if (k.stochastic) {
        random_words(random, at, words);
        random_words(site_after(random), at, state_words);
      }
      simd::for_each_vector<A, Arch>(0, std::min(words_at_once, last - at), [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        const std::size_t i = at + j;
        const batch root = xsimd::sqrt(simd::load<Arch>(column + (i - first), count)) * row_root;
        batch update = scale * simd::load<Arch>(k.gradient_n.raw() + i, count) / root;
        if (has_moment) {
          update = beta1 * simd::load<Arch>(k.m_n.raw() + i, count) + added * update;
          if (k.stochastic) store_stochastic(k.m_n.raw() + i, update, state_words.data() + j, 0, count);
          else simd::store(k.m_n.raw() + i, update, count);
        }
        batch weight = has_master ? simd::load<Arch>(k.master_n.raw() + i, count) : simd::load<Arch>(k.parameter_n.raw() + i, count);
        weight = weight - decay * weight;
        weight = weight - update;
        if (k.stochastic) store_stochastic(k.parameter_n.raw() + i, weight, words.data() + j, 0, count);
        else simd::store(k.parameter_n.raw() + i, weight, count);
        if (has_master) simd::store(k.master_n.raw() + i, weight, count);
      });
    }
  };
  if (is_vector) {
    stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) { range(begin, end, 1.0, k.v_n.raw() + begin); });
    return;
  }
  const row_pieces pieces(k.n, k.columns, k.first);
  stream.parallel_ranges(pieces.rows(), pieces.rows_per_part(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row)
      range(pieces.begin(row), pieces.end(row), static_cast<double>(k.row_r.raw()[row]) / *k.mean_1.raw(), k.column_c.raw() + pieces.column(row));
  });
}

}  // namespace cpu_kernels

template <class G, class S, class U>
requires std::is_same_v<accumulate_t<G>, accumulate_t<S>> && std::is_same_v<accumulate_t<U>, accumulate_t<S>>
void run_native(cpu_stream& stream, const kernel::muon_momentum<host_memory, G, S, U>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::muon_momentum_elements<simd::native>(stream, k);
}
template <class U, class T>
requires std::is_same_v<accumulate_t<T>, accumulate_t<U>>
void run_native(cpu_stream& stream, const kernel::muon_normalise<host_memory, U, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<5>(k);
  cpu_kernels::muon_normalise_elements<simd::native>(stream, k);
}
template <class P, class M>
requires std::is_same_v<accumulate_t<P>, accumulate_t<M>>
void run_native(cpu_stream& stream, const kernel::muon<host_memory, P, M>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  cpu_kernels::muon_elements<simd::native>(stream, k);
}
template <class G>
void run_native(cpu_stream& stream, const kernel::adafactor_squares<host_memory, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  cpu_kernels::adafactor_square_sums(stream, k);
}
template <class F>
void run_native(cpu_stream&, const kernel::adafactor_factors<host_memory, F>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  cpu_kernels::adafactor_step_factors(k);
}
template <class G, class F>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties&, const kernel::adafactor_vector<host_memory, G, F>& k) {
  return (k.n / cpu_kernels::elements_per_part + 1) * sizeof(double);
}
template <class G, class F>
void run_native(cpu_stream& stream, const kernel::adafactor_vector<host_memory, G, F>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<7>(k);
  cpu_kernels::adafactor_step_vector(stream, k, reinterpret_cast<double*>(scratch.raw()));
}
template <class G, class F>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties&, const kernel::adafactor_update_squares<host_memory, G, F>& k) {
  return (cpu_kernels::row_pieces(k.n, k.columns, k.first).parts() + 1) * sizeof(double);
}
template <class G, class F>
void run_native(cpu_stream& stream, const kernel::adafactor_update_squares<host_memory, G, F>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<9>(k);
  cpu_kernels::adafactor_sum_updates(stream, k, reinterpret_cast<double*>(scratch.raw()));
}
template <class P, class G, class M, class S>
requires cpu_kernels::summed_alike<P, G, M, S>
void run_native(cpu_stream& stream, const kernel::adafactor<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<19>(k);
  cpu_kernels::adafactor_elements<simd::native>(stream, k);
}

}  // namespace xtrain
