// One token per byte, without files; 257 tokens.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/header_inline.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// GPT-2's printable character of a byte, as UTF-8.
[[nodiscard]] std::string printable_byte(unsigned byte);

class byte_model final : public tokenizer_model {
 public:
  static constexpr token end_of_text = 256;

  XTRAIN_HEADER_INLINE void encode(std::string_view text, std::vector<placed_token>& tokens) const override;
  [[nodiscard]] XTRAIN_HEADER_INLINE std::string decode(std::span<const token> tokens) const override;
  [[nodiscard]] std::size_t vocab_size() const override { return 257; }

  /// As a byte-level BPE without merges, equal in other libraries.
  XTRAIN_HEADER_INLINE void save(const std::string& folder) const override;
};

}  // namespace detail

/// A token per byte; 256: end of text.
[[nodiscard]] tokenizer byte_tokenizer();

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/byte_tokenizer_impl.hpp>
#endif
