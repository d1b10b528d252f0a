#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/lexer.hpp>
#include <xtrain/jinja/syntax.hpp>

namespace xtrain::detail::jinja {

/// Nesting of expressions and blocks, whose code is recursive.
inline constexpr std::size_t max_syntax_depth = 120;

/// Known filters and tests: others are rejected when compiled.
struct known_names {
  bool (*filter)(std::string_view);
  bool (*test)(std::string_view);
};

class expression_parser {
 public:
  expression_parser(std::vector<lexed> tokens, known_names known) : tokens_(std::move(tokens)), known_(known) {}

 protected:
  [[nodiscard]] const lexed& now() const { return tokens_[at_]; }
  [[nodiscard]] const lexed& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const lexed& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  [[nodiscard]] static bool is(const lexed& t, token_kind kind, std::string_view text) { return t.kind == kind && t.text == text; }
  [[nodiscard]] bool sees(std::string_view sign) const { return is(now(), token_kind::sign, sign); }
  [[nodiscard]] bool sees_name(std::string_view name) const { return is(now(), token_kind::name, name); }
  bool skip(std::string_view sign) {
    if (!sees(sign)) return false;
    (void)take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!sees_name(name)) return false;
    (void)take();
    return true;
  }
  template <class... Parts>
  [[noreturn]] void stop(const Parts&... parts) const {
    throw misspelled{now().line, concat(parts...)};
  }
  void expect(std::string_view sign) {
    if (!skip(sign)) stop("'", sign, "' is expected here; given '", now().text, "'");
  }
  std::string expect_name(std::string_view what) {
    if (now().kind != token_kind::name) stop(what, " is expected here; given '", now().text, "'");
    return take().text;
  }

  class level {
   public:
    explicit level(expression_parser& of) : of_(of) {
      if (++of_.depth_ > max_syntax_depth) of_.stop("a template must nest at most ", max_syntax_depth, " deep; this one nests deeper");
    }
    ~level() { --of_.depth_; }
    level(const level&) = delete;
    level& operator=(const level&) = delete;

   private:
    expression_parser& of_;
  };

  template <class... Parts>
  expression_ptr make(operation what, std::size_t line, std::string name = {}, Parts... parts) {
    auto made = std::make_unique<expression>();
    made->what = what;
    made->line = line;
    made->name = std::move(name);
    (made->parts.push_back(std::move(parts)), ...);
    return measured(std::move(made));
  }
  /// Sets the depth; long operator chains are deep.
  expression_ptr measured(expression_ptr made) const {
    std::size_t below = 0;
    for (const expression_ptr& part : made->parts) below = std::max(below, part ? part->depth : 0);
    for (const argument& a : made->arguments) below = std::max(below, a.given->depth);
    made->depth = below + 1;
    if (made->depth > max_syntax_depth) stop("an expression must nest at most ", max_syntax_depth, " deep; this one nests deeper");
    return made;
  }

  /// `a, b` or a single expression. `with_if`: allows `x if y`; not after `in`.
  expression_ptr parse_tuple(bool with_if = true, bool may_be_empty = false) {
    const std::size_t line = now().line;
    std::vector<expression_ptr> parts;
    bool comma = false;
    while (!ends_tuple()) {
      parts.push_back(with_if ? parse_expression() : parse_or());
      comma = skip(",");
      if (!comma) break;
    }
    if (parts.size() == 1 && !comma) return std::move(parts.front());
    if (parts.empty() && !may_be_empty) stop("an expression is expected here; given '", now().text, "'");
    expression_ptr tuple = make(operation::tuple, line);
    tuple->parts = std::move(parts);
    return measured(std::move(tuple));
  }

  /// p0 if p1 else p2
  expression_ptr parse_expression() {
    const level deeper(*this);
    const std::size_t line = now().line;
    expression_ptr first = parse_or();
    while (skip_name("if")) {
      expression_ptr condition = parse_or();
      expression_ptr otherwise = skip_name("else") ? parse_expression() : nullptr;
      first = make(operation::conditional, line, "", std::move(first), std::move(condition), std::move(otherwise));
    }
    return first;
  }

  expression_ptr parse_or() {
    expression_ptr left = parse_and();
    while (sees_name("or")) {
      const std::size_t line = take().line;
      left = make(operation::either, line, "", std::move(left), parse_and());
    }
    return left;
  }

  expression_ptr parse_primary() {
    const lexed& token = now();
    expression_ptr known = make(operation::constant, token.line);
    if (token.kind == token_kind::name) {
      const std::string name = take().text;
      if (name == "true" || name == "True") known->known = true;
      else if (name == "false" || name == "False") known->known = false;
      else if (name != "none" && name != "None") {
        names_varargs_ = names_varargs_ || name == "varargs";
        names_kwargs_ = names_kwargs_ || name == "kwargs";
        return make(operation::variable, token.line, name);
      }
      return known;
    }
    if (token.kind == token_kind::text) {
      std::string all;
      while (now().kind == token_kind::text) all += take().text;
      known->known = std::move(all);
      return known;
    }
    if (token.kind == token_kind::whole || token.kind == token_kind::real) {
      known->known = take().number;
      return known;
    }
    if (skip("(")) {
      expression_ptr inside = parse_tuple(true, true);
      expect(")");
      return inside;
    }
    if (skip("[")) return parse_list(token.line);
    if (skip("{")) return parse_dictionary(token.line);
    stop("a value is expected here; given '", token.text, "'");
  }

  expression_ptr parse_postfix(expression_ptr of) {
    while (true) {
      const std::size_t line = now().line;
      if (skip(".")) {
        if (now().kind == token_kind::whole) {
          expression_ptr place = make(operation::constant, line);
          place->known = take().number;
          of = make(operation::item, line, "", std::move(of), std::move(place));
        } else {
          std::string name = expect_name("a name or a number");
          of = make(operation::attribute, line, std::move(name), std::move(of));
        }
      } else if (skip("[")) {
        of = parse_subscript(std::move(of), line);
      } else if (sees("(")) {
        of = parse_call(std::move(of));
      } else {
        return of;
      }
    }
  }

  /// | name(arguments), any number of them.
  expression_ptr parse_filters(expression_ptr of) {
    while (skip("|")) of = parse_filter(std::move(of));
    return of;
  }
  expression_ptr parse_filter(expression_ptr of) {
    const std::size_t line = now().line;
    std::string name = parse_dotted_name("a filter's name");
    if (!known_.filter(name)) stop("a filter must be one that there is; '", name, "' is none");
    expression_ptr made = make(operation::filter, line, std::move(name), std::move(of));
    if (sees("(")) made->arguments = parse_arguments();
    return measured(std::move(made));
  }

  bool names_varargs_ = false, names_kwargs_ = false;  ///< names used in a macro's body

  std::vector<argument> parse_arguments() {
    expect("(");
    std::vector<argument> all;
    while (!sees(")")) {
      if (!all.empty()) {
        expect(",");
        if (sees(")")) break;
      }
      argument one;
      if (skip("*")) one.how = passing::many_placed;
      else if (skip("**")) one.how = passing::many_named;
      else if (now().kind == token_kind::name && is(ahead(), token_kind::sign, "=")) {
        one.how = passing::named;
        one.name = take().text;
        (void)take();
      }
      const passing last = all.empty() ? passing::placed : all.back().how;
      if (last == passing::many_named || (one.how == passing::placed && last != passing::placed))
        stop("arguments must come in this order: placed, named, *list, **mapping; these do not");
      one.given = parse_expression();
      all.push_back(std::move(one));
    }
    expect(")");
    return all;
  }
  expression_ptr parse_call(expression_ptr of) {
    expression_ptr made = make(operation::call, now().line, "", std::move(of));
    made->arguments = parse_arguments();
    return measured(std::move(made));
  }

 private:
  [[nodiscard]] bool ends_tuple() const {
    return now().kind == token_kind::block_end || now().kind == token_kind::print_end || sees(")") || sees_name("recursive");
  }
  std::string parse_dotted_name(std::string_view what) {
    std::string name = expect_name(what);
    while (skip(".")) name.append(1, '.').append(expect_name(what));
    return name;
  }

  expression_ptr parse_and() {
    expression_ptr left = parse_not();
    while (sees_name("and")) {
      const std::size_t line = take().line;
      left = make(operation::both, line, "", std::move(left), parse_not());
    }
    return left;
  }
  expression_ptr parse_not() {
    if (!sees_name("not")) return parse_comparison();
    const level deeper(*this);
    const std::size_t line = take().line;
    return make(operation::unary, line, "not", parse_not());
  }

  expression_ptr parse_comparison() {
    const std::size_t line = now().line;
    expression_ptr first = parse_sum();
    std::vector<argument> others;
    while (true) {
      std::string sign;
      if (now().kind == token_kind::sign && is_comparison(now().text)) sign = take().text;
      else if (skip_name("in")) sign = "in";
      else if (sees_name("not") && is(ahead(), token_kind::name, "in")) {
        (void)take();
        (void)take();
        sign = "not in";
      } else {
        break;
      }
      others.push_back({passing::named, std::move(sign), parse_sum()});
    }
    if (others.empty()) return first;
    expression_ptr made = make(operation::comparison, line, "", std::move(first));
    made->arguments = std::move(others);
    return measured(std::move(made));
  }
  static bool is_comparison(std::string_view sign) {
    return sign == "==" || sign == "!=" || sign == "<" || sign == "<=" || sign == ">" || sign == ">=";
  }

  /// Left-associative, one precedence; `next` parses tighter operators.
  expression_ptr parse_chain(std::initializer_list<std::string_view> signs, expression_ptr (expression_parser::*next)()) {
    expression_ptr left = (this->*next)();
    while (now().kind == token_kind::sign && std::find(signs.begin(), signs.end(), now().text) != signs.end()) {
      const lexed& sign = take();
      expression_ptr right = (this->*next)();
      left = make(operation::binary, sign.line, sign.text, std::move(left), std::move(right));
    }
    return left;
  }
  expression_ptr parse_sum() { return parse_chain({"+", "-"}, &expression_parser::parse_joining); }
  expression_ptr parse_joining() {
    const std::size_t line = now().line;
    expression_ptr first = parse_product();
    if (!sees("~")) return first;
    expression_ptr made = make(operation::joining, line, "", std::move(first));
    while (skip("~")) made->parts.push_back(parse_product());
    return measured(std::move(made));
  }
  expression_ptr parse_product() { return parse_chain({"*", "/", "//", "%"}, &expression_parser::parse_power); }
  expression_ptr parse_power() { return parse_chain({"**"}, &expression_parser::parse_filtered); }
  expression_ptr parse_filtered() { return parse_unary(true); }

  expression_ptr parse_unary(bool with_filters) {
    const level deeper(*this);
    expression_ptr made;
    if (sees("-") || sees("+")) {
      const lexed& sign = take();
      made = make(operation::unary, sign.line, sign.text, parse_unary(false));
    } else {
      made = parse_primary();
    }
    made = parse_postfix(std::move(made));
    while (with_filters) {
      if (sees("|")) made = parse_filters(std::move(made));
      else if (sees_name("is")) made = parse_test(std::move(made));
      else if (sees("(")) made = parse_call(std::move(made));
      else break;
    }
    return made;
  }

  /// `is [not] name [argument]`
  expression_ptr parse_test(expression_ptr of) {
    const std::size_t line = take().line;
    const bool negated = skip_name("not");
    std::string name = parse_dotted_name("a test's name");
    if (!known_.test(name)) stop("a test must be one that there is; '", name, "' is none");
    expression_ptr made = make(operation::test, line, std::move(name), std::move(of));
    if (sees("(")) {
      made->arguments = parse_arguments();
    } else if (begins_argument()) {
      if (sees_name("is")) stop("a test must not follow another without brackets");
      argument one;
      one.given = parse_postfix(parse_primary());
      made->arguments.push_back(std::move(one));
    }
    made = measured(std::move(made));
    return negated ? make(operation::unary, line, "not", std::move(made)) : std::move(made);
  }
  [[nodiscard]] bool begins_argument() const {
    const token_kind kind = now().kind;
    if (kind == token_kind::name) return !sees_name("else") && !sees_name("or") && !sees_name("and");
    return kind == token_kind::text || kind == token_kind::whole || kind == token_kind::real || sees("[") || sees("{");
  }

  expression_ptr parse_list(std::size_t line) {
    expression_ptr made = make(operation::list, line);
    while (!sees("]")) {
      if (!made->parts.empty()) expect(",");
      if (sees("]")) break;
      made->parts.push_back(parse_expression());
    }
    expect("]");
    return measured(std::move(made));
  }
  expression_ptr parse_dictionary(std::size_t line) {
    expression_ptr made = make(operation::dictionary, line);
    while (!sees("}")) {
      if (!made->parts.empty()) expect(",");
      if (sees("}")) break;
      made->parts.push_back(parse_expression());
      expect(":");
      made->parts.push_back(parse_expression());
    }
    expect("}");
    return measured(std::move(made));
  }

  /// After '['.
  expression_ptr parse_subscript(expression_ptr of, std::size_t line) {
    std::array<expression_ptr, 3> bounds;
    if (!sees(":")) {
      bounds[0] = parse_expression();
      if (!sees(":")) {
        expect("]");
        return make(operation::item, line, "", std::move(of), std::move(bounds[0]));
      }
    }
    for (std::size_t i = 1; i < 3 && skip(":"); ++i)
      if (!sees(":") && !sees("]")) bounds[i] = parse_expression();
    expect("]");
    return make(operation::slice, line, "", std::move(of), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2]));
  }

  std::vector<lexed> tokens_;
  known_names known_;
  std::size_t at_ = 0, depth_ = 0;
};

}  // namespace xtrain::detail::jinja
