// How files arrange the rows of one matrix that makes queries, keys and values; in the model they are all queries, all keys, all
// values, head by head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <xtrain/models/config.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// Heads as whole pieces: place(part, head) says where in the file, counted in heads, a head of part 'q', 'k' or 'v' lies.
template <class Place>
[[nodiscard]] file_order grouped_order(const decoder_config& c, Place&& place) {
  std::vector<std::uint32_t> order;
  const auto add = [&](char part, std::size_t heads) {
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t i = 0; i < c.head_dim; ++i) order.push_back(static_cast<std::uint32_t>(place(part, head) * c.head_dim + i));
  };
  add('q', c.heads);
  add('k', c.kv_heads);
  add('v', c.kv_heads);
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
}

/// Files turn element 2i of a head with 2i + 1, the model i with i + rotated/2: queries and keys are sorted so that both are the
/// same. What does not turn stays where it is.
[[nodiscard]] inline file_order neighbours_order(const decoder_config& c, std::size_t rotated) {
  std::vector<std::uint32_t> order;
  for (std::size_t head = 0; head < c.heads + 2 * c.kv_heads; ++head)
    for (std::size_t i = 0; i < c.head_dim; ++i) {
      const bool turns = head < c.heads + c.kv_heads && i < rotated;
      const std::size_t at = !turns ? i : i < rotated / 2 ? 2 * i : 2 * (i - rotated / 2) + 1;
      order.push_back(static_cast<std::uint32_t>(head * c.head_dim + at));
    }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
}

}  // namespace xtrain
