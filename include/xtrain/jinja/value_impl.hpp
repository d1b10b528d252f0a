#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/jinja/value.hpp>

namespace xtrain::detail::jinja {

XTRAIN_INLINE value::value(std::vector<value> items, form as) {
  std::size_t deepest = 0;
  for (const value& item : items) deepest = std::max(deepest, item.depth());
  if (deepest >= max_value_depth) break_off("lists must nest at most ", max_value_depth, " deep; this one nests deeper");
  held_ = std::make_shared<sequence>(sequence{std::move(items), as, deepest + 1});
}
XTRAIN_INLINE value::value(mapping entries) : held_(std::make_shared<const mapping>(std::move(entries))) {}
XTRAIN_INLINE value::value(callable what) : held_(std::make_shared<const callable>(std::move(what))) {}

XTRAIN_INLINE value group_of(value name, std::vector<value> members) {
  value made(std::vector<value>{std::move(name), std::move(members)}, form::tuple);
  made.as_sequence()->is_group = true;
  return made;
}
XTRAIN_INLINE const value* of_group(const value& v, std::string_view name) {
  const sequence* s = v.as_sequence();
  if (s == nullptr || !s->is_group) return nullptr;
  return name == "grouper" ? &s->items[0] : name == "list" ? &s->items[1] : nullptr;
}

XTRAIN_INLINE std::size_t value::depth() const {
  if (const sequence* s = as_sequence()) return s->depth;
  if (const mapping* m = as_mapping()) return m->depth();
  if (const callable* c = as_callable(); c != nullptr && c->is_method) return c->self.depth() + 1;
  return 0;
}

XTRAIN_INLINE std::string_view value::type() const {
  if (const sequence* s = as_sequence())
    return s->as == form::list    ? "list"
           : s->as == form::tuple ? "tuple"
           : s->as == form::range ? "range"
           : s->as == form::view  ? "view"
                                  : "generator";
  if (is_none()) return "None";
  if (is_undefined()) return "undefined";
  if (is_boolean()) return "bool";
  if (is_whole()) return "int";
  if (is_real()) return "float";
  if (is_text()) return "str";
  if (as_mapping() != nullptr) return "dict";
  return as_name_space() != nullptr ? "namespace" : as_loop() != nullptr ? "loop" : "function";
}

XTRAIN_INLINE bool value::truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_whole()) return whole() != 0;
  if (is_real()) return real() != 0;
  if (is_text()) return !text().empty();
  if (const sequence* s = as_sequence()) return s->as == form::generator || !s->items.empty();
  if (const mapping* m = as_mapping()) return m->size() > 0;
  return true;
}

/// Nested tuples may share elements: a written key grows exponentially.
inline constexpr std::size_t longest_key = 65536;

XTRAIN_INLINE std::string key_text(const value& key) {
  if (key.is_text()) return "'" + key.text();
  if (key.is_none()) return "none";
  if (key.is_whole()) return concat("#", key.whole());
  if (key.is_real()) {
    const double d = key.real();
    if (d >= -9e18 && d <= 9e18 && static_cast<double>(static_cast<std::int64_t>(d)) == d) return concat("#", static_cast<std::int64_t>(d));
    return concat("#", d);
  }
  if (const sequence* s = key.as_sequence(); s != nullptr && s->as == form::tuple) {
    std::string all = "(";
    for (const value& item : s->items) {
      const std::string one = key_text(item);
      all += concat(one.size(), ":", one);
      if (all.size() > longest_key) break_off("a key of tuples must be at most ", longest_key, " bytes; it is longer");
    }
    return all;
  }
  break_off("a key must be a string, a number, none or a tuple of them; it is ", key.type());
}

XTRAIN_INLINE void mapping::set(value key, value content) {
  const std::size_t below = std::max(key.depth(), content.depth());
  if (below >= max_value_depth) break_off("mappings must nest at most ", max_value_depth, " deep; this one nests deeper");
  depth_ = std::max(depth_, below + 1);
  const auto [at, fresh] = places_.try_emplace(key_text(key), entries_.size());
  if (fresh) entries_.push_back({std::move(key), std::move(content)});
  else entries_[at->second].content = std::move(content);
}

XTRAIN_INLINE const value* mapping::recorded(const value* found) const {
  if (reads_ == nullptr || found == nullptr) return found;
  for (std::size_t i = 0; i < reads_->size(); ++i)
    if (&entries_[i].content == found) (*reads_)[i].named = true;
  return found;
}
XTRAIN_INLINE const value* mapping::find(const value& key) const {
  const auto at = places_.find(key_text(key));
  return at == places_.end() ? nullptr : &entries_[at->second].content;
}
XTRAIN_INLINE const value* mapping::find_name(std::string_view name) const {
  const auto at = places_.find(concat("'", name));
  return at == places_.end() ? nullptr : &entries_[at->second].content;
}

}  // namespace xtrain::detail::jinja
