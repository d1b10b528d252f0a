// Text as in Python: a string of characters, not bytes; strings here are UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain::detail::jinja {

/// Length in bytes of the character at `at`. Invalid UTF-8 is read one byte at a time.
[[nodiscard]] inline std::size_t character_bytes(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t claimed = lead >= 0xF0U && lead < 0xF8U ? 4 : lead >= 0xE0U && lead < 0xF0U ? 3 : lead >= 0xC0U && lead < 0xE0U ? 2 : 1;
  for (std::size_t i = 1; i < claimed; ++i)
    if (at + i >= text.size() || (static_cast<unsigned char>(text[at + i]) & 0xC0U) != 0x80U) return 1;
  return claimed;
}

/// The code point at `at`; an invalid byte is its own value.
[[nodiscard]] inline char32_t character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  switch (character_bytes(text, at)) {
    case 2:
      return ((byte(0) & 0x1FU) << 6) | (byte(1) & 0x3FU);
    case 3:
      return ((byte(0) & 0x0FU) << 12) | ((byte(1) & 0x3FU) << 6) | (byte(2) & 0x3FU);
    case 4:
      return ((byte(0) & 0x07U) << 18) | ((byte(1) & 0x3FU) << 12) | ((byte(2) & 0x3FU) << 6) | (byte(3) & 0x3FU);
    default:
      return byte(0);
  }
}

inline void append_character(std::string& to, char32_t c) {
  const auto put = [&](char32_t byte) { to.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (c < 0x80U) {
    put(c);
  } else if (c < 0x800U) {
    put(0xC0U | (c >> 6));
    put(0x80U | (c & 0x3FU));
  } else if (c < 0x10000U) {
    put(0xE0U | (c >> 12));
    put(0x80U | ((c >> 6) & 0x3FU));
    put(0x80U | (c & 0x3FU));
  } else {
    put(0xF0U | (c >> 18));
    put(0x80U | ((c >> 12) & 0x3FU));
    put(0x80U | ((c >> 6) & 0x3FU));
    put(0x80U | (c & 0x3FU));
  }
}

[[nodiscard]] inline std::size_t character_count(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) ++count;
  return count;
}

/// The characters one by one.
[[nodiscard]] inline std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    all.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return all;
}

/// Whether str.isspace holds.
[[nodiscard]] inline bool is_space(char32_t c) {
  if (c < 0x80U) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85U || c == 0xA0U || c == 0x1680U || (c >= 0x2000U && c <= 0x200AU) || c == 0x2028U || c == 0x2029U || c == 0x202FU ||
         c == 0x205FU || c == 0x3000U;
}

/// Where the character that ends at `end` begins.
[[nodiscard]] inline std::size_t character_before(std::string_view text, std::size_t end) {
  for (std::size_t back = 2; back <= 4 && back <= end; ++back)
    if (character_bytes(text, end - back) == back) return end - back;
  return end - 1;
}

[[nodiscard]] inline std::size_t end_of_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(character_at(text, at))) at += character_bytes(text, at);
  return at;
}

/// Strips characters from the left, the right, or both ends: spaces, or those in `which`.
[[nodiscard]] inline std::string_view stripped(std::string_view text, bool left, bool right, const std::string_view* which = nullptr) {
  const auto goes = [&](std::size_t at, std::size_t bytes) {
    if (which == nullptr) return is_space(character_at(text, at));
    const std::string_view c = text.substr(at, bytes);
    for (std::size_t i = 0; i < which->size(); i += character_bytes(*which, i))
      if (which->substr(i, character_bytes(*which, i)) == c) return true;
    return false;
  };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end && goes(begin, character_bytes(text, begin))) begin += character_bytes(text, begin);
  while (right && end > begin) {
    const std::size_t last = character_before(text, end);
    if (last < begin || !goes(last, end - last)) break;
    end = last;
  }
  return text.substr(begin, end - begin);
}

/// Upper and lower case of ASCII letters; the others stay as they are. Those of strings are in letter_case.hpp.
[[nodiscard]] inline char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
[[nodiscard]] inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
[[nodiscard]] inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
[[nodiscard]] inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Splits into lines at the ASCII line breaks of str.splitlines, without the breaks unless `keep_breaks`.
[[nodiscard]] inline std::vector<std::string_view> lines_of(std::string_view text, bool keep_breaks = false) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && !(text[end] >= '\n' && text[end] <= '\r') && !(text[end] >= 28 && text[end] <= 30)) ++end;
    std::size_t next = end;
    if (end < text.size()) next += text[end] == '\r' && end + 1 < text.size() && text[end + 1] == '\n' ? 2 : 1;
    lines.push_back(text.substr(begin, (keep_breaks ? next : end) - begin));
    begin = next;
  }
  return lines;
}

}  // namespace xtrain::detail::jinja
