// Tests: value is name(arguments).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/methods.hpp>
#include <xtrain/jinja/operators.hpp>

namespace xtrain::detail::jinja {

/// A comparison's operator; or empty.
[[nodiscard]] inline std::string_view comparison_of(std::string_view name) {
  if (name == "==" || name == "eq" || name == "equalto") return "==";
  if (name == "!=" || name == "ne") return "!=";
  if (name == "<" || name == "lt" || name == "lessthan") return "<";
  if (name == "<=" || name == "le") return "<=";
  if (name == ">" || name == "gt" || name == "greaterthan") return ">";
  if (name == ">=" || name == "ge") return ">=";
  return name == "in" ? name : std::string_view{};
}

[[nodiscard]] inline bool is_test(std::string_view name) {
  constexpr std::array<std::string_view, 20> names{"defined", "undefined", "none",        "boolean", "true",     "false",    "integer",
                                                   "float",   "number",    "string",      "mapping", "iterable", "sequence", "callable",
                                                   "odd",     "even",      "divisibleby", "sameas",  "lower",    "upper"};
  return !comparison_of(name).empty() || std::find(names.begin(), names.end(), name) != names.end();
}

/// v % by == rest.
[[nodiscard]] inline bool is_divisible(const value& v, std::int64_t by, std::int64_t rest, allowance& cost) {
  return equal(calculated("%", v, by, cost), rest, cost);
}

[[nodiscard]] inline bool holds_for_kind(std::string_view name, const value& v) {
  const sequence* s = v.as_sequence();
  if (name == "defined") return !v.is_undefined();
  if (name == "undefined") return v.is_undefined();
  if (name == "none") return v.is_none();
  if (name == "boolean") return v.is_boolean();
  if (name == "true" || name == "false") return v.is_boolean() && v.boolean() == (name == "true");
  if (name == "integer") return v.is_whole() && !v.is_boolean();
  if (name == "float") return v.is_real();
  if (name == "number") return v.is_number();
  if (name == "string") return v.is_text();
  if (name == "mapping") return v.as_mapping() != nullptr;
  if (name == "iterable") return v.is_text() || s != nullptr || v.as_mapping() != nullptr || v.is_undefined();
  if (name == "sequence")
    return v.is_text() || v.as_mapping() != nullptr || v.is_undefined() ||
           (s != nullptr && s->as != form::view && s->as != form::generator);
  return v.as_callable() != nullptr;
}

[[nodiscard]] inline bool holds(std::string_view name, const value& v, const arguments& given, allowance& cost) {
  cost.spend(1);
  if (const std::string_view how = comparison_of(name); !how.empty()) {
    const auto a = bound(given, name, {"other"});
    if (a[0] == nullptr) break_off("'", name, "' must be given something to compare with");
    return compared(how, v, *a[0], cost);
  }
  if (name == "divisibleby") {
    const auto a = bound(given, name, {"num"});
    return is_divisible(v, whole_or(a[0], 0, name), 0, cost);
  }
  if (name == "sameas") {
    const auto a = bound(given, name, {"other"});
    if (a[0] == nullptr) break_off("'sameas' must be given something to compare with");
    return v.type() == a[0]->type() && equal(v, *a[0], cost);
  }
  (void)bound(given, name, {});
  if (name == "odd" || name == "even") return is_divisible(v, 2, name == "odd" ? 1 : 0, cost);
  if (name == "lower" || name == "upper") {
    const std::string text = printed(v, cost);
    return all_cased(text, name == "upper");
  }
  if (is_test(name)) return holds_for_kind(name, v);
  break_off("a test must be one that there is; '", name, "' is none");
}

}  // namespace xtrain::detail::jinja
