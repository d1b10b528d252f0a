// Reduces arrays of several ranks by element, in fixed order: the only arithmetic of collectives.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>

namespace xtrain {

/// The type of sums: fp32 for 16-bit types, otherwise T.
template <class T>
struct accumulate_dtype {
  using type = T;
};
template <>
struct accumulate_dtype<bf16> {
  using type = float;
};
template <>
struct accumulate_dtype<fp16> {
  using type = float;
};

namespace detail {

/// result[i] = parts[0][i] + parts[1][i] + ..., in order
template <class T, class Sum>
void reduce_parts(std::span<const T* const> parts, std::span<Sum> result, reduction op) {
  using sum = typename accumulate_dtype<T>::type;
  constexpr std::size_t block = 256;
  std::array<sum, block> acc;
  for (std::size_t begin = 0; begin < result.size(); begin += block) {
    const std::size_t n = std::min(block, result.size() - begin);
    for (std::size_t r = 0; r < parts.size(); ++r) {
      const T* from = parts[r] + begin;
      if (r == 0)
        for (std::size_t i = 0; i < n; ++i) acc[i] = static_cast<sum>(from[i]);
      else if (op == reduction::sum)
        for (std::size_t i = 0; i < n; ++i) acc[i] = static_cast<sum>(acc[i] + static_cast<sum>(from[i]));
      else
        for (std::size_t i = 0; i < n; ++i) acc[i] = std::max(acc[i], static_cast<sum>(from[i]));
    }
    for (std::size_t i = 0; i < n; ++i) result[begin + i] = static_cast<Sum>(acc[i]);
  }
}

}  // namespace detail

}  // namespace xtrain
