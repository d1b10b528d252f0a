// Host memory in which the messages of a group are made. It grows to what is needed and is then used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
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
    auto& memory = std::get<std::vector<T>>(arrays_);
    if (memory.size() < n) memory.resize(n);
    return memory;
  }

 private:
  std::tuple<std::vector<float>, std::vector<double>, std::vector<bf16>, std::vector<fp16>, std::vector<std::uint8_t>, std::vector<std::int32_t>,
             std::vector<std::int64_t>, std::vector<std::uint32_t>, std::vector<std::uint64_t>>
      arrays_;
};

}  // namespace xtrain::detail
