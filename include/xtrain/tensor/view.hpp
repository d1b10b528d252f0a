// Memory with a shape, not owned.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// Sizes of N dims.
template <std::size_t N>
using shape_of_rank = std::array<std::size_t, N>;

/// The product of the dims.
template <std::size_t N>
[[nodiscard]] constexpr std::size_t elements(const shape_of_rank<N>& shape) {
  std::size_t product = 1;
  for (const std::size_t size : shape) product *= size;
  return product;
}

/// N dims, row-major. Inner dims are contiguous; rows of the first dim may be strided; `dense()`: without gaps.
template <class T, std::size_t N, class Memory>
class tensor_view {
 public:
  using element_type = T;
  using value_type = std::remove_const_t<T>;
  using memory = Memory;
  static constexpr std::size_t rank = N;

  constexpr tensor_view() = default;
  /// Dense.
  ///   throws  shape_error unless `span` has the shape's elements
  constexpr tensor_view(device_span<T, Memory> span, const shape_of_rank<N>& shape)
      : data_(span.data()), shape_(shape), stride_(shape[0] == 0 ? 0 : elements(shape) / shape[0]) {
    require<shape_error>(elements(shape) == span.size(), "tensor: the memory must hold the shape's elements; shape ", shape, " over ",
                         span.size(), " elements");
  }
  /// Rows are `stride` elements apart; `span` reaches the last element.
  ///   throws  shape_error otherwise
  [[nodiscard]] static constexpr tensor_view strided(device_span<T, Memory> span, const shape_of_rank<N>& shape, std::size_t stride) {
    const tensor_view all(span.data(), shape, stride);
    require<shape_error>(all.extent().size() <= span.size(), "tensor: the memory must hold the shape's elements; shape ", shape, " with rows ", stride,
                         " elements apart over ", span.size(), " elements");
    return all;
  }
  /// For an optional argument that is not given.
  [[nodiscard]] static constexpr tensor_view none() { return {}; }

  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_const_v<U>) constexpr tensor_view(const tensor_view<U, N, Memory>& other)
      : data_(other.data_), shape_(other.shape_), stride_(other.stride_) {}

  [[nodiscard]] constexpr const shape_of_rank<N>& shape() const { return shape_; }
  [[nodiscard]] constexpr std::size_t shape(std::size_t dim) const { return shape_[dim]; }
  [[nodiscard]] constexpr std::size_t size() const { return elements(shape_); }
  /// Elements between rows of the first dim.
  [[nodiscard]] constexpr std::size_t stride() const { return stride_; }
  [[nodiscard]] constexpr bool dense() const { return shape_[0] <= 1 || stride_ * shape_[0] == size(); }
  [[nodiscard]] constexpr bool exists() const { return static_cast<bool>(data_); }
  [[nodiscard]] constexpr device_ptr<T, Memory> data() const { return data_; }

  /// First to last element, with gaps.
  [[nodiscard]] constexpr device_span<T, Memory> extent() const {
    return size() == 0 ? device_span<T, Memory>{} : device_span<T, Memory>{data_, (shape_[0] - 1) * stride_ + size() / shape_[0]};
  }
  ///   throws  shape_error unless the view is dense
  [[nodiscard]] constexpr device_span<T, Memory> span() const {
    require<shape_error>(dense(), "tensor: only a dense view is a span; shape ", shape_, " with rows ", stride_, " elements apart");
    return {data_, size()};
  }

  ///   throws  shape_error unless the view is dense
  template <std::size_t M>
  [[nodiscard]] constexpr tensor_view<T, M, Memory> reshaped(const shape_of_rank<M>& shape) const {
    return {span(), shape};
  }
  [[nodiscard]] constexpr tensor_view rows(std::size_t first, std::size_t count) const {
    shape_of_rank<N> shape = shape_;
    shape[0] = count;
    return tensor_view(data_ + first * stride_, shape, stride_);
  }
  [[nodiscard]] constexpr tensor_view columns(std::size_t first, std::size_t count) const requires(N == 2) {
    return tensor_view(data_ + first, {shape_[0], count}, stride_);
  }

 private:
  template <class, std::size_t, class>
  friend class tensor_view;
  constexpr tensor_view(device_ptr<T, Memory> data, const shape_of_rank<N>& shape, std::size_t stride)
      : data_(data), shape_(shape), stride_(stride) {}

  device_ptr<T, Memory> data_{};
  shape_of_rank<N> shape_{};
  std::size_t stride_ = 0;
};

/// A view with one dim.
template <class T, class Memory>
using vector_view = tensor_view<T, 1, Memory>;
/// A view with two dims.
template <class T, class Memory>
using matrix_view = tensor_view<T, 2, Memory>;

/// throws shape_error unless the shapes are equal; `who` names operation and argument
template <std::size_t N>
constexpr void require_shape(std::string_view who, const shape_of_rank<N>& given, const shape_of_rank<N>& expected) {
  require<shape_error>(given == expected, who, ": must have shape ", expected, "; given ", given);
}

}  // namespace xtrain
