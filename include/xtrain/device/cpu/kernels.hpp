// All cpu kernels, compiled where used. cpu.hpp includes it unless kernels are compiled apart (XTRAIN_CPU_KERNELS, XTRAIN_CPU_LEVELS); such programs include it
// for kernels outside kernel_list.hpp (fp64).
#pragma once

#include <xtrain/device/cpu/activation.hpp>
#include <xtrain/device/cpu/attention.hpp>
#include <xtrain/device/cpu/blocks.hpp>
#include <xtrain/device/cpu/distillation.hpp>
#include <xtrain/device/cpu/elementwise.hpp>
#include <xtrain/device/cpu/embedding.hpp>
#include <xtrain/device/cpu/experts.hpp>
#include <xtrain/device/cpu/fake_quantize.hpp>
#include <xtrain/device/cpu/grpo.hpp>
#include <xtrain/device/cpu/loss.hpp>
#include <xtrain/device/cpu/matmul.hpp>
#include <xtrain/device/cpu/matrix_optimizer.hpp>
#include <xtrain/device/cpu/nf4.hpp>
#include <xtrain/device/cpu/norm.hpp>
#include <xtrain/device/cpu/optimizer.hpp>
#include <xtrain/device/cpu/preference.hpp>
#include <xtrain/device/cpu/row_integers.hpp>
#include <xtrain/device/cpu/sample.hpp>
#include <xtrain/device/cpu/split_loss.hpp>
#include <xtrain/device/cpu/step_scalars.hpp>
#include <xtrain/device/cpu/value_loss.hpp>
