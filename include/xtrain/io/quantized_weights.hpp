// Weights of linear layers as quantization-aware training computes with them, for the files of a model.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json_fwd.hpp>
#include <xtrain/device/kernel/fake_quantize.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// How the weights of linear layers become integers.
struct weight_quantization {
  fake_quantization format{.bits = 4};
  std::size_t group_size = 256;  ///< consecutive inputs with a scale in common
};

/// Names of the tensors that are quantized: the weights of all linear layers in the blocks of a decoder, those that `qat` rounds. Not embeddings, head, norms.
///   transposed  files hold [in, out]
///   throws      config_error for a mixture of experts, and when groups do not divide the inputs of a layer
[[nodiscard]] std::vector<std::string> quantized_weights(const tensor_source& weights, bool transposed, const weight_quantization& how);

/// A tensor with the values that its integers stand for, in a floating-point dtype. It is converted to that dtype first, and rounded in it.
///   transposed  its file holds [in, out]
///   throws      data_error, when its numbers are read, for one that is not finite; so do the next two functions
[[nodiscard]] tensor_to_write with_quantized_values(const file_tensor& tensor, bool transposed, const weight_quantization& how, std::string_view dtype);

/// The tensor in four bits, as compressed-tensors' format 'pack-quantized' has it: weight_packed, eight integers + 8 in an I32, the
/// first in the lowest bits; weight_scale, a scale per group in F32; weight_shape. For int4 without zero points.
[[nodiscard]] std::vector<tensor_to_write> packed_in_four_bits(const file_tensor& tensor, const weight_quantization& how);
/// What config.json says of such weights, its 'quantization_config'; `head` is the module of the head, which stays as it is.
[[nodiscard]] json packed_settings(const weight_quantization& how, const std::string& head);

/// The difference that quantization makes, over all tensors that were measured.
struct quantization_error {
  double squares = 0, of_squares = 0;  ///< Σ (after − before)², Σ before²
};
/// Adds the error of this tensor.
void measure_quantization(const file_tensor& tensor, bool transposed, const weight_quantization& how, std::string_view dtype, quantization_error& error);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/quantized_weights_impl.hpp>
#endif
