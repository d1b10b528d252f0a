#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/list_filters.hpp>
#include <xtrain/jinja/loop.hpp>
#include <xtrain/jinja/syntax.hpp>

namespace xtrain::detail::jinja {

/// Variables, and the outer scope.
struct scope {
  scope* parent = nullptr;
  std::map<std::string, value, std::less<>> names{};
  bool is_kept = false;  ///< a macro defined here may be called later
};

/// Thrown by raise_exception.
struct refusal {
  std::string why;
};

class evaluator {
 public:
  evaluator(std::size_t steps, std::time_t now) : cost_(steps), now_(now) {}
  virtual ~evaluator() {
    for (const auto& space : spaces_) space->attributes = {};  // they may form cycles
  }
  evaluator(const evaluator&) = delete;
  evaluator& operator=(const evaluator&) = delete;
  /// "tools" or "documents" was read.
  [[nodiscard]] bool has_read(std::string_view input) const {
    return std::any_of(inputs_.begin(), inputs_.end(), [&](const auto& one) { return one.first == input && one.second; });
  }

 protected:
  [[nodiscard]] virtual value call_macro(const callable& macro, arguments given) = 0;

  [[nodiscard]] value evaluate(const expression& e) {
    cost_.spend(1);
    const allowance::deeper inside(cost_);
    line_ = e.line;
    switch (e.what) {
      case operation::constant:
        return e.known;
      case operation::variable:
        return look_up(e.name);
      case operation::list:
        return {parts_of(e), form::list};
      case operation::tuple:
        return {parts_of(e), form::tuple};
      case operation::dictionary:
        return dictionary(e);
      case operation::attribute:
        return attribute_of(evaluate(*e.parts[0]), e.name);
      case operation::item:
        return item(e);
      case operation::slice:
        return slice(e);
      case operation::call:
        return call(e);
      case operation::filter:
        return filter(e, evaluate(*e.parts[0]));
      case operation::test:
        return holds(e.name, evaluate(*e.parts[0]), arguments_of(e), cost_);
      case operation::unary:
        return unary(e);
      case operation::both:
      case operation::either: {
        value first = evaluate(*e.parts[0]);
        return first.truth() == (e.what == operation::both) ? evaluate(*e.parts[1]) : first;
      }
      case operation::conditional:
        return conditional(e);
      case operation::comparison:
        return comparison(e);
      case operation::binary:
        return binary(e);
      case operation::joining:
        return joining(e);
    }
    return {};
  }

  /// Applies filters of a filter or set block.
  [[nodiscard]] value through_filters(const expression* chain, value in) {
    if (chain == nullptr) return in;
    cost_.spend(1);
    const allowance::deeper inside(cost_);
    value below = through_filters(chain->parts[0].get(), std::move(in));
    line_ = chain->line;
    return filter(*chain, below);
  }

  [[nodiscard]] arguments arguments_of(const expression& e) {
    arguments given;
    for (const argument& a : e.arguments) {
      value v = evaluate(*a.given);
      if (a.how == passing::placed) given.placed.push_back(std::move(v));
      else if (a.how == passing::named) given.named.emplace_back(a.name, std::move(v));
      else if (a.how == passing::many_placed) {
        require_defined(v);
        for (value& item : items_of(v, cost_)) given.placed.push_back(std::move(item));
      } else {
        if (v.as_mapping() == nullptr) break_off("a mapping is expected after **; given ", v.type());
        cost_.make_entries(v.as_mapping()->size());
        for (const mapping::entry& entry : v.as_mapping()->read_all()) given.named.emplace_back(need_text(&entry.key, "**"), entry.content);
      }
    }
    return given;
  }

  [[nodiscard]] value call_value(const value& what, arguments given) {
    require_defined(what);
    const callable* c = what.as_callable();
    if (c == nullptr) break_off("what is called must be a function, a method or a macro; given ", what.type());
    if (c->macro != nullptr) return call_macro(*c, std::move(given));
    if (!c->is_method) return call_function(c->name, given);
    if (loop_state* loop = c->self.as_loop()) return loop->call(c->name, given, cost_);
    return call_method(*c, given, cost_);
  }

  allowance cost_;
  scope* scope_ = nullptr;
  std::size_t line_ = 1;

 private:
  [[nodiscard]] value look_up(std::string_view name) {
    for (auto& [input, is_read] : inputs_) is_read = is_read || name == input;
    for (const scope* s = scope_; s != nullptr; s = s->parent)
      if (const auto at = s->names.find(name); at != s->names.end()) return at->second;
    for (const std::string_view function : {"range", "namespace", "dict", "raise_exception", "strftime_now"}) {
      if (name != function) continue;
      callable found;
      found.name = name;
      return found;
    }
    return value::undefined("'", name, "' must be defined; it is not");
  }

  [[nodiscard]] std::vector<value> parts_of(const expression& e) {
    std::vector<value> items;
    cost_.make_items(e.parts.size());
    for (const expression_ptr& part : e.parts) items.push_back(evaluate(*part));
    return items;
  }
  [[nodiscard]] value dictionary(const expression& e) {
    mapping all;
    cost_.make_entries(e.parts.size());
    for (std::size_t i = 0; i < e.parts.size(); i += 2) {
      value key = evaluate(*e.parts[i]);
      all.set(std::move(key), evaluate(*e.parts[i + 1]));
    }
    return all;
  }

  /// v.name: a method before a mapping's member, as in Python.
  [[nodiscard]] value attribute_of(const value& v, const std::string& name) {
    require_defined(v);
    if (has_method(v, name)) return method_of(v, name);
    if (const value* part = of_group(v, name)) return *part;
    if (const callable* c = v.as_callable(); c != nullptr && c->macro != nullptr) return macro_attribute(*c, name);
    if (loop_state* loop = v.as_loop()) return loop->attribute(name);
    if (name_space* space = v.as_name_space()) {
      const value* found = space->attributes.find_name(name);
      return found != nullptr ? *found : value::undefined("'", name, "' must be in the namespace; it is not");
    }
    if (const mapping* m = v.as_mapping()) {
      const value* found = m->read_name(name);
      return found != nullptr ? *found : value::undefined("'", name, "' must be in the mapping; it is not");
    }
    return value::undefined("'", name, "' must be an attribute of ", v.type(), "; it is none that templates may use");
  }
  /// What jinja2 says of a macro.
  [[nodiscard]] static value macro_attribute(const callable& of, const std::string& name) {
    const macro_definition& macro = *of.macro;
    if (name == "name") return of.name.empty() ? value{} : value(of.name);
    if (name == "arguments") {
      std::vector<value> names;
      for (const parameter& p : macro.parameters) names.emplace_back(p.name);
      return {std::move(names), form::tuple};
    }
    if (name == "catch_varargs") return macro.takes_more;
    if (name == "catch_kwargs") return macro.takes_more_named;
    return value::undefined("'", name, "' must be an attribute of a macro; it is none that templates may use");
  }
  /// v[index]: a member before a method.
  [[nodiscard]] value item(const expression& e) {
    const value of = evaluate(*e.parts[0]), place = evaluate(*e.parts[1]);
    require_defined(of);
    value found = item_at(of, place);
    return found.is_undefined() && place.is_text() ? attribute_of(of, place.text()) : found;
  }
  [[nodiscard]] value slice(const expression& e) {
    const value of = evaluate(*e.parts[0]);
    std::vector<value> bounds(3);
    for (std::size_t i = 0; i < 3; ++i)
      if (e.parts[i + 1]) bounds[i] = evaluate(*e.parts[i + 1]);
    return sliced(of, &bounds[0], &bounds[1], &bounds[2], cost_);
  }

  [[nodiscard]] value call(const expression& e) {
    const value what = evaluate(*e.parts[0]);
    arguments given = arguments_of(e);
    line_ = e.line;
    return call_value(what, std::move(given));
  }
  [[nodiscard]] value filter(const expression& e, const value& in) {
    const arguments given = arguments_of(e);
    line_ = e.line;
    return filtered(e.name, in, given, cost_);
  }
  [[nodiscard]] value unary(const expression& e) {
    const value v = evaluate(*e.parts[0]);
    if (e.name == "not") return !v.truth();
    require_defined(v);
    if (!v.is_number()) break_off("a sign must be followed by a number; given ", v.type());
    if (e.name == "+") return v.is_boolean() ? value(v.whole()) : v;
    return v.is_real() ? value(-v.real()) : calculated("-", 0, v, cost_);
  }
  [[nodiscard]] value conditional(const expression& e) {
    if (evaluate(*e.parts[1]).truth()) return evaluate(*e.parts[0]);
    if (e.parts[2]) return evaluate(*e.parts[2]);
    return value::undefined("an 'if' within an expression must have an 'else' where its value is used; it has none");
  }
  /// a < b < c: each pair holds.
  [[nodiscard]] value comparison(const expression& e) {
    value left = evaluate(*e.parts[0]);
    for (const argument& next : e.arguments) {
      value right = evaluate(*next.given);
      if (!compared(next.name, left, right, cost_)) return false;
      left = std::move(right);
    }
    return true;
  }
  [[nodiscard]] value binary(const expression& e) {
    const value left = evaluate(*e.parts[0]), right = evaluate(*e.parts[1]);
    line_ = e.line;
    return calculated(e.name, left, right, cost_);
  }
  [[nodiscard]] value joining(const expression& e) {
    std::string all;
    for (const expression_ptr& part : e.parts) append_printed(all, evaluate(*part), false, cost_);
    cost_.make_text(all.size());
    return all;
  }

  [[nodiscard]] value call_function(const std::string& name, const arguments& given) {
    if (name == "range") return range(given);
    if (name == "strftime_now") return date(need_text(bound(given, name, {"format"})[0], name));
    if (name == "raise_exception") {
      const auto a = bound(given, name, {"message"});
      throw refusal{a[0] == nullptr ? std::string() : printed(*a[0], cost_)};
    }
    mapping all;
    for (const value& from : given.placed) {
      if (from.as_mapping() == nullptr) break_off("'", name, "' must be given a mapping, or values by name; given ", from.type());
      cost_.make_entries(from.as_mapping()->size());
      for (const mapping::entry& entry : from.as_mapping()->read_all()) all.set(entry.key, entry.content);
    }
    for (const auto& [key, v] : given.named) all.set(key, v);
    if (name == "dict") return all;
    cost_.make_entries(1 + given.named.size());
    spaces_.push_back(std::make_shared<name_space>(name_space{std::move(all)}));
    return spaces_.back();
  }

  [[nodiscard]] value range(const arguments& given) {
    const auto a = bound(given, "range", {"start", "stop", "step"});
    if (a[0] == nullptr) break_off("'range' must be given a number");
    const std::int64_t first = a[1] == nullptr ? 0 : whole_or(a[0], 0, "range");
    const std::int64_t last = whole_or(a[1] == nullptr ? a[0] : a[1], 0, "range"), step = whole_or(a[2], 1, "range");
    if (step == 0) break_off("'range' must not step by 0");
    std::vector<value> all;
    for (std::int64_t i = first; step > 0 ? i < last : i > last;) {
      cost_.make_items(1);
      all.emplace_back(i);
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    return {std::move(all), form::range};
  }

  [[nodiscard]] value date(const std::string& form_text) const {
    if (form_text.size() > 200) break_off("'strftime_now' must be given a form of at most 200 bytes");
    std::tm local{};
    ::localtime_r(&now_, &local);
    std::string text(form_text.size() * 64 + 64, '\0');
    text.resize(std::strftime(text.data(), text.size(), form_text.c_str(), &local));
    return text;
  }

  std::time_t now_;
  std::vector<std::shared_ptr<name_space>> spaces_;
  std::array<std::pair<std::string_view, bool>, 2> inputs_{{{"tools", false}, {"documents", false}}};  // inputs other than messages; whether read
};

}  // namespace xtrain::detail::jinja
