#pragma once

#include <string>
#include <string_view>

#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {

/// Converted to the dtype (F32 for a block_dtype); unchanged if not floating point. Its file must stay open until written.
[[nodiscard]] tensor_to_write rewritten(const file_tensor& tensor, std::string_view dtype);

/// Largest change.
struct rounding_error {
  double largest = 0;            ///< |after - before|
  double before = 0, after = 0;  ///< values there
  std::string tensor{};
};

/// Updates `error`; reads the entire tensor.
///   throws  data_error when a finite value would become infinite
void measure_rounding(const file_tensor& tensor, std::string_view dtype, rounding_error& error);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/rewrite_impl.hpp>
#endif
