// Operators, items, slices, attributes.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/formatting.hpp>
#include <xtrain/jinja/printing.hpp>
#include <xtrain/jinja/value.hpp>

namespace xtrain::detail::jinja {

inline void require_defined(const value& v) {
  if (v.is_undefined()) break_off(v.why());
}

/// Items of a loop; consumes a generator.
[[nodiscard]] inline std::vector<value> items_of(const value& v, allowance& cost) {
  std::vector<value> items;
  if (sequence* s = v.as_sequence()) {
    cost.make_items(s->items.size() - s->taken);
    items.assign(s->items.begin() + static_cast<std::ptrdiff_t>(s->taken), s->items.end());
    if (s->as == form::generator) s->taken = s->items.size();
  } else if (const mapping* m = v.as_mapping()) {
    cost.make_items(m->size());
    for (const mapping::entry& e : m->entries()) items.push_back(e.key);
  } else if (v.is_text()) {
    cost.make_items(v.text().size());
    for (const std::string_view c : characters_of(v.text())) items.emplace_back(c);
  } else if (!v.is_undefined()) {
    break_off("a list, a mapping or a string must be given to read items from; given ", v.type());
  }
  return items;
}

[[nodiscard]] inline std::size_t length_of(const value& v) {
  if (const sequence* s = v.as_sequence(); s != nullptr && s->as != form::generator) return s->items.size();
  if (const mapping* m = v.as_mapping()) return m->size();
  if (v.is_text()) return character_count(v.text());
  if (v.is_undefined()) return 0;
  break_off("a list, a mapping or a string must be given, for only they have a length; given ", v.type());
}

[[nodiscard]] inline bool same_kind(const sequence& a, const sequence& b) {
  return a.as == b.as && (a.as == form::list || a.as == form::tuple || a.as == form::range);
}

[[nodiscard]] inline bool equal(const value& a, const value& b, allowance& cost) {
  cost.spend(1);
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is_number() && b.is_number()) return a.real() == b.real();
  if (a.is_text() && b.is_text()) {
    cost.make_text(a.text().size());
    return a.text() == b.text();
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (const sequence* s = a.as_sequence(), *t = b.as_sequence(); s != nullptr && t != nullptr) {
    if (s == t) return true;
    if (!same_kind(*s, *t) || s->items.size() != t->items.size()) return false;
    for (std::size_t i = 0; i < s->items.size(); ++i)
      if (!equal(s->items[i], t->items[i], cost)) return false;
    return true;
  }
  if (const mapping* m = a.as_mapping(), *n = b.as_mapping(); m != nullptr && n != nullptr) {
    if (m->size() != n->size()) return false;
    for (const mapping::entry& e : m->entries()) {
      const value* other = n->find(e.key);
      if (other == nullptr || !equal(e.content, *other, cost)) return false;
    }
    return true;
  }
  if (a.as_name_space() != nullptr) return a.as_name_space() == b.as_name_space();
  return a.as_callable() != nullptr && a.as_callable() == b.as_callable();
}

[[nodiscard]] inline bool less(const value& a, const value& b, allowance& cost) {
  cost.spend(1);
  require_defined(a);
  require_defined(b);
  if (a.is_whole() && b.is_whole()) return a.whole() < b.whole();
  if (a.is_number() && b.is_number()) return a.real() < b.real();
  if (a.is_text() && b.is_text()) return a.text() < b.text();
  if (const sequence* s = a.as_sequence(), *t = b.as_sequence(); s != nullptr && t != nullptr && same_kind(*s, *t)) {
    for (std::size_t i = 0; i < s->items.size() && i < t->items.size(); ++i)
      if (!equal(s->items[i], t->items[i], cost)) return less(s->items[i], t->items[i], cost);
    return s->items.size() < t->items.size();
  }
  break_off("two numbers, two strings or two lists must be given to say which comes first; given ", a.type(), " and ", b.type());
}

[[nodiscard]] inline bool contains(const value& all, const value& one, allowance& cost) {
  if (all.is_text()) {
    require_defined(one);
    if (!one.is_text()) break_off("'in' a string must be asked of a string; given ", one.type());
    cost.make_text(all.text().size());
    return all.text().find(one.text()) != std::string::npos;
  }
  if (const mapping* m = all.as_mapping()) return m->read(one) != nullptr;
  for (const value& item : items_of(all, cost))
    if (equal(item, one, cost)) return true;
  return false;
}

[[nodiscard]] inline bool compared(std::string_view how, const value& a, const value& b, allowance& cost) {
  if (how == "==") return equal(a, b, cost);
  if (how == "!=") return !equal(a, b, cost);
  if (how == "<") return less(a, b, cost);
  if (how == ">") return less(b, a, cost);
  if (how == "in") return contains(b, a, cost);
  if (how == "not in") return !contains(b, a, cost);
  const bool never = (a.is_real() && std::isnan(a.real())) || (b.is_real() && std::isnan(b.real()));
  return !never && (how == "<=" ? !less(b, a, cost) : !less(a, b, cost));
}

[[noreturn]] inline void overflow() { break_off("whole numbers must fit 64 bits; this one does not"); }

[[nodiscard]] inline std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) break_off("a number must not be divided by zero");
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) overflow();
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

[[nodiscard]] inline std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

[[nodiscard]] inline value whole_result(std::string_view how, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool fits = true;
  if (how == "+") fits = !__builtin_add_overflow(a, b, &result);
  else if (how == "-") fits = !__builtin_sub_overflow(a, b, &result);
  else if (how == "*") fits = !__builtin_mul_overflow(a, b, &result);
  else if (how == "//") result = floor_quotient(a, b);
  else if (how == "%") result = b == -1 ? 0 : a - floor_quotient(a, b) * b;
  else result = power(a, b);
  if (!fits) overflow();
  return result;
}

[[nodiscard]] inline value real_result(std::string_view how, double a, double b) {
  if (how == "+") return a + b;
  if (how == "-") return a - b;
  if (how == "*") return a * b;
  if (how == "**") {
    if (a < 0 && std::floor(b) != b) break_off("a negative number must be raised to a whole one");
    if (a == 0 && b < 0) break_off("zero must not be raised to a negative number");
    return std::pow(a, b);
  }
  if (b == 0) break_off("a number must not be divided by zero");
  if (how == "/") return a / b;
  const double rest = std::fmod(a, b);
  const double modulo = rest == 0 ? std::copysign(0.0, b) : (rest < 0) != (b < 0) ? rest + b : rest;
  return how == "%" ? modulo : std::floor((a - modulo) / b + 0.5);
}

[[nodiscard]] inline value repeated(const value& what, std::int64_t times, allowance& cost) {
  const std::size_t count = times < 0 ? 0 : static_cast<std::size_t>(times);
  if (what.is_text()) {
    cost.make_text(count, what.text().size());
    std::string all;
    for (std::size_t i = 0; i < count && !what.text().empty(); ++i) all += what.text();
    return text_like(what, std::move(all));
  }
  const sequence& s = *what.as_sequence();
  cost.make_text(count, s.items.size() * 128);
  std::vector<value> all;
  for (std::size_t i = 0; i < count && !s.items.empty(); ++i) all.insert(all.end(), s.items.begin(), s.items.end());
  return {std::move(all), s.as};
}

[[nodiscard]] inline value calculated(std::string_view how, const value& a, const value& b, allowance& cost) {
  require_defined(a);
  if (how == "%" && a.is_text()) return percent_formatted(a.text(), b, cost);
  require_defined(b);
  if (a.is_number() && b.is_number()) {
    const bool whole = a.is_whole() && b.is_whole() && how != "/" && (how != "**" || b.whole() >= 0);
    return whole ? whole_result(how, a.whole(), b.whole()) : real_result(how, a.real(), b.real());
  }
  const sequence *s = a.as_sequence(), *t = b.as_sequence();
  const bool lists = s != nullptr && (s->as == form::list || s->as == form::tuple);
  if (how == "+" && a.is_text() && b.is_text()) {
    cost.make_text(a.text().size() + b.text().size());
    if (a.is_safe() == b.is_safe()) return text_like(a, a.text() + b.text());
    return value::safe(a.is_safe() ? a.text() + escaped(b.text(), cost) : escaped(a.text(), cost) + b.text());
  }
  if (how == "+" && lists && t != nullptr && s->as == t->as) {
    cost.make_items(s->items.size() + t->items.size());
    std::vector<value> all = s->items;
    all.insert(all.end(), t->items.begin(), t->items.end());
    return {std::move(all), s->as};
  }
  if (how == "*" && (a.is_text() || lists) && b.is_whole()) return repeated(a, b.whole(), cost);
  if (how == "*" && a.is_whole() && (b.is_text() || (t != nullptr && (t->as == form::list || t->as == form::tuple))))
    return repeated(b, a.whole(), cost);
  break_off("'", how, "' must be given two values that go together; given ", a.type(), " and ", b.type());
}

/// Without methods that modify: values are immutable.
[[nodiscard]] inline bool has_method(const value& v, std::string_view name) {
  constexpr std::array<std::string_view, 29> of_text{
      "strip",   "lstrip",     "rstrip",  "split",   "rsplit",       "splitlines",   "startswith", "endswith", "upper",   "lower",
      "title",   "capitalize", "replace", "find",    "rfind",        "index",        "count",      "join",     "format",  "isdigit",
      "isalpha", "isspace",    "isupper", "islower", "removeprefix", "removesuffix", "partition",  "zfill",    "swapcase"};
  constexpr std::array<std::string_view, 5> of_mapping{"get", "items", "keys", "values", "copy"};
  constexpr std::array<std::string_view, 2> of_list{"index", "count"};
  constexpr std::array<std::string_view, 2> of_loop{"cycle", "changed"};
  const auto in = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (v.is_text()) return in(of_text);
  if (v.as_mapping() != nullptr) return in(of_mapping);
  if (v.as_sequence() != nullptr) return in(of_list);
  return v.as_loop() != nullptr && in(of_loop);
}

[[nodiscard]] inline value method_of(const value& self, std::string_view name) {
  callable bound;
  bound.name = name;
  bound.self = self;
  bound.is_method = true;
  return bound;
}

/// Undefined if missing.
[[nodiscard]] inline value item_at(const value& of, const value& place) {
  if (const mapping* m = of.as_mapping()) {
    const value* found = m->read(place);
    return found != nullptr
               ? *found
               : value::undefined("'", place.is_text() ? place.text() : key_text(place), "' must be in the mapping; it is not");
  }
  if (place.is_whole() && (of.is_text() || of.as_sequence() != nullptr)) {
    const sequence* s = of.as_sequence();
    if (s != nullptr && s->as == form::generator) return value::undefined("a generator must not be asked for an item");
    const std::size_t count = length_of(of);
    const std::int64_t i = place.whole() < 0 ? place.whole() + static_cast<std::int64_t>(count) : place.whole();
    if (i < 0 || i >= static_cast<std::int64_t>(count))
      return value::undefined("item ", place.whole(), " must be there; there are ", count);
    if (s != nullptr) return s->items[static_cast<std::size_t>(i)];
    return text_like(of, std::string(characters_of(of.text())[static_cast<std::size_t>(i)]));
  }
  return value::undefined("items of ", of.type(), " must be asked for where there are any; there are none");
}

/// of[begin:end:step]; null if omitted.
[[nodiscard]] inline value sliced(const value& of, const value* begin, const value* end, const value* step, allowance& cost) {
  require_defined(of);
  const sequence* s = of.as_sequence();
  if (!of.is_text() && (s == nullptr || s->as == form::generator || s->as == form::view))
    return value::undefined("a slice must be of a list or a string; given ", of.type());
  const auto bound = [&](const value* v, std::int64_t standard) {
    if (v == nullptr || v->is_none()) return standard;
    require_defined(*v);
    if (!v->is_whole()) break_off("a slice must be between whole numbers; given ", v->type());
    return v->whole();
  };
  const std::int64_t by = bound(step, 1);
  if (by == 0) break_off("a slice must not step by 0");
  const auto count = static_cast<std::int64_t>(length_of(of));
  const std::int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? count : count - 1;
  const auto inside = [&](const value* v, std::int64_t standard) {
    std::int64_t i = bound(v, standard);
    if (v != nullptr && !v->is_none() && i < 0) i += count;
    return std::min(std::max(i, lowest), highest);
  };
  const std::int64_t first = inside(begin, by > 0 ? 0 : count - 1), last = inside(end, by > 0 ? count : -1);
  cost.make_items(static_cast<std::size_t>(count));
  const std::vector<std::string_view> characters = of.is_text() ? characters_of(of.text()) : std::vector<std::string_view>{};
  std::string text;
  std::vector<value> items;
  for (std::int64_t i = first; by > 0 ? i < last : i > last;) {
    if (of.is_text()) text += characters[static_cast<std::size_t>(i)];
    else items.push_back(s->items[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (of.is_text()) return text_like(of, std::move(text));
  return {std::move(items), s->as == form::tuple ? form::tuple : form::list};
}

}  // namespace xtrain::detail::jinja
