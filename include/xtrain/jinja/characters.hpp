// Python's strings of characters, in UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/utf8.hpp>

namespace xtrain::detail::jinja {

/// In bytes; invalid UTF-8: 1.
[[nodiscard]] inline std::size_t character_bytes(std::string_view text, std::size_t at) { return detail::character_at(text, at).bytes; }

/// Code point; an invalid byte's value.
[[nodiscard]] inline char32_t character_at(std::string_view text, std::size_t at) {
  const std::int32_t code = detail::character_at(text, at).code;
  return code < 0 ? static_cast<unsigned char>(text[at]) : static_cast<char32_t>(code);
}

inline void append_character(std::string& to, char32_t c) { detail::append_character(to, static_cast<std::int32_t>(c)); }

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

/// str.isspace.
[[nodiscard]] inline bool is_space(char32_t c) { return is_python_space(static_cast<std::int32_t>(c)); }

/// Begin of the character that ends at `end`.
[[nodiscard]] inline std::size_t character_before(std::string_view text, std::size_t end) { return end - detail::character_before(text, end).bytes; }

[[nodiscard]] inline std::size_t end_of_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(character_at(text, at))) at += character_bytes(text, at);
  return at;
}

/// Strips spaces, or characters in `which`.
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

/// ASCII only; strings: letter_case.hpp.
[[nodiscard]] inline char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
[[nodiscard]] inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
[[nodiscard]] inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
[[nodiscard]] inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Bytes of a line break of str.splitlines; 0: none.
[[nodiscard]] inline std::size_t line_break_bytes(std::string_view text, std::size_t at) {
  const char c = text[at];
  if (c == '\r') return at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
  if ((c >= '\n' && c <= '\r') || (c >= 28 && c <= 30)) return 1;
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("\xC2\x85")) return 2;                                                  // U+0085
  return rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9") ? 3 : 0;  // U+2028, U+2029
}

/// str.splitlines.
[[nodiscard]] inline std::vector<std::string_view> lines_of(std::string_view text, bool keep_breaks = false) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin, broken = 0;
    while (end < text.size() && (broken = line_break_bytes(text, end)) == 0) ++end;
    const std::size_t next = end + broken;
    lines.push_back(text.substr(begin, (keep_breaks ? next : end) - begin));
    begin = next;
  }
  return lines;
}

}  // namespace xtrain::detail::jinja
