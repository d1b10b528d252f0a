// Gradients of weights that are made later: a backward in two parts makes in the first what the stage before waits for, and in the
// second what nobody waits for.
#pragma once

#include <cstddef>
#include <vector>

#include <xtrain/core/error.hpp>
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
/// copied, because what they lie in is used again before the product is made. Memory is measured and allocated as a stash's is.
template <class Device, class T, class G>
class put_off_products {
 public:
  using memory = typename Device::memory;

  /// `bytes` of device memory; on a dry device they do not matter
  put_off_products(const typename Device::context& on, std::size_t bytes, std::size_t entries) : copies_(on, bytes, memory_role::stash) {
    products_.reserve(entries);
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

  /// Makes those of a block. Blocks are asked for in the order in which they were put off.
  void make(execution<Device>& on, std::size_t block) {
    for (; made_ < products_.size() && products_[made_].block == block; ++made_) {
      const product& next = products_[made_];
      ops::linear_backward_weight(on, next.dy_no, next.x_ni, next.dw_oi);
    }
  }
  /// For the next micro-batch.
  ///   throws  shape_error when a product was not made
  void clear() {
    require<shape_error>(made_ == products_.size(), "put_off_products: every product must be made; ", made_, " of ", products_.size(), " were");
    products_.clear();
    made_ = 0;
    copies_.release(0);
  }

  [[nodiscard]] std::size_t high_water() const { return copies_.high_water(); }
  [[nodiscard]] std::size_t reserved() const { return products_.capacity(); }

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

  arena<Device> copies_;
  std::vector<product> products_;
  std::size_t made_ = 0;
};

}  // namespace xtrain
