// Unicode properties; the only header with utf8proc. Component 'text'.
#pragma once

#if !__has_include(<utf8proc.h>)
#error "xtrain text: utf8proc must be found; link xtrain::text (Debian and Ubuntu: libutf8proc-dev)"
#endif

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <utf8proc.h>

#include <xtrain/core/utf8.hpp>
#include <xtrain/text/unicode_versions.hpp>

namespace xtrain::detail {

/// First letters of general categories.
enum class category_group : std::uint8_t { other, letter, mark, number, punctuation, symbol, separator };

[[nodiscard]] inline utf8proc_category_t category_of(std::int32_t code) {
  return code < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code);
}

[[nodiscard]] inline category_group group_of_letter(char letter) {
  switch (letter) {
    case 'L':
      return category_group::letter;
    case 'M':
      return category_group::mark;
    case 'N':
      return category_group::number;
    case 'P':
      return category_group::punctuation;
    case 'S':
      return category_group::symbol;
    default:
      return category_group::other;
  }
}
[[nodiscard]] inline category_group group_of(std::int32_t code) {
  const utf8proc_category_t c = category_of(code);
  if (c == UTF8PROC_CATEGORY_CN) {  // but for characters newer than the library
    const late_characters* late = range_of(characters_since_unicode_15, code);
    return late == nullptr ? category_group::other : group_of_letter(late->category[0]);
  }
  if (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) return category_group::letter;
  if (c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME) return category_group::mark;
  if (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO) return category_group::number;
  if (c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO) return category_group::punctuation;
  if (c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO) return category_group::symbol;
  if (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP) return category_group::separator;
  return category_group::other;
}

/// White_Space.
[[nodiscard]] inline bool is_space(std::int32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || group_of(code) == category_group::separator;
}
/// Numbers up to Unicode 17, as the Digits step.
[[nodiscard]] inline bool is_number(std::int32_t code) {
  return group_of(code) == category_group::number || (code >= 0x11DE0 && code <= 0x11DE9) || (code >= 0x16FF4 && code <= 0x16FF6);
}

// Below: the early Unicode of the tokenizers library's BERT steps.
[[nodiscard]] inline bool came_late(std::int32_t code) { return range_of(characters_since_unicode_9, code) != nullptr; }

/// As StripAccents removes them.
[[nodiscard]] inline bool is_mark(std::int32_t code) {
  return (group_of(code) == category_group::mark && !came_late(code)) || code == 0x1CF2 || code == 0x1CF3;  // formerly marks
}
/// As BertNormalizer removes them.
[[nodiscard]] inline bool is_nonspacing_mark(std::int32_t code) {
  return (category_of(code) == UTF8PROC_CATEGORY_MN && !came_late(code) && range_of(marks_of_unicode_9, code) == nullptr) || code == 0x1734;
}

/// Control, format and private use.
[[nodiscard]] inline bool is_control(std::int32_t code) {
  const utf8proc_category_t c = category_of(code);
  return (c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO) && !came_late(code);
}

/// Unicode's, and all ASCII punctuation and symbols.
[[nodiscard]] inline bool is_punctuation(std::int32_t code) {
  if (code >= 0 && code < 0x80)
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  return (group_of(code) == category_group::punctuation && !came_late(code)) || code == 0x166D || code == 0x111C9;  // formerly punctuation
}

/// \w: letters, marks, digits, letter numbers, connectors, joiners.
[[nodiscard]] inline bool is_word(std::int32_t code) {
  if (code >= 0 && code < 0x80)
    return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || code == '_' || (code >= 'a' && code <= 'z');
  if (const late_characters* late = range_of(characters_since_unicode_15, code); late != nullptr) {
    const std::string_view category = late->category;
    return category[0] == 'L' || category[0] == 'M' || category == "Nd" || category == "Nl" || category == "Pc";
  }
  switch (category_of(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);  // enclosed letters
}

/// BERT separates them.
[[nodiscard]] inline bool is_ideograph(std::int32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) || (code >= 0x20000 && code <= 0x2A6DF) ||
         (code >= 0x2A700 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
         (code >= 0x2F800 && code <= 0x2FA1F);
}

/// As UTF-8.
inline void append_lowercase(std::string& to, std::int32_t code) {
  if (code == 0x130) to += "i\xCC\x87";  // the only letter with a lowercase of two characters
  else if (const late_capitals* late = range_of(capitals_since_unicode_15, code); late != nullptr) append_character(to, code + late->offset);
  else append_character(to, utf8proc_tolower(code));
}

/// Grapheme boundary between `before` and `code`; `state`: 0 at the beginning.
[[nodiscard]] inline bool breaks_grapheme(std::int32_t before, std::int32_t code, std::int32_t& state) {
  return utf8proc_grapheme_break_stateful(before, code, &state);
}

/// Order of marks after a letter; 0: begins a composition.
[[nodiscard]] inline int combining_class(std::int32_t code) {
  const int order = utf8proc_get_property(code)->combining_class;
  return order != 0 && range_of(marks_since_unicode_10, code) != nullptr ? 0 : order;
}

/// Decomposition in Unicode's order, canonical or of compatibility.
///   parts    written: at most 32 (no character has more than 18)
///   returns  their number
[[nodiscard]] inline std::size_t decompose(std::int32_t code, bool compatibility, std::int32_t (&parts)[32]) {
  if (range_of(decompositions_since_unicode_10, code) != nullptr) {
    parts[0] = code;
    return 1;
  }
  int last_class = 0;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
  const auto count = utf8proc_decompose_char(code, parts, 32, options, &last_class);
  if (count > 0 && count <= 32) return static_cast<std::size_t>(count);
  parts[0] = code;
  return 1;
}

/// Negative: none.
[[nodiscard]] inline std::int32_t compose(std::int32_t first, std::int32_t second) {
  std::int32_t both[3] = {first, second, 0};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const bool is_one = utf8proc_normalize_utf32(both, 2, options) == 1 && range_of(decompositions_since_unicode_10, both[0]) == nullptr;
  return is_one ? both[0] : -1;
}

}  // namespace xtrain::detail
