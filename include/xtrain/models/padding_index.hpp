// The embedding row that inputs do not train.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <xtrain/core/error.hpp>
#include <xtrain/core/dtype.hpp>

namespace xtrain {

/// padding_idx of torch.nn.Embedding; negative: none.
///   padding  config.json's pad_token_id; negative: from the vocabulary's end
///   throws   config_error unless it is in the vocabulary
[[nodiscard]] inline token padding_index(std::optional<token> padding, std::size_t vocabulary, const char* family) {
  if (!padding) return -1;
  const auto v = static_cast<std::int64_t>(vocabulary);
  require<config_error>(*padding >= -v && *padding < v, family, ": pad_token_id must be in the vocabulary of ", vocabulary, "; given ", *padding);
  return static_cast<token>(*padding < 0 ? v + *padding : *padding);
}

}  // namespace xtrain
