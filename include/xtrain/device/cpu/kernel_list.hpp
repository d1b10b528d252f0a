// Kernels that can be compiled separately from the program: once (compiled_once.hpp) or once per processor level (levels.hpp).
#pragma once

#include <xtrain/device/host.hpp>
#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/device/kernel/distillation.hpp>
#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/device/kernel/grpo.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/device/kernel/matrix_optimizer.hpp>
#include <xtrain/device/kernel/nf4.hpp>
#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/kernel/preference.hpp>
#include <xtrain/device/kernel/row_integers.hpp>
#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/device/kernel/value_loss.hpp>

namespace xtrain::cpu_kernels {

/// Whether the kernel is in the list. Other kernels run as the program itself was compiled, and need kernels.hpp.
template <class Kernel>
inline constexpr bool listed = false;

// X(kernel type), for every kernel that a model with compute dtype T and gradient dtype T launches
#define XTRAIN_CPU_KERNEL_LIST_OF(X, T) \
  X(kernel::matmul<host_memory, T, T>) \
  X(kernel::column_sum<host_memory, T, T>) \
  X(kernel::rms_norm<host_memory, T>) \
  X(kernel::rms_norm_backward<host_memory, T, T>) \
  X(kernel::head_norm<host_memory, T>) \
  X(kernel::head_norm_backward<host_memory, T, T>) \
  X(kernel::layer_norm<host_memory, T>) \
  X(kernel::layer_norm_backward<host_memory, T, T>) \
  X(kernel::gelu_tanh<host_memory, T>) \
  X(kernel::gelu_tanh_backward<host_memory, T>) \
  X(kernel::gelu_erf<host_memory, T>) \
  X(kernel::gelu_erf_backward<host_memory, T>) \
  X(kernel::tanh<host_memory, T>) \
  X(kernel::tanh_backward<host_memory, T>) \
  X(kernel::softcap_backward<host_memory, T>) \
  X(kernel::swiglu<host_memory, T>) \
  X(kernel::swiglu_backward<host_memory, T>) \
  X(kernel::geglu<host_memory, T>) \
  X(kernel::geglu_backward<host_memory, T>) \
  X(kernel::attention<host_memory, T>) \
  X(kernel::attention_backward<host_memory, T>) \
  X(kernel::cached_attention<host_memory, T>) \
  X(kernel::attention_block<host_memory, T>) \
  X(kernel::attention_block_backward<host_memory, T>) \
  X(kernel::embedding<host_memory, T>) \
  X(kernel::embedding_backward<host_memory, T, T>) \
  X(kernel::rotary<host_memory, T>) \
  X(kernel::expert_routing<host_memory, T>) \
  X(kernel::expert_routing_backward<host_memory, T>) \
  X(kernel::expert_balance<host_memory, T>) \
  X(kernel::expert_combine<host_memory, T>) \
  X(kernel::expert_combine_backward<host_memory, T>) \
  X(kernel::linear_cross_entropy<host_memory, T, T>) \
  X(kernel::softmax_of_parts<host_memory, float, T>) \
  X(kernel::distillation_of_parts<host_memory, float, T>) \
  X(kernel::topk_distillation_of_parts<host_memory, float, T>) \
  X(kernel::score_gradients<host_memory, T>) \
  X(kernel::add<host_memory, T>) \
  X(kernel::copy_rows<host_memory, T>) \
  X(kernel::dropout<host_memory, T>) \
  X(kernel::uniform_noise<host_memory, T>) \
  X(kernel::dequantize_nf4<host_memory, T>) \
  X(kernel::dequantize_rows<host_memory, T>) \
  X(kernel::fake_quantize<host_memory, T>) \
  X(kernel::fake_quantize_backward<host_memory, T, T>) \
  X(kernel::sum_of_squares<host_memory, T>) \
  X(kernel::muon_normalise<host_memory, float, T>) \
  X(kernel::adafactor_squares<host_memory, T>) \
  X(kernel::adafactor_vector<host_memory, T, float>) \
  X(kernel::adafactor_update_squares<host_memory, T, float>)
// the same for 16-bit T, with the mixed 16-bit and fp32 kernels
#define XTRAIN_CPU_KERNEL_LIST_OF_16_BITS(X, T) \
  XTRAIN_CPU_KERNEL_LIST_OF(X, T) \
  X(kernel::matmul<host_memory, T, float>) \
  X(kernel::cast<host_memory, T, float>) \
  X(kernel::cast<host_memory, float, T>) \
  X(kernel::adamw<host_memory, T, T, float, float>) \
  X(kernel::muon_momentum<host_memory, T, float, float>) \
  X(kernel::muon<host_memory, T, float>) \
  X(kernel::adafactor<host_memory, T, T, float, float>) \
  X(kernel::sgd<host_memory, T, T, float, float>) \
  X(kernel::lion<host_memory, T, T, float, float>) \
  X(kernel::adamw_8bit<host_memory, T, T, float>)
// 16-bit T with fp32 weight gradients
#define XTRAIN_CPU_KERNEL_LIST_OF_WIDE_GRADIENTS(X, T) \
  X(kernel::column_sum<host_memory, T, float>) \
  X(kernel::fake_quantize_backward<host_memory, T, float>) \
  X(kernel::rms_norm_backward<host_memory, T, float>) \
  X(kernel::head_norm_backward<host_memory, T, float>) \
  X(kernel::layer_norm_backward<host_memory, T, float>) \
  X(kernel::embedding_backward<host_memory, T, float>) \
  X(kernel::linear_cross_entropy<host_memory, T, float>) \
  X(kernel::adamw<host_memory, T, float, float, float>) \
  X(kernel::adafactor<host_memory, T, float, float, float>) \
  X(kernel::sgd<host_memory, T, float, float, float>) \
  X(kernel::lion<host_memory, T, float, float, float>) \
  X(kernel::adamw_8bit<host_memory, T, float, float>)
#define XTRAIN_CPU_KERNEL_LIST(X) \
  XTRAIN_CPU_KERNEL_LIST_OF(X, float) \
  X(kernel::expert_ranges<host_memory>) \
  X(kernel::softcap<host_memory, float>) \
  X(kernel::softmax_part<host_memory, float>) \
  X(kernel::distillation_part<host_memory, float>) \
  X(kernel::topk_distillation_part<host_memory, float>) \
  X(kernel::sequence_sums<host_memory, float>) \
  X(kernel::preference_loss<host_memory>) \
  X(kernel::kto_loss<host_memory>) \
  X(kernel::sequence_weights<host_memory, float>) \
  X(kernel::grpo_loss<host_memory, float>) \
  X(kernel::value_loss<host_memory>) \
  X(kernel::adamw<host_memory, float, float, float, float>) \
  X(kernel::muon_momentum<host_memory, float, float, float>) \
  X(kernel::muon<host_memory, float, float>) \
  X(kernel::adafactor_factors<host_memory, float>) \
  X(kernel::adafactor<host_memory, float, float, float, float>) \
  X(kernel::sgd<host_memory, float, float, float, float>) \
  X(kernel::lion<host_memory, float, float, float, float>) \
  X(kernel::adamw_8bit<host_memory, float, float, float>) \
  XTRAIN_CPU_KERNEL_LIST_OF_16_BITS(X, bf16) \
  XTRAIN_CPU_KERNEL_LIST_OF_WIDE_GRADIENTS(X, bf16) \
  X(kernel::adamw<host_memory, bf16, bf16, bf16, bf16>) \
  X(kernel::muon_momentum<host_memory, bf16, bf16, float>) \
  X(kernel::muon<host_memory, bf16, bf16>) \
  X(kernel::adafactor<host_memory, bf16, bf16, bf16, bf16>) \
  X(kernel::sgd<host_memory, bf16, bf16, bf16, bf16>) \
  X(kernel::lion<host_memory, bf16, bf16, bf16, bf16>) \
  X(kernel::adamw_8bit<host_memory, bf16, bf16, bf16>) \
  X(kernel::adamw<host_memory, bf16, bf16, bf16, float>) \
  XTRAIN_CPU_KERNEL_LIST_OF_16_BITS(X, fp16)

#define XTRAIN_LIST(...) \
  template <>            \
  inline constexpr bool listed<__VA_ARGS__> = true;
XTRAIN_CPU_KERNEL_LIST(XTRAIN_LIST)
#undef XTRAIN_LIST

}  // namespace xtrain::cpu_kernels
