// Every kernel in the dialect, for streams that launch.
#pragma once

#include <xtrain/device/simt/activation.hpp>
#include <xtrain/device/simt/attention.hpp>
#include <xtrain/device/simt/attention_backward.hpp>
#include <xtrain/device/simt/column_sum.hpp>
#include <xtrain/device/simt/elementwise.hpp>
#include <xtrain/device/simt/embedding.hpp>
#include <xtrain/device/simt/experts.hpp>
#include <xtrain/device/simt/grouped_matmul.hpp>
#include <xtrain/device/simt/loss.hpp>
#include <xtrain/device/simt/matmul.hpp>
#include <xtrain/device/simt/matrix_optimizer.hpp>
#include <xtrain/device/simt/norm.hpp>
#include <xtrain/device/simt/objectives.hpp>
#include <xtrain/device/simt/optimizer.hpp>
#include <xtrain/device/simt/quantized.hpp>
#include <xtrain/device/simt/sample.hpp>
#include <xtrain/device/simt/split_loss.hpp>
#include <xtrain/device/simt/step_scalars.hpp>
