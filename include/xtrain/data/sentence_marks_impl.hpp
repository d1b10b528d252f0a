// Definitions of sentence_marks.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/sentence_marks.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain::detail {

XTRAIN_INLINE sentence_marks::sentence_marks(const tokenizer& of) {
  const auto find = [&](const char* text, token& to) {
    to = of.find_token(text);
    require<config_error>(to >= 0, "tokenizer: must have a token ", text, " to build sequences of an encoder; it has none");
  };
  find("[CLS]", begin);
  find("[SEP]", separator);
  find("[MASK]", mask);
}

XTRAIN_INLINE bool word_parts::continues(token id) {
  const auto i = static_cast<std::size_t>(id);
  if (i >= known_.size()) return false;
  if (known_[i] == unknown) known_[i] = tokenizer_.token_text(id).starts_with("##") ? yes : no;
  return known_[i] == yes;
}

XTRAIN_INLINE sentence_row row_of(const encoding& whole, std::size_t context, word_parts& parts) {
  std::array<std::size_t, 2> keep{};
  for (const std::int8_t part : whole.parts)
    if (part >= 0) ++keep[static_cast<std::size_t>(part)];
  const std::size_t put_in = whole.parts.size() - keep[0] - keep[1];
  require<data_error>(context == 0 || put_in < context, "sequences must have room for the ", put_in,
                      " special tokens around a text, and one more; given ", context);
  while (context > 0 && put_in + keep[0] + keep[1] > context) --keep[keep[0] >= keep[1] ? 0 : 1];
  sentence_row row;
  std::array<std::size_t, 2> seen{};
  for (std::size_t i = 0; i < whole.tokens.size(); ++i) {
    const std::int8_t part = whole.parts[i];
    if (part >= 0 && seen[static_cast<std::size_t>(part)]++ >= keep[static_cast<std::size_t>(part)]) continue;
    if (row.second == 0 && whole.types[i] != 0) row.second = row.tokens.size();
    row.add(whole.tokens[i].id, part >= 0, parts.continues(whole.tokens[i].id));
  }
  return row;
}

}  // namespace xtrain::detail
