// Kernels of a bf16 LLaMA or GPT-2 step, as nvcc compiles them for a GPU. Nothing runs: tests read the compiler's report and its PTX.
#include <xtrain/device/cuda/launch.cuh>

namespace xtrain::cuda_kernels {

namespace k = kernel;
using M = cuda_memory;
using T = bf16;

#define XTRAIN_COMPILE(...) template struct compiled<k::__VA_ARGS__>;
XTRAIN_COMPILE(matmul<M, T, T>)
XTRAIN_COMPILE(matmul<M, T, float>)
XTRAIN_COMPILE(in_rows<k::matmul<M, T, T>, M>)
XTRAIN_COMPILE(column_sum<M, T, float>)
XTRAIN_COMPILE(rms_norm<M, T>)
XTRAIN_COMPILE(rms_norm_backward<M, T, float>)
XTRAIN_COMPILE(layer_norm<M, T>)
XTRAIN_COMPILE(layer_norm_backward<M, T, float>)
XTRAIN_COMPILE(head_norm<M, T>)
XTRAIN_COMPILE(head_norm_backward<M, T, float>)
XTRAIN_COMPILE(gelu_tanh<M, T>)
XTRAIN_COMPILE(gelu_tanh_backward<M, T>)
XTRAIN_COMPILE(swiglu<M, T>)
XTRAIN_COMPILE(swiglu_backward<M, T>)
XTRAIN_COMPILE(embedding<M, T>)
XTRAIN_COMPILE(embedding_backward<M, T, float>)
XTRAIN_COMPILE(rotary<M, T>)
XTRAIN_COMPILE(attention<M, T>)
XTRAIN_COMPILE(attention_backward<M, T>)
XTRAIN_COMPILE(linear_cross_entropy<M, T, float>)
XTRAIN_COMPILE(add<M, T>)
XTRAIN_COMPILE(copy_rows<M, T>)
XTRAIN_COMPILE(cast<M, float, T>)
XTRAIN_COMPILE(cast<M, T, float>)
XTRAIN_COMPILE(dropout<M, T>)
XTRAIN_COMPILE(sum_of_squares<M, float>)
XTRAIN_COMPILE(sum<M, float>)
XTRAIN_COMPILE(step_gradient_scale<M>)
XTRAIN_COMPILE(update_step_scalars<M>)
XTRAIN_COMPILE(adamw<M, T, float, float, float>)

// the largest tiles of fp32
XTRAIN_COMPILE(attention<M, float>)
XTRAIN_COMPILE(attention_backward<M, float>)

}  // namespace xtrain::cuda_kernels
