// SentencePiece's replacements in a tokenizer.json: double-array trie and texts. Component 'text'.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

/// Decodes base64.
///   throws  config_error
[[nodiscard]] inline std::string bytes_of_base64(std::string_view text, const std::string& who) {
  static constexpr auto values = [] {
    std::array<std::int8_t, 256> table{};
    for (auto& value : table) value = -1;
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (std::size_t i = 0; i < digits.size(); ++i) table[static_cast<unsigned char>(digits[i])] = static_cast<std::int8_t>(i);
    return table;
  }();
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0, count = 0;
  for (const char c : text) {
    const std::int8_t value = values[static_cast<unsigned char>(c)];
    require<config_error>(value >= 0, who, ": must be written in base 64; it has the character '", std::string_view(&c, 1), "'");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((count += 6) >= 8) bytes.push_back(static_cast<char>(bits >> (count -= 8) & 0xFFU));
  }
  return bytes;
}

class charsmap {
 public:
  /// Format: trie size in bytes (32 bits, little endian), trie, texts, each ending with a zero byte.
  ///   throws  config_error
  charsmap(std::string_view bytes, const std::string& who) {
    const std::size_t trie = bytes.size() >= 4 ? word_at(bytes, 0) : 0;
    require<config_error>(bytes.size() >= 4 && trie % 4 == 0 && trie > 0 && trie <= bytes.size() - 4, who,
                          ": the charsmap must hold the trie that it promises; it promises ", trie, " bytes and has ", bytes.size());
    for (std::size_t i = 4; i < 4 + trie; i += 4) units_.push_back(word_at(bytes, i));
    texts_ = bytes.substr(4 + trie);
  }

  /// Replacement of the shortest prefix of `part`.
  ///   returns  whether there is one
  [[nodiscard]] bool find(std::string_view part, std::string_view& replacement) const {
    bool found = false;
    for_each_prefix(part, [&](std::size_t, std::string_view with) {
      replacement = with;
      found = true;
      return false;
    });
    return found;
  }
  /// Replacement of the longest prefix.
  ///   returns  the prefix's bytes; 0: none
  [[nodiscard]] std::size_t find_longest(std::string_view part, std::string_view& replacement) const {
    std::size_t longest = 0;
    for_each_prefix(part, [&](std::size_t bytes, std::string_view with) {
      longest = bytes;
      replacement = with;
      return true;
    });
    return longest;
  }

 private:
  /// visit(bytes, replacement) for prefixes, shortest first, while it returns true.
  template <class Visit>
  void for_each_prefix(std::string_view part, Visit&& visit) const {
    std::size_t at = offset_of(units_[0]);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto byte = static_cast<unsigned char>(part[i]);
      at ^= byte;
      if (byte == 0 || at >= units_.size() || (units_[at] & 0x800000FFU) != byte) return;
      const bool ends = (units_[at] >> 8 & 1U) != 0;
      at ^= offset_of(units_[at]);
      if (!ends) continue;
      const std::size_t value = at < units_.size() ? units_[at] & 0x7FFFFFFFU : texts_.size();
      if (value >= texts_.size()) return;
      const std::string_view with = std::string_view(texts_).substr(value);
      if (!visit(i + 1, with.substr(0, with.find('\0')))) return;
    }
  }
  [[nodiscard]] static std::uint32_t word_at(std::string_view bytes, std::size_t at) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
    return word;
  }
  [[nodiscard]] static std::size_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace xtrain::detail
