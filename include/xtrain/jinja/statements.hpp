#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/parser.hpp>

namespace xtrain::detail::jinja {

class statement_parser : public expression_parser {
 public:
  using expression_parser::expression_parser;

  [[nodiscard]] body parse_template() {
    body all = parse_until({});
    return all;
  }
  /// Whether a {% generation %} block was parsed.
  [[nodiscard]] bool has_generation() const { return has_generation_; }

 private:
  /// Up to a tag of these names, not consumed; no names: the end.
  body parse_until(std::initializer_list<std::string_view> ends) {
    const level deeper(*this);
    body all;
    while (true) {
      if (now().kind == token_kind::end) {
        if (ends.size() > 0) stop("'", *(ends.end() - 1), "' is expected before the template's end");
        return all;
      }
      if (now().kind == token_kind::data) {
        statement text = make_statement(action::text);
        text.words = take().text;
        all.push_back(std::move(text));
      } else if (now().kind == token_kind::print_begin) {
        (void)take();
        statement print = make_statement(action::print);
        print.given = parse_tuple();
        end_of(token_kind::print_end);
        all.push_back(std::move(print));
      } else {
        (void)take();
        if (std::find(ends.begin(), ends.end(), now().text) != ends.end() && now().kind == token_kind::name) return all;
        all.push_back(parse_statement());
        end_of(token_kind::block_end);
      }
    }
  }
  void end_of(token_kind kind) {
    if (now().kind != kind) stop("'", kind == token_kind::block_end ? "%}" : "}}", "' is expected here; given '", now().text, "'");
    (void)take();
  }
  /// Rest of an opening tag, body, closing tag.
  body parse_body(std::initializer_list<std::string_view> ends) {
    (void)skip(":");
    end_of(token_kind::block_end);
    return parse_until(ends);
  }
  body parse_whole_body(std::string_view end) {
    body all = parse_body({end});
    (void)take();
    return all;
  }

  [[nodiscard]] statement make_statement(action what) const {
    statement made;
    made.what = what;
    made.line = now().line;
    return made;
  }

  statement parse_statement() {
    const std::size_t line = now().line;
    const std::string word = expect_name("a tag's name");
    statement made = parse_named(word);
    made.line = line;
    return made;
  }
  statement parse_named(const std::string& word) {
    if (word == "if") return parse_if();
    if (word == "for") return parse_for();
    if (word == "set") return parse_set();
    if (word == "macro") return parse_macro();
    if (word == "call") return parse_call_block();
    if (word == "filter") return parse_filter_block();
    if (word == "with") return parse_with();
    if (word == "generation") {
      statement made = make_statement(action::generation);
      made.bodies.push_back(parse_whole_body("endgeneration"));
      has_generation_ = true;
      return made;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) stop("'", word, "' must be inside a loop");
      return make_statement(word == "break" ? action::leave : action::next);
    }
    if (word.starts_with("end") || word == "else" || word == "elif") stop("'", word, "' must end something; nothing is open that it ends");
    stop("a tag must be if, for, set, macro, call, filter, with, raw, generation, break or continue; given '", word, "'");
  }

  statement parse_if() {
    statement made = make_statement(action::branch);
    made.conditions.push_back(parse_tuple(false));
    while (true) {
      made.bodies.push_back(parse_body({"elif", "else", "endif"}));
      const std::string word = take().text;
      if (word == "elif") {
        made.conditions.push_back(parse_tuple(false));
      } else {
        if (word == "else") made.bodies.push_back(parse_whole_body("endif"));
        return made;
      }
    }
  }

  statement parse_for() {
    statement made = make_statement(action::loop);
    made.into = parse_target(false);
    if (!skip_name("in")) stop("'in' is expected here; given '", now().text, "'");
    made.given = parse_tuple(false);
    if (skip_name("if")) made.conditions.push_back(parse_expression());
    if (sees_name("recursive")) stop("a loop must not be 'recursive': that is not understood");
    ++loops_;
    made.bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    if (take().text == "else") made.bodies.push_back(parse_whole_body("endfor"));
    return made;
  }

  statement parse_set() {
    statement made = make_statement(action::assign);
    made.into = parse_target(true);
    if (skip("=")) {
      made.given = parse_tuple();
      return made;
    }
    made.what = action::assign_block;
    made.given = parse_filters(nullptr);
    made.bodies.push_back(parse_whole_body("endset"));
    return made;
  }

  /// name, name.attribute (namespace, if allowed), or several.
  target parse_target(bool with_attribute) {
    const level deeper(*this);
    target all;
    bool comma = false;
    while (now().kind == token_kind::name || sees("(")) {
      if (skip("(")) {
        all.parts.push_back(parse_target(with_attribute));
        expect(")");
      } else {
        target one;
        one.name = take().text;
        require_assignable(one.name);
        if (with_attribute && skip(".")) one.attribute = expect_name("a name");
        all.parts.push_back(std::move(one));
      }
      comma = skip(",");
      if (!comma || sees_name("in")) break;
    }
    if (all.parts.empty()) stop("a name is expected here; given '", now().text, "'");
    if (all.parts.size() == 1 && !comma) {
      target one = std::move(all.parts.front());
      return one;
    }
    return all;
  }
  void require_assignable(std::string_view name) const {
    for (const std::string_view word : {"true", "false", "none", "True", "False", "None"})
      if (name == word) stop("a value must not be given to '", name, "'");
  }

  std::unique_ptr<macro_definition> parse_signature(std::string name) {
    auto macro = std::make_unique<macro_definition>();
    macro->name = std::move(name);
    expect("(");
    while (!sees(")")) {
      if (!macro->parameters.empty()) expect(",");
      parameter one;
      one.name = expect_name("a parameter's name");
      require_assignable(one.name);
      if (skip("=")) one.standard = parse_expression();
      else if (!macro->parameters.empty() && macro->parameters.back().standard)
        stop("a parameter without a value must not follow one with a value; '", one.name, "' does");
      macro->parameters.push_back(std::move(one));
    }
    expect(")");
    return macro;
  }
  /// break and continue cannot leave a macro. Used names show its arguments.
  void parse_macro_body(macro_definition& macro, std::string_view end) {
    const std::size_t loops = std::exchange(loops_, 0);
    const bool varargs = std::exchange(names_varargs_, false), kwargs = std::exchange(names_kwargs_, false);
    macro.what = parse_whole_body(end);
    macro.takes_more = std::exchange(names_varargs_, varargs);
    macro.takes_more_named = std::exchange(names_kwargs_, kwargs);
    loops_ = loops;
  }

  statement parse_macro() {
    statement made = make_statement(action::define);
    made.macro = parse_signature(expect_name("a macro's name"));
    parse_macro_body(*made.macro, "endmacro");
    return made;
  }

  statement parse_call_block() {
    statement made = make_statement(action::call_block);
    if (sees("(")) {
      made.macro = parse_signature("caller");
    } else {
      made.macro = std::make_unique<macro_definition>();
      made.macro->name = "caller";
    }
    made.given = parse_expression();
    if (made.given->what != operation::call) stop("'call' must be followed by a call");
    parse_macro_body(*made.macro, "endcall");
    return made;
  }

  statement parse_filter_block() {
    statement made = make_statement(action::filter_block);
    made.given = parse_filters(parse_filter(nullptr));
    made.bodies.push_back(parse_whole_body("endfilter"));
    return made;
  }

  statement parse_with() {
    statement made = make_statement(action::with);
    while (now().kind != token_kind::block_end) {
      if (!made.names.empty()) expect(",");
      target one;
      one.name = expect_name("a name");
      require_assignable(one.name);
      expect("=");
      made.names.push_back(std::move(one));
      made.conditions.push_back(parse_expression());
    }
    made.bodies.push_back(parse_whole_body("endwith"));
    return made;
  }

  std::size_t loops_ = 0;
  bool has_generation_ = false;
};

}  // namespace xtrain::detail::jinja
