// Optimizer updates: one pass over flat memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/dynamic_code.hpp>
#include <xtrain/device/cpu/random.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/optimizer.hpp>

namespace xtrain {

namespace cpu_kernels {

/// All four dtypes share the accumulate type, as in every shipped precision.
template <class P, class G, class M, class S>
concept summed_alike = std::is_same_v<accumulate_t<P>, accumulate_t<M>> && std::is_same_v<accumulate_t<G>, accumulate_t<M>> &&
    std::is_same_v<accumulate_t<S>, accumulate_t<M>>;

[[nodiscard]] constexpr random_site site_after(random_site at) {
  ++at.site;
  return at;
}

/// Stochastic rounding; `shift` selects half of each random word.
template <class T, class A, class Arch>
void store_stochastic(T* to, const simd::batch<A, Arch>& x, const std::uint32_t* words, unsigned shift, std::size_t count) {
  std::array<A, simd::width<A, Arch>> lanes;
  x.store_unaligned(lanes.data());
  for (std::size_t i = 0; i < count; ++i) to[i] = rounded_stochastically<T>(lanes[i], words[i] >> shift);
}

/// step(i, count, element i's word, its word at the next site) over [0, n), 64 elements per draw.
template <class Arch, class A, class Step>
void for_each_element(const cpu_stream& stream, std::size_t n, bool stochastic, const random_site& random, const Step& step) {
  stream.parallel_ranges(n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    if (!stochastic) {
      simd::for_each_vector<A, Arch>(begin, end, [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE { step(i, count, nullptr, nullptr); });
      return;
    }
    std::array<std::uint32_t, words_at_once> words, state_words;
    for (std::size_t first = begin; first < end; first += words_at_once) {
      random_words(random, first, words);
      random_words(site_after(random), first, state_words);
      simd::for_each_vector<A, Arch>(0, std::min(words_at_once, end - first),
                                     [&](std::size_t i, auto count) { step(first + i, count, words.data() + i, state_words.data() + i); });
    }
  });
}

template <class Arch, class P, class G, class M, class S>
void adamw_elements(const cpu_stream& stream, const kernel::adamw<host_memory, P, G, M, S>& k) {
  using A = accumulate_t<M>;
  using batch = simd::batch<A, Arch>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const batch scale = of(scalars.gradient_scale), beta1 = of(k.beta1), beta2 = of(k.beta2), new1 = of(1.0 - k.beta1),
              new2 = of(1.0 - k.beta2);
  const batch rate = of(scalars.learning_rate * k.learning_rate_factor), decay = of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay),
              epsilon = of(k.epsilon);
  const batch correction1 = of(k.correction_2.raw()[0]), correction2 = of(k.correction_2.raw()[1]);
  const bool has_master = !k.master_n.empty();
  for_each_element<Arch, A>(
      stream, k.n, k.stochastic, kernel::random_of(k),
      [&](std::size_t i, auto count, const std::uint32_t* words, const std::uint32_t* state_words) XTRAIN_LAMBDA_INLINE {
        const batch g = simd::load<Arch>(k.gradient_n.raw() + i, count) * scale;
        const batch m = beta1 * simd::load<Arch>(k.m_n.raw() + i, count) + new1 * g;
        const batch v = beta2 * simd::load<Arch>(k.v_n.raw() + i, count) + new2 * g * g;
        batch weight = has_master ? simd::load<Arch>(k.master_n.raw() + i, count) : simd::load<Arch>(k.parameter_n.raw() + i, count);
        weight = weight - decay * weight;
        weight = weight - rate * (m * correction1) / (xsimd::sqrt(v * correction2) + epsilon);
        if (words != nullptr) {
          store_stochastic(k.m_n.raw() + i, m, state_words, 0, count);
          store_stochastic(k.v_n.raw() + i, v, state_words, 16, count);
          store_stochastic(k.parameter_n.raw() + i, weight, words, 0, count);
        } else {
          simd::store(k.m_n.raw() + i, m, count);
          simd::store(k.v_n.raw() + i, v, count);
          simd::store(k.parameter_n.raw() + i, weight, count);
        }
        if (has_master) simd::store(k.master_n.raw() + i, weight, count);
      });
}

template <class Arch, class P, class G, class M, class S>
void sgd_elements(const cpu_stream& stream, const kernel::sgd<host_memory, P, G, M, S>& k) {
  using A = accumulate_t<M>;
  using batch = simd::batch<A, Arch>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const batch scale = of(scalars.gradient_scale), momentum = of(k.momentum), rate = of(scalars.learning_rate * k.learning_rate_factor);
  const batch decay = of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay);
  const bool has_master = !k.master_n.empty();
  const bool has_velocity = !k.velocity_n.empty();
  for_each_element<Arch, A>(
      stream, k.n, k.stochastic, kernel::random_of(k),
      [&](std::size_t i, auto count, const std::uint32_t* words, const std::uint32_t* state_words) XTRAIN_LAMBDA_INLINE {
        batch velocity = simd::load<Arch>(k.gradient_n.raw() + i, count) * scale;
        if (has_velocity) {
          velocity = velocity + momentum * simd::load<Arch>(k.velocity_n.raw() + i, count);
          if (words != nullptr) store_stochastic(k.velocity_n.raw() + i, velocity, state_words, 0, count);
          else simd::store(k.velocity_n.raw() + i, velocity, count);
        }
        batch weight = has_master ? simd::load<Arch>(k.master_n.raw() + i, count) : simd::load<Arch>(k.parameter_n.raw() + i, count);
        weight = weight - decay * weight;
        weight = weight - rate * velocity;
        if (words != nullptr) store_stochastic(k.parameter_n.raw() + i, weight, words, 0, count);
        else simd::store(k.parameter_n.raw() + i, weight, count);
        if (has_master) simd::store(k.master_n.raw() + i, weight, count);
      });
}

template <class Arch, class P, class G, class M, class S>
void lion_elements(const cpu_stream& stream, const kernel::lion<host_memory, P, G, M, S>& k) {
  using A = accumulate_t<M>;
  using batch = simd::batch<A, Arch>;
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const batch scale = of(scalars.gradient_scale), beta1 = of(k.beta1), beta2 = of(k.beta2), new1 = of(1.0 - k.beta1),
              new2 = of(1.0 - k.beta2);
  const batch rate = of(scalars.learning_rate * k.learning_rate_factor), decay = of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay),
              zero(A{0});
  const bool has_master = !k.master_n.empty();
  for_each_element<Arch, A>(
      stream, k.n, k.stochastic, kernel::random_of(k),
      [&](std::size_t i, auto count, const std::uint32_t* words, const std::uint32_t* state_words) XTRAIN_LAMBDA_INLINE {
        const batch g = simd::load<Arch>(k.gradient_n.raw() + i, count) * scale;
        const batch before = simd::load<Arch>(k.m_n.raw() + i, count);
        const batch u = beta1 * before + new1 * g, m = beta2 * before + new2 * g;
        batch weight = has_master ? simd::load<Arch>(k.master_n.raw() + i, count) : simd::load<Arch>(k.parameter_n.raw() + i, count);
        weight = weight - decay * weight;
        weight = weight - (xsimd::select(u > zero, rate, zero) - xsimd::select(u < zero, rate, zero));
        if (words != nullptr) {
          store_stochastic(k.m_n.raw() + i, m, state_words, 0, count);
          store_stochastic(k.parameter_n.raw() + i, weight, words, 0, count);
        } else {
          simd::store(k.m_n.raw() + i, m, count);
          simd::store(k.parameter_n.raw() + i, weight, count);
        }
        if (has_master) simd::store(k.master_n.raw() + i, weight, count);
      });
}

template <class Arch, class A>
[[nodiscard]] A largest_lane(const simd::batch<A, Arch>& x) {
  std::array<A, simd::width<A, Arch>> lanes;
  x.store_unaligned(lanes.data());
  return *std::max_element(lanes.begin(), lanes.end());
}

template <class A>
void divide_by_scale(const A* values, float scale, std::size_t count, float* fractions) {
  const float divisor = scale > 0.0f ? scale : std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < count; ++i) fractions[i] = static_cast<float>(values[i]) / divisor;
}

template <class Arch, class P, class G, class M>
void adamw_8bit_blocks(const cpu_stream& stream, const kernel::adamw_8bit<host_memory, P, G, M>& k) {
  using A = accumulate_t<M>;
  using batch = simd::batch<A, Arch>;
  constexpr std::size_t block = dynamic_code::block;
  static_assert(elements_per_part % block == 0 && block % words_at_once == 0);
  const kernel::step_scalars& scalars = *k.scalars_1.raw();
  if (scalars.applies == 0) return;
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const batch scale = of(scalars.gradient_scale), beta1 = of(k.beta1), beta2 = of(k.beta2), new1 = of(1.0 - k.beta1),
              new2 = of(1.0 - k.beta2);
  const batch rate = of(scalars.learning_rate * k.learning_rate_factor), decay = of(scalars.learning_rate * k.learning_rate_factor * k.weight_decay),
              epsilon = of(k.epsilon);
  const batch correction1 = of(k.correction_2.raw()[0]), correction2 = of(k.correction_2.raw()[1]);
  const bool has_master = !k.master_n.empty();
  const random_site random_numbers = kernel::random_of(k);
  stream.parallel_ranges(k.n, elements_per_part, [&](std::size_t begin, std::size_t end) {
    std::array<A, block> m_block, v_block;
    std::array<float, block> m_fraction, v_fraction;
    std::array<std::uint32_t, words_at_once> words;
    for (std::size_t first = begin; first < end; first += block) {
      const std::size_t count_of_block = std::min(block, end - first);
      std::uint8_t *const m_code = k.m_code_n.raw() + first, *const v_code = k.v_code_n.raw() + first;
      float &m_scale = k.m_scale_k.raw()[first / block], &v_scale = k.v_scale_k.raw()[first / block];
      for (std::size_t i = 0; i < count_of_block; ++i) {
        m_block[i] = static_cast<A>(dynamic_code::signed_levels[m_code[i]]) * static_cast<A>(m_scale);
        v_block[i] = static_cast<A>(dynamic_code::unsigned_levels[v_code[i]]) * static_cast<A>(v_scale);
      }
      batch largest_m(A{0}), largest_v(A{0});
      const auto update = [&](std::size_t i, auto count, const std::uint32_t* random) XTRAIN_LAMBDA_INLINE {
        const std::size_t at = first + i;
        const batch g = simd::load<Arch>(k.gradient_n.raw() + at, count) * scale;
        const batch m = beta1 * simd::load<Arch>(m_block.data() + i, count) + new1 * g;
        const batch v = beta2 * simd::load<Arch>(v_block.data() + i, count) + new2 * g * g;
        largest_m = xsimd::max(largest_m, xsimd::abs(m));
        largest_v = xsimd::max(largest_v, v);
        simd::store(m_block.data() + i, m, count);
        simd::store(v_block.data() + i, v, count);
        batch weight = has_master ? simd::load<Arch>(k.master_n.raw() + at, count) : simd::load<Arch>(k.parameter_n.raw() + at, count);
        weight = weight - decay * weight;
        weight = weight - rate * (m * correction1) / (xsimd::sqrt(v * correction2) + epsilon);
        if (random != nullptr) store_stochastic(k.parameter_n.raw() + at, weight, random, 0, count);
        else simd::store(k.parameter_n.raw() + at, weight, count);
        if (has_master) simd::store(k.master_n.raw() + at, weight, count);
      };
      if (!k.stochastic) {
        simd::for_each_vector<A, Arch>(0, count_of_block,
                                       [&](std::size_t i, auto count) XTRAIN_LAMBDA_INLINE { update(i, count, nullptr); });
      } else {
        for (std::size_t drawn = 0; drawn < count_of_block; drawn += words_at_once) {
          random_words(random_numbers, first + drawn, words);
          simd::for_each_vector<A, Arch>(drawn, std::min(drawn + words_at_once, count_of_block),
                                         [&](std::size_t i, auto count) { update(i, count, words.data() + (i - drawn)); });
        }
      }
      m_scale = static_cast<float>(largest_lane(largest_m));
      v_scale = static_cast<float>(largest_lane(largest_v));
      divide_by_scale(m_block.data(), m_scale, count_of_block, m_fraction.data());
      divide_by_scale(v_block.data(), v_scale, count_of_block, v_fraction.data());
      for (std::size_t i = 0; i < count_of_block; ++i) m_code[i] = signed_code_of(m_fraction[i]);
      for (std::size_t i = 0; i < count_of_block; ++i) v_code[i] = unsigned_code_of(v_fraction[i]);
    }
  });
}

}  // namespace cpu_kernels

template <class P, class G, class M, class S>
requires cpu_kernels::summed_alike<P, G, M, S>
void run_native(cpu_stream& stream, const kernel::adamw<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  cpu_kernels::adamw_elements<simd::native>(stream, k);
}
template <class P, class G, class M, class S>
requires cpu_kernels::summed_alike<P, G, M, S>
void run_native(cpu_stream& stream, const kernel::sgd<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<11>(k);
  cpu_kernels::sgd_elements<simd::native>(stream, k);
}
template <class P, class G, class M, class S>
requires cpu_kernels::summed_alike<P, G, M, S>
void run_native(cpu_stream& stream, const kernel::lion<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  cpu_kernels::lion_elements<simd::native>(stream, k);
}
template <class P, class G, class M>
requires cpu_kernels::summed_alike<P, G, M, M>
void run_native(cpu_stream& stream, const kernel::adamw_8bit<host_memory, P, G, M>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  cpu_kernels::adamw_8bit_blocks<simd::native>(stream, k);
}

}  // namespace xtrain
