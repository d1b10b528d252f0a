// Attention over a cache of keys and values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include <xtrain/device/cpu/attention_panel.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/kernel/attention.hpp>

namespace xtrain::cpu_kernels {

/// The query at position `now` over cache positions `from` … `end` − 1. `scores`: an element per cache position.
template <class Arch, class T, class A>
void attend_cache(std::size_t from, std::size_t end, std::size_t now, std::size_t d, A scale, A softcap, A slope, const T* q, const T* keys,
                  const T* values, A* scores, A* sums, T* o) {
  using batch = simd::batch<A, Arch>;
  A largest = -std::numeric_limits<A>::infinity();
  for (std::size_t j = from; j < end; ++j) {
    batch dot(A{0});
    simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      dot = simd::multiply_add(simd::load<Arch>(q + c, count), simd::load<Arch>(keys + j * d + c, count), dot);
    });
    scores[j] = simd::sum(dot) * scale;
    if (softcap != A{0}) scores[j] = softcap * std::tanh(scores[j] / softcap);
    scores[j] -= slope * (static_cast<A>(now) - static_cast<A>(j));
    largest = std::max(largest, scores[j]);
  }
  A total{0};
  std::fill_n(sums, d, A{0});
  for (std::size_t j = from; j < end; ++j) {
    const A p = std::exp(scores[j] - largest);
    total += p;
    simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
      simd::store(sums + c, simd::multiply_add(batch(p), simd::load<Arch>(values + j * d + c, count), simd::load<Arch>(sums + c, count)),
                  count);
    });
  }
  simd::for_each_vector<A, Arch>(0, d, [&](std::size_t c, auto count) XTRAIN_LAMBDA_INLINE {
    simd::store(o + c, simd::load<Arch>(sums + c, count) * batch(A{1} / total), count);
  });
}

template <class T>
[[nodiscard]] std::size_t cache_of(const kernel::cached_attention<host_memory, T>& k, std::size_t b, std::size_t group) {
  return (b * k.shape.k + group) * k.capacity * k.shape.d;
}

/// Appends a head's keys and values to the cache.
template <class T>
void extend_cache(const kernel::cached_attention<host_memory, T>& k, std::size_t b, std::size_t group) {
  const kernel::attention_shape& s = k.shape;
  const std::size_t cache = cache_of(k, b, group) + static_cast<std::size_t>(k.length_b.raw()[b]) * s.d;
  for (std::size_t i = 0; i < s.t; ++i) {
    const T* new_row = k.qkv.raw() + (b * s.t + i) * s.row() + group * s.d;
    std::copy_n(new_row + s.key_offset(), s.d, k.k_cache.raw() + cache + i * s.d);
    std::copy_n(new_row + s.value_offset(), s.d, k.v_cache.raw() + cache + i * s.d);
  }
}

template <class Arch, class T>
void attend_cache_group(const kernel::cached_attention<host_memory, T>& k, std::size_t b, std::size_t group, std::byte* memory) {
  using A = accumulate_t<T>;
  const kernel::attention_shape& s = k.shape;
  A* scores = reinterpret_cast<A*>(memory);
  A* sums = scores + k.capacity;
  const auto before = static_cast<std::size_t>(k.length_b.raw()[b]);
  const std::size_t cache = cache_of(k, b, group);
  const std::size_t heads = s.h / s.k;
  for (std::size_t i = 0; i < s.t; ++i) {
    const std::size_t now = before + i, end = kernel::end_seen(k.end_bt.raw(), b * s.t + i, now);
    for (std::size_t h = group * heads; h < (group + 1) * heads; ++h)
      attend_cache<Arch>(kernel::first_seen(0, k.window, now), end, now, s.d, static_cast<A>(k.scale), static_cast<A>(k.softcap),
                         k.slope_h.empty() ? A{0} : static_cast<A>(k.slope_h.raw()[h]), k.qkv.raw() + (b * s.t + i) * s.row() + h * s.d,
                         k.k_cache.raw() + cache, k.v_cache.raw() + cache, scores, sums, k.o_bthd.raw() + ((b * s.t + i) * s.h + h) * s.d);
  }
}

/// From so many new tokens on, panels are faster than single queries.
inline constexpr std::size_t queries_worth_packing = 8;

template <class Arch, class T>
[[nodiscard]] std::size_t cache_worker_bytes(const kernel::cached_attention<host_memory, T>& k) {
  if (k.shape.t >= queries_worth_packing) return attention_work<Arch, T>(nullptr, k, k.capacity, false).bytes;
  return product_plan::round_up((k.capacity + k.shape.d) * sizeof(accumulate_t<T>), 64);
}

}  // namespace xtrain::cpu_kernels
