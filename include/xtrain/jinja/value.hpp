// Template values: Python's, as far as templates observe.
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

/// Compile-time or run-time error; the caller adds name and line.
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

/// Nesting of lists and mappings, whose code is recursive.
inline constexpr std::size_t max_value_depth = 160;

/// view: items() and the like. generator: select and the like; no length, true, consumed by reading.
enum class form : std::uint8_t { list, tuple, range, view, generator };

/// Cheap copies: strings, lists, mappings are shared and immutable.
class value {
 public:
  /// An undefined name; `why`: error of uses other than a test for defined.
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

  /// Not escaped; text added to it is escaped and becomes safe.
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
  /// An integer, or a boolean (0, 1).
  [[nodiscard]] bool is_whole() const { return is_boolean() || std::holds_alternative<std::int64_t>(held_); }
  [[nodiscard]] bool is_number() const { return is_whole() || is_real(); }

  [[nodiscard]] bool boolean() const { return std::get<bool>(held_); }
  [[nodiscard]] std::int64_t whole() const { return is_boolean() ? (boolean() ? 1 : 0) : std::get<std::int64_t>(held_); }
  [[nodiscard]] double real() const { return is_real() ? std::get<double>(held_) : static_cast<double>(whole()); }
  [[nodiscard]] const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(held_); }
  [[nodiscard]] const std::string& why() const { return *std::get<missing>(held_).why; }

  [[nodiscard]] sequence* as_sequence() const { return pointer<std::shared_ptr<sequence>>(); }
  [[nodiscard]] const mapping* as_mapping() const { return pointer<std::shared_ptr<const mapping>>(); }
  [[nodiscard]] name_space* as_name_space() const { return pointer<std::shared_ptr<name_space>>(); }
  [[nodiscard]] const callable* as_callable() const { return pointer<std::shared_ptr<const callable>>(); }
  [[nodiscard]] loop_state* as_loop() const { return pointer<std::shared_ptr<loop_state>>(); }

  /// Of lists and mappings below.
  [[nodiscard]] std::size_t depth() const;
  /// In Python.
  [[nodiscard]] std::string_view type() const;
  /// As in `if`.
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
  std::size_t taken = 0;  ///< items read from a generator
  bool is_group = false;  ///< groupby's tuple: items are also grouper and list
};

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

  /// Records reads from now on. Copies share the record: for one rendering only.
  void watch() { reads_ = std::make_shared<std::vector<reading>>(entries_.size(), reading{}); }
  /// For templates: find, find_name and entries, recorded.
  [[nodiscard]] const value* read(const value& key) const { return recorded(find(key)); }
  [[nodiscard]] const value* read_name(std::string_view name) const { return recorded(find_name(name)); }
  [[nodiscard]] const std::vector<entry>& read_all() const {
    if (reads_ != nullptr)
      for (reading& one : *reads_) one.listed = true;
    return entries_;
  }
  /// Read by key, or by iterating.
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

/// namespace(), the only mutable value. Its creator empties it at the end, as namespaces may form cycles.
struct name_space {
  mapping attributes;
};

struct macro_definition;
struct scope;

/// A function, a bound method, or a macro with its scope.
struct callable {
  std::string name;
  value self{};  ///< of a method
  bool is_method = false;
  const macro_definition* macro = nullptr;  ///< of a macro
  scope* where = nullptr;
};

/// Safe if `model` is.
[[nodiscard]] inline value text_like(const value& model, std::string text) {
  return model.is_safe() ? value::safe(std::move(text)) : value(std::move(text));
}

/// Equal for equal keys only: 1, 1.0 and true are one.
[[nodiscard]] std::string key_text(const value& key);

/// A group of groupby.
[[nodiscard]] value group_of(value name, std::vector<value> members);
/// Null if there is none.
[[nodiscard]] const value* of_group(const value& v, std::string_view name);

}  // namespace xtrain::detail::jinja

#ifndef XTRAIN_LIBRARY
#include <xtrain/jinja/value_impl.hpp>
#endif
