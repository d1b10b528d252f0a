// Deferred weight gradients: a backward in two parts first computes the input gradient that the previous stage waits for (B), then the
// weight gradients, which no other stage waits for (W).                      [Qi et al. 2023, zero bubble]
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

/// A strategy or a schedule may run backwards in two parts, if it declares so.
template <class Strategy>
inline constexpr bool splits_backwards_of = false;
template <class Strategy>
requires requires { Strategy::splits_backwards; }
inline constexpr bool splits_backwards_of<Strategy> = static_cast<bool>(Strategy::splits_backwards);
/// Whether the strategy of a recipe does.
template <class Recipe>
inline constexpr bool splits_backwards = splits_backwards_of<typename Recipe::parallel>;

/// The deferred products of one micro-batch, in backward order: from the last block to the first. Both factors are copied, because their
/// memory is reused before the product is computed. If another block uses the gradient window until then, gradients that are computed
/// immediately (norms, biases) are stored here too. Memory is measured by a dry run and allocated like a stash.
template <class Device, class T, class G>
class deferred_gradients {
 public:
  using memory = typename Device::memory;

  /// `bytes` of device memory; not used in a dry run
  deferred_gradients(const typename Device::context& on, std::size_t bytes, std::size_t entries) : copies_(on, bytes, memory_role::stash) {
    products_.reserve(entries);
    sums_.reserve(entries);
  }

  /// Defers dw += dyᵀ · x.
  ///   dy_no, x_ni  read now (copied)
  ///   dw_oi        stored; added to when the product is computed
  ///   throws       memory_error when the memory that was measured does not suffice
  void defer(execution<Device>& on, std::size_t block, matrix_view<const T, memory> dy_no, matrix_view<const T, memory> x_ni,
               matrix_view<G, memory> dw_oi) {
    const auto dy = copy_of(on, dy_no), x = copy_of(on, x_ni);
    products_.push_back({block, dy, x, dw_oi});
  }

  /// Memory to add to instead of a gradient: zero at first, the same memory whenever the block asks for it.
  ///   gradient  stored; added to when the block's products are computed
  ///   throws    memory_error when the memory that was measured does not suffice
  [[nodiscard]] device_span<G, memory> deferred_sum(typename Device::stream& on, std::size_t block, device_span<G, memory> gradient) {
    for (auto last = sums_.rbegin(); last != sums_.rend() && last->block == block; ++last)
      if (last->gradient.raw() == gradient.raw()) return last->deferred_sum;
    sums_.push_back({block, copies_.template take<G>(gradient.size()), gradient});
    fill_zero(on, sums_.back().deferred_sum);
    return sums_.back().deferred_sum;
  }

  /// Computes the deferred products of a block. Blocks must come in the order in which they were deferred.
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
  /// Resets for the next micro-batch.
  ///   throws  shape_error when a product was not computed
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
