// Includes xtensor; absorbs moves of its headers (0.26). Depends on no other header of this folder: the reference backend, two layers below, may include it.
#pragma once

#if !__has_include(<xtensor/containers/xtensor.hpp>) && !__has_include(<xtensor/xtensor.hpp>)
#error "xtrain: xtensor 0.24 or newer must be found; link xtrain::xtrain (Debian and Ubuntu: libxtensor-dev)"
#endif

#if __has_include(<xtensor/containers/xtensor.hpp>)
#include <xtensor/containers/xadapt.hpp>
#include <xtensor/containers/xtensor.hpp>
#include <xtensor/core/xmath.hpp>
#include <xtensor/generators/xbuilder.hpp>
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xadapt.hpp>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xtensor.hpp>
#include <xtensor/xview.hpp>
#endif

#include <array>
#include <cstddef>
#include <new>
#include <span>

namespace xtrain {

/// Allocates on 64-byte boundaries. xtensor's default allocator depends on compiler flags (XTENSOR_USE_XSIMD, -mavx2): array types would differ
/// between translation units.
template <class T>
struct cache_line_allocator {
  using value_type = T;

  cache_line_allocator() = default;
  template <class U>
  cache_line_allocator(const cache_line_allocator<U>&) {}

  [[nodiscard]] T* allocate(std::size_t n) { return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* memory, std::size_t) { ::operator delete (memory, std::align_val_t{64}); }

  friend bool operator==(const cache_line_allocator&, const cache_line_allocator&) { return true; }
};

/// A row-major xtensor container, the same type with all compiler flags.
template <class T, std::size_t N>
using array = xt::xtensor<T, N, xt::layout_type::row_major, cache_line_allocator<T>>;

/// Host memory as an xtensor expression, without a copy.
template <class T, std::size_t N>
[[nodiscard]] auto adapted(std::span<T> memory, const std::array<std::size_t, N>& shape) {
  return xt::adapt(memory.data(), memory.size(), xt::no_ownership(), shape);
}

}  // namespace xtrain
