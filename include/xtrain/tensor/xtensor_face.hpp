// Tensors as xtensor expressions and back; host-addressable memory is not copied.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/tensor/tensor.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/tensor/xt.hpp>

namespace xtrain {

/// The view's memory as an xtensor expression to read and write.
///   throws  shape_error unless the view is dense
template <class T, std::size_t N, class Memory>
[[nodiscard]] auto as_xtensor(const tensor_view<T, N, Memory>& view) {
  static_assert(
      clause::memory_is_host_addressable<Memory>,
      "xtrain as_xtensor: the memory must be host-addressable; this device's is not; copy it with to_xtensor; see tensor/README.md");
  if constexpr (clause::memory_is_host_addressable<Memory>) return adapted(view.span().host(), view.shape());
}
template <class T, std::size_t N, class Device>
[[nodiscard]] auto as_xtensor(tensor<T, N, Device>& owner) {
  return as_xtensor(owner.view());
}
template <class T, std::size_t N, class Device>
[[nodiscard]] auto as_xtensor(const tensor<T, N, Device>& owner) {
  return as_xtensor(owner.view());
}

/// Recorded values, e.g. the losses of a run.
template <class T>
[[nodiscard]] auto as_xtensor(std::span<T> values) {
  return adapted(values, std::array<std::size_t, 1>{values.size()});
}

/// A view of a container, which must outlive it.
template <class T, std::size_t N>
[[nodiscard]] tensor_view<T, N, host_memory> view_of(array<T, N>& container) {
  shape_of_rank<N> shape{};
  for (std::size_t i = 0; i < N; ++i) shape[i] = container.shape()[i];
  return {span_of(container.data(), container.size()), shape};
}
template <class T, std::size_t N>
[[nodiscard]] tensor_view<const T, N, host_memory> view_of(const array<T, N>& container) {
  shape_of_rank<N> shape{};
  for (std::size_t i = 0; i < N; ++i) shape[i] = container.shape()[i];
  return {span_of(container.data(), container.size()), shape};
}

/// Copies to an array.
template <class Stream, class T, std::size_t N, class Memory>
[[nodiscard]] array<std::remove_const_t<T>, N> to_xtensor(Stream& stream, const tensor_view<T, N, Memory>& view) {
  array<std::remove_const_t<T>, N> copy(view.shape());
  copy_to_host(stream, std::span<std::remove_const_t<T>>(copy.data(), copy.size()), view.span());
  stream.synchronize();
  return copy;
}

/// Evaluates an expression into device memory, rounded to its dtype.
///   throws  shape_error unless the shapes are equal
template <class Stream, class Expression, class T, std::size_t N, class Memory>
void assign(Stream& stream, const tensor_view<T, N, Memory>& to, const xt::xexpression<Expression>& from) {
  const auto& expression = from.derived_cast();
  shape_of_rank<N> shape{};
  bool fits = expression.dimension() == N;
  for (std::size_t i = 0; fits && i < N; ++i) {
    shape[i] = expression.shape()[i];
    fits = shape[i] == to.shape(i);
  }
  require<shape_error>(fits, "assign: the expression must have shape ", to.shape(), "; it has ", expression.dimension(), " dims",
                       expression.dimension() == N ? concat(" ", shape) : "");
  array<T, N> host(shape);
  std::size_t i = 0;
  for (auto at = expression.begin(); at != expression.end(); ++at, ++i) host.data()[i] = static_cast<T>(*at);
  copy_to_device(stream, to.span(), std::span<const T>(host.data(), host.size()));
  stream.synchronize();
}

}  // namespace xtrain
