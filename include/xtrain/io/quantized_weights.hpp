// Linear weights as quantization-aware training computes with them, for files.
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

/// How weights become integers.
struct weight_quantization {
  fake_quantization format{.bits = 4};
  std::size_t group_size = 256;  ///< consecutive inputs with a common scale
};

/// Quantized tensors: weights of all linear layers in a decoder's blocks, as rounded by `qat`; not embeddings, head, norms.
///   transposed  files hold [in, out]
///   throws      config_error for a mixture of experts, or groups that do not divide inputs
[[nodiscard]] std::vector<std::string> quantized_weights(const tensor_source& weights, bool transposed, const weight_quantization& quantization);

/// The dequantized tensor, converted first to a floating-point dtype and rounded in it.
///   transposed  the file holds [in, out]
///   throws      data_error, when read, for a number that is not finite; also the functions below
[[nodiscard]] tensor_to_write with_quantized_values(const file_tensor& tensor, bool transposed, const weight_quantization& quantization,
                                                    std::string_view dtype);

/// compressed-tensors' 'pack-quantized': weight_packed (I32: eight integers + 8, the first in the lowest bits), weight_scale (F32 per group), weight_shape.
/// For int4 without zero points.
[[nodiscard]] std::vector<tensor_to_write> packed_in_four_bits(const file_tensor& tensor, const weight_quantization& quantization);
/// 'quantization_config' of config.json; `head`: the head's module, not quantized.
[[nodiscard]] json packed_settings(const weight_quantization& quantization, const std::string& head);

/// Error over all measured tensors.
struct quantization_error {
  double squares = 0, of_squares = 0;  ///< Σ (after − before)², Σ before²
};
/// Adds a tensor's error.
void measure_quantization(const file_tensor& tensor, bool transposed, const weight_quantization& quantization, std::string_view dtype,
                          quantization_error& error);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/quantized_weights_impl.hpp>
#endif
