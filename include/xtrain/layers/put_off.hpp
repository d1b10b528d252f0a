// Gradients of weights that are made later: a backward in two parts makes in the first what the stage before waits for, and in the
// second what nobody waits for.
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

/// A strategy may carry out backwards in two parts: it says so.
template <class Recipe>
inline constexpr bool splits_backwards = [] {
  if constexpr (requires { Recipe::parallel::splits_backwards; }) return static_cast<bool>(Recipe::parallel::splits_backwards);
  else return false;
}();

/// The products of one micro-batch that were put off, in the order of its backward: blocks from the last to the first. Both factors are
/// copied, because what they lie in is used again before the product is made. Where the memory of gradients is another block's until then,
/// what is made at once, of norms and biases, lies aside too. Memory is measured and allocated as a stash's is.
template <class Device, class T, class G>
class put_off_products {
 public:
  using memory = typename Device::memory;

  /// `bytes` of device memory; where nothing is real they do not matter
  put_off_products(const typename Device::context& on, std::size_t bytes, std::size_t entries) : copies_(on, bytes, memory_role::stash) {
    products_.reserve(entries);
    sums_.reserve(entries);
  }

  /// dw += dyᵀ · x is to be made later.
  ///   dy_no, x_ni  read now
  ///   dw_oi        remembered; added to when it is made
  ///   throws       memory_error when there is less memory than was measured
  void put_off(execution<Device>& on, std::size_t block, matrix_view<const T, memory> dy_no, matrix_view<const T, memory> x_ni,
               matrix_view<G, memory> dw_oi) {
    const auto dy = copy_of(on, dy_no), x = copy_of(on, x_ni);
    products_.push_back({block, dy, x, dw_oi});
  }

  /// Where to add what is to be added to a gradient later: zero at first, the same memory whenever the block asks for it.
  ///   gradient  remembered; added to when the block's products are made
  ///   throws    memory_error when there is less memory than was measured
  [[nodiscard]] device_span<G, memory> aside(typename Device::stream& on, std::size_t block, device_span<G, memory> gradient) {
    for (auto last = sums_.rbegin(); last != sums_.rend() && last->block == block; ++last)
      if (last->gradient.raw() == gradient.raw()) return last->aside;
    sums_.push_back({block, copies_.template take<G>(gradient.size()), gradient});
    fill_zero(on, sums_.back().aside);
    return sums_.back().aside;
  }

  /// Makes those of a block. Blocks are asked for in the order in which they were put off.
  void make(execution<Device>& on, std::size_t block) {
    for (; made_ < products_.size() && products_[made_].block == block; ++made_) {
      const product& next = products_[made_];
      ops::linear_backward_weight(on, next.dy_no, next.x_ni, next.dw_oi);
    }
    for (; added_ < sums_.size() && sums_[added_].block == block; ++added_) {
      const sum& next = sums_[added_];
      const std::size_t n = next.gradient.size();
      ops::add(on, vector_view<const G, memory>(next.aside, {n}), vector_view<G, memory>(next.gradient, {n}));
    }
  }
  /// For the next micro-batch.
  ///   throws  shape_error when a product was not made
  void clear() {
    require<shape_error>(made_ == products_.size() && added_ == sums_.size(), "put_off_products: every product must be made; ", made_, " of ",
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
    device_span<G, memory> aside{}, gradient{};
  };

  arena<Device> copies_;
  std::vector<product> products_;
  std::vector<sum> sums_;
  std::size_t made_ = 0, added_ = 0;
};

}  // namespace xtrain
