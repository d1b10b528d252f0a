// Host memory in which the messages of a group are made. It grows to what is needed and is then used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>

namespace xtrain::detail {

/// One array for each element type that a group can send.
class message_scratch {
 public:
  /// At least n elements; references to an array of the same type are invalidated when it grows.
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
  // bases, because every program reads this header and std::tuple of as many types costs its compiler much more
  struct arrays : array<float>, array<double>, array<bf16>, array<fp16>, array<std::uint8_t>, array<std::int32_t>, array<std::int64_t>, array<std::uint32_t>,
                  array<std::uint64_t> {};
  arrays arrays_;
};

}  // namespace xtrain::detail
