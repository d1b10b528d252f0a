// The values of templates: Python's, as far as templates can observe.
#pragma once

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
#include <xtrain/jinja/characters.hpp>

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
inline constexpr std::size_t max_value_depth = 160;

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

  /// Records from now on which entries a template reads. Copies share the record: only one rendering may use them.
  void watch() { reads_ = std::make_shared<std::vector<reading>>(entries_.size(), reading{}); }
  /// What a template does: as find, find_name and entries, and recorded.
  [[nodiscard]] const value* read(const value& key) const { return recorded(find(key)); }
  [[nodiscard]] const value* read_name(std::string_view name) const { return recorded(find_name(name)); }
  [[nodiscard]] const std::vector<entry>& read_all() const {
    if (reads_ != nullptr)
      for (reading& one : *reads_) one.listed = true;
    return entries_;
  }
  /// Of a watched mapping: whether a template asked for an entry by its key, or went through all entries.
  struct reading {
    bool named = false, listed = false;
    [[nodiscard]] bool any() const { return named || listed; }
  };
  [[nodiscard]] reading reading_of(std::size_t place) const { return reads_ != nullptr && place < reads_->size() ? (*reads_)[place] : reading{}; }

 private:
  const value* recorded(const value* found) const;

  std::vector<entry> entries_;
  std::unordered_map<std::string, std::size_t> places_;  ///< by key_text
  std::size_t depth_ = 1;
  std::shared_ptr<std::vector<reading>> reads_;  ///< null: not watched
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

/// A text that is the same for equal keys and different for others: 1, 1.0 and true are one key.
[[nodiscard]] std::string key_text(const value& key);

/// What groupby gives for each group.
[[nodiscard]] value group_of(value name, std::vector<value> members);
/// The item `name` of a group; null if the value is not a group or has no such item.
[[nodiscard]] const value* of_group(const value& v, std::string_view name);

}  // namespace xtrain::detail::jinja

#ifndef XTRAIN_LIBRARY
#include <xtrain/jinja/value_impl.hpp>
#endif
