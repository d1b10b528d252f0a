// Methods of strings, lists, mappings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/formatting.hpp>
#include <xtrain/jinja/letter_case.hpp>
#include <xtrain/jinja/operators.hpp>

namespace xtrain::detail::jinja {

/// Arguments in the order of `names`; null if omitted.
///   breaks off for others
[[nodiscard]] inline std::vector<const value*> bound(const arguments& given, std::string_view who,
                                                     std::initializer_list<std::string_view> names) {
  if (given.placed.size() > names.size())
    break_off("'", who, "' must be given at most ", names.size(), " arguments; given ", given.placed.size());
  std::vector<const value*> result(names.size(), nullptr);
  for (std::size_t i = 0; i < given.placed.size(); ++i) result[i] = &given.placed[i];
  for (const auto& [name, v] : given.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) break_off("'", who, "' must be given arguments that it has; '", name, "' is none");
    const value*& place = result[static_cast<std::size_t>(at - names.begin())];
    if (place != nullptr) break_off("'", who, "' must be given an argument once; '", name, "' is given twice");
    place = &v;
  }
  return result;
}

[[nodiscard]] inline const std::string& need_text(const value* v, std::string_view who) {
  if (v == nullptr) break_off("'", who, "' must be given another argument");
  require_defined(*v);
  if (!v->is_text()) break_off("'", who, "' must be given a string; given ", v->type());
  return v->text();
}
[[nodiscard]] inline std::int64_t whole_or(const value* v, std::int64_t standard, std::string_view who) {
  if (v == nullptr) return standard;
  require_defined(*v);
  if (!v->is_whole()) break_off("'", who, "' must be given a whole number; given ", v->type());
  return v->whole();
}

/// At `separator`, or whitespace if null; at most `most` times; `from_right`: from the right.
[[nodiscard]] inline std::vector<value> split(std::string_view text, const std::string* separator, std::int64_t most, bool from_right,
                                              allowance& cost) {
  if (separator != nullptr && separator->empty()) break_off("'split' must be given a separator of at least one character");
  cost.make_text(text.size());
  const std::size_t cuts = most < 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(most);
  std::vector<value> parts;
  const auto add = [&](std::string_view part) {
    cost.make_items(1);
    parts.emplace_back(part);
  };
  if (separator == nullptr) text = from_right ? stripped(text, false, true) : stripped(text, true, false);
  while (separator != nullptr || !text.empty()) {
    std::size_t at = std::string_view::npos, width = 0;
    if (parts.size() < cuts) {
      if (separator != nullptr) {
        at = from_right ? text.rfind(*separator) : text.find(*separator);
        width = separator->size();
      } else if (from_right) {
        std::size_t begin = text.size();
        while (begin > 0 && !is_space(character_at(text, character_before(text, begin)))) begin = character_before(text, begin);
        const std::string_view before = stripped(text.substr(0, begin), false, true);
        if (begin > 0) at = before.size();
        width = begin - before.size();
      } else {
        at = 0;
        while (at < text.size() && !is_space(character_at(text, at))) at += character_bytes(text, at);
        width = end_of_spaces(text, at) - at;
        if (at == text.size()) at = std::string_view::npos;
      }
    }
    if (at == std::string_view::npos) {
      add(text);
      break;
    }
    add(from_right ? text.substr(at + width) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + width);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

[[nodiscard]] inline std::string replaced(std::string_view text, std::string_view old, std::string_view with, std::int64_t most,
                                          allowance& cost) {
  std::string result;
  cost.make_text(text.size());
  if (old.empty()) {  // between characters and at ends
    for (std::size_t at = 0; at <= text.size() && most != 0; --most) {
      cost.make_text(with.size());
      result += with;
      if (at == text.size()) return result;
      const std::size_t bytes = character_bytes(text, at);
      result += text.substr(at, bytes);
      at += bytes;
      if (most == 1) return result + std::string(text.substr(at));
    }
    return most == 0 && result.empty() ? std::string(text) : result;
  }
  std::size_t begin = 0;
  for (; most != 0; --most) {
    const std::size_t at = text.find(old, begin);
    if (at == std::string_view::npos) break;
    cost.make_text(with.size());
    result += text.substr(begin, at - begin);
    result += with;
    begin = at + old.size();
  }
  return result + std::string(text.substr(begin));
}

[[nodiscard]] inline std::string joined(const std::vector<value>& items, std::string_view between, allowance& cost) {
  std::string all;
  for (std::size_t i = 0; i < items.size(); ++i) {
    cost.make_text(between.size());
    if (i > 0) all += between;
    append_printed(all, items[i], false, cost);
  }
  return all;
}

/// Begins (ends) with a string, or one of a tuple.
[[nodiscard]] inline bool has_end(std::string_view text, const value* of, bool at_begin, std::string_view who) {
  const sequence* several = of == nullptr ? nullptr : of->as_sequence();
  if (several == nullptr || several->as != form::tuple) {
    const std::string& one = need_text(of, who);
    return at_begin ? text.starts_with(one) : text.ends_with(one);
  }
  return std::any_of(several->items.begin(), several->items.end(), [&](const value& one) { return has_end(text, &one, at_begin, who); });
}

/// Indices in characters.
[[nodiscard]] inline value found(std::string_view text, const arguments& given, std::string_view who, bool last) {
  const auto a = bound(given, who, {"sub", "start"});
  std::int64_t start = whole_or(a[1], 0, who);
  const std::vector<std::string_view> characters = characters_of(text);
  const auto count = static_cast<std::int64_t>(characters.size());
  if (start < 0) start = std::max<std::int64_t>(start + count, 0);
  if (start > count) return -1;
  const std::size_t skipped =
      start == count ? text.size() : static_cast<std::size_t>(characters[static_cast<std::size_t>(start)].data() - text.data());
  const std::string_view searched = text.substr(skipped);
  const std::size_t at = last ? searched.rfind(need_text(a[0], who)) : searched.find(need_text(a[0], who));
  return at == std::string_view::npos ? value(-1) : value(start + static_cast<std::int64_t>(character_count(searched.substr(0, at))));
}

[[nodiscard]] inline value call_text_method(const std::string& text, std::string_view name, const arguments& given, allowance& cost) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const auto a = bound(given, name, {"chars"});
    const bool any = a[0] == nullptr || a[0]->is_none();
    const std::string_view which = any ? std::string_view{} : std::string_view(need_text(a[0], name));
    cost.make_text(which.size(), 16);
    return stripped(text, name != "rstrip", name != "lstrip", any ? nullptr : &which);
  }
  if (name == "split" || name == "rsplit") {
    const auto a = bound(given, name, {"sep", "maxsplit"});
    const std::string* separator = a[0] == nullptr || a[0]->is_none() ? nullptr : &need_text(a[0], name);
    return split(text, separator, whole_or(a[1], -1, name), name == "rsplit", cost);
  }
  if (name == "startswith" || name == "endswith") return has_end(text, bound(given, name, {"prefix"})[0], name == "startswith", name);
  if (name == "replace") {
    const auto a = bound(given, name, {"old", "new", "count"});
    return replaced(text, need_text(a[0], name), need_text(a[1], name), whole_or(a[2], -1, name), cost);
  }
  if (name == "find" || name == "rfind" || name == "index") {
    const value at = found(text, given, name, name == "rfind");
    if (name == "index" && at.whole() < 0) break_off("'index' must be asked for what is there; it is not");
    return at;
  }
  if (name == "join") {
    const auto a = bound(given, name, {"items"});
    if (a[0] == nullptr) break_off("'join' must be given a list");
    const std::vector<value> items = items_of(*a[0], cost);
    for (const value& item : items) (void)need_text(&item, name);
    return joined(items, text, cost);
  }
  if (name == "format") return brace_formatted(text, given, cost);
  if (name == "count") {
    const std::string& part = need_text(bound(given, name, {"sub"})[0], name);
    if (part.empty()) return character_count(text) + 1;
    std::int64_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
    return count;
  }
  if (name == "splitlines") {
    const auto a = bound(given, name, {"keepends"});
    std::vector<value> lines;
    for (const std::string_view line : lines_of(text, a[0] != nullptr && a[0]->truth())) lines.emplace_back(line);
    cost.make_items(lines.size());
    return lines;
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& part = need_text(bound(given, name, {"part"})[0], name);
    if (name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
    return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
  }
  if (name == "partition") {
    const std::string& part = need_text(bound(given, name, {"sep"})[0], name);
    const std::size_t at = part.empty() ? std::string::npos : text.find(part);
    if (at == std::string::npos) return {std::vector<value>{text, "", ""}, form::tuple};
    return {std::vector<value>{text.substr(0, at), part, text.substr(at + part.size())}, form::tuple};
  }
  if (name == "zfill") {
    const std::int64_t width = whole_or(bound(given, name, {"width"})[0], 0, name);
    return padded(text, width < 0 ? 0 : static_cast<std::size_t>(width), false, '0', cost);
  }
  (void)bound(given, name, {});
  if (name == "upper") return upper(text);
  if (name == "lower") return lower(text);
  if (name == "title") return titled(text);
  if (name == "capitalize") return capitalized(text);
  if (name == "swapcase") return with_case_swapped(text);
  if (name == "isdigit" || name == "isalpha") {
    const bool digits = name == "isdigit";
    bool beyond = false;
    for (const char c : text) {
      const bool is_ascii = static_cast<unsigned char>(c) < 0x80U;
      if (is_ascii && !(digits ? is_digit(c) : is_letter(c))) return false;
      beyond = beyond || !is_ascii;
    }
    if (beyond) break_off("'", name, "' must be asked of ASCII characters; others were given");
    return !text.empty();
  }
  if (name == "isspace") return !text.empty() && end_of_spaces(text, 0) == text.size();
  return all_cased(text, name == "isupper");
}

/// items(), keys(), values().
[[nodiscard]] inline value view_of(const mapping& m, std::string_view which, allowance& cost) {
  cost.make_entries(m.size());
  std::vector<value> all;
  for (const mapping::entry& e : which == "keys" ? m.entries() : m.read_all()) {
    if (which == "items") all.emplace_back(std::vector<value>{e.key, e.content}, form::tuple);
    else all.push_back(which == "keys" ? e.key : e.content);
  }
  return {std::move(all), form::view};
}

[[nodiscard]] inline value call_mapping_method(const value& self, std::string_view name, const arguments& given, allowance& cost) {
  const mapping& m = *self.as_mapping();
  if (name == "get") {
    const auto a = bound(given, name, {"key", "default"});
    if (a[0] == nullptr) break_off("'get' must be given a key");
    const value* there = m.read(*a[0]);
    return there != nullptr ? *there : a[1] != nullptr ? *a[1] : value{};
  }
  (void)bound(given, name, {});
  return name == "copy" ? self : view_of(m, name, cost);
}

[[nodiscard]] inline value call_list_method(const sequence& s, std::string_view name, const arguments& given, allowance& cost) {
  const auto a = bound(given, name, {"value"});
  if (a[0] == nullptr) break_off("'", name, "' must be given a value");
  std::int64_t count = 0;
  for (std::size_t i = 0; i < s.items.size(); ++i) {
    if (!equal(s.items[i], *a[0], cost)) continue;
    if (name == "index") return i;
    ++count;
  }
  if (name == "index") break_off("'index' must be asked for what is in the list; it is not");
  return count;
}

/// Calls a method of a string, a mapping or a list.
[[nodiscard]] inline value call_method(const callable& method, const arguments& given, allowance& cost) {
  cost.spend(4);
  if (method.self.is_text()) {
    cost.make_text(method.self.text().size());
    value result = call_text_method(method.self.text(), method.name, given, cost);
    return result.is_text() ? text_like(method.self, result.text()) : result;
  }
  if (method.self.as_mapping() != nullptr) return call_mapping_method(method.self, method.name, given, cost);
  return call_list_method(*method.self.as_sequence(), method.name, given, cost);
}

}  // namespace xtrain::detail::jinja
