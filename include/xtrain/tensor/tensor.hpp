// A tensor: device memory with a shape.
#pragma once

#include <cstddef>
#include <utility>

#include <xtrain/device/memory.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Move-only. Elements are uninitialized until written.
template <class T, std::size_t N, class Device>
class tensor {
 public:
  using value_type = T;
  using memory = typename Device::memory;
  static constexpr std::size_t rank = N;

  tensor(const typename Device::context& device, const shape_of_rank<N>& shape, memory_role role)
      : buffer_(device, elements(shape) * sizeof(T), role), shape_(shape) {}

  [[nodiscard]] const shape_of_rank<N>& shape() const { return shape_; }
  [[nodiscard]] std::size_t size() const { return elements(shape_); }
  [[nodiscard]] tensor_view<T, N, memory> view() { return {buffer_.template as<T>(), shape_}; }
  [[nodiscard]] tensor_view<const T, N, memory> view() const { return {buffer_.template as<T>(), shape_}; }
  [[nodiscard]] device_span<T, memory> span() const { return buffer_.template as<T>(); }

 private:
  buffer<Device> buffer_;
  shape_of_rank<N> shape_;
};

}  // namespace xtrain
