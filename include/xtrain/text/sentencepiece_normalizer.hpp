// SentencePiece's normalization, with a map of bytes to the original's. [Kudo & Richardson 2018] Component 'text'.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/text/byte_trie.hpp>
#include <xtrain/text/charsmap.hpp>
#include <xtrain/text/sentencepiece_file.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

/// U+2581.
inline constexpr std::string_view visible_space = "\xE2\x96\x81";

/// Length by the first UTF-8 byte, at most the rest; 1 for a continuation byte.
[[nodiscard]] inline std::size_t promised_bytes(std::string_view text, std::size_t at) {
  constexpr std::array<std::uint8_t, 16> of_high_bits{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  const std::size_t promised = of_high_bits[static_cast<unsigned char>(text[at]) >> 4];
  return promised < text.size() - at ? promised : text.size() - at;
}

/// Matched anywhere, longest first.
[[nodiscard]] inline byte_trie user_defined_pieces(const sentencepiece_file& file, const std::string& who) {
  std::vector<std::pair<std::string, std::int32_t>> texts;
  for (std::size_t i = 0; i < file.pieces.size(); ++i)
    if (file.pieces[i].kind == piece_kind::user_defined) texts.emplace_back(file.pieces[i].text, static_cast<std::int32_t>(i));
  return {std::move(texts), who};
}
/// Bytes of the longest match; 0: none.
[[nodiscard]] inline std::size_t longest_prefix(const byte_trie& of, std::string_view text, std::size_t at) {
  std::size_t longest = 0;
  if (of.begins_with(text[at])) of.for_each_prefix(text, at, [&](std::size_t bytes, std::int32_t) { longest = bytes; });
  return longest;
}

class sentencepiece_normalizer {
 public:
  ///  kept          texts that are not normalized
  ///   space_behind  add_dummy_prefix appends the space
  ///   throws        config_error for an invalid replacement table
  sentencepiece_normalizer(const sentencepiece_normalization& o, const byte_trie* kept, bool space_behind, const std::string& who)
      : options_(o), kept_(kept), space_behind_(space_behind) {
    if (!options_.charsmap.empty()) map_.emplace(options_.charsmap, who);
    options_.charsmap.clear();
    for (unsigned char c = 0; c < 128; ++c) plain_[c] = c != ' ' && stays(static_cast<char>(c));
  }

  ///  to       written: the normalized text
  ///   origins  written: offset in `text` for every byte of `to` and its end
  void apply(std::string_view text, std::string& to, std::vector<std::uint32_t>& origins) const { apply(text, options_.add_dummy_prefix, to, origins); }
  ///  prefix  adds a space, whatever the model says
  void apply(std::string_view text, bool prefix, std::string& to, std::vector<std::uint32_t>& origins) const {
    to.clear();
    origins.clear();
    std::size_t at = 0;
    if (options_.remove_extra_whitespaces)
      while (at < text.size()) {
        const rewritten next = rewrite(text, at);
        if (next.with != " ") break;
        at += next.bytes;
      }
    if (at == text.size()) return;
    to.reserve(text.size() + 16 + text.size() / 2);
    origins.reserve(to.capacity() + 1);
    const auto put = [&](std::string_view bytes) {
      to += bytes;
      origins.insert(origins.end(), bytes.size(), static_cast<std::uint32_t>(at));
    };
    const std::string_view space = options_.escape_whitespaces ? visible_space : std::string_view(" ");
    if (prefix && !space_behind_) put(space);
    for (bool behind_space = options_.remove_extra_whitespaces; at < text.size();) {
      if (is_plain(text, at)) {
        to.push_back(text[at]);
        origins.push_back(static_cast<std::uint32_t>(at++));
        behind_space = false;
        continue;
      }
      const rewritten next = rewrite(text, at);
      std::string_view with = next.with;
      while (behind_space && with.starts_with(' ')) with.remove_prefix(1);
      if (!with.empty()) {
        for (std::size_t begin = 0; begin < with.size();) {  // runs without spaces, and spaces
          const std::size_t end = options_.escape_whitespaces ? std::min(with.find(' ', begin), with.size()) : with.size();
          put(with.substr(begin, end - begin));
          if (end < with.size()) put(space);
          begin = end + 1;
        }
        behind_space = options_.remove_extra_whitespaces && with.ends_with(' ');
      }
      at += next.bytes;
    }
    if (options_.remove_extra_whitespaces)
      while (to.ends_with(space)) {
        at = origins[to.size() - space.size()];
        to.erase(to.size() - space.size());
        origins.resize(to.size());
      }
    if (prefix && space_behind_) put(space);
    origins.push_back(static_cast<std::uint32_t>(at));
  }

 private:
  struct rewritten {
    std::string_view with;
    std::size_t bytes;
  };

  /// An ASCII character unchanged before another.
  [[nodiscard]] bool stays(char c) const {
    if (kept_ != nullptr && kept_->begins_with(c)) return false;
    std::string_view with;
    std::string two(2, c);
    for (unsigned char next = 0; map_ && next < 128; ++next) {
      two[1] = static_cast<char>(next);
      if (map_->find_longest(two, with) > 0) return false;
    }
    return true;
  }
  [[nodiscard]] bool is_plain(std::string_view text, std::size_t at) const {
    const auto c = static_cast<unsigned char>(text[at]);
    return c < 128 && plain_[c] && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 128;
  }

  /// Next characters: unchanged, replaced, or U+FFFD for an invalid byte.
  [[nodiscard]] rewritten rewrite(std::string_view text, std::size_t at) const {
    if (kept_ != nullptr)
      if (const std::size_t bytes = longest_prefix(*kept_, text, at); bytes > 0) return {text.substr(at, bytes), bytes};
    if (map_) {
      std::string_view with;
      if (const std::size_t bytes = map_->find_longest(text.substr(at), with); bytes > 0) return {with, bytes};
    }
    const character next = character_at(text, at);
    if (next.code < 0) return {"\xEF\xBF\xBD", 1};
    return {text.substr(at, next.bytes), next.bytes};
  }

  sentencepiece_normalization options_;
  const byte_trie* kept_;
  bool space_behind_;
  std::optional<charsmap> map_;
  std::array<bool, 128> plain_{};
};

}  // namespace xtrain::detail
