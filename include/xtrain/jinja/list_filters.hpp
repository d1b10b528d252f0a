// Filters that split, select or order lists; table of all filters.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/filters.hpp>
#include <xtrain/jinja/methods.hpp>
#include <xtrain/jinja/operators.hpp>
#include <xtrain/jinja/tests.hpp>

namespace xtrain::detail::jinja {

[[nodiscard]] inline value filtered(std::string_view name, const value& in, const arguments& given, allowance& cost);

/// `path`: names and numbers, separated by dots.
[[nodiscard]] inline value at_path(value of, const value& path, allowance& cost) {
  if (path.is_whole()) return item_at(of, path);
  const std::string& text = need_text(&path, "attribute");
  for (std::size_t begin = 0; begin <= text.size();) {
    cost.spend(1);
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view name = std::string_view(text).substr(begin, end - begin);
    std::int64_t place = 0;
    require_defined(of);
    if (!name.empty() && is_digit(name[0]) && read_number(name, place)) of = item_at(of, place);
    else if (name_space* space = of.as_name_space()) {
      const value* found = space->attributes.find_name(name);
      of = found != nullptr ? *found : value::undefined("'", name, "' must be in the namespace; it is not");
    } else if (const value* part = of_group(of, name)) of = value(*part);
    else of = item_at(of, value(name));
    begin = end + 1;
  }
  return of;
}

/// Ignores case unless `exact`.
[[nodiscard]] inline value without_case(const value& v, bool exact) { return v.is_text() && !exact ? value(lower(v.text())) : v; }

/// An attribute, or the item.
[[nodiscard]] inline value order_key(const value& item, const value* attribute, bool exact, allowance& cost) {
  return without_case(attribute == nullptr || attribute->is_none() ? item : at_path(item, *attribute, cost), exact);
}

/// For `sort`: attributes separated by commas.
[[nodiscard]] inline value sort_key(const value& item, const value* attributes, bool exact, allowance& cost) {
  if (attributes == nullptr || attributes->is_none() || !attributes->is_text()) return order_key(item, attributes, exact, cost);
  std::vector<value> keys;
  const std::string comma = ",";
  for (const value& one : split(attributes->text(), &comma, -1, false, cost)) keys.push_back(order_key(item, &one, exact, cost));
  return keys;
}

struct keyed {
  value key, item;
};
[[nodiscard]] inline std::vector<keyed> with_keys(const value& in, const value* attribute, bool exact, allowance& cost) {
  std::vector<keyed> all;
  for (value& item : items_of(in, cost)) {
    value key = order_key(item, attribute, exact, cost);
    all.push_back({std::move(key), std::move(item)});
  }
  return all;
}
inline void put_in_order(std::vector<keyed>& all, bool reverse, allowance& cost) {
  std::stable_sort(all.begin(), all.end(),
                   [&](const keyed& a, const keyed& b) { return reverse ? less(b.key, a.key, cost) : less(a.key, b.key, cost); });
}
[[nodiscard]] inline bool flag(const value* v) { return v != nullptr && v->truth(); }

[[nodiscard]] inline value sort_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<keyed> all;
  for (value& item : items_of(in, cost)) {
    value key = sort_key(item, a[2], flag(a[1]), cost);
    all.push_back({std::move(key), std::move(item)});
  }
  put_in_order(all, flag(a[0]), cost);
  std::vector<value> result;
  for (keyed& one : all) result.push_back(std::move(one.item));
  return result;
}

[[nodiscard]] inline value dictsort_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = a[1] == nullptr ? "key" : need_text(a[1], "dictsort");
  if (by != "key" && by != "value") break_off("'dictsort' must be by 'key' or 'value'; given '", by, "'");
  const mapping* m = in.as_mapping();
  if (m == nullptr) break_off("'dictsort' must be given a mapping; given ", in.type());
  std::vector<keyed> all;
  for (const mapping::entry& e : m->read_all())
    all.push_back({without_case(by == "key" ? e.key : e.content, flag(a[0])), value(std::vector<value>{e.key, e.content}, form::tuple)});
  put_in_order(all, flag(a[2]), cost);
  std::vector<value> result;
  for (keyed& one : all) result.push_back(std::move(one.item));
  return result;
}

[[nodiscard]] inline value unique_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "unique", {"case_sensitive", "attribute"});
  std::unordered_map<std::string, bool> seen;
  std::vector<value> result;
  for (keyed& one : with_keys(in, a[1], flag(a[0]), cost))
    if (seen.try_emplace(key_text(one.key), true).second) result.push_back(std::move(one.item));
  return {std::move(result), form::generator};
}

[[nodiscard]] inline value extreme(const value& in, const arguments& given, bool largest, allowance& cost) {
  const std::string_view who = largest ? "max" : "min";
  const auto a = bound(given, who, {"case_sensitive", "attribute"});
  std::vector<keyed> all = with_keys(in, a[1], flag(a[0]), cost);
  if (all.empty()) return value::undefined("'", who, "' must be given something to choose from; the list is empty");
  const keyed* best = &all.front();
  for (const keyed& one : all)
    if (largest ? less(best->key, one.key, cost) : less(one.key, best->key, cost)) best = &one;
  return best->item;
}
[[nodiscard]] inline value min_filter(const value& in, const arguments& given, allowance& cost) { return extreme(in, given, false, cost); }
[[nodiscard]] inline value max_filter(const value& in, const arguments& given, allowance& cost) { return extreme(in, given, true, cost); }

[[nodiscard]] inline value sum_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "sum", {"attribute", "start"});
  value sum = a[1] != nullptr ? *a[1] : value(0);
  for (const value& item : items_of(in, cost))
    sum = calculated("+", sum, a[0] == nullptr || a[0]->is_none() ? item : at_path(item, *a[0], cost), cost);
  return sum;
}

[[nodiscard]] inline value groupby_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "groupby", {"attribute", "default", "case_sensitive"});
  if (a[0] == nullptr) break_off("'groupby' must be given an attribute");
  std::vector<keyed> all = with_keys(in, a[0], flag(a[2]), cost);
  for (keyed& one : all)
    if (one.key.is_undefined() && a[1] != nullptr) one.key = without_case(*a[1], flag(a[2]));
  put_in_order(all, false, cost);
  std::vector<value> groups;
  for (std::size_t begin = 0; begin < all.size();) {
    std::vector<value> members;
    std::size_t end = begin;
    for (; end < all.size() && equal(all[end].key, all[begin].key, cost); ++end) members.push_back(all[end].item);
    value name = at_path(all[begin].item, *a[0], cost);
    if (name.is_undefined() && a[1] != nullptr) name = *a[1];
    groups.push_back(group_of(std::move(name), std::move(members)));
    begin = end;
  }
  return groups;
}

[[nodiscard]] inline value list_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "list", {});
  return items_of(in, cost);
}
[[nodiscard]] inline value first_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "first", {});
  if (sequence* s = in.as_sequence(); s != nullptr && s->taken < s->items.size())
    return s->as == form::generator ? s->items[s->taken++] : s->items.front();
  const std::vector<value> items = items_of(in, cost);
  return items.empty() ? value::undefined("'first' must be given a list with items; it is empty") : items.front();
}
[[nodiscard]] inline value last_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "last", {});
  if (const sequence* s = in.as_sequence(); s != nullptr && s->as == form::generator)
    break_off("'last' must be given a list; given a generator");
  const std::vector<value> items = items_of(in, cost);
  return items.empty() ? value::undefined("'last' must be given a list with items; it is empty") : items.back();
}
[[nodiscard]] inline value join_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "join", {"d", "attribute"});
  std::vector<value> items = items_of(in, cost);
  if (a[1] != nullptr && !a[1]->is_none())
    for (value& item : items) item = at_path(item, *a[1], cost);
  return joined(items, a[0] == nullptr ? std::string() : printed(*a[0], cost), cost);
}
[[nodiscard]] inline value reverse_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "reverse", {});
  std::vector<value> items = items_of(in, cost);
  std::reverse(items.begin(), items.end());
  return in.is_text() ? value(joined(items, "", cost)) : value(std::move(items), form::generator);
}
[[nodiscard]] inline value items_filter(const value& in, const arguments& given, allowance& cost) {
  (void)bound(given, "items", {});
  if (in.is_undefined()) return {std::vector<value>{}, form::generator};
  if (in.as_mapping() == nullptr) break_off("'items' must be given a mapping; given ", in.type());
  return {items_of(view_of(*in.as_mapping(), "items", cost), cost), form::generator};
}
[[nodiscard]] inline value attr_filter(const value& in, const arguments& given, allowance&) {
  const std::string& name = need_text(bound(given, "attr", {"name"})[0], "attr");
  if (name_space* space = in.as_name_space())
    if (const value* found = space->attributes.find_name(name)) return *found;
  if (const value* part = of_group(in, name)) return *part;
  return has_method(in, name) ? method_of(in, name) : value::undefined("'", name, "' must be an attribute; it is none");
}
[[nodiscard]] inline value batch_filter(const value& in, const arguments& given, allowance& cost) {
  const auto a = bound(given, "batch", {"linecount", "fill_with"});
  const std::int64_t count = whole_or(a[0], 0, "batch");
  if (count < 1) break_off("'batch' must be given a count of at least 1; given ", count);
  std::vector<value> lines, line;
  for (value& item : items_of(in, cost)) {
    line.push_back(std::move(item));
    if (static_cast<std::int64_t>(line.size()) == count) lines.emplace_back(std::exchange(line, {}));
  }
  if (!line.empty()) {
    if (a[1] != nullptr && !a[1]->is_none()) {
      cost.make_items(static_cast<std::size_t>(count));
      line.resize(static_cast<std::size_t>(count), *a[1]);
    }
    lines.emplace_back(std::move(line));
  }
  return {std::move(lines), form::generator};
}

/// After the first `count`.
[[nodiscard]] inline arguments behind(const arguments& given, std::size_t count) {
  arguments rest = given;
  rest.placed.erase(rest.placed.begin(), rest.placed.begin() + static_cast<std::ptrdiff_t>(std::min(count, rest.placed.size())));
  return rest;
}

/// False values are empty: map, select and the like accept `none`.
[[nodiscard]] inline std::vector<value> items_to_choose(const value& in, allowance& cost) {
  return in.truth() ? items_of(in, cost) : std::vector<value>{};
}

/// map('filter', ...) or map(attribute='path', default=...)
[[nodiscard]] inline value map_filter(const value& in, const arguments& given, allowance& cost) {
  std::vector<value> items = items_to_choose(in, cost);
  if (given.placed.empty()) {
    const auto a = bound(given, "map", {"attribute", "default"});
    if (a[0] == nullptr) break_off("'map' must be given a filter's name or an attribute");
    for (value& item : items) {
      item = at_path(item, *a[0], cost);
      if (item.is_undefined() && a[1] != nullptr) item = *a[1];
    }
  } else {
    const std::string name = need_text(&given.placed[0], "map");
    const arguments rest = behind(given, 1);
    for (value& item : items) item = filtered(name, item, rest, cost);
  }
  return {std::move(items), form::generator};
}

/// Items whose test, or truth, equals `wanted`; of an attribute if `by_attribute`.
[[nodiscard]] inline value chosen(const value& in, const arguments& given, bool wanted, bool by_attribute, allowance& cost) {
  const std::size_t test = by_attribute ? 1 : 0;
  if (given.placed.size() < test) break_off("'selectattr' and 'rejectattr' must be given an attribute");
  const bool asks = given.placed.size() > test;
  const std::string name = asks ? need_text(&given.placed[test], "a test's name") : "";
  const arguments rest = behind(given, test + 1);
  std::vector<value> result;
  for (value& item : items_to_choose(in, cost)) {
    const value asked = by_attribute ? at_path(item, given.placed[0], cost) : item;
    if ((asks ? holds(name, asked, rest, cost) : asked.truth()) == wanted) result.push_back(std::move(item));
  }
  return {std::move(result), form::generator};
}
[[nodiscard]] inline value select_filter(const value& in, const arguments& given, allowance& cost) {
  return chosen(in, given, true, false, cost);
}
[[nodiscard]] inline value reject_filter(const value& in, const arguments& given, allowance& cost) {
  return chosen(in, given, false, false, cost);
}
[[nodiscard]] inline value selectattr_filter(const value& in, const arguments& given, allowance& cost) {
  return chosen(in, given, true, true, cost);
}
[[nodiscard]] inline value rejectattr_filter(const value& in, const arguments& given, allowance& cost) {
  return chosen(in, given, false, true, cost);
}

inline constexpr std::array<filter_entry, 20> list_filters{{{"attr", attr_filter},
                                                            {"batch", batch_filter},
                                                            {"dictsort", dictsort_filter},
                                                            {"first", first_filter},
                                                            {"groupby", groupby_filter},
                                                            {"items", items_filter},
                                                            {"join", join_filter},
                                                            {"last", last_filter},
                                                            {"list", list_filter},
                                                            {"map", map_filter},
                                                            {"max", max_filter},
                                                            {"min", min_filter},
                                                            {"reject", reject_filter},
                                                            {"rejectattr", rejectattr_filter},
                                                            {"reverse", reverse_filter},
                                                            {"select", select_filter},
                                                            {"selectattr", selectattr_filter},
                                                            {"sort", sort_filter},
                                                            {"sum", sum_filter},
                                                            {"unique", unique_filter}}};

[[nodiscard]] inline const filter_entry* find_filter(std::string_view name) {
  for (const filter_entry& entry : value_filters)
    if (entry.name == name) return &entry;
  for (const filter_entry& entry : list_filters)
    if (entry.name == name) return &entry;
  return nullptr;
}
[[nodiscard]] inline bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

[[nodiscard]] inline value filtered(std::string_view name, const value& in, const arguments& given, allowance& cost) {
  cost.spend(1);
  const allowance::deeper inside(cost);
  const filter_entry* entry = find_filter(name);
  if (entry == nullptr) break_off("a filter must be one that there is; '", name, "' is none");
  return entry->apply(in, given, cost);
}

}  // namespace xtrain::detail::jinja
