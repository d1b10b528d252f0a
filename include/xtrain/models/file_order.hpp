// Row order of a fused qkv matrix in files. In the model: queries, keys, values, head by head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <xtrain/models/config.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// Whole heads: place(part, head) is the head's index in the file; part is 'q', 'k' or 'v'.
template <class Place>
[[nodiscard]] file_order grouped_order(const decoder_config& c, Place&& place) {
  std::vector<std::uint32_t> order;
  const auto add = [&](char part, std::size_t heads) {
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t i = 0; i < c.head_dim; ++i) order.push_back(static_cast<std::uint32_t>(place(part, head) * c.head_dim + i));
  };
  add('q', c.num_heads);
  add('k', c.num_kv_heads);
  add('v', c.num_kv_heads);
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
}

/// Files rotate element 2i with 2i + 1, the model i with i + rotated/2: rows of queries and keys are permuted. Other elements stay in order.
[[nodiscard]] inline file_order neighbours_order(const decoder_config& c, std::size_t rotated) {
  std::vector<std::uint32_t> order;
  for (std::size_t head = 0; head < c.num_heads + 2 * c.num_kv_heads; ++head)
    for (std::size_t i = 0; i < c.head_dim; ++i) {
      const bool turns = head < c.num_heads + c.num_kv_heads && i < rotated;
      const std::size_t at = !turns ? i : i < rotated / 2 ? 2 * i : 2 * (i - rotated / 2) + 1;
      order.push_back(static_cast<std::uint32_t>(head * c.head_dim + at));
    }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
}

}  // namespace xtrain
