// Reused host memory for a group's messages; grows on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>

namespace xtrain::detail {

/// An array per element type.
class message_scratch {
 public:
  /// At least n elements; growing invalidates references to this type's array.
  template <class T>
  [[nodiscard]] std::vector<T>& of(std::size_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T>& memory = static_cast<array<T>&>(arrays_).elements;
    if (memory.size() < n) memory.resize(n);
    return memory;
  }

 private:
  template <class T>
  struct array {
    std::vector<T> elements;
  };
  // bases: std::tuple of so many types costs compilers much more
  struct arrays : array<float>, array<double>, array<bf16>, array<fp16>, array<std::uint8_t>, array<std::int32_t>, array<std::int64_t>, array<std::uint32_t>,
                  array<std::uint64_t> {};
  arrays arrays_;
};

}  // namespace xtrain::detail
