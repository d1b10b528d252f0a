// Kernels compiled by nvcc, in a library: any C++ compiler compiles the program that launches them. The CMake function xtrain_add_cuda_kernels builds the
// library and defines XTRAIN_CUDA_KERNELS for targets that link it. nvcc also reads this header.
#pragma once

#include <cstddef>

#include <xtrain/device/cuda/context.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/kernel_list.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain {

class cuda_stream;

namespace cuda_kernels {

/// Declared here for every listed kernel; launch.cuh defines it, in the library's cmake/cuda_kernels.cu or in a program of one .cu file.
template <class Kernel>
struct compiled {
  static void run(cuda_stream& stream, const Kernel& kernel, scratch_span<cuda_memory> scratch);
  [[nodiscard]] static std::size_t scratch_bytes(const cuda_properties& device, const Kernel& kernel);
};

template <class Kernel>
inline constexpr bool listed = false;

#define XTRAIN_CUDA_KERNELS_IN_ROWS(X, M, T)              \
  X(kernel::in_rows<kernel::matmul<M, T, T>, M>)          \
  X(kernel::in_rows<kernel::column_sum<M, T, T>, M>)      \
  X(kernel::in_rows<kernel::dropout<M, T>, M>)            \
  X(kernel::in_rows<kernel::gelu_tanh<M, T>, M>)          \
  X(kernel::in_rows<kernel::gelu_tanh_backward<M, T>, M>) \
  X(kernel::in_rows<kernel::gelu_erf<M, T>, M>)           \
  X(kernel::in_rows<kernel::gelu_erf_backward<M, T>, M>)  \
  X(kernel::in_rows<kernel::swiglu<M, T>, M>)             \
  X(kernel::in_rows<kernel::swiglu_backward<M, T>, M>)    \
  X(kernel::in_rows<kernel::geglu<M, T>, M>)              \
  X(kernel::in_rows<kernel::geglu_backward<M, T>, M>)
#define XTRAIN_CUDA_KERNELS_IN_ROWS_OF_16_BITS(X, M, T) \
  XTRAIN_CUDA_KERNELS_IN_ROWS(X, M, T)                  \
  X(kernel::in_rows<kernel::matmul<M, T, float>, M>)
#define XTRAIN_CUDA_KERNEL_LIST(X)                                              \
  XTRAIN_KERNEL_LIST(X, cuda_memory)                                            \
  XTRAIN_CUDA_KERNELS_IN_ROWS(X, cuda_memory, float)                            \
  XTRAIN_CUDA_KERNELS_IN_ROWS_OF_16_BITS(X, cuda_memory, bf16)                  \
  XTRAIN_CUDA_KERNELS_IN_ROWS_OF_16_BITS(X, cuda_memory, fp16)                  \
  X(kernel::in_rows<kernel::column_sum<cuda_memory, bf16, float>, cuda_memory>) \
  X(kernel::sum<cuda_memory, float>)                                            \
  X(kernel::sum<cuda_memory, bf16>)                                             \
  X(kernel::sum<cuda_memory, fp16>)                                             \
  X(kernel::sum<cuda_memory, double>)                                           \
  X(kernel::cast<cuda_memory, float, float>)                                    \
  X(kernel::adam_corrections<cuda_memory>)                                      \
  X(kernel::step_gradient_scale<cuda_memory>)                                   \
  X(kernel::update_step_scalars<cuda_memory>)

#define XTRAIN_LIST(...) \
  template <>            \
  inline constexpr bool listed<__VA_ARGS__> = true;
XTRAIN_CUDA_KERNEL_LIST(XTRAIN_LIST)
#undef XTRAIN_LIST

}  // namespace cuda_kernels

}  // namespace xtrain
