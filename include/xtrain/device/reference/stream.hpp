// The reference's stream, and operands as xtensor arrays.
#pragma once

#include <array>
#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/tensor/xt.hpp>

namespace xtrain {

/// Runs a kernel when it is queued.
class reference_stream : public host_stream {
 public:
  reference_stream() = default;
  explicit reference_stream(const host_context& device) : host_stream(device) {}
};

namespace detail {

/// A copy as array of `To`: kernels may overwrite what they have read.
template <class To, class T, class... Size>
[[nodiscard]] auto values(const device_span<T, host_memory>& operand, Size... sizes) {
  const std::array<std::size_t, sizeof...(Size)> shape{sizes...};
  array<To, sizeof...(Size)> all(shape);
  for (std::size_t i = 0; i < all.size(); ++i) all.data()[i] = static_cast<To>(operand.data()[i]);
  return all;
}

/// Rows `stride` apart, as a dense array.
template <class To, class T>
[[nodiscard]] array<To, 2> strided_values(const device_span<T, host_memory>& operand, std::size_t rows, std::size_t columns,
                                          std::size_t stride) {
  array<To, 2> all(std::array<std::size_t, 2>{rows, columns});
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) all(i, j) = static_cast<To>(operand.data()[i * stride + j]);
  return all;
}

/// Stores an expression of N dims, rounded once.
template <std::size_t N, class T, class Expression>
void store(const device_span<T, host_memory>& operand, const Expression& expression) {
  const array<typename Expression::value_type, N> all = expression;
  for (std::size_t i = 0; i < all.size(); ++i) operand.data()[i] = static_cast<T>(all.data()[i]);
}

/// Adds an expression, rounded once.
template <std::size_t N, class T, class Expression>
void store_added(const device_span<T, host_memory>& operand, const Expression& expression) {
  using from = typename Expression::value_type;
  const array<from, N> all = expression;
  for (std::size_t i = 0; i < all.size(); ++i) operand.data()[i] = static_cast<T>(static_cast<from>(operand.data()[i]) + all.data()[i]);
}

/// c_ij = Σ_k a_ik b_jk
template <class A>
[[nodiscard]] array<A, 2> product_transposed(const array<A, 2>& a_ik, const array<A, 2>& b_jk) {
  return xt::sum(xt::view(a_ik, xt::all(), xt::newaxis(), xt::all()) * xt::view(b_jk, xt::newaxis(), xt::all(), xt::all()), {2});
}

}  // namespace detail

/// Rows are known at this time.
template <class Kernel>
void run_kernel(reference_stream& stream, const kernel::in_rows<Kernel, host_memory>& k, scratch_span<host_memory> scratch) {
  const auto first = static_cast<std::size_t>(k.range_2.data()[0]), count = static_cast<std::size_t>(k.range_2.data()[1]);
  if (count > 0 || kernel::writes_without_rows(k.whole)) run_kernel(stream, k.whole.rows(first, count, k.total), scratch);
}

}  // namespace xtrain
