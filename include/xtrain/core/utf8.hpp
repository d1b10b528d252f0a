// UTF-8. [Unicode 15.0, table 3-7]
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace xtrain::detail {

/// Character and bytes; an invalid byte is a character with a negative code.
struct character {
  std::int32_t code = -1;
  std::uint32_t bytes = 1;
};

/// At a byte offset.
[[nodiscard]] inline character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t { return static_cast<unsigned char>(text[at + i]); };
  const std::uint32_t first = byte(0);
  if (first < 0x80U) return {static_cast<std::int32_t>(first), 1};
  const std::size_t left = text.size() - at;
  const auto follows = [&](std::size_t i) { return i < left && (byte(i) & 0xC0U) == 0x80U; };
  if (first >= 0xC2U && first < 0xE0U && follows(1)) return {static_cast<std::int32_t>((first & 0x1FU) << 6 | (byte(1) & 0x3FU)), 2};
  if (first >= 0xE0U && first < 0xF0U && follows(1) && follows(2)) {
    const std::uint32_t code = (first & 0xFU) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
    if (code >= 0x800U && (code < 0xD800U || code > 0xDFFFU)) return {static_cast<std::int32_t>(code), 3};
  }
  if (first >= 0xF0U && first < 0xF5U && follows(1) && follows(2) && follows(3)) {
    const std::uint32_t code = (first & 0x7U) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU);
    if (code >= 0x10000U && code <= 0x10FFFFU) return {static_cast<std::int32_t>(code), 4};
  }
  return {};
}

/// Ending at a byte offset.
[[nodiscard]] inline character character_before(std::string_view text, std::size_t end) {
  for (std::size_t length = 1; length <= 4 && length <= end; ++length) {
    if ((static_cast<unsigned char>(text[end - length]) & 0xC0U) == 0x80U) continue;
    const character c = character_at(text.substr(0, end), end - length);
    return c.bytes == length ? c : character{};
  }
  return {};
}

/// Nothing for a negative code.
inline void append_character(std::string& to, std::int32_t code) {
  const auto c = static_cast<std::uint32_t>(code);
  const auto put = [&](std::uint32_t byte) { to.push_back(static_cast<char>(byte)); };
  if (code < 0) return;
  if (c < 0x80U) return put(c);
  if (c < 0x800U) {
    put(0xC0U | c >> 6);
    return put(0x80U | (c & 0x3FU));
  }
  if (c < 0x10000U) {
    put(0xE0U | c >> 12);
  } else {
    put(0xF0U | c >> 18);
    put(0x80U | (c >> 12 & 0x3FU));
  }
  put(0x80U | (c >> 6 & 0x3FU));
  put(0x80U | (c & 0x3FU));
}

/// End of the ASCII run at `at`.
[[nodiscard]] inline std::size_t ascii_end(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, 8);
    if ((eight & 0x8080808080808080U) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80U) ++at;
  return at;
}

/// End of the valid run at `at`.
[[nodiscard]] inline std::size_t whole_characters_end(std::string_view text, std::size_t at) {
  while ((at = ascii_end(text, at)) < text.size()) {
    const character c = character_at(text, at);
    if (c.code < 0) return at;
    at += c.bytes;
  }
  return at;
}

/// As Python's str.isspace().
[[nodiscard]] constexpr bool is_python_space(std::int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace xtrain::detail
