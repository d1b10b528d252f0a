// Case of Python's str. [Unicode Standard, chapter 3.13]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include <xtrain/jinja/case_tables.hpp>
#include <xtrain/jinja/characters.hpp>

namespace xtrain::detail::jinja {

template <std::size_t Count>
[[nodiscard]] const case_range* case_range_of(const case_range (&table)[Count], char32_t c) {
  const case_range* at = std::upper_bound(table, table + Count, c, [](char32_t code, const case_range& r) { return code < r.first; });
  if (at == table) return nullptr;
  --at;
  return c <= at->last && (c - at->first) % static_cast<char32_t>(at->step) == 0 ? at : nullptr;
}
template <std::size_t Count>
[[nodiscard]] const char* case_expansion_of(const case_expansion (&table)[Count], char32_t c) {
  const case_expansion* at = std::lower_bound(table, table + Count, c, [](const case_expansion& e, char32_t code) { return e.of < code; });
  return at != table + Count && at->of == c ? at->into : nullptr;
}
[[nodiscard]] inline char32_t moved(const case_range* by, char32_t c) {
  return by == nullptr ? c : static_cast<char32_t>(static_cast<std::int64_t>(c) + by->offset);
}

[[nodiscard]] inline bool is_uppercase(char32_t c) {
  return c < 0x80U ? c >= U'A' && c <= U'Z' : case_range_of(uppercase_characters, c) != nullptr;
}
[[nodiscard]] inline bool is_lowercase(char32_t c) {
  return c < 0x80U ? c >= U'a' && c <= U'z' : case_range_of(lowercase_characters, c) != nullptr;
}
[[nodiscard]] inline bool is_titlecase(char32_t c) { return c >= 0x80U && case_range_of(titlecase_characters, c) != nullptr; }
[[nodiscard]] inline bool is_cased(char32_t c) { return is_uppercase(c) || is_lowercase(c) || is_titlecase(c); }
[[nodiscard]] inline bool is_case_ignorable(char32_t c) {
  if (c < 0x80U) return c == U'\'' || c == U'.' || c == U':' || c == U'^' || c == U'`';
  return case_range_of(case_ignorable_characters, c) != nullptr;
}

/// The sigma at `at` ends a word: a letter before, none after, ignoring case-ignorable characters.
[[nodiscard]] inline bool ends_word(std::string_view text, std::size_t at) {
  std::size_t before = at;
  bool letter_before = false;
  while (before > 0) {
    before = character_before(text, before);
    const char32_t c = character_at(text, before);
    if (is_case_ignorable(c)) continue;
    letter_before = is_cased(c);
    break;
  }
  if (!letter_before) return false;
  for (std::size_t behind = at + character_bytes(text, at); behind < text.size(); behind += character_bytes(text, behind)) {
    const char32_t c = character_at(text, behind);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

inline constexpr char32_t capital_sigma = 0x3A3U;

/// Lower, upper or title case; an invalid byte stays.
inline void append_lower(std::string& to, std::string_view text, std::size_t at) {
  const std::size_t bytes = character_bytes(text, at);
  const char32_t c = character_at(text, at);
  if (c < 0x80U) to.push_back(lower(text[at]));
  else if (bytes == 1) to.push_back(text[at]);
  else if (c == 0x130U) to += "i\xCC\x87";
  else if (c == capital_sigma) append_character(to, ends_word(text, at) ? 0x3C2U : 0x3C3U);
  else append_character(to, moved(case_range_of(small_letters_of, c), c));
}
inline void append_upper(std::string& to, std::string_view text, std::size_t at) {
  const std::size_t bytes = character_bytes(text, at);
  const char32_t c = character_at(text, at);
  if (c < 0x80U) to.push_back(upper(text[at]));
  else if (bytes == 1) to.push_back(text[at]);
  else if (const char* several = case_expansion_of(capitals_of_several, c)) to += several;
  else append_character(to, moved(case_range_of(capitals_of, c), c));
}
inline void append_title(std::string& to, std::string_view text, std::size_t at) {
  const std::size_t bytes = character_bytes(text, at);
  const char32_t c = character_at(text, at);
  if (bytes > 1) {
    if (const char* several = case_expansion_of(titles_of_several, c)) {
      to += several;
      return;
    }
    if (const case_range* by = case_range_of(titles_of, c)) return append_character(to, moved(by, c));
  }
  append_upper(to, text, at);
}

[[nodiscard]] inline std::string upper(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) append_upper(result, text, at);
  return result;
}
[[nodiscard]] inline std::string lower(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) append_lower(result, text, at);
  return result;
}
/// str.capitalize: title case, then lower case.
[[nodiscard]] inline std::string capitalized(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) {
    if (at == 0) append_title(result, text, at);
    else append_lower(result, text, at);
  }
  return result;
}
/// str.title: lower case after a letter, else title case.
[[nodiscard]] inline std::string titled(std::string_view text) {
  std::string result;
  bool inside = false;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) {
    if (inside) append_lower(result, text, at);
    else append_title(result, text, at);
    inside = is_cased(character_at(text, at));
  }
  return result;
}
/// str.swapcase
[[nodiscard]] inline std::string with_case_swapped(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) {
    const char32_t c = character_at(text, at);
    if (is_uppercase(c)) append_lower(result, text, at);
    else if (is_lowercase(c)) append_upper(result, text, at);
    else result += text.substr(at, character_bytes(text, at));
  }
  return result;
}
/// str.isupper, str.islower: letters exist, all of one case.
[[nodiscard]] inline bool all_cased(std::string_view text, bool large) {
  bool any = false;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) {
    const char32_t c = character_at(text, at);
    if (is_titlecase(c) || (large ? is_lowercase(c) : is_uppercase(c))) return false;
    any = any || (large ? is_uppercase(c) : is_lowercase(c));
  }
  return any;
}

}  // namespace xtrain::detail::jinja
