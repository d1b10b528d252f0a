// The key/value cache of a decoder that generates.
#pragma once

#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Key/value cache of earlier tokens, for generation. `lengths_b`: cached tokens per sequence.
template <class Device, class T>
struct cache_view {
  std::size_t capacity = 0;
  vector_view<const token, typename Device::memory> lengths_b{};
  matrix_view<T, typename Device::memory> keys{};    // [layers·b·k, capacity·d]
  matrix_view<T, typename Device::memory> values{};  // likewise
  bool is_empty = false;                             // nothing is cached yet: an adapter's prefix goes first
};

}  // namespace xtrain
