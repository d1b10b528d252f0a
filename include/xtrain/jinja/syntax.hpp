#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <xtrain/jinja/value.hpp>

namespace xtrain::detail::jinja {

struct expression;
using expression_ptr = std::unique_ptr<expression>;

/// Position, name, *list, **mapping.
enum class passing : std::uint8_t { placed, named, many_placed, many_named };

struct argument {
  passing how = passing::placed;
  std::string name{};
  expression_ptr given{};
};

/// Operands p0, p1, ..., name, arguments a0, a1, ....
enum class operation : std::uint8_t {
  constant,     ///< literal
  variable,     ///< name
  list,         ///< [p0, p1, ...]
  tuple,        ///< (p0, p1, ...)
  dictionary,   ///< {p0: p1, p2: p3, ...}
  attribute,    ///< p0.name
  item,         ///< p0[p1]
  slice,        ///< p0[p1:p2:p3]; null if omitted
  call,         ///< p0(arguments)
  filter,       ///< p0 | name(arguments); p0 null: first of a filter block
  test,         ///< p0 is name(arguments)
  unary,        ///< name is -, + or not
  both,         ///< p0 and p1
  either,       ///< p0 or p1
  conditional,  ///< p0 if p1 else p2; p2 may be null
  comparison,   ///< p0 < a0 < a1 ...: operators are argument names
  binary,       ///< p0 name p1
  joining       ///< p0 ~ p1 ~ ...
};

struct expression {
  operation what = operation::constant;
  std::size_t line = 1;
  std::size_t depth = 1;
  std::string name{};
  value known{};
  std::vector<expression_ptr> parts{};
  std::vector<argument> arguments{};
};

/// A name, a namespace's attribute, or several.
struct target {
  std::string name{};
  std::string attribute{};
  std::vector<target> parts{};
};

struct parameter {
  std::string name{};
  expression_ptr standard{};  ///< null: none
};

struct statement;
using body = std::vector<statement>;

struct macro_definition;

enum class action : std::uint8_t {
  text,          ///< literal text
  print,         ///< given
  branch,        ///< if: the first body whose condition holds; else has none
  loop,          ///< for into in given, if conditions[0]; bodies[0]; bodies[1] without items
  assign,        ///< set into = given
  assign_block,  ///< set into: bodies[0], through filters of given
  define,        ///< macro
  call_block,    ///< given: the call; macro: caller()
  filter_block,  ///< bodies[0] through given
  with,          ///< conditions[i] assigned to names[i], then bodies[0]
  generation,    ///< bodies[0]: the assistant's text
  leave,         ///< break
  next           ///< continue
};

struct statement {
  action what = action::text;
  std::size_t line = 1;
  std::string words{};
  expression_ptr given{};
  target into{};
  std::vector<target> names{};
  std::vector<expression_ptr> conditions{};
  std::vector<body> bodies;
  std::unique_ptr<macro_definition> macro;
};

struct macro_definition {
  std::string name{};
  std::vector<parameter> parameters{};
  body what;
  bool takes_more = false, takes_more_named = false;  ///< its body uses varargs, kwargs
};

}  // namespace xtrain::detail::jinja
