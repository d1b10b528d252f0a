// Reads elements with all host threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/io/block_dtypes.hpp>
#include <xtrain/io/file_tensor.hpp>

namespace xtrain {

namespace detail {

/// Elements per read of a thread. If the innermost dim crosses blocks, as many lines as a block has numbers: blocks are decoded once.
[[nodiscard]] inline std::size_t elements_of_read(const file_tensor& from) {
  constexpr std::size_t usual = std::size_t{1} << 16;
  if (from.layout.empty() || from.layout.back().stride == 1 || find_block_dtype(from.dtype) == nullptr) return usual;
  return std::max(usual, from.layout.back().size * longest_block);
}

}  // namespace detail

/// As read_numbers, by the shared pool.
///   throws  as read_numbers
template <dtype T>
void read_in_parallel(const file_tensor& from, std::size_t first, std::span<T> to) {
  const std::size_t at_once = detail::elements_of_read(from);
  if (to.size() <= at_once) return read_numbers<T>(from, first, to);
  const auto read = [&](std::size_t part, std::size_t) {
    const std::size_t begin = part * at_once;
    read_numbers<T>(from, first + begin, to.subspan(begin, std::min(at_once, to.size() - begin)));
  };
  const auto pool = thread_pool::shared();
  pool->run((to.size() + at_once - 1) / at_once, pool->threads(), read);
}

}  // namespace xtrain
