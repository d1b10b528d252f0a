#pragma once

#include <type_traits>

#include <xtrain/device/cuda/products.hpp>
#include <xtrain/device/cuda/stream.hpp>
#include <xtrain/device/simt/matmul.hpp>

namespace xtrain {

namespace detail {

template <class T>
[[nodiscard]] constexpr cuda_number cuda_number_of() {
  return std::is_same_v<T, float> ? cuda_number::fp32 : std::is_same_v<T, bf16> ? cuda_number::bf16 : cuda_number::fp16;
}

template <class T, class C>
void launch_own_product(cuda_stream& stream, const cuda_product& product) {
  const cuda_product_shape& shape = product.shape;
  const auto span = [](auto* from) {
    return span_of<std::remove_pointer_t<decltype(from)>, cuda_memory>(from, from == nullptr ? 0 : 1);
  };  // only the address matters
  const kernel::matmul<cuda_memory, T, C> k{.m = shape.m,
                                            .n = shape.n,
                                            .k = shape.k,
                                            .lda = shape.lda,
                                            .ldb = shape.ldb,
                                            .ldc = shape.ldc,
                                            .transpose_a = shape.transpose_a,
                                            .transpose_b = shape.transpose_b,
                                            .accumulate = shape.accumulate,
                                            .alpha = product.alpha,
                                            .a = span(static_cast<const T*>(product.a)),
                                            .b = span(static_cast<const T*>(product.b)),
                                            .bias_n = span(static_cast<const T*>(product.bias)),
                                            .c = span(static_cast<C*>(product.c))};
  if (!stream.begin_kernel(k)) return;
  cuda_launcher launcher(stream);
  simt::launch_matmul(launcher, k, nullptr);
}

template <class T, class C>
[[nodiscard]] cuda_product product_of(const kernel::matmul<cuda_memory, T, C>& k) {
  return {.shape = {.operands = cuda_number_of<T>(),
                    .result = cuda_number_of<C>(),
                    .transpose_a = k.transpose_a,
                    .transpose_b = k.transpose_b,
                    .accumulate = k.accumulate,
                    .has_bias = !k.bias_n.empty(),
                    .m = k.m,
                    .n = k.n,
                    .k = k.k,
                    .lda = k.lda,
                    .ldb = k.ldb,
                    .ldc = k.ldc,
                    .a_alignment = cuda_alignment_of(k.a.raw()),
                    .b_alignment = cuda_alignment_of(k.b.raw()),
                    .c_alignment = cuda_alignment_of(k.c.raw()),
                    .bias_alignment = k.bias_n.empty() ? cuda_most_alignment : cuda_alignment_of(k.bias_n.raw())},
          .alpha = k.alpha,
          .a = k.a.raw(),
          .b = k.b.raw(),
          .bias = k.bias_n.raw(),
          .c = k.c.raw(),
          .own = &launch_own_product<T, C>};
}

}  // namespace detail

/// More specialized than the kernel's overload for every stream.
template <class T, class C>
requires(simt::up_to_float<T>&& simt::up_to_float<C>) void run_kernel(cuda_launcher& launcher, const kernel::matmul<cuda_memory, T, C>& k,
                                                                      scratch_span<cuda_memory>) {
  kernel::check_arity<14>(k);
  if (!launcher.stream().multiply(detail::product_of(k))) simt::launch_matmul(launcher, k, nullptr);
}

}  // namespace xtrain
