#pragma once

#include <cstddef>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Keys and values of earlier tokens, a slot per sequence; a pass's sequences have adjacent slots. `lengths_b`: cached tokens per sequence.
template <class Device, class T>
struct cache_view {
  std::size_t capacity = 0;
  std::size_t slots = 0;       // per layer
  std::size_t first_slot = 0;  // of the pass's first sequence
  vector_view<const token, typename Device::memory> lengths_b{};
  matrix_view<T, typename Device::memory> keys{};    // [layers·slots·k, capacity·d]
  matrix_view<T, typename Device::memory> values{};  // likewise
  bool is_empty = false;                             // an adapter's prefix goes first
  std::span<const std::size_t> layers{};             // cache index per layer of the model; empty: all, in order

  /// Row of the first sequence's first head in a layer; k: key/value heads.
  [[nodiscard]] std::size_t first_row(std::size_t layer, std::size_t k) const {
    return ((layers.empty() ? layer : layers[layer]) * slots + first_slot) * k;
  }
};

}  // namespace xtrain
