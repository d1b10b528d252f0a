// Converts a tensor of one file to a dtype for another, and measures the rounding.
#pragma once

#include <string>
#include <string_view>

#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {

/// A tensor to be written with the given dtype (F32 for a block_dtype), or unchanged if it is not floating point. Its file must stay open until it is
/// written.
[[nodiscard]] tensor_to_write rewritten(const file_tensor& tensor, std::string_view dtype);

/// The largest change by a conversion.
struct rounding_error {
  double largest = 0;            ///< |after - before|
  double before = 0, after = 0;  ///< the values where it is largest
  std::string tensor{};
};

/// Updates `error` with the rounding of a tensor to a dtype. Reads the whole tensor.
///   throws  data_error when a finite value would become infinite
void measure_rounding(const file_tensor& tensor, std::string_view dtype, rounding_error& error);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/rewrite_impl.hpp>
#endif
