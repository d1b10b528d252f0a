// Rows and blocks of matrices in another order in files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/tensor/parameter.hpp>

namespace xtrain::detail {

/// From a file's order, or into it.
template <class T>
[[nodiscard]] std::vector<T> reordered(std::span<const T> from, const std::vector<std::uint32_t>& order, bool into_file) {
  std::vector<T> to(from.size());
  const std::size_t columns = from.size() / order.size();
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t source = into_file ? i : order[i], target = into_file ? order[i] : i;
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source * columns), columns,
                to.begin() + static_cast<std::ptrdiff_t>(target * columns));
  }
  return to;
}

/// Blocks of a file's matrix as consecutive rows (blocks_of_file).
///   throws  config_error when other elements are not 0
template <class T>
[[nodiscard]] std::vector<T> blocks_from_file(std::span<const T> file, const blocks_of_file& of, std::size_t columns, const std::string& where) {
  std::vector<T> rows;
  std::size_t inside = 0, nonzero = 0;
  for (std::size_t i = 0; i < of.blocks.size(); ++i)
    for (std::size_t row = of.blocks[i].begin; row < of.blocks[i].begin + of.blocks[i].count; ++row)
      for (const T value : file.subspan((row * of.blocks.size() + i) * columns, columns)) {
        rows.push_back(value);
        if (value != T{}) ++inside;
      }
  for (const T value : file)
    if (value != T{}) ++nonzero;
  require<config_error>(inside == nonzero, where, " must be zero but for the rows and columns of each part of a fused module; ", nonzero - inside,
                        " values are not: an adapter of the whole module was trained");
  return rows;
}
/// Inverse: the file's matrix.
template <class T>
[[nodiscard]] std::vector<T> blocks_to_file(std::span<const T> rows, const blocks_of_file& of, std::size_t columns) {
  std::vector<T> file(of.rows * of.blocks.size() * columns, T{});
  for (std::size_t i = 0; i < of.blocks.size(); ++i)
    for (std::size_t row = of.blocks[i].begin; row < of.blocks[i].begin + of.blocks[i].count; ++row, rows = rows.subspan(columns))
      std::copy_n(rows.begin(), columns, file.begin() + static_cast<std::ptrdiff_t>((row * of.blocks.size() + i) * columns));
  return file;
}

}  // namespace xtrain::detail
