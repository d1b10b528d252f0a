// Kernels that can be compiled separately: the library's precisions except fp64. One list for all devices: `runs_kernel` has the same answer in every source.
#pragma once

#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/device/kernel/blocks.hpp>
#include <xtrain/device/kernel/distillation.hpp>
#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/device/kernel/grouped_matmul.hpp>
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
#include <xtrain/device/kernel/sample.hpp>
#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/device/kernel/value_loss.hpp>

// X(kernel type) for every kernel on memory M of a model with compute dtype T and gradient dtype T
#define XTRAIN_KERNEL_LIST_OF(X, M, T) \
  X(kernel::matmul<M, T, T>) \
  X(kernel::grouped_matmul<M, T, T>) \
  X(kernel::column_sum<M, T, T>) \
  X(kernel::rms_norm<M, T>) \
  X(kernel::rms_norm_backward<M, T, T>) \
  X(kernel::head_norm<M, T>) \
  X(kernel::head_norm_backward<M, T, T>) \
  X(kernel::layer_norm<M, T>) \
  X(kernel::layer_norm_backward<M, T, T>) \
  X(kernel::gelu_tanh<M, T>) \
  X(kernel::gelu_tanh_backward<M, T>) \
  X(kernel::gelu_erf<M, T>) \
  X(kernel::gelu_erf_backward<M, T>) \
  X(kernel::tanh<M, T>) \
  X(kernel::tanh_backward<M, T>) \
  X(kernel::softcap_backward<M, T>) \
  X(kernel::swiglu<M, T>) \
  X(kernel::swiglu_backward<M, T>) \
  X(kernel::geglu<M, T>) \
  X(kernel::geglu_backward<M, T>) \
  X(kernel::attention<M, T>) \
  X(kernel::attention_backward<M, T>) \
  X(kernel::cached_attention<M, T>) \
  X(kernel::attention_block<M, T>) \
  X(kernel::attention_block_backward<M, T>) \
  X(kernel::embedding<M, T>) \
  X(kernel::embedding_backward<M, T, T>) \
  X(kernel::rotary<M, T>) \
  X(kernel::expert_routing<M, T>) \
  X(kernel::expert_routing_backward<M, T>) \
  X(kernel::expert_balance<M, T>) \
  X(kernel::expert_combine<M, T>) \
  X(kernel::expert_combine_backward<M, T>) \
  X(kernel::linear_cross_entropy<M, T, T>) \
  X(kernel::softmax_of_parts<M, float, T>) \
  X(kernel::distillation_of_parts<M, float, T>) \
  X(kernel::topk_distillation_of_parts<M, float, T>) \
  X(kernel::score_gradients<M, T>) \
  X(kernel::add<M, T>) \
  X(kernel::copy_rows<M, T>) \
  X(kernel::dropout<M, T>) \
  X(kernel::uniform_noise<M, T>) \
  X(kernel::dequantize_nf4<M, T>) \
  X(kernel::dequantize_rows<M, T>) \
  X(kernel::dequantize_blocks<M, T>) \
  X(kernel::fake_quantize<M, T>) \
  X(kernel::fake_quantize_backward<M, T, T>) \
  X(kernel::sum_of_squares<M, T>) \
  X(kernel::muon_normalise<M, float, T>) \
  X(kernel::adafactor_squares<M, T>) \
  X(kernel::adafactor_vector<M, T, float>) \
  X(kernel::adafactor_update_squares<M, T, float>)
// 16-bit T, with mixed 16-bit and fp32 kernels
#define XTRAIN_KERNEL_LIST_OF_16_BITS(X, M, T) \
  XTRAIN_KERNEL_LIST_OF(X, M, T) \
  X(kernel::matmul<M, T, float>) \
  X(kernel::grouped_matmul<M, T, float>) \
  X(kernel::cast<M, T, float>) \
  X(kernel::cast<M, float, T>) \
  X(kernel::adamw<M, T, T, float, float>) \
  X(kernel::muon_momentum<M, T, float, float>) \
  X(kernel::muon<M, T, float>) \
  X(kernel::adafactor<M, T, T, float, float>) \
  X(kernel::sgd<M, T, T, float, float>) \
  X(kernel::lion<M, T, T, float, float>) \
  X(kernel::adamw_8bit<M, T, T, float>)
// 16-bit T with fp32 weight gradients
#define XTRAIN_KERNEL_LIST_OF_WIDE_GRADIENTS(X, M, T) \
  X(kernel::column_sum<M, T, float>) \
  X(kernel::fake_quantize_backward<M, T, float>) \
  X(kernel::rms_norm_backward<M, T, float>) \
  X(kernel::head_norm_backward<M, T, float>) \
  X(kernel::layer_norm_backward<M, T, float>) \
  X(kernel::embedding_backward<M, T, float>) \
  X(kernel::linear_cross_entropy<M, T, float>) \
  X(kernel::adamw<M, T, float, float, float>) \
  X(kernel::adafactor<M, T, float, float, float>) \
  X(kernel::sgd<M, T, float, float, float>) \
  X(kernel::lion<M, T, float, float, float>) \
  X(kernel::adamw_8bit<M, T, float, float>)
#define XTRAIN_KERNEL_LIST(X, M) \
  XTRAIN_KERNEL_LIST_OF(X, M, float) \
  X(kernel::expert_ranges<M>) \
  X(kernel::sample<M>) \
  X(kernel::advance<M>) \
  X(kernel::softcap<M, float>) \
  X(kernel::softmax_part<M, float>) \
  X(kernel::distillation_part<M, float>) \
  X(kernel::topk_distillation_part<M, float>) \
  X(kernel::sequence_sums<M, float>) \
  X(kernel::preference_loss<M>) \
  X(kernel::kto_loss<M>) \
  X(kernel::sequence_weights<M, float>) \
  X(kernel::grpo_loss<M, float>) \
  X(kernel::value_loss<M>) \
  X(kernel::adamw<M, float, float, float, float>) \
  X(kernel::muon_momentum<M, float, float, float>) \
  X(kernel::muon<M, float, float>) \
  X(kernel::adafactor_factors<M, float>) \
  X(kernel::adafactor<M, float, float, float, float>) \
  X(kernel::sgd<M, float, float, float, float>) \
  X(kernel::lion<M, float, float, float, float>) \
  X(kernel::adamw_8bit<M, float, float, float>) \
  XTRAIN_KERNEL_LIST_OF_16_BITS(X, M, bf16) \
  XTRAIN_KERNEL_LIST_OF_WIDE_GRADIENTS(X, M, bf16) \
  X(kernel::adamw<M, bf16, bf16, bf16, bf16>) \
  X(kernel::muon_momentum<M, bf16, bf16, float>) \
  X(kernel::muon<M, bf16, bf16>) \
  X(kernel::adafactor<M, bf16, bf16, bf16, bf16>) \
  X(kernel::sgd<M, bf16, bf16, bf16, bf16>) \
  X(kernel::lion<M, bf16, bf16, bf16, bf16>) \
  X(kernel::adamw_8bit<M, bf16, bf16, bf16>) \
  X(kernel::adamw<M, bf16, bf16, bf16, float>) \
  XTRAIN_KERNEL_LIST_OF_16_BITS(X, M, fp16)
