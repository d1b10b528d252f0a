// Optimizer updates: one pass over flat memory.
#pragma once

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/random.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/optimizer.hpp>

namespace xtrain {

namespace cpu_kernels {

/// All four dtypes have the same accumulate type, as in every precision that ships.
template <class P, class G, class M, class S>
concept summed_alike = std::is_same_v<accumulate_t<P>, accumulate_t<M>> && std::is_same_v<accumulate_t<G>, accumulate_t<M>> &&
    std::is_same_v<accumulate_t<S>, accumulate_t<M>>;

[[nodiscard]] constexpr random_site site_after(random_site at) {
  ++at.site;
  return at;
}

/// Stores lanes with stochastic rounding; `shift` selects the half of each random word.
template <class T, class A, class Arch>
void store_stochastic(T* to, const simd::batch<A, Arch>& x, const std::uint32_t* words, unsigned shift, std::size_t count) {
  std::array<A, simd::width<A, Arch>> lanes;
  x.store_unaligned(lanes.data());
  for (std::size_t i = 0; i < count; ++i) to[i] = rounded_stochastically<T>(lanes[i], words[i] >> shift);
}

/// step(i, count, word of element i, word of element i at the next site) over [0, n), 64 elements per draw.
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
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const batch scale = of(k.gradient_scale), beta1 = of(k.beta1), beta2 = of(k.beta2), new1 = of(1.0 - k.beta1), new2 = of(1.0 - k.beta2);
  const batch rate = of(k.learning_rate), decay = of(k.learning_rate * k.weight_decay), epsilon = of(k.epsilon);
  const batch correction1 = of(k.correction1), correction2 = of(k.correction2);
  const bool has_master = !k.master_n.empty();
  for_each_element<Arch, A>(
      stream, k.n, k.stochastic, k.random,
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
  const auto of = [](double setting) { return batch(static_cast<A>(setting)); };
  const batch scale = of(k.gradient_scale), momentum = of(k.momentum), rate = of(k.learning_rate);
  const batch decay = of(k.learning_rate * k.weight_decay);
  const bool has_master = !k.master_n.empty();
  const bool has_velocity = !k.velocity_n.empty();
  for_each_element<Arch, A>(
      stream, k.n, k.stochastic, k.random,
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

}  // namespace cpu_kernels

template <class P, class G, class M, class S>
requires cpu_kernels::summed_alike<P, G, M, S>
void run_native(cpu_stream& stream, const kernel::adamw<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  cpu_kernels::adamw_elements<simd::native>(stream, k);
}
template <class P, class G, class M, class S>
requires cpu_kernels::summed_alike<P, G, M, S>
void run_native(cpu_stream& stream, const kernel::sgd<host_memory, P, G, M, S>& k, scratch_span<host_memory>) {
  cpu_kernels::sgd_elements<simd::native>(stream, k);
}

}  // namespace xtrain
