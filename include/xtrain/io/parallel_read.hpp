// Reading a tensor's elements with all threads of the host.
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

/// Elements that one thread reads at a time. Where the innermost dim of a layout crosses blocks, as many of its lines as a block has numbers: each of
/// them is decoded once.
[[nodiscard]] inline std::size_t elements_of_read(const file_tensor& from) {
  constexpr std::size_t usual = std::size_t{1} << 16;
  if (from.layout.empty() || from.layout.back().stride == 1 || find_block_dtype(from.dtype) == nullptr) return usual;
  return std::max(usual, from.layout.back().size * longest_block);
}

}  // namespace detail

/// The same as read_numbers, with the threads of the shared pool.
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
