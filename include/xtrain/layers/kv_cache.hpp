// The key/value cache of a decoder that generates.
#pragma once

#include <cstddef>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Key/value cache of earlier tokens, for generation. It has a slot for each of several sequences; those of a pass are in adjacent slots.
/// `lengths_b`: cached tokens of each sequence of the pass.
template <class Device, class T>
struct cache_view {
  std::size_t capacity = 0;
  std::size_t slots = 0;       // per layer
  std::size_t first_slot = 0;  // of the pass's first sequence
  vector_view<const token, typename Device::memory> lengths_b{};
  matrix_view<T, typename Device::memory> keys{};    // [layers·slots·k, capacity·d]
  matrix_view<T, typename Device::memory> values{};  // likewise
  bool is_empty = false;                             // nothing is cached yet: an adapter's prefix goes first
  std::span<const std::size_t> layers{};             // index in the cache of each of the model's layers, where it has only some; empty: all, in order

  /// The row of the first sequence's first head in a layer; k: key/value heads.
  [[nodiscard]] std::size_t first_row(std::size_t layer, std::size_t k) const {
    return ((layers.empty() ? layer : layers[layer]) * slots + first_slot) * k;
  }
};

}  // namespace xtrain
