// For encoder sequences: special tokens, and tokens that continue a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain::detail {

/// Tokens that begin a sequence, end a sentence, mask a word.
struct sentence_marks {
  token begin = -1, separator = -1, mask = -1;

  ///   throws  config_error if the tokenizer lacks one
  explicit sentence_marks(const tokenizer& of);
};

/// WordPiece marks continuations with the prefix "##".
class word_parts {
 public:
  explicit word_parts(const tokenizer& of) : tokenizer_(of), known_(of.vocab_size(), unknown) {}

  [[nodiscard]] bool continues(token id);

 private:
  static constexpr std::int8_t unknown = -1, no = 0, yes = 1;
  tokenizer tokenizer_;
  std::vector<std::int8_t> known_;
};

/// One or two texts with special tokens. Above `context` tokens (0: no limit), the longer text loses its last token repeatedly.
///   throws  data_error if the special tokens do not fit
[[nodiscard]] sentence_row row_of(const encoding& whole, std::size_t context, word_parts& parts);

}  // namespace xtrain::detail

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/sentence_marks_impl.hpp>
#endif
