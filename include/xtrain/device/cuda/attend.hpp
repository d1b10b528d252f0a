#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include <xtrain/device/cuda/attentions.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/simt/attention.hpp>
#include <xtrain/device/simt/attention_backward.hpp>

namespace xtrain {

namespace detail {

/// A 16-bit kernel with only causal attention over whole sequences; empty for others, which use our kernels.
template <class Kernel>
[[nodiscard]] constexpr std::optional<cuda_attention_shape> plain_attention_of(const Kernel& k, cuda_number number, bool is_backward) {
  const kernel::attention_shape& s = k.shape;
  constexpr std::size_t most = std::size_t{1} << 31;
  const bool is_plain = k.dropout == 0.0 && k.window == 0 && k.softcap == 0.0 && k.start_bt.empty() && k.end_bt.empty() && k.slope_h.empty();
  const bool fits = s.b > 0 && s.t > 0 && s.k > 0 && s.h % s.k == 0 && s.h > 0 && s.d > 0 && s.d % 8 == 0 && s.d <= 256 && s.b * s.t < most / s.row();
  if (!is_plain || !fits) return std::nullopt;
  return cuda_attention_shape{.number = number, .is_backward = is_backward, .b = s.b, .t = s.t, .h = s.h, .k = s.k, .d = s.d, .scale = k.scale};
}
template <class T>
inline constexpr bool is_cuda_16_bits = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;

/// The request to another library that replaces this kernel.
template <class Kernel>
struct attention_elsewhere {
  static constexpr bool is_possible = false;
};
template <class T>
requires is_cuda_16_bits<T>
struct attention_elsewhere<kernel::attention<cuda_memory, T>> {
  static constexpr bool is_possible = true;
  [[nodiscard]] static std::optional<cuda_attention_shape> shape_of(const kernel::attention<cuda_memory, T>& k) {
    return plain_attention_of(k, std::is_same_v<T, bf16> ? cuda_number::bf16 : cuda_number::fp16, false);
  }
};
template <class T>
requires is_cuda_16_bits<T>
struct attention_elsewhere<kernel::attention_backward<cuda_memory, T>> {
  static constexpr bool is_possible = true;
  [[nodiscard]] static std::optional<cuda_attention_shape> shape_of(const kernel::attention_backward<cuda_memory, T>& k) {
    return plain_attention_of(k, std::is_same_v<T, bf16> ? cuda_number::bf16 : cuda_number::fp16, true);
  }
};

[[nodiscard]] inline bool is_at_multiple_of_16(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

template <class T>
void launch_own_attention(cuda_stream& stream, const cuda_attention& what) {
  const cuda_attention_shape& s = what.shape;
  const auto place = []<class N>(N* from) { return span_of<N, cuda_memory>(from, 1); };  // only the address matters
  const kernel::attention_shape shape{.b = s.b, .t = s.t, .h = s.h, .k = s.k, .d = s.d};
  cuda_launcher launcher(stream);
  if (s.is_backward) {
    kernel::attention_backward<cuda_memory, T> k{.shape = shape, .scale = s.scale};
    k.qkv = place(static_cast<const T*>(what.qkv));
    k.o_bthd = place(static_cast<const T*>(what.o));
    k.lse_bht = place(static_cast<const float*>(what.lse));
    k.do_bthd = place(static_cast<const T*>(what.d_o));
    k.dqkv = place(static_cast<T*>(what.dqkv));
    if (stream.begin_kernel(k)) simt::launch_whole_backward(launcher, k, scratch_span<cuda_memory>(place(static_cast<std::byte*>(what.own_scratch))));
  } else {
    kernel::attention<cuda_memory, T> k{.shape = shape, .scale = s.scale};
    k.qkv = place(static_cast<const T*>(what.qkv));
    k.o_bthd = place(static_cast<T*>(what.o));
    k.lse_bht = place(static_cast<float*>(what.lse));
    if (stream.begin_kernel(k)) simt::launch_whole(launcher, k);
  }
}

}  // namespace detail

/// More specialized than the kernels' overloads for every stream.
template <class T>
requires detail::is_cuda_16_bits<T>
void run_kernel(cuda_launcher& launcher, const kernel::attention<cuda_memory, T>& k, scratch_span<cuda_memory>) {
  kernel::check_arity<13>(k);
  const auto shape = detail::attention_elsewhere<kernel::attention<cuda_memory, T>>::shape_of(k);
  if (shape && detail::is_at_multiple_of_16(k.qkv.raw()) && detail::is_at_multiple_of_16(k.o_bthd.raw()) &&
      launcher.stream().attend(
          {.shape = *shape, .qkv = k.qkv.raw(), .o = k.o_bthd.raw(), .lse = k.lse_bht.raw(), .own = &detail::launch_own_attention<T>}))
    return;
  simt::launch_whole(launcher, k);
}
template <class T>
requires detail::is_cuda_16_bits<T>
void run_kernel(cuda_launcher& launcher, const kernel::attention_backward<cuda_memory, T>& k, scratch_span<cuda_memory> scratch) {
  kernel::check_arity<15>(k);
  const auto shape = detail::attention_elsewhere<kernel::attention_backward<cuda_memory, T>>::shape_of(k);
  if (shape && detail::is_at_multiple_of_16(k.qkv.raw()) && detail::is_at_multiple_of_16(k.o_bthd.raw()) && detail::is_at_multiple_of_16(k.do_bthd.raw()) &&
      detail::is_at_multiple_of_16(k.dqkv.raw()) &&
      launcher.stream().attend({.shape = *shape,
                                .qkv = k.qkv.raw(),
                                .d_o = k.do_bthd.raw(),
                                .o = const_cast<T*>(k.o_bthd.raw()),
                                .lse = const_cast<float*>(k.lse_bht.raw()),
                                .dqkv = k.dqkv.raw(),
                                .own = &detail::launch_own_attention<T>}))
    return;
  simt::launch_whole_backward(launcher, k, scratch);
}

}  // namespace xtrain
