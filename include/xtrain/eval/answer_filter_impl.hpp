// Definitions of answer_filter.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/library.hpp>
#include <xtrain/eval/answer_filter.hpp>
#include <xtrain/eval/language_model.hpp>

namespace xtrain::answer {

namespace detail {

inline constexpr const char* invalid = "[invalid]";
inline constexpr std::string_view of_number = "0123456789.,";

/// End of the characters of `set` from `at` on.
[[nodiscard]] inline std::size_t run_end(std::string_view text, std::size_t at, std::string_view set) {
  return std::min(text.find_first_not_of(set, at), text.size());
}

}  // namespace detail

XTRAIN_INLINE std::string after_hashes(std::string_view text) {
  constexpr std::string_view before = "#### ";
  for (std::size_t at = text.find(before); at != std::string_view::npos; at = text.find(before, at + 1)) {
    const std::size_t begin = at + before.size(), digits = begin + (text.substr(begin).starts_with('-') ? 1 : 0);
    const std::size_t end = detail::run_end(text, digits, detail::of_number);
    if (end > digits) return std::string(text.substr(begin, end - begin));
  }
  return detail::invalid;
}

XTRAIN_INLINE std::string number_of_sentence(std::string_view text) {
  constexpr std::string_view before = "The answer is ";
  for (std::size_t at = text.find(before); at != std::string_view::npos; at = text.find(before, at + 1)) {
    const std::size_t begin = at + before.size(), digits = begin + (text.substr(begin).starts_with('-') ? 1 : 0);
    std::size_t end = detail::run_end(text, digits, detail::of_number);
    if (end == text.size() || text[end] == '\n') --end;  // the last character follows the number
    if (end > digits && end < text.size()) return std::string(text.substr(begin, end - begin));
  }
  return detail::invalid;
}

XTRAIN_INLINE std::string last_number(std::string_view text) {
  std::string_view last;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = at + (text[at] == '-' ? 1 : 0);
    std::size_t end = detail::run_end(text, first, "$0123456789.,");
    if (end - first < 2) end = std::max(first, detail::run_end(text, first, "0123456789"));
    if (end == first) {
      ++at;
      continue;
    }
    last = text.substr(at, end - at);
    at = end;
  }
  return last.empty() ? detail::invalid : std::string(last);
}

XTRAIN_INLINE std::string rest_of_sentence(std::string_view text) {
  constexpr std::string_view before = "the answer is ";
  for (std::size_t at = text.find(before); at != std::string_view::npos; at = text.find(before, at + 1)) {
    const std::size_t begin = at + before.size();
    std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end == begin) continue;
    do --end;
    while (end > begin && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U);
    return xtrain::detail::stripped(text.substr(begin, end - begin));
  }
  return detail::invalid;
}

XTRAIN_INLINE std::string as_number(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c != ',' && c != '$') result += c;
  if (const std::size_t at = result.rfind("#### "); at != std::string::npos) result.erase(0, at + 5);
  if (result.ends_with('.')) result.pop_back();
  else if (result.ends_with(".\n")) result.erase(result.size() - 2, 1);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return result;
}

}  // namespace xtrain::answer
