// JSON; the only header with nlohmann-json. Component 'io'; no other header in core includes it.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error "xtrain io: nlohmann-json must be found; link xtrain::io (Debian and Ubuntu: nlohmann-json3-dev)"
#endif

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json_fwd.hpp>

namespace xtrain {

namespace detail {

/// Line of a byte, from 1.
[[nodiscard]] inline std::size_t line_of(std::string_view text, std::size_t byte) {
  return 1 +
         static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size())), '\n'));
}

/// Deeper nesting is an attack.
inline constexpr int max_json_depth = 128;

/// Rejects duplicate keys and deep nesting: malformed or hostile.
class strict_json_builder {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  /// twice  receives duplicate keys, whose last value counts; null: rejected
  explicit strict_json_builder(json& result, std::vector<std::string>* twice = nullptr) : result_(&result), twice_(twice) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return false; }
  bool start_object(std::size_t) { return open(json::object()); }
  bool key(string_t& name) {
    if (open_.back()->contains(name)) {
      if (twice_ == nullptr) return stop(concat("key '", name, "' occurs twice"));
      twice_->push_back(name);
    }
    key_ = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(json::array()); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    position_ = position;
    problem_ = problem.what();
    // without nlohmann's error number and line: the caller reports the line
    if (const std::size_t colon = problem_.find(": "); colon != std::string::npos) problem_.erase(0, colon + 2);
    return false;
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] std::size_t position() const { return position_; }

 private:
  template <class Value>
  json* place(Value&& value) {
    if (open_.empty()) {
      *result_ = std::forward<Value>(value);
      return result_;
    }
    if (open_.back()->is_object()) return &((*open_.back())[key_] = std::forward<Value>(value));
    open_.back()->push_back(std::forward<Value>(value));
    return &open_.back()->back();
  }
  template <class Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }
  bool open(json empty) {
    if (open_.size() >= max_json_depth) return stop(concat("nested deeper than ", max_json_depth));
    open_.push_back(place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool stop(std::string why) {
    problem_ = std::move(why);
    return false;
  }

  json* result_;
  std::vector<std::string>* twice_;
  std::vector<json*> open_;
  std::string key_;
  std::string problem_;
  std::size_t position_ = 0;
};

/// Unlike json::sax_parse(), compiles no readers of binary formats.
///   returns  false if the text is not JSON, or the builder stops
template <class Builder>
[[nodiscard]] bool walk_json(Builder& builder, std::string_view text) {
  auto input = nlohmann::detail::input_adapter(text.data(), text.data() + text.size());
  return nlohmann::detail::parser<json, decltype(input)>(std::move(input)).sax_parse(&builder);
}

/// A text's error after its line; empty: none.
template <class Builder>
[[nodiscard, gnu::noinline]] std::string json_problem(Builder& builder, std::string_view text, std::size_t first_line) {
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos)  // the parser would stop here
    return concat(first_line - 1 + line_of(text, zero), ": a zero byte");
  if (walk_json(builder, text)) return {};
  return concat(first_line - 1 + line_of(text, builder.position() > 0 ? builder.position() - 1 : text.size()), ": ", builder.problem());
}

template <class Error, class Builder>
void parse_json_with(Builder& builder, std::string_view text, std::string_view who, std::size_t first_line) {
  const std::string problem = json_problem(builder, text, first_line);
  require<Error>(problem.empty(), who, ": must be JSON; line ", problem);
}

/// As Python's json.load; `is_discarded()` if it is not JSON.
[[nodiscard, gnu::noinline]] inline json lenient_json(std::string_view text) {
  json document;
  std::vector<std::string> twice;
  strict_json_builder builder(document, &twice);
  if (!json_problem(builder, text, 1).empty()) return json::value_t::discarded;
  return document;
}

}  // namespace detail

/// Parses JSON. `who`: for errors; `first_line`: number of the first line.
///   throws  Error with the line for invalid JSON, a duplicate key, or deep nesting
template <class Error = file_error>
[[nodiscard]] json parse_json(std::string_view text, std::string_view who, std::size_t first_line = 1) {
  json document;
  detail::strict_json_builder builder(document);
  detail::parse_json_with<Error>(builder, text, who, first_line);
  return document;
}

/// As Python's json.load: the last of duplicate keys counts.
///   twice   receives duplicate keys
///   throws  Error with the line for invalid JSON or deep nesting
template <class Error = file_error>
[[nodiscard]] json parse_python_json(std::string_view text, std::string_view who, std::vector<std::string>& twice) {
  json document;
  detail::strict_json_builder builder(document, &twice);
  detail::parse_json_with<Error>(builder, text, who, 1);
  return document;
}

namespace detail {

/// A document from text: cheaper to compile than nested braces.
[[nodiscard, gnu::noinline]] inline json literal_json(const char* text) { return parse_json(text, "a literal"); }

}  // namespace detail

/// Parses a file.
///   throws  file_error
[[nodiscard]] inline json read_json(const std::string& path) {
  const mapped_file file(path);
  return parse_json(file.text(), path);
}

}  // namespace xtrain
