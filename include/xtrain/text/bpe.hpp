// Byte-pair encoding: merges the adjacent pair of lowest rank, repeatedly. [Sennrich et al. 2016; Radford et al. 2019] Component 'text'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/merges.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/word_model.hpp>

namespace xtrain {

/// Settings of a byte-pair encoding.
struct bpe_options {
  std::vector<std::pair<std::string, token>> vocabulary{};
  std::vector<std::pair<std::string, std::string>> merges{};  ///< best first
  bool merges_by_rank = false;                                ///< or: join tokens that form a token, smallest id first
  bool bytes = false;               ///< words are bytes, as GPT-2's printable characters
  bool ignore_merges = false;       ///< a word in the vocabulary is not merged
  bool byte_fallback = false;       ///< unknown characters become byte tokens, <0xNN>
  std::string unknown{};            ///< for unknown characters; empty: dropped
  bool fuse_unknown = false;        ///< adjacent unknown characters become one token
  std::string continuing_prefix{};  ///< of characters after a word's first
  std::string end_suffix{};         ///< of a word's last character
  std::string who = "tokenizer";    ///< for errors
};

namespace detail {

/// "<0xNN>": a byte in vocabularies with byte fallback.
[[nodiscard]] inline std::string byte_token_text(unsigned byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 0xFU], '>'};
}

}  // namespace detail

/// Byte-pair encoding.
class bpe final : public detail::word_model {
 public:
  /// throws config_error if vocabulary and merges contradict each other
  explicit bpe(const bpe_options& o)
      : vocabulary_(o.vocabulary, o.who), bytes_(o.bytes), ignore_merges_(o.ignore_merges), fuse_unknown_(o.fuse_unknown),
        cuts_(!o.ignore_merges && o.continuing_prefix.empty() && o.end_suffix.empty()), continuing_prefix_(o.continuing_prefix),
        end_suffix_(o.end_suffix), merges_(o.merges_by_rank ? joins_by_rank(vocabulary_) : joins_of(o, vocabulary_)) {
    if (!o.unknown.empty()) {
      unknown_ = vocabulary_.find(o.unknown);
      require<config_error>(unknown_ >= 0, o.who, ": the unknown token must be in the vocabulary; '", o.unknown, "' is not");
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      single_[byte] = bytes_        ? vocabulary_.find(detail::printable_byte(byte))
                      : byte < 0x80 ? vocabulary_.find(std::string(1, static_cast<char>(byte)))
                                    : -1;
      fallback_[byte] = o.byte_fallback ? vocabulary_.find(detail::byte_token_text(byte)) : -1;
    }
    for (token id = 0; cuts_ && static_cast<std::size_t>(id) < vocabulary_.size(); ++id) neighbours_.add(vocabulary_.text(id));
    neighbours_.finish();
    for (unsigned left = 0; bytes_ && left < 256; ++left)
      for (unsigned right = 0; right < 256; ++right)
        byte_pairs_[256 * left + right] = neighbours_.together(detail::character_at(detail::printable_byte(left), 0).code,
                                                               detail::character_at(detail::printable_byte(right), 0).code);
  }

  void encode(std::string_view word, detail::word_scratch& scratch) const override {
    if (ignore_merges_)
      if (const token whole = bytes_ ? vocabulary_.find(printable(word, scratch.text)) : vocabulary_.find(word); whole >= 0) {
        scratch.tokens.push_back({whole, 0, static_cast<std::uint32_t>(word.size())});
        return;
      }
    scratch.ids.clear();
    scratch.begins.clear();
    scratch.ends.clear();
    place unknown;
    if (bytes_) begin_with_bytes(word, scratch, unknown);
    else begin_with_characters(word, scratch, unknown);
    end_unknown(scratch, unknown);
    detail::join_symbols(merges_, scratch);
  }
  [[nodiscard]] const detail::vocabulary_table& vocabulary() const override { return vocabulary_; }

  /// Words without spaces may be as long as the text: cut where no token joins two characters.
  [[nodiscard]] std::size_t part_end(std::string_view word, std::size_t begin) const override {
    if (!cuts_) return word.size();
    if (bytes_) {
      if (word.size() - begin <= few) return word.size();
      for (std::size_t i = begin + 1; i < word.size(); ++i) {
        const auto left = static_cast<unsigned char>(word[i - 1]), right = static_cast<unsigned char>(word[i]);
        if (!byte_pairs_[256U * left + right] && single_[left] >= 0 && single_[right] >= 0) return i;
      }
      return word.size();
    }
    detail::character left = detail::character_at(word, begin);
    for (std::size_t i = begin + left.bytes; i < word.size();) {
      const detail::character right = detail::character_at(word, i);
      if (!neighbours_.together(left.code, right.code) && vocabulary_.find(word.substr(i - left.bytes, left.bytes)) >= 0 &&
          vocabulary_.find(word.substr(i, right.bytes)) >= 0)
        return i;
      left = right;
      i += right.bytes;
    }
    return word.size();
  }

 private:
  static constexpr std::size_t few = detail::few_symbols;

  [[nodiscard]] static detail::merge_table joins_of(const bpe_options& o, const detail::vocabulary_table& vocabulary) {
    detail::merge_table table(o.merges.size());
    std::uint32_t rank = 0;
    for (const auto& [left, right] : o.merges) {
      const bool prefixed = !o.continuing_prefix.empty() && right.starts_with(o.continuing_prefix);
      const token a = vocabulary.find(left), b = vocabulary.find(right),
                  both = vocabulary.find(left + (prefixed ? right.substr(o.continuing_prefix.size()) : right));
      require<config_error>(a >= 0 && b >= 0 && both >= 0, o.who, ": merge ", rank + 1, " ('", left, "' '", right,
                            "') must join two tokens into a third; one of them is not in the vocabulary");
      table.put(a, b, {rank++, both});
    }
    return table;
  }
  /// Tokens merge if their concatenation is a token; its id is the rank.
  [[nodiscard]] static detail::merge_table joins_by_rank(const detail::vocabulary_table& vocabulary) {
    std::size_t count = 0;
    detail::for_each_split(vocabulary, [&](token, token, token) { ++count; });
    detail::merge_table table(count);
    detail::for_each_split(vocabulary, [&](token left, token right, token both) {
      table.put(left, right, {static_cast<std::uint32_t>(both), both});
    });
    return table;
  }

  /// As in the vocabulary.
  [[nodiscard]] static std::string_view printable(std::string_view word, std::string& text) {
    text.clear();
    for (const char c : word) text += detail::printable_byte(static_cast<unsigned char>(c));
    return text;
  }

  static void begin_symbol(detail::word_scratch& scratch, token id, std::size_t begin, std::size_t end) {
    scratch.ids.push_back(id);
    scratch.begins.push_back(static_cast<std::uint32_t>(begin));
    scratch.ends.push_back(static_cast<std::uint32_t>(end));
  }
  /// Pending unknown characters: byte tokens that follow come first, as in the tokenizers library.
  struct place {
    std::size_t begin = 0, end = 0;
    [[nodiscard]] bool exists() const { return begin < end; }
  };
  void end_unknown(detail::word_scratch& scratch, place& unknown) const {
    if (unknown.exists()) begin_symbol(scratch, unknown_, unknown.begin, unknown.end);
    unknown = {};
  }
  void begin_with_bytes(std::string_view word, detail::word_scratch& scratch, place& unknown) const {
    for (std::size_t i = 0; i < word.size(); ++i) {
      const token id = single_[static_cast<unsigned char>(word[i])];
      if (id >= 0) {
        end_unknown(scratch, unknown);
        begin_symbol(scratch, id, i, i + 1);
      } else {
        begin_missing(detail::printable_byte(static_cast<unsigned char>(word[i])), scratch, unknown, {i, i + 1});
      }
    }
  }
  void begin_with_characters(std::string_view word, detail::word_scratch& scratch, place& unknown) const {
    const bool decorated = !continuing_prefix_.empty() || !end_suffix_.empty();
    for (std::size_t i = 0, end = 0; i < word.size(); i = end) {
      end = i + detail::character_at(word, i).bytes;
      std::string_view text = word.substr(i, end - i);
      token id = -1;
      if (decorated) {
        scratch.text = i > 0 ? continuing_prefix_ : std::string{};
        scratch.text += text;
        if (end == word.size()) scratch.text += end_suffix_;
        text = scratch.text;
        id = vocabulary_.find(text);
      } else {
        id = text.size() == 1 ? single_[static_cast<unsigned char>(text[0])] : vocabulary_.find(text);
      }
      if (id >= 0) {
        end_unknown(scratch, unknown);
        begin_symbol(scratch, id, i, end);
      } else {
        begin_missing(text, scratch, unknown, {i, end});
      }
    }
  }
  /// A character that is no token: tokens of its bytes, or the unknown token.
  void begin_missing(std::string_view text, detail::word_scratch& scratch, place& unknown, place of) const {
    if (!std::all_of(text.begin(), text.end(), [&](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; })) {
      if (unknown_ < 0) return;
      if (!fuse_unknown_) end_unknown(scratch, unknown);
      unknown = {unknown.exists() ? unknown.begin : of.begin, of.end};
      return;
    }
    for (std::size_t b = 0; b < text.size(); ++b)
      begin_symbol(scratch, fallback_[static_cast<unsigned char>(text[b])], std::min(of.begin + b, of.end - 1), std::min(of.begin + b + 1, of.end));
  }

  detail::vocabulary_table vocabulary_;
  bool bytes_, ignore_merges_, fuse_unknown_, cuts_;
  std::string continuing_prefix_, end_suffix_;
  token unknown_ = -1;
  std::array<token, 256> single_{}, fallback_{};  // per byte: its character's token, and <0xNN>
  std::array<bool, 65536> byte_pairs_{};
  detail::merge_table merges_;
  detail::neighbour_table neighbours_;
};

}  // namespace xtrain
