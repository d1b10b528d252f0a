// Filters of single values; lists: list_filters.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/methods.hpp>
#include <xtrain/jinja/operators.hpp>

namespace xtrain::detail::jinja {

struct filter_entry {
  std::string_view name;
  value (*apply)(const value&, const arguments&, allowance&);
};

/// Parses the entire string.
template <class Number>
[[nodiscard]] bool read_number(std::string_view text, Number& number) {
  text = stripped(text, true, true);
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

[[nodiscard]] inline value int_filter(const value& in, const arguments& given, allowance&) {
  const auto a = bound(given, "int", {"default", "base"});
  require_defined(in);
  const std::int64_t base = whole_or(a[1], 10, "int");
  if (base != 10) break_off("'int' must be given numbers of base 10; given ", base);
  if (in.is_whole()) return in.whole();
  std::int64_t whole = 0;
  if (in.is_text() && read_number(in.text(), whole)) return whole;
  double real = 0;
  if (in.is_real()) real = in.real();
  else if (!in.is_text() || !read_number(in.text(), real)) return a[0] != nullptr ? *a[0] : value(0);
  if (std::isnan(real) || std::isinf(real)) return a[0] != nullptr ? *a[0] : value(0);
  if (real < -9e18 || real > 9e18) overflow();
  return static_cast<std::int64_t>(real);
}

[[nodiscard]] inline value float_filter(const value& in, const arguments& given, allowance&) {
  const auto a = bound(given, "float", {"default"});
  require_defined(in);
  if (in.is_number()) return in.real();
  double real = 0;
  if (in.is_text() && read_number(in.text(), real)) return real;
  return a[0] != nullptr ? *a[0] : value(0.0);
}

[[nodiscard]] inline value abs_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "abs", {});
  if (in.is_number() && (in.is_real() ? !std::signbit(in.real()) : in.whole() >= 0)) return in.is_boolean() ? value(in.whole()) : in;
  return calculated("*", in, -1, cost);
}

[[nodiscard]] inline value round_filter(const value& in, const arguments& given, allowance&) {
  const auto a = bound(given, "round", {"precision", "method"});
  require_defined(in);
  if (!in.is_number()) break_off("'round' must be given a number; given ", in.type());
  const std::int64_t precision = whole_or(a[0], 0, "round");
  const std::string method = a[1] == nullptr ? "common" : need_text(a[1], "round");
  if (precision < 0 || precision > 20) break_off("'round' must be given a precision from 0 to 20; given ", precision);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(in.real() * scale) / scale;
  if (method == "floor") return std::floor(in.real() * scale) / scale;
  if (method != "common") break_off("'round' must be 'common', 'ceil' or 'floor'; given '", method, "'");
  if (in.is_whole()) return in.whole();
  double result = in.real();
  if (result > -1e15 && result < 1e15) (void)read_number(fixed(result, static_cast<int>(precision)), result);
  return result;
}

[[nodiscard]] inline value upper_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "upper", {});
  return text_like(in, upper(printed(in, cost)));
}
[[nodiscard]] inline value lower_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "lower", {});
  return text_like(in, lower(printed(in, cost)));
}
[[nodiscard]] inline value capitalize_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "capitalize", {});
  return text_like(in, capitalized(printed(in, cost)));
}
/// Capitals at the beginning and after spaces, hyphens, opening brackets; not apostrophes.
[[nodiscard]] inline value title_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "title", {});
  const std::string text = printed(in, cost);
  const auto ends = [&](std::size_t at) {
    return is_space(character_at(text, at)) || std::string_view("-({[<").find(text[at]) != std::string_view::npos;
  };
  std::string result;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = begin + character_bytes(text, begin);
    append_upper(result, std::string_view(text).substr(begin, end - begin), 0);
    if (ends(begin)) continue;
    const std::size_t rest = end;
    while (end < text.size() && !ends(end)) end += character_bytes(text, end);
    result += lower(std::string_view(text).substr(rest, end - rest));
  }
  return result;
}
[[nodiscard]] inline value trim_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "trim", {"chars"});
  const bool any = a[0] == nullptr || a[0]->is_none();
  const std::string_view which = any ? std::string_view{} : std::string_view(need_text(a[0], "trim"));
  cost.make_text(which.size(), 16);
  const std::string text = printed(in, cost);
  return text_like(in, std::string(stripped(text, true, true, any ? nullptr : &which)));
}
[[nodiscard]] inline value string_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "string", {});
  return in.is_text() ? in : value(printed(in, cost));
}
[[nodiscard]] inline value safe_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "safe", {});
  return value::safe(printed(in, cost));
}
[[nodiscard]] inline value escape_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "escape", {});
  return in.is_safe() ? in : value::safe(escaped(printed(in, cost), cost));
}
[[nodiscard]] inline value forceescape_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "forceescape", {});
  return value::safe(escaped(printed(in, cost), cost));
}
[[nodiscard]] inline value replace_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "replace", {"old", "new", "count"});
  const bool all = a[2] == nullptr || a[2]->is_none();
  return replaced(printed(in, cost), need_text(a[0], "replace"), need_text(a[1], "replace"), all ? -1 : whole_or(a[2], -1, "replace"),
                  cost);
}
[[nodiscard]] inline value format_filter(const value& in, const arguments& given, allowance& cost) {
  const std::string form_text = printed(in, cost);
  if (given.named.empty()) return percent_formatted(form_text, value(given.placed, form::tuple), cost);
  if (!given.placed.empty()) break_off("'format' must be given values in their places or by name, not both");
  mapping by_name;
  for (const auto& [name, v] : given.named) by_name.set(name, v);
  return percent_formatted(form_text, std::move(by_name), cost);
}
[[nodiscard]] inline value wordcount_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "wordcount", {});
  std::int64_t words = 0;
  bool inside = false;
  for (const char c : printed(in, cost)) {
    const bool part = is_letter(c) || is_digit(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80U;
    words += part && !inside ? 1 : 0;
    inside = part;
  }
  return words;
}
[[nodiscard]] inline value center_filter(const value& in, const arguments& given, allowance& cost) {
  const std::int64_t width = whole_or(bound(given, "center", {"width"})[0], 80, "center");
  const std::string text = printed(in, cost);
  const std::size_t count = character_count(text), all = width < 0 ? 0 : static_cast<std::size_t>(width);
  if (count >= all) return text;
  cost.make_text(all);
  const std::size_t spaces = all - count, left = spaces / 2 + (spaces & all & 1U);
  return std::string(left, ' ') + text + std::string(spaces - left, ' ');
}

/// Lines after the first; empty ones if `blank`, the first if `first`.
[[nodiscard]] inline value indent_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "indent", {"width", "first", "blank"});
  std::string before;
  if (a[0] != nullptr && a[0]->is_text()) {
    before = a[0]->text();
  } else {
    const std::int64_t width = whole_or(a[0], 4, "indent");
    cost.make_text(width < 0 ? 0 : static_cast<std::size_t>(width));
    before.assign(width < 0 ? 0 : static_cast<std::size_t>(width), ' ');
  }
  const bool first = a[1] != nullptr && a[1]->truth(), blank = a[2] != nullptr && a[2]->truth();
  const std::string text = printed(in, cost) + "\n";
  std::string result = first ? before : "";
  const std::vector<std::string_view> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    cost.make_text(before.size());
    if (i > 0) result += "\n";
    if (i > 0 && (blank || !lines[i].empty())) result += before;
    result += lines[i];
  }
  return text_like(in, std::move(result));
}

[[nodiscard]] inline value default_filter(const value& in, const arguments& given, allowance&) {
  const auto a = bound(given, "default", {"default_value", "boolean"});
  const bool also_false = a[1] != nullptr && a[1]->truth();
  if (!in.is_undefined() && (!also_false || in.truth())) return in;
  return a[0] != nullptr ? *a[0] : value("");
}

[[nodiscard]] inline value tojson_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  json_style style;
  style.ascii = a[0] != nullptr && a[0]->truth();
  style.sorted = a[3] != nullptr && a[3]->truth();
  if (a[1] != nullptr && !a[1]->is_none()) {
    style.pretty = true;
    style.between = ",";
    if (a[1]->is_text()) style.indent = a[1]->text();
    else {
      const std::int64_t width = whole_or(a[1], 0, "tojson");
      cost.make_text(width < 0 ? 0 : static_cast<std::size_t>(width));
      style.indent.assign(width < 0 ? 0 : static_cast<std::size_t>(width), ' ');
    }
  }
  if (a[2] != nullptr && !a[2]->is_none()) {
    const sequence* pair = a[2]->as_sequence();
    if (pair == nullptr || pair->items.size() != 2) break_off("'tojson' must be given two separators; given ", a[2]->type());
    style.between = need_text(&pair->items[0], "tojson");
    style.behind_key = need_text(&pair->items[1], "tojson");
  }
  cost.make_text(style.between.size() + style.behind_key.size());
  if (style.between.size() + style.behind_key.size() > 64) break_off("'tojson' must be given separators of at most 64 bytes");
  std::string text;
  append_json(text, in, style, 0, cost);
  return text;
}

[[nodiscard]] inline value length_filter(const value& in, const arguments& given, allowance&) {
  (void)bound(given, "length", {});
  return length_of(in);
}

inline constexpr std::array<filter_entry, 24> value_filters{{{"abs", abs_filter},       {"capitalize", capitalize_filter},
                                                             {"center", center_filter}, {"count", length_filter},
                                                             {"d", default_filter},     {"default", default_filter},
                                                             {"e", escape_filter},      {"escape", escape_filter},
                                                             {"float", float_filter},   {"forceescape", forceescape_filter},
                                                             {"format", format_filter}, {"indent", indent_filter},
                                                             {"int", int_filter},       {"length", length_filter},
                                                             {"lower", lower_filter},   {"replace", replace_filter},
                                                             {"round", round_filter},   {"safe", safe_filter},
                                                             {"string", string_filter}, {"title", title_filter},
                                                             {"tojson", tojson_filter}, {"trim", trim_filter},
                                                             {"upper", upper_filter},   {"wordcount", wordcount_filter}}};

}  // namespace xtrain::detail::jinja
