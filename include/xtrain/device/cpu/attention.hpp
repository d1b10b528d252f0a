// Attention: a panel of queries at a time over blocks of keys. Scores are transposed (keys as rows, queries as columns): per-query work stays in a vector lane,
// and probabilities are a packed operand. Fully masked blocks are skipped.
// [Dao et al. 2022; Rabe & Staats 2021]
#pragma once

#include <cstddef>

#include <xtrain/device/cpu/attention_backward.hpp>
#include <xtrain/device/cpu/attention_cache.hpp>
#include <xtrain/device/cpu/attention_forward.hpp>
#include <xtrain/device/cpu/attention_panel.hpp>
#include <xtrain/device/cpu/simd.hpp>
#include <xtrain/device/cpu/stream.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>

namespace xtrain {

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.shape.t, false).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<13>(k);
  const kernel::attention_shape& s = k.shape;
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, s.t, false).bytes;
  cpu_kernels::attend_all<simd::native, T>(stream, k, s.t, bytes, scratch.raw(),
                                           [&](std::size_t b, std::size_t group) { return cpu_kernels::keys_of<T>(k, b, group); });
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention_backward<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.shape.t, true).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention_backward<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<15>(k);
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.shape.t, true).bytes;
  cpu_kernels::attend_all_backward<simd::native, T>(stream, k, bytes, scratch.raw());
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention_block<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, false).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention_block<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<17>(k);
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, false).bytes;
  cpu_kernels::attend_all<simd::native, T>(stream, k, k.queries.count, bytes, scratch.raw(),
                                           [&](std::size_t b, std::size_t group) { return cpu_kernels::keys_of<T>(k, b, group); });
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::attention_block_backward<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, true).bytes;
}
template <class T>
void run_native(cpu_stream& stream, const kernel::attention_block_backward<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<19>(k);
  const std::size_t bytes = cpu_kernels::attention_work<simd::native, T>(nullptr, k, k.keys.count, true).bytes;
  cpu_kernels::attend_all_backward<simd::native, T>(stream, k, bytes, scratch.raw());
}

template <class T>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::cached_attention<host_memory, T>& k) {
  return cpu.threads * cpu_kernels::cache_worker_bytes<simd::native>(k);
}
template <class T>
void run_native(cpu_stream& stream, const kernel::cached_attention<host_memory, T>& k, scratch_span<host_memory> scratch) {
  kernel::check_arity<12>(k);
  const kernel::attention_shape& s = k.shape;
  const std::size_t bytes = cpu_kernels::cache_worker_bytes<simd::native>(k);
  if (s.t < cpu_kernels::queries_worth_packing)
    return stream.parallel(s.b * s.k, [&](std::size_t part, std::size_t worker) {
      cpu_kernels::extend_cache(k, part / s.k, part % s.k);
      cpu_kernels::attend_cache_group<simd::native>(k, part / s.k, part % s.k, scratch.raw() + worker * bytes);
    });
  stream.parallel(s.b * s.k, [&](std::size_t part, std::size_t) { cpu_kernels::extend_cache(k, part / s.k, part % s.k); });
  const kernel::attention<host_memory, T> panels{
      .shape = s, .scale = k.scale, .window = k.window, .softcap = k.softcap, .qkv = k.qkv, .end_bt = k.end_bt, .slope_h = k.slope_h, .o_bthd = k.o_bthd};
  cpu_kernels::attend_all<simd::native, T>(stream, panels, s.t, bytes, scratch.raw(), [&](std::size_t b, std::size_t group) {
    const std::size_t cache = cpu_kernels::cache_of(k, b, group);
    return cpu_kernels::attention_keys<T>{
        {k.k_cache.raw() + cache, s.d, 1}, {k.v_cache.raw() + cache, s.d, 1}, static_cast<std::size_t>(k.length_b.raw()[b]) + s.t};
  });
}

}  // namespace xtrain
