#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/tensor/parameter.hpp>
#include <xtrain/tensor/weight_blocks.hpp>

namespace xtrain {

namespace detail {

/// Row of element `first`, in elements from the tensor's first byte; nullopt: not contiguous.
[[nodiscard]] inline std::optional<std::size_t> row_in_file(const file_tensor& from, std::size_t first, std::size_t columns) {
  std::optional<std::size_t> begin;
  for_each_run(from, first, columns, [&](std::size_t where, std::size_t count, std::size_t stride) {
    if (count == columns && stride == 1) begin = where;
  });
  return begin;
}

/// A view of the transposed matrix.
[[nodiscard]] inline file_tensor transposed_view(file_tensor tensor) {
  if (tensor.layout.empty()) tensor.layout = {{tensor.shape[0], tensor.shape[1]}, {tensor.shape[1], 1}};
  std::swap(tensor.shape[0], tensor.shape[1]);
  std::swap(tensor.layout[0], tensor.layout[1]);
  return tensor;
}

/// Blocks of a parameter's rows in its order.
///   throws  config_error for another dtype, or rows that are not entire blocks
[[nodiscard]] inline std::vector<std::uint8_t> blocks_of_rows(const parameter_spec& spec, const file_tensor& tensor, const std::string& where) {
  const block_formats::description& format = block_formats::of(*spec.blocks);
  require<config_error>(tensor.dtype == format.name, where, ": '", tensor.name, "' must be in blocks of ", format.name,
                        ", in which the model stores it; it is ", tensor.dtype);
  const file_tensor from = spec.transposed_in_files ? transposed_view(tensor) : tensor;
  const std::size_t rows = spec.shape[0], columns = spec.shape[1], bytes = block_formats::bytes_of(format.format, columns);
  std::vector<std::uint8_t> all;
  all.reserve(rows * bytes);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::optional<std::size_t> begin = row_in_file(from, (spec.rows_in_files ? (*spec.rows_in_files)[r] : r) * columns, columns);
    require<config_error>(begin && *begin % format.numbers == 0, where, ": rows of '", tensor.name, "' must be whole blocks of ", format.name,
                          " to be stored as they are");
    const auto* const row = reinterpret_cast<const std::uint8_t*>(tensor.bytes.data()) + *begin / format.numbers * format.bytes;
    all.insert(all.end(), row, row + bytes);
  }
  return all;
}

}  // namespace detail

/// Matrices in blocks, for model_options::blocks; empty for formats without.
///   weights  of a GGUF file: gguf_model, weight_file
[[nodiscard]] inline weight_blocks blocks_in(const tensor_source& weights) {
  weight_blocks all;
  for (const auto& [name, tensor] : weights.tensors()) {
    const std::optional<block_format> format = block_formats::named(tensor->dtype);
    if (!format || tensor->shape.size() != 2 || tensor->size() == 0) continue;
    const auto has_rows = [&](const file_tensor& from) {
      const std::size_t columns = from.shape[1];
      return columns % block_formats::of(*format).numbers == 0 && detail::row_in_file(from, 0, columns).has_value();
    };
    if (has_rows(*tensor) || has_rows(detail::transposed_view(*tensor))) all.formats.emplace(name, *format);
  }
  return all;
}

}  // namespace xtrain
