#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/text_span.hpp>
#include <xtrain/jinja/allowance.hpp>
#include <xtrain/jinja/evaluator.hpp>

namespace xtrain::detail::jinja {

class renderer final : public evaluator {
 public:
  renderer(std::size_t steps, std::size_t longest, std::time_t now) : evaluator(steps, now), longest_(longest) {}

  /// Renders the template with `variables`.
  void render(const body& all, const mapping& variables) {
    scope top;
    for (const mapping::entry& e : variables.entries()) top.names.insert_or_assign(need_text(&e.key, "a variable's name"), e.content);
    scope_ = &top;
    (void)run(all);
    scope_ = nullptr;
  }

  [[nodiscard]] std::string& text() { return text_; }
  /// Ranges of {% generation %} blocks.
  [[nodiscard]] std::vector<text_span>& generated() { return generated_; }
  /// A block's text was captured first: its range is unknown.
  [[nodiscard]] bool lost_generation() const { return lost_generation_; }
  [[nodiscard]] std::size_t line() const { return line_; }
  [[nodiscard]] std::size_t steps() const { return cost_.spent(); }

 private:
  enum class flow { on, leave, next };

  /// Outlives its block if it defines a macro.
  class inner_scope {
   public:
    inner_scope(renderer& of, scope* parent) : of_(of), own_(std::make_unique<scope>()), before_(of.scope_) {
      own_->parent = parent;
      of_.scope_ = own_.get();
    }
    ~inner_scope() {
      of_.scope_ = before_;
      if (own_->is_kept) of_.kept_.push_back(std::move(own_));
    }
    inner_scope(const inner_scope&) = delete;
    inner_scope& operator=(const inner_scope&) = delete;

   private:
    renderer& of_;
    std::unique_ptr<scope> own_;
    scope* before_;
  };

  void write(std::string_view words) {
    cost_.make_text(words.size());
    if (words.size() > longest_ - std::min(longest_, out_->size()))
      break_off("what a template writes must be at most ", longest_, " bytes; it is more");
    out_->append(words);
  }

  [[nodiscard]] std::string captured(const body& all) {
    std::string own;
    std::string* before = std::exchange(out_, &own);
    try {
      (void)run(all);
    } catch (...) {
      out_ = before;
      throw;
    }
    out_ = before;
    return own;
  }

  [[nodiscard]] flow run(const body& all) {
    const allowance::deeper inside(cost_);
    for (const statement& s : all) {
      cost_.spend(1);
      line_ = s.line;
      const flow goes = run(s);
      if (goes != flow::on) return goes;
    }
    return flow::on;
  }

  [[nodiscard]] flow run(const statement& s) {
    switch (s.what) {
      case action::text:
        write(s.words);
        break;
      case action::print:
        print(evaluate(*s.given));
        break;
      case action::branch:
        return branch(s);
      case action::loop:
        loop(s);
        break;
      case action::assign:
        assign(s.into, evaluate(*s.given));
        break;
      case action::assign_block:
        assign_block(s);
        break;
      case action::define:
        define(s);
        break;
      case action::call_block:
        call_block(s);
        break;
      case action::filter_block:
        filter_block(s);
        break;
      case action::with:
        return with(s);
      case action::generation:
        return generation(s);
      case action::leave:
        return flow::leave;
      case action::next:
        return flow::next;
    }
    return flow::on;
  }

  void print(const value& v) {
    if (v.is_text()) write(v.text());
    else write(printed(v, cost_));
  }

  [[nodiscard]] flow branch(const statement& s) {
    for (std::size_t i = 0; i < s.bodies.size(); ++i)
      if (i >= s.conditions.size() || evaluate(*s.conditions[i]).truth()) return run(s.bodies[i]);
    return flow::on;
  }

  void loop(const statement& s) {
    scope* outside = scope_;
    std::function<bool(const value&)> keeps;
    if (!s.conditions.empty())
      keeps = [this, &s, outside](const value& item) {
        const inner_scope inside(*this, outside);
        assign(s.into, item);
        return evaluate(*s.conditions[0]).truth();
      };
    const value all = evaluate(*s.given);
    const auto state = std::make_shared<loop_state>(items_of(all, cost_), std::move(keeps));
    struct ending {
      loop_state& of;
      ~ending() { of.finish(); }
    } const at_the_end{*state};
    bool ended_a_body = false;  // as jinja2: `else` also if break or continue ended all bodies
    while (state->advance()) {
      cost_.spend(1);
      const inner_scope inside(*this, outside);
      scope_->names.insert_or_assign("loop", value(state));
      assign(s.into, state->current());
      const flow goes = run(s.bodies[0]);
      ended_a_body = ended_a_body || goes == flow::on;
      if (goes == flow::leave) break;
    }
    if (!ended_a_body && s.bodies.size() > 1) (void)run(s.bodies[1]);
  }

  void assign(const target& into, const value& v) {
    if (!into.parts.empty()) {
      const std::vector<value> items = (require_defined(v), items_of(v, cost_));
      if (items.size() != into.parts.size()) break_off(into.parts.size(), " names must be given as many values; given ", items.size());
      for (std::size_t i = 0; i < items.size(); ++i) assign(into.parts[i], items[i]);
    } else if (into.attribute.empty()) {
      scope_->names.insert_or_assign(into.name, v);
    } else {
      name_space* space = nullptr;
      for (scope* s = scope_; s != nullptr && space == nullptr; s = s->parent)
        if (const auto at = s->names.find(into.name); at != s->names.end()) {
          space = at->second.as_name_space();
          break;
        }
      if (space == nullptr) break_off("only an attribute of a namespace must be set; '", into.name, "' is none");
      space->attributes.set(into.attribute, v);
    }
  }

  void assign_block(const statement& s) {
    std::string words;
    {
      const inner_scope inside(*this, scope_);
      words = captured(s.bodies[0]);
    }
    assign(s.into, through_filters(s.given.get(), std::move(words)));
  }
  void filter_block(const statement& s) {
    const inner_scope inside(*this, scope_);
    print(through_filters(s.given.get(), captured(s.bodies[0])));
  }
  [[nodiscard]] flow with(const statement& s) {
    std::vector<value> values;
    for (const expression_ptr& e : s.conditions) values.push_back(evaluate(*e));
    const inner_scope inside(*this, scope_);
    for (std::size_t i = 0; i < values.size(); ++i) assign(s.names[i], values[i]);
    return run(s.bodies[0]);
  }
  [[nodiscard]] flow generation(const statement& s) {
    const inner_scope inside(*this, scope_);
    lost_generation_ = lost_generation_ || out_ != &text_;
    const std::size_t begin = text_.size();
    const flow goes = run(s.bodies[0]);
    if (out_ == &text_) generated_.push_back({begin, text_.size()});
    return goes;
  }

  /// A macro with its scopes; a call block's has no name.
  [[nodiscard]] value bound_here(const macro_definition& macro, std::string name) {
    for (scope* s = scope_; s != nullptr && !s->is_kept; s = s->parent) s->is_kept = true;
    callable made;
    made.name = std::move(name);
    made.macro = &macro;
    made.where = scope_;
    return made;
  }
  void define(const statement& s) {
    value macro = bound_here(*s.macro, s.macro->name);
    scope_->names.insert_or_assign(s.macro->name, std::move(macro));
  }
  void call_block(const statement& s) {
    const value what = evaluate(*s.given->parts[0]);
    arguments given = arguments_of(*s.given);
    given.named.emplace_back("caller", bound_here(*s.macro, {}));
    print(call_value(what, std::move(given)));
  }

  [[nodiscard]] value call_macro(const callable& called, arguments given) override {
    const macro_definition& macro = *called.macro;
    const allowance::deeper deeper(cost_);
    const inner_scope inside(*this, called.where);
    const std::size_t count = macro.parameters.size();
    std::vector<bool> is_given(count, false);
    std::vector<value> more;
    mapping more_named;
    const auto give = [&](std::size_t i, value v) {
      if (is_given[i]) break_off("macro '", macro.name, "' must be given '", macro.parameters[i].name, "' once; it is given twice");
      is_given[i] = true;
      scope_->names.insert_or_assign(macro.parameters[i].name, std::move(v));
    };
    for (std::size_t i = 0; i < given.placed.size(); ++i)
      if (i < count) give(i, std::move(given.placed[i]));
      else more.push_back(std::move(given.placed[i]));
    for (auto& [name, v] : given.named) {
      std::size_t i = 0;
      while (i < count && macro.parameters[i].name != name) ++i;
      if (i < count) give(i, std::move(v));
      else if (name == "caller") scope_->names.insert_or_assign(name, std::move(v));
      else if (macro.takes_more_named) more_named.set(name, std::move(v));
      else break_off("macro '", macro.name, "' must be given parameters that it has; '", name, "' is none");
    }
    if (!more.empty() && !macro.takes_more)
      break_off("macro '", macro.name, "' must be given at most ", count, " arguments; given ", given.placed.size());
    if (macro.takes_more) scope_->names.insert_or_assign("varargs", value(std::move(more), form::tuple));
    if (macro.takes_more_named) scope_->names.insert_or_assign("kwargs", value(std::move(more_named)));
    for (std::size_t i = 0; i < count; ++i) {
      if (is_given[i]) continue;
      const parameter& p = macro.parameters[i];
      value standard = p.standard ? evaluate(*p.standard) : value::undefined("parameter '", p.name, "' must be given; it is not");
      scope_->names.insert_or_assign(p.name, std::move(standard));
    }
    return captured(macro.what);
  }

  std::size_t longest_;
  std::string text_;
  std::string* out_ = &text_;
  std::vector<std::unique_ptr<scope>> kept_;
  std::vector<text_span> generated_;
  bool lost_generation_ = false;
};

}  // namespace xtrain::detail::jinja
