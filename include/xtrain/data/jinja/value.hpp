// The values of templates: Python's, as far as templates can observe.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/data/jinja/characters.hpp>

namespace xtrain::detail::jinja {

/// A compile-time or run-time error of a template. The caller adds template name and line.
struct fault {
  std::string what;
};
template <class... Parts>
[[noreturn]] void break_off(const Parts&... parts) {
  throw fault{concat(parts...)};
}

class value;
struct sequence;
class mapping;
struct name_space;
struct callable;
class loop_state;

/// Maximum nesting of lists and mappings: printing and freeing them is recursive.
inline constexpr std::size_t deepest_value = 160;

/// How a sequence behaves. A view is the result of items() and the like; a generator that of select and the like: it has no
/// length, is always true, and is consumed by reading it.
enum class form : std::uint8_t { list, tuple, range, view, generator };

/// One value. Copies are cheap: strings, lists and mappings are shared and immutable.
class value {
 public:
  /// An undefined name; `why` is the error when it is used in other ways than testing whether it is defined.
  struct missing {
    std::shared_ptr<const std::string> why;
  };

  value() = default;
  value(std::nullptr_t) {}
  value(bool b) : held_(b) {}
  value(std::integral auto i) : held_(static_cast<std::int64_t>(i)) {}
  value(double d) : held_(d) {}
  value(std::string text) : held_(std::make_shared<const std::string>(std::move(text))) {}
  value(std::string_view text) : value(std::string(text)) {}
  value(const char* text) : value(std::string(text)) {}
  value(std::vector<value> items, form as = form::list);
  value(mapping entries);
  value(std::shared_ptr<name_space> space) : held_(std::move(space)) {}
  value(callable what);
  value(std::shared_ptr<loop_state> loop) : held_(std::move(loop)) {}

  /// Text exempt from escaping: text added to it becomes safe too, after being escaped.
  [[nodiscard]] static value safe(std::string text) {
    value result(std::move(text));
    result.safe_ = true;
    return result;
  }
  template <class... Parts>
  [[nodiscard]] static value undefined(const Parts&... why) {
    value result;
    result.held_ = missing{std::make_shared<const std::string>(concat(why...))};
    return result;
  }

  [[nodiscard]] bool is_none() const { return std::holds_alternative<std::monostate>(held_); }
  [[nodiscard]] bool is_undefined() const { return std::holds_alternative<missing>(held_); }
  [[nodiscard]] bool is_boolean() const { return std::holds_alternative<bool>(held_); }
  [[nodiscard]] bool is_real() const { return std::holds_alternative<double>(held_); }
  [[nodiscard]] bool is_text() const { return std::holds_alternative<std::shared_ptr<const std::string>>(held_); }
  [[nodiscard]] bool is_safe() const { return safe_; }
  /// An integer, or a boolean, which counts as 0 or 1.
  [[nodiscard]] bool is_whole() const { return is_boolean() || std::holds_alternative<std::int64_t>(held_); }
  [[nodiscard]] bool is_number() const { return is_whole() || is_real(); }

  [[nodiscard]] bool boolean() const { return std::get<bool>(held_); }
  [[nodiscard]] std::int64_t whole() const { return is_boolean() ? (boolean() ? 1 : 0) : std::get<std::int64_t>(held_); }
  [[nodiscard]] double real() const { return is_real() ? std::get<double>(held_) : static_cast<double>(whole()); }
  [[nodiscard]] const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(held_); }
  [[nodiscard]] const std::string& why() const { return *std::get<missing>(held_).why; }

  /// Null unless the value has that type.
  [[nodiscard]] sequence* as_sequence() const { return pointer<std::shared_ptr<sequence>>(); }
  [[nodiscard]] const mapping* as_mapping() const { return pointer<std::shared_ptr<const mapping>>(); }
  [[nodiscard]] name_space* as_name_space() const { return pointer<std::shared_ptr<name_space>>(); }
  [[nodiscard]] const callable* as_callable() const { return pointer<std::shared_ptr<const callable>>(); }
  [[nodiscard]] loop_state* as_loop() const { return pointer<std::shared_ptr<loop_state>>(); }

  /// Nesting depth of lists and mappings below this value.
  [[nodiscard]] std::size_t depth() const;
  /// The type's name in Python.
  [[nodiscard]] std::string_view type() const;
  /// Truth value, as in `if`.
  [[nodiscard]] bool truth() const;

 private:
  template <class Pointer>
  [[nodiscard]] auto pointer() const -> typename Pointer::element_type* {
    const auto* held = std::get_if<Pointer>(&held_);
    return held == nullptr ? nullptr : held->get();
  }

  std::variant<std::monostate, missing, bool, std::int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<sequence>,
               std::shared_ptr<const mapping>, std::shared_ptr<name_space>, std::shared_ptr<const callable>, std::shared_ptr<loop_state>>
      held_;
  bool safe_ = false;
};

struct sequence {
  std::vector<value> items;
  form as = form::list;
  std::size_t depth = 1;
  std::size_t taken = 0;  ///< of a generator: items that were read already
  bool is_group = false;  ///< of groupby, a tuple: its two items are also called grouper and list
};

/// Keys with values, in insertion order.
class mapping {
 public:
  struct entry {
    value key, content;
  };
  void set(value key, value content);
  [[nodiscard]] const value* find(const value& key) const;
  [[nodiscard]] const value* find_name(std::string_view name) const;
  [[nodiscard]] const std::vector<entry>& entries() const { return entries_; }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] std::size_t depth() const { return depth_; }

 private:
  std::vector<entry> entries_;
  std::unordered_map<std::string, std::size_t> places_;  ///< by key_text
  std::size_t depth_ = 1;
};

/// The result of namespace(), the only mutable value. Its creator keeps it and empties it at the end, so that namespaces that
/// refer to one another are freed.
struct name_space {
  mapping attributes;
};

struct macro_definition;
struct scope;

/// A callable: a function of the environment, a method bound to its value, or a macro bound to its defining scope.
struct callable {
  std::string name;
  value self{};  ///< of a method
  bool is_method = false;
  const macro_definition* macro = nullptr;  ///< of a macro
  scope* where = nullptr;
};

/// The text, safe if `model` is.
[[nodiscard]] inline value text_like(const value& model, std::string text) {
  return model.is_safe() ? value::safe(std::move(text)) : value(std::move(text));
}

inline value::value(std::vector<value> items, form as) {
  std::size_t deepest = 0;
  for (const value& item : items) deepest = std::max(deepest, item.depth());
  if (deepest >= deepest_value) break_off("lists must nest at most ", deepest_value, " deep; this one nests deeper");
  held_ = std::make_shared<sequence>(sequence{std::move(items), as, deepest + 1});
}
inline value::value(mapping entries) : held_(std::make_shared<const mapping>(std::move(entries))) {}
inline value::value(callable what) : held_(std::make_shared<const callable>(std::move(what))) {}

/// What groupby gives for each group.
[[nodiscard]] inline value group_of(value name, std::vector<value> members) {
  value made(std::vector<value>{std::move(name), std::move(members)}, form::tuple);
  made.as_sequence()->is_group = true;
  return made;
}
/// What `name` is of a group; null where it is no group, or has none of that name.
[[nodiscard]] inline const value* of_group(const value& v, std::string_view name) {
  const sequence* s = v.as_sequence();
  if (s == nullptr || !s->is_group) return nullptr;
  return name == "grouper" ? &s->items[0] : name == "list" ? &s->items[1] : nullptr;
}

inline std::size_t value::depth() const {
  if (const sequence* s = as_sequence()) return s->depth;
  if (const mapping* m = as_mapping()) return m->depth();
  if (const callable* c = as_callable(); c != nullptr && c->is_method) return c->self.depth() + 1;
  return 0;
}

inline std::string_view value::type() const {
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

inline bool value::truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_whole()) return whole() != 0;
  if (is_real()) return real() != 0;
  if (is_text()) return !text().empty();
  if (const sequence* s = as_sequence()) return s->as == form::generator || !s->items.empty();
  if (const mapping* m = as_mapping()) return m->size() > 0;
  return true;
}

/// Nested tuples may share elements, so that a key written out grows exponentially.
inline constexpr std::size_t longest_key = 65536;

/// A text that is the same for equal keys and different for others: 1, 1.0 and true are one key.
[[nodiscard]] inline std::string key_text(const value& key) {
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

inline void mapping::set(value key, value content) {
  const std::size_t below = std::max(key.depth(), content.depth());
  if (below >= deepest_value) break_off("mappings must nest at most ", deepest_value, " deep; this one nests deeper");
  depth_ = std::max(depth_, below + 1);
  const auto [at, fresh] = places_.try_emplace(key_text(key), entries_.size());
  if (fresh) entries_.push_back({std::move(key), std::move(content)});
  else entries_[at->second].content = std::move(content);
}

inline const value* mapping::find(const value& key) const {
  const auto at = places_.find(key_text(key));
  return at == places_.end() ? nullptr : &entries_[at->second].content;
}
inline const value* mapping::find_name(std::string_view name) const {
  const auto at = places_.find(concat("'", name));
  return at == places_.end() ? nullptr : &entries_[at->second].content;
}

/// The remaining budget of one rendering. Every step of the interpreter costs one; created values cost by size.
class allowance {
 public:
  explicit allowance(std::size_t steps) : left_(steps), all_(steps) {}
  void spend(std::size_t steps) {
    if (steps > left_) {
      left_ = 0;
      break_off("a template must be done in ", all_, " steps; it is not");
    }
    left_ -= steps;
  }
  [[nodiscard]] std::size_t spent() const { return all_ - left_; }

  /// Counts nested calls during its lifetime: the call stack is finite.
  class deeper {
   public:
    explicit deeper(allowance& of) : of_(of) {
      if (of_.depth_ >= deepest_calls)
        break_off("a template's blocks, calls and expressions must run at most ", deepest_calls, " deep; these run deeper");
      ++of_.depth_;
    }
    ~deeper() { --of_.depth_; }
    deeper(const deeper&) = delete;
    deeper& operator=(const deeper&) = delete;

   private:
    allowance& of_;
  };

  /// Call before that many values are added to a list, or entries to a mapping: their memory costs more than one step.
  void make_items(std::size_t count) { spend(count <= left_ / 8 ? 8 * count : left_ + 1); }
  void make_entries(std::size_t count) { make_items(count <= left_ ? 4 * count : count); }
  /// Call before `bytes` of text are created.
  void make_text(std::size_t bytes) { spend(1 + bytes / 16); }
  /// `count` texts of `each` bytes; the product may overflow.
  void make_text(std::size_t count, std::size_t each) {
    spend(each == 0 || count <= (left_ + 1) * 16 / each ? 0 : left_ + 1);
    make_text(count * each);
  }

 private:
  static constexpr std::size_t deepest_calls = 500;
  std::size_t left_, all_, depth_ = 0;
};

}  // namespace xtrain::detail::jinja
