// Operations on host vectors: memory, views, and comparison with an oracle.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/testing/compare.hpp>

namespace on_host {

using namespace xtrain;

template <class Device>
struct computing {
  typename Device::context on{};
  typename Device::stream stream{on};
  arena<Device> workspace{on, std::size_t{1} << 20, memory_role::workspace};
  execution<Device> where{stream, workspace, on.properties()};
};

template <class T>
vector_view<T, host_memory> vec(std::vector<T>& all) {
  return {span_of<T, host_memory>(all.data(), all.size()), {all.size()}};
}
template <class T>
matrix_view<T, host_memory> mat(std::vector<T>& all, std::size_t rows) {
  return {span_of<T, host_memory>(all.data(), all.size()), {rows, all.size() / rows}};
}
template <class T>
std::vector<T> as(const std::vector<double>& values) {
  std::vector<T> all;
  for (const double value : values) all.push_back(static_cast<T>(value));
  return all;
}

/// Values up to about 50, sums of at most a few dozen terms: the bound allows a thousand roundings, and 1e-4 in fp32.
template <class T>
void agrees(const std::vector<T>& got, const std::vector<double>& expected) {
  const double u = dtype_traits<T>::unit_roundoff;
  const auto found =
      testing::compare<T, double>(std::span<const T>(got), std::span<const double>(expected), {.absolute = 1000 * u, .relative = 100 * u});
  INFO(found.problem);
  CHECK(found);
}

}  // namespace on_host
