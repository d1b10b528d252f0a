#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/value.hpp>

namespace xtrain::detail::jinja {

/// As Python: shortest round trip; exponent below 1e-4 and from 1e16.
[[nodiscard]] inline std::string real_text(double d, bool as_json = false) {
  if (std::isnan(d)) return as_json ? "NaN" : "nan";
  if (std::isinf(d)) return concat(d < 0 ? "-" : "", as_json ? "Infinity" : "inf");
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), d, std::chars_format::scientific).ptr;
  const std::string_view whole(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = whole.find('e');
  std::string digits;
  for (const char c : whole.substr(0, e))
    if (is_digit(c)) digits.push_back(c);
  int exponent = 0;
  std::from_chars(whole.data() + e + (whole[e + 1] == '+' ? 2 : 1), end, exponent);
  std::string text = whole[0] == '-' ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    text += digits[0];
    if (digits.size() > 1) text.append(1, '.').append(digits, 1);
    const int size = std::abs(exponent);
    return concat(text, "e", exponent < 0 ? "-" : "+", size < 10 ? "0" : "", size);
  }
  if (exponent < 0) return text + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto before_point = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= before_point) return text + digits + std::string(before_point - digits.size(), '0') + ".0";
  return text + digits.substr(0, before_point) + "." + digits.substr(before_point);
}

/// repr escapes: controls, spaces but U+0020, formats, surrogates, private use.
[[nodiscard]] inline bool is_unprintable(char32_t c) {
  if (c < 0x7FU) return c < 0x20U;
  return c <= 0xA0U || c == 0xADU || (c >= 0x600U && c <= 0x605U) || c == 0x61CU || c == 0x6DDU || c == 0x70FU || c == 0x1680U ||
         c == 0x180EU || (c >= 0x2000U && c <= 0x200FU) || (c >= 0x2028U && c <= 0x202FU) || (c >= 0x205FU && c <= 0x206FU) ||
         c == 0x3000U || (c >= 0xD800U && c <= 0xF8FFU) || c == 0xFEFFU || (c >= 0xFFF0U && c <= 0xFFFBU) ||
         (c >= 0xFFFEU && c <= 0xFFFFU) || c >= 0xE0000U;
}

inline void append_hex(std::string& to, char32_t c, int digits) {
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) to.push_back("0123456789abcdef"[(c >> shift) & 0xFU]);
}

/// In single quotes, or double if it contains only single ones.
inline void append_repr(std::string& to, std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  to.push_back(quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    const char32_t c = character_at(text, at);
    if (c == U'\\' || c == static_cast<char32_t>(quote)) to.append({'\\', static_cast<char>(c)});
    else if (c == U'\n') to += "\\n";
    else if (c == U'\r') to += "\\r";
    else if (c == U'\t') to += "\\t";
    else if (!is_unprintable(c)) to += text.substr(at, bytes);
    else {
      to += c < 0x100U ? "\\x" : c < 0x10000U ? "\\u" : "\\U";
      append_hex(to, c, c < 0x100U ? 2 : c < 0x10000U ? 4 : 8);
    }
    at += bytes;
  }
  to.push_back(quote);
}

inline void append_printed(std::string& to, const value& v, bool quoted, allowance& cost);

inline void append_printed_items(std::string& to, const sequence& s, allowance& cost) {
  for (std::size_t i = s.taken; i < s.items.size(); ++i) {
    if (i > s.taken) to += ", ";
    append_printed(to, s.items[i], true, cost);
  }
}

inline void append_printed(std::string& to, const mapping& m, allowance& cost) {
  to += "{";
  for (const mapping::entry& e : m.read_all()) {
    if (&e != m.entries().data()) to += ", ";
    append_printed(to, e.key, true, cost);
    to += ": ";
    append_printed(to, e.content, true, cost);
  }
  to += "}";
}

/// As str; `quoted` (in lists and mappings): as repr.
inline void append_printed(std::string& to, const value& v, bool quoted, allowance& cost) {
  cost.spend(1);
  if (v.is_none()) to += "None";
  else if (v.is_undefined()) to += quoted ? "Undefined" : "";
  else if (v.is_boolean()) to += v.boolean() ? "True" : "False";
  else if (v.is_whole()) to += concat(v.whole());
  else if (v.is_real()) to += real_text(v.real());
  else if (v.is_text()) {
    cost.make_text(v.text().size());
    if (quoted) append_repr(to, v.text());
    else to += v.text();
  } else if (const sequence* s = v.as_sequence()) {
    to += s->as == form::tuple ? "(" : "[";
    append_printed_items(to, *s, cost);
    to += s->as == form::tuple ? (s->items.size() == 1 ? ",)" : ")") : "]";
  } else if (const mapping* m = v.as_mapping()) {
    append_printed(to, *m, cost);
  } else if (const callable* c = v.as_callable(); c != nullptr && c->macro != nullptr) {
    to += c->name.empty() ? "<Macro anonymous>" : concat("<Macro '", c->name, "'>");
  } else {
    to += concat("<", v.type(), ">");  // a namespace may contain itself
  }
}

[[nodiscard]] inline std::string printed(const value& v, allowance& cost) {
  std::string text;
  append_printed(text, v, false, cost);
  return text;
}

/// tojson's formatting.
struct json_style {
  bool pretty = false;   ///< one item per line
  std::string indent{};  ///< once per level
  std::string between = ", ", behind_key = ": ";
  bool ascii = false, sorted = false;
};

inline void append_json(std::string& to, std::string_view text, bool ascii) {
  to.push_back('"');
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    const char32_t c = character_at(text, at);
    if (c == U'"' || c == U'\\') to.append({'\\', static_cast<char>(c)});
    else if (c == U'\n') to += "\\n";
    else if (c == U'\r') to += "\\r";
    else if (c == U'\t') to += "\\t";
    else if (c == U'\f') to += "\\f";
    else if (c == U'\b') to += "\\b";
    else if (c >= 0x20U && (c < 0x7FU || !ascii)) to += text.substr(at, bytes);
    else {
      const bool pair = c > 0xFFFFU;
      to += "\\u";
      append_hex(to, pair ? 0xD800U + ((c - 0x10000U) >> 10) : c, 4);
      if (pair) to += "\\u";
      if (pair) append_hex(to, 0xDC00U + ((c - 0x10000U) & 0x3FFU), 4);
    }
    at += bytes;
  }
  to.push_back('"');
}

/// Numbers, booleans and none become strings.
[[nodiscard]] inline std::string json_key(const value& key) {
  if (key.is_text()) return key.text();
  if (key.is_none()) return "null";
  if (key.is_boolean()) return key.boolean() ? "true" : "false";
  if (key.is_whole()) return concat(key.whole());
  if (key.is_real()) return real_text(key.real(), true);
  break_off("tojson: a key must be a string, a number or none; it is ", key.type());
}

inline void append_json(std::string& to, const value& v, const json_style& style, std::size_t level, allowance& cost) {
  cost.spend(1);
  const auto line = [&](std::size_t deep) {
    if (!style.pretty) return;
    cost.make_text(deep, style.indent.size());
    to.push_back('\n');
    for (std::size_t i = 0; i < deep; ++i) to += style.indent;
  };
  if (v.is_none()) to += "null";
  else if (v.is_boolean()) to += v.boolean() ? "true" : "false";
  else if (v.is_whole()) to += concat(v.whole());
  else if (v.is_real()) to += real_text(v.real(), true);
  else if (v.is_text()) {
    cost.make_text(v.text().size());
    append_json(to, v.text(), style.ascii);
  } else if (const sequence* s = v.as_sequence(); s != nullptr && (s->as == form::list || s->as == form::tuple)) {
    to += "[";
    for (std::size_t i = 0; i < s->items.size(); ++i) {
      if (i > 0) to += style.between;
      line(level + 1);
      append_json(to, s->items[i], style, level + 1, cost);
    }
    if (!s->items.empty()) line(level);
    to += "]";
  } else if (const mapping* m = v.as_mapping()) {
    std::vector<const mapping::entry*> entries;
    for (const mapping::entry& e : m->read_all()) entries.push_back(&e);
    if (style.sorted)
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) { return json_key(a->key) < json_key(b->key); });
    to += "{";
    for (const mapping::entry* e : entries) {
      if (e != entries.front()) to += style.between;
      line(level + 1);
      append_json(to, json_key(e->key), style.ascii);
      to += style.behind_key;
      append_json(to, e->content, style, level + 1, cost);
    }
    if (!entries.empty()) line(level);
    to += "}";
  } else {
    break_off("tojson must be given strings, numbers, lists and mappings; given ", v.type());
  }
}

}  // namespace xtrain::detail::jinja
