// Deferred weight gradients: a split backward computes input gradients first (B), as the previous stage waits for them, then weight gradients (W).
// [Qi et al. 2023, zero bubble]
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// A strategy or schedule may declare split backwards.
template <class Strategy>
inline constexpr bool splits_backwards_of = false;
template <class Strategy>
requires requires { Strategy::splits_backwards; }
inline constexpr bool splits_backwards_of<Strategy> = static_cast<bool>(Strategy::splits_backwards);
/// Whether the strategy of a recipe does.
template <class Recipe>
inline constexpr bool splits_backwards = splits_backwards_of<typename Recipe::parallel>;

/// Deferred products of a micro-batch, from the last block to the first. Both factors are copied, as their memory is reused. If blocks share the gradient
/// window, immediate gradients (norms, biases) are stored here. A dry run measures the memory.
template <class Device, class T, class G>
class deferred_gradients {
 public:
  using memory = typename Device::memory;

  /// `bytes` of device memory; none in a dry run
  deferred_gradients(const typename Device::context& on, std::size_t bytes, std::size_t entries) : copies_(on, bytes, memory_role::stash) {
    products_.reserve(entries);
    sums_.reserve(entries);
  }

  /// Defers dw += dyᵀ · x.
  ///   dy_no, x_ni  copied
  ///   dw_oi        stored; added to later
  ///   throws       memory_error when the measured memory does not suffice
  void defer(execution<Device>& on, std::size_t block, matrix_view<const T, memory> dy_no, matrix_view<const T, memory> x_ni,
               matrix_view<G, memory> dw_oi) {
    const auto dy = copy_of(on, dy_no), x = copy_of(on, x_ni);
    products_.push_back({block, dy, x, dw_oi});
  }

  /// Memory in place of a gradient, initially zero; the same for every call of the block.
  ///   gradient  stored; added to with the block's products
  ///   throws    memory_error when the measured memory does not suffice
  [[nodiscard]] device_span<G, memory> deferred_sum(typename Device::stream& on, std::size_t block, device_span<G, memory> gradient) {
    for (auto last = sums_.rbegin(); last != sums_.rend() && last->block == block; ++last)
      if (last->gradient.raw() == gradient.raw()) return last->deferred_sum;
    sums_.push_back({block, copies_.template take<G>(gradient.size()), gradient});
    fill_zero(on, sums_.back().deferred_sum);
    return sums_.back().deferred_sum;
  }

  /// Computes a block's products; blocks in the order of deferral.
  void make(execution<Device>& on, std::size_t block) {
    for (; made_ < products_.size() && products_[made_].block == block; ++made_) {
      const product& next = products_[made_];
      ops::linear_backward_weight(on, next.dy_no, next.x_ni, next.dw_oi);
    }
    for (; added_ < sums_.size() && sums_[added_].block == block; ++added_) {
      const sum& next = sums_[added_];
      const std::size_t n = next.gradient.size();
      ops::add(on, vector_view<const G, memory>(next.deferred_sum, {n}), vector_view<G, memory>(next.gradient, {n}));
    }
  }
  void clear() {
    require<shape_error>(made_ == products_.size() && added_ == sums_.size(), "deferred weight gradients: every product must be computed; ", made_, " of ",
                         products_.size(), " were, and ", added_, " of ", sums_.size(), " sums added");
    products_.clear();
    sums_.clear();
    made_ = added_ = 0;
    copies_.release(0);
  }

  [[nodiscard]] std::size_t high_water() const { return copies_.high_water(); }
  [[nodiscard]] std::size_t reserved() const { return std::max(products_.capacity(), sums_.capacity()); }

 private:
  struct product {
    std::size_t block = 0;
    matrix_view<const T, memory> dy_no{}, x_ni{};
    matrix_view<G, memory> dw_oi{};
  };

  [[nodiscard]] matrix_view<const T, memory> copy_of(execution<Device>& on, matrix_view<const T, memory> values) {
    const matrix_view<T, memory> copy{copies_.template take<T>(values.size()), values.shape()};
    ops::copy_rows(on, values, copy);
    return copy;
  }

  struct sum {
    std::size_t block = 0;
    device_span<G, memory> deferred_sum{}, gradient{};
  };

  arena<Device> copies_;
  std::vector<product> products_;
  std::vector<sum> sums_;
  std::size_t made_ = 0, added_ = 0;
};

}  // namespace xtrain
