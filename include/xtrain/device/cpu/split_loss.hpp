// Vocabulary-parallel cross-entropy, a row per part.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtrain/device/cpu/loss.hpp>
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
      k.parts_pn.raw()[i] = largest;
      k.parts_pn.raw()[k.n + i] = sum;
      if (k.parts == 4) k.parts_pn.raw()[3 * k.n + i] = sum_of_logits<Arch>(k.v, logits);
      k.parts_pn.raw()[2 * k.n + i] = target >= 0 && static_cast<std::size_t>(target) < k.v ? logits[target] : A{0};
    }
  });
}

template <class Arch, class A, class T>
void loss_of_rows(const cpu_stream& stream, const kernel::softmax_of_parts<host_memory, A, T>& k) {
  using batch = simd::batch<A, Arch>;
  const std::size_t parts = kernel::softmax_parts(k.label_smoothing);
  const A kept = static_cast<A>(1.0 - k.label_smoothing), spread = static_cast<A>(k.label_smoothing / static_cast<double>(k.vocab_size));
  stream.parallel_ranges(k.n, 4, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const auto part = [&](std::size_t rank, std::size_t what) { return k.parts_rpn.raw()[(rank * parts + what) * k.n + i]; };
      A largest = part(0, 0), sum{0}, at_target{0}, total{0};
      std::size_t peak_rank = 0;
      for (std::size_t r = 1; r < k.ranks; ++r) {
        if (part(r, 0) > largest) peak_rank = r;
        largest = std::max(largest, part(r, 0));
      }
      for (std::size_t r = 0; r < k.ranks; ++r) {
        sum += part(r, 1) * std::exp(part(r, 0) - largest);
        at_target += part(r, 2);
        if (parts == 4) total += part(r, 3);
      }
      const A lse = largest + std::log(sum);
      const token global = k.target_n.raw()[i], target = global - k.first;
      const A token_weight = k.token_weight_n.empty() ? A{1} : k.token_weight_n.raw()[i];
      const bool counted = in_table(global, k.vocab_size) && token_weight != A{0};
      const A z = static_cast<A>(k.z_loss), log_z = static_cast<A>(k.log_z_loss);
      k.loss_n.raw()[i] = counted ? token_weight * (lse - kept * at_target - spread * total + z * largest * largest) : A{0};
      if (counted && log_z != A{0}) k.loss_n.raw()[i] += token_weight * log_z * lse * lse;
      if (k.dlogits_nv.empty()) continue;
      const A* logits = k.logits_nv.raw() + i * k.v;
      T* dlogits = k.dlogits_nv.raw() + i * k.v;
      if (!counted) {
        std::fill_n(dlogits, k.v, T{});
        continue;
      }
      const A gradient = static_cast<A>(kernel::gradient_scale_of(k)) * token_weight;
      const A stretch = A{1} + A{2} * log_z * lse;  // factor on the softmax; 1 without log_z
      const batch scale(gradient * stretch), shift(lse), less(gradient * spread);
      simd::for_each_vector<A, Arch>(0, k.v, [&](std::size_t j, auto count) XTRAIN_LAMBDA_INLINE {
        simd::store(dlogits + j, scale * simd::exp(simd::load<Arch>(logits + j, count) - shift) - less, count);
      });
      const bool has_target = target >= 0 && static_cast<std::size_t>(target) < k.v;
      const auto put = [&](std::size_t j, A onehot) {
        dlogits[j] = static_cast<T>(gradient * (std::exp(logits[j] - lse) * stretch - spread + onehot));
      };
      if (has_target) put(static_cast<std::size_t>(target), -kept);
      if (z == A{0} || peak_rank != k.rank) continue;
      const auto peak = static_cast<std::size_t>(std::find(logits, logits + k.v, largest) - logits);
      const bool same = has_target && peak == static_cast<std::size_t>(target);
      if (peak < k.v) put(peak, A{2} * z * largest - (same ? kept : A{0}));
    }
  });
}

}  // namespace cpu_kernels

template <class A>
void run_native(cpu_stream& stream, const kernel::softmax_part<host_memory, A>& k, scratch_span<host_memory>) {
  kernel::check_arity<7>(k);
  cpu_kernels::part_of_rows<simd::native>(stream, k);
}
template <class A, class T>
void run_native(cpu_stream& stream, const kernel::softmax_of_parts<host_memory, A, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  cpu_kernels::loss_of_rows<simd::native>(stream, k);
}

}  // namespace xtrain
