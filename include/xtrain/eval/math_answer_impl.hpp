// Definitions of math_answer.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/core/utf8.hpp>
#include <xtrain/eval/language_model.hpp>
#include <xtrain/eval/math_answer.hpp>

namespace xtrain::answer {

namespace detail {

/// str.split(separator) of Python.
[[nodiscard]] inline std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0;;) {
    const std::size_t end = text.find(separator, at);
    parts.emplace_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    if (end == std::string_view::npos) return parts;
    at = end + separator.size();
  }
}
/// str.replace(from, to) of Python.
[[nodiscard]] inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}
/// After the last "=", without leading spaces.
[[nodiscard]] inline std::string right_side(std::string_view text) {
  text.remove_prefix(text.rfind('=') + 1);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return std::string(text);
}
/// Of a non-empty text.
[[nodiscard]] inline std::string first_character(std::string_view text) {
  return std::string(text.substr(0, xtrain::detail::character_at(text, 0).bytes));
}

/// Contents of the last \boxed{...}, with nested braces.
[[nodiscard]] inline std::optional<std::string> in_box(std::string_view text) {
  constexpr std::string_view begins = "\\boxed{";
  text.remove_prefix(text.rfind("\\boxed"));
  std::size_t open = 0, end = std::string_view::npos;
  for (std::size_t i = 0; i < text.size() && end == std::string_view::npos; ++i) {
    if (text[i] == '{') ++open;
    else if (text[i] == '}') end = --open == 0 ? i : end;  // as there, a closing brace before all others counts below 0
  }
  if (end == std::string_view::npos || !text.starts_with(begins)) return {};
  const std::string_view inside = text.substr(begins.size(), end - begins.size());
  return inside.find('=') == std::string_view::npos ? std::string(inside) : right_side(inside);
}
/// \$(.*)\$ of the last line that matches.
[[nodiscard]] inline std::string in_dollars(std::string_view text) {
  std::string last;
  for (const std::string& line : split(text, "\n")) {
    const std::size_t first = line.find('$'), end = line.rfind('$');
    if (first != end) last = line.substr(first + 1, end - first - 1);
  }
  return last.find('=') == std::string::npos ? last : right_side(last);
}

/// \d of Python for ASCII and fullwidth digits: length in bytes, 0: no digit.
[[nodiscard]] inline std::size_t digit_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const auto [c, bytes] = xtrain::detail::character_at(text, at);
  return (c >= '0' && c <= '9') || (c >= 0xFF10 && c <= 0xFF19) ? bytes : 0;
}
/// \w of Python, exact for Latin-1, symbols, CJK and emoji; every other character counts.
[[nodiscard]] inline bool is_word(std::string_view text, std::size_t at) {
  using range = std::pair<std::int32_t, std::int32_t>;
  static constexpr std::array<range, 56> others{
      {{0x80, 0xA9},     {0xAB, 0xB1},     {0xB4, 0xB4},     {0xB6, 0xB8},     {0xBB, 0xBB},     {0xBF, 0xBF},     {0xD7, 0xD7},
       {0xF7, 0xF7},     {0x2C2, 0x2C5},   {0x2D2, 0x2DF},   {0x2E5, 0x2EB},   {0x2ED, 0x2ED},   {0x2EF, 0x36F},   {0x2000, 0x206F},
       {0x2072, 0x2073}, {0x207A, 0x207E}, {0x208A, 0x208F}, {0x209D, 0x2101}, {0x2103, 0x2106}, {0x2108, 0x2109}, {0x2114, 0x2114},
       {0x2116, 0x2118}, {0x211E, 0x2123}, {0x2125, 0x2125}, {0x2127, 0x2127}, {0x2129, 0x2129}, {0x212E, 0x212E}, {0x213A, 0x213B},
       {0x2140, 0x2144}, {0x214A, 0x214D}, {0x214F, 0x214F}, {0x218A, 0x245F}, {0x249C, 0x24E9}, {0x2500, 0x2775}, {0x2794, 0x2BFF},
       {0x2E30, 0x3004}, {0x3008, 0x3020}, {0x302A, 0x3030}, {0x3036, 0x3037}, {0x303D, 0x3040}, {0x3097, 0x309C}, {0x30A0, 0x30A0},
       {0x30FB, 0x30FB}, {0x3200, 0x321F}, {0x322A, 0x3247}, {0x3250, 0x3250}, {0x3260, 0x327F}, {0x328A, 0x32B0}, {0x32C0, 0x33FF},
       {0xFE00, 0xFE6F}, {0xFEFD, 0xFF0F}, {0xFF1A, 0xFF20}, {0xFF3B, 0xFF40}, {0xFF5B, 0xFF65}, {0xFFDD, 0xFFFF}, {0x1F10D, 0x1FAFF}}};
  if (at >= text.size()) return false;
  const std::int32_t c = xtrain::detail::character_at(text, at).code;
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return std::none_of(others.begin(), others.end(), [&](const range& of) { return c >= of.first && c <= of.second; });
}
/// Last match of (?:\$)?\d+(?:\.\d+)?(?![\w\d]).
[[nodiscard]] inline std::optional<std::string> last_number_in(std::string_view text) {
  const auto digits_end = [&](std::size_t at) {
    while (const std::size_t bytes = digit_at(text, at)) at += bytes;
    return at;
  };
  std::optional<std::string> last;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t digits = at + (text[at] == '$' ? 1 : 0), whole = digits_end(digits);
    if (whole == digits) {
      ++at;
      continue;
    }
    const std::size_t fraction = whole < text.size() && text[whole] == '.' ? digits_end(whole + 1) : whole;
    // fewer digits would leave a digit behind
    const std::size_t end = fraction > whole + 1 && !is_word(text, fraction) ? fraction : whole;
    if (!is_word(text, end)) last = std::string(text.substr(at, end - at));
    at = end;
  }
  return last;
}

/// \sqrt3 becomes \sqrt{3}; none: nothing follows a root.
[[nodiscard]] inline std::optional<std::string> with_braced_roots(const std::string& text) {
  const std::vector<std::string> parts = split(text, "\\sqrt");
  std::string result = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].empty()) return {};
    const std::string first = first_character(parts[i]);
    result += first == "{" ? concat("\\sqrt", parts[i]) : concat("\\sqrt{", first, "}", parts[i].substr(first.size()));
  }
  return result;
}
/// \frac12 becomes \frac{1}{2}; unchanged where only one character follows; none: nothing follows.
[[nodiscard]] inline std::optional<std::string> with_braced_fractions(const std::string& text) {
  const std::vector<std::string> parts = split(text, "\\frac");
  std::string result = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (part.empty()) return {};
    result += "\\frac";
    const std::string a = first_character(part);
    if (a == "{") {
      result += part;
      continue;
    }
    if (part.size() == a.size()) return text;
    const std::string b = first_character(std::string_view(part).substr(a.size())), rest = part.substr(a.size() + b.size());
    result += b == "{" ? concat("{", a, "}", b, rest) : concat("{", a, "}{", b, "}", rest);
  }
  return result;
}
/// 1/2 becomes \frac{1}{2}.
[[nodiscard]] inline std::string with_fraction_of_slash(const std::string& text) {
  const std::vector<std::string> parts = split(text, "/");
  const auto is_whole = [](std::string_view number) {
    if (number.starts_with('-') && number != "-0") number.remove_prefix(1);
    return !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos && (number == "0" || number[0] != '0');
  };
  return parts.size() == 2 && is_whole(parts[0]) && is_whole(parts[1]) ? concat("\\frac{", parts[0], "}{", parts[1], "}") : text;
}

/// Normalized for comparison; none: not possible.
[[nodiscard]] inline std::optional<std::string> written_alike(std::string text) {
  for (const auto& [from, to] : std::array<std::pair<std::string_view, std::string_view>, 9>{{{"\n", ""},
                                                                                              {"\\!", ""},
                                                                                              {"\\\\", "\\"},
                                                                                              {"tfrac", "frac"},
                                                                                              {"dfrac", "frac"},
                                                                                              {"\\left", ""},
                                                                                              {"\\right", ""},
                                                                                              {"^{\\circ}", ""},
                                                                                              {"^\\circ", ""}}})
    text = replaced(std::move(text), from, to);
  text = replaced(std::move(text), "\\$", "");
  if (const auto parts = split(text, "\\text{ "); parts.size() > 2) return {};
  else text = parts.front();  // without units
  text = replaced(std::move(text), "\\%", "");
  text = replaced(std::move(text), " .", " 0.");
  text = replaced(std::move(text), "{.", "{0.");
  if (text.empty()) return text;
  if (text[0] == '.') text.insert(0, "0");
  if (const auto sides = split(text, "="); sides.size() == 2 && xtrain::detail::characters_of(sides[0]) <= 2) text = sides[1];
  auto with_roots = with_braced_roots(text);
  if (!with_roots) return {};
  auto with_fractions = with_braced_fractions(replaced(std::move(*with_roots), " ", ""));
  if (!with_fractions) return {};
  return *with_fractions == "0.5" ? "\\frac{1}{2}" : with_fraction_of_slash(*with_fractions);
}

}  // namespace detail

XTRAIN_INLINE std::optional<std::string> formula_in(std::string_view text) {
  if (text.find("\\boxed") != std::string_view::npos) return detail::in_box(text);
  if (std::string formula = detail::in_dollars(text); !formula.empty()) return formula;
  if (text.find('=') == std::string_view::npos) return detail::last_number_in(text);
  std::string formula = detail::right_side(text);
  while (formula.ends_with('.')) formula.pop_back();
  return formula.substr(0, formula.find("\\n"));
}

XTRAIN_INLINE bool is_same_formula(std::string_view answer, std::string_view target) {
  const std::optional<std::string> a = formula_in(answer), b = formula_in(target);
  if (!a || !b) return a == b;
  const auto alike_a = detail::written_alike(*a), alike_b = detail::written_alike(*b);
  return alike_a && alike_b ? alike_a == alike_b : a == b;
}

}  // namespace xtrain::answer
