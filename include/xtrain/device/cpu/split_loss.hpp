// Vocabulary-parallel cross-entropy, one row per part.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/split_loss.hpp>

namespace xtrain {

namespace cpu_kernels {

template <class Arch, class A>
void part_of_rows(const cpu_stream& stream, const kernel::softmax_part<host_memory, A>& k) {
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const A* logits = k.logits_nv.raw() + i * k.v;
      const A largest = *std::max_element(logits, logits + k.v);
      A sum{0};
      std::array<A, simd::width<A, Arch>> lanes{};
      simd::for_each_vector<A, Arch>(0, k.v, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(lanes.data(), simd::exp(simd::load<Arch>(logits + j, count) - batch(largest)), count);
        for (std::size_t lane = 0; lane < count; ++lane) sum += lanes[lane];
      });
      const token target = k.target_n.raw()[i] - k.first;
      k.parts_3n.raw()[i] = largest;
      k.parts_3n.raw()[k.n + i] = sum;
      k.parts_3n.raw()[2 * k.n + i] = target >= 0 && static_cast<std::size_t>(target) < k.v ? logits[target] : A{0};
    }
  });
}

template <class Arch, class A, class T>
void loss_of_rows(const cpu_stream& stream, const kernel::softmax_of_parts<host_memory, A, T>& k) {
  using batch = simd::batch<A, Arch>;
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto part = [&](std::size_t rank, std::size_t what) { return k.parts_r3n.raw()[(rank * 3 + what) * k.n + i]; };
      A largest = part(0, 0), sum{0}, at_target{0};
      std::size_t peak_rank = 0;
      for (std::size_t r = 1; r < k.ranks; ++r) {
        if (part(r, 0) > largest) peak_rank = r;
        largest = std::max(largest, part(r, 0));
      }
      for (std::size_t r = 0; r < k.ranks; ++r) {
        sum += part(r, 1) * std::exp(part(r, 0) - largest);
        at_target += part(r, 2);
      }
      const A lse = largest + std::log(sum);
      const token global = k.target_n.raw()[i], target = global - k.first;
      const bool counted = global >= 0 && static_cast<std::size_t>(global) < k.vocab_size;
      const A z = static_cast<A>(k.z_loss);
      k.loss_n.raw()[i] = counted ? lse - at_target + z * largest * largest : A{0};
      if (k.dlogits_nv.empty()) continue;
      const A* logits = k.logits_nv.raw() + i * k.v;
      T* dlogits = k.dlogits_nv.raw() + i * k.v;
      if (!counted) {
        std::fill_n(dlogits, k.v, T{});
        continue;
      }
      const batch scale(static_cast<A>(k.gradient_scale)), shift(lse);
      simd::for_each_vector<A, Arch>(0, k.v, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(dlogits + j, scale * simd::exp(simd::load<Arch>(logits + j, count) - shift), count);
      });
      const bool has_target = target >= 0 && static_cast<std::size_t>(target) < k.v;
      const auto put = [&](std::size_t j, A onehot) {
        dlogits[j] = static_cast<T>(static_cast<A>(k.gradient_scale) * (std::exp(logits[j] - lse) + onehot));
      };
      if (has_target) put(static_cast<std::size_t>(target), A{-1});
      if (z == A{0} || peak_rank != k.rank) continue;
      const auto peak = static_cast<std::size_t>(std::find(logits, logits + k.v, largest) - logits);
      const bool same = has_target && peak == static_cast<std::size_t>(target);
      if (peak < k.v) put(peak, A{2} * z * largest - (same ? A{1} : A{0}));
    }
  });
}

}  // namespace cpu_kernels

template <class A>
void run_native(cpu_stream& stream, const kernel::softmax_part<host_memory, A>& k, scratch_span<host_memory>) {
  cpu_kernels::part_of_rows<simd::native>(stream, k);
}
template <class A, class T>
void run_native(cpu_stream& stream, const kernel::softmax_of_parts<host_memory, A, T>& k, scratch_span<host_memory>) {
  cpu_kernels::loss_of_rows<simd::native>(stream, k);
}

}  // namespace xtrain
