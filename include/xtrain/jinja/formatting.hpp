// 'a %s b' % value, 'a {} b'.format(value).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/printing.hpp>
#include <xtrain/jinja/value.hpp>

namespace xtrain::detail::jinja {

/// The arguments of a call.
struct arguments {
  std::vector<value> placed{};
  std::vector<std::pair<std::string, value>> named{};
};

[[nodiscard]] inline std::string repr(const value& v, allowance& cost) {
  std::string text;
  append_printed(text, v, true, cost);
  return text;
}

/// Escapes HTML.
[[nodiscard]] inline std::string escaped(std::string_view text, allowance& cost) {
  cost.make_text(text.size());
  std::string result;
  for (const char c : text) {
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&#34;";
    else if (c == '\'') result += "&#39;";
    else result.push_back(c);
  }
  return result;
}

/// To `width` characters: spaces on the right if `left`, else `fill` on the left; zeros after the sign.
[[nodiscard]] inline std::string padded(std::string text, std::size_t width, bool left, char fill, allowance& cost) {
  const std::size_t count = character_count(text);
  if (count >= width) return text;
  cost.make_text(width);
  const std::string filling(width - count, left ? ' ' : fill);
  if (left) return text + filling;
  const bool has_sign = fill == '0' && !text.empty() && (text[0] == '-' || text[0] == '+');
  return has_sign ? text[0] + filling + text.substr(1) : filling + text;
}

/// A width in characters.
[[nodiscard]] inline std::size_t read_width(std::string_view text, std::size_t& at) {
  std::size_t width = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    width = width * 10 + static_cast<std::size_t>(text[at] - '0');
    if (width > 1000) break_off("a field must be at most 1000 wide; it is wider");
  }
  return width;
}

/// By %s, %r, %d, %i, %f, %x or %o.
[[nodiscard]] inline std::string converted(char how, const value& v, bool has_precision, std::size_t precision, allowance& cost) {
  if (how == 's' || how == 'r') {
    std::string text = how == 's' ? printed(v, cost) : repr(v, cost);
    if (!has_precision) return text;
    std::string cut;
    for (const std::string_view c : characters_of(text))
      if (precision-- > 0) cut += c;
      else break;
    return cut;
  }
  if (!v.is_number()) break_off("%", how, " must be given a number; given ", v.type());
  if (how == 'f' || how == 'F') {
    if (v.real() > 1e40 || v.real() < -1e40) break_off("%f must be given a number below 1e40");
    return fixed(v.real(), has_precision ? static_cast<int>(std::min<std::size_t>(precision, 20)) : 6);
  }
  if (v.is_real() && !(v.real() > -9e18 && v.real() < 9e18)) break_off("%", how, " must be given a number that fits 64 bits");
  const std::int64_t i = v.is_real() ? static_cast<std::int64_t>(v.real()) : v.whole();
  if (how == 'd' || how == 'i' || how == 'u') return concat(i);
  if ((how != 'x' && how != 'X' && how != 'o') || v.is_real()) break_off("a field must be one of %s %r %d %i %f %x %o %%; given %", how);
  char digits[72];
  const auto end = std::to_chars(digits, digits + sizeof digits, i, how == 'o' ? 8 : 16).ptr;
  std::string text(digits, end);
  if (how == 'X')
    for (char& c : text) c = upper(c);
  return text;
}

/// % of strings: a tuple by position, a mapping by name.
[[nodiscard]] inline std::string percent_formatted(std::string_view form_text, const value& with, allowance& cost) {
  const sequence* tuple = with.as_sequence() != nullptr && with.as_sequence()->as == form::tuple ? with.as_sequence() : nullptr;
  std::size_t next = 0;
  const auto take = [&]() -> value {
    if (tuple == nullptr ? next > 0 : next >= tuple->items.size())
      break_off("a string with % must be given a value for each field; there are more fields");
    return tuple == nullptr ? (++next, with) : tuple->items[next++];
  };
  bool by_name = false;
  std::string result;
  cost.make_text(form_text.size());
  for (std::size_t i = 0; i < form_text.size(); ++i) {
    if (form_text[i] != '%') {
      result.push_back(form_text[i]);
      continue;
    }
    ++i;
    const value* named = nullptr;
    if (i < form_text.size() && form_text[i] == '(') {
      const std::size_t close = std::min(form_text.find(')', i), form_text.size());
      if (with.as_mapping() == nullptr) break_off("fields with names must be given a mapping; given ", with.type());
      named = with.as_mapping()->read_name(form_text.substr(i + 1, close - i - 1));
      if (named == nullptr) break_off("a field's name must be in the mapping; '", form_text.substr(i + 1, close - i - 1), "' is not");
      by_name = true;
      i = close + 1;
    }
    bool left = false, plus = false;
    char fill = ' ';
    for (; i < form_text.size() && std::string_view("-+0 #").find(form_text[i]) != std::string_view::npos; ++i) {
      left = left || form_text[i] == '-';
      plus = plus || form_text[i] == '+';
      if (form_text[i] == '0') fill = '0';
    }
    const std::size_t width = read_width(form_text, i);
    const bool has_precision = i < form_text.size() && form_text[i] == '.';
    std::size_t precision = 0;
    if (has_precision) precision = read_width(form_text, ++i);
    if (i >= form_text.size()) break_off("a field must say what it holds; the string ends within it");
    if (form_text[i] == '%') {
      result.push_back('%');
      continue;
    }
    const bool is_text = form_text[i] == 's' || form_text[i] == 'r';
    std::string text = converted(form_text[i], named != nullptr ? *named : take(), has_precision, precision, cost);
    if (plus && !is_text && text[0] != '-') text.insert(0, 1, '+');
    result += padded(std::move(text), width, left, is_text ? ' ' : fill, cost);
  }
  if (!by_name && (tuple == nullptr ? next == 0 && with.as_mapping() == nullptr : next < tuple->items.size()))
    break_off("a string with % must have a field for each value; there are more values");
  return result;
}

/// {}, {0}, {name}; format specs are rejected.
[[nodiscard]] inline std::string brace_formatted(std::string_view form_text, const arguments& with, allowance& cost) {
  std::string result;
  std::size_t next = 0;
  cost.make_text(form_text.size());
  for (std::size_t i = 0; i < form_text.size(); ++i) {
    const char c = form_text[i];
    const bool doubled = i + 1 < form_text.size() && form_text[i + 1] == c;
    if ((c == '{' || c == '}') && doubled) ++i;
    if ((c != '{' && c != '}') || doubled) {
      result.push_back(c);
      continue;
    }
    const std::size_t close = form_text.find('}', i);
    if (c == '}' || close == std::string_view::npos) break_off("format: every brace must have its partner; one has none");
    const std::string_view name = form_text.substr(i + 1, close - i - 1);
    i = close;
    if (name.find_first_of(".[:!{") != std::string_view::npos)
      break_off("format: a field must be {}, {number} or {name}; given {", name, "}");
    std::size_t place = next;
    const bool numbered = !name.empty() && is_digit(name[0]);
    if (name.empty()) ++next;
    else if (numbered && std::from_chars(name.data(), name.data() + name.size(), place).ec != std::errc{}) place = with.placed.size();
    const value* given = nullptr;
    if (name.empty() || numbered) given = place < with.placed.size() ? &with.placed[place] : nullptr;
    else
      for (const auto& [key, v] : with.named)
        if (key == name) given = &v;
    if (given == nullptr) break_off("format: every field must be given a value; {", name, "} is not");
    append_printed(result, *given, false, cost);
  }
  return result;
}

}  // namespace xtrain::detail::jinja
