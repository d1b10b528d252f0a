#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/jinja/from_json.hpp>
#include <xtrain/jinja/template.hpp>

namespace xtrain {

namespace detail::jinja {

/// Rejects what strict_json_builder rejects, and numbers that lose precision.
class value_builder {
 public:
  bool null() { return add({}); }
  bool boolean(bool b) { return add(b); }
  bool number_integer(json::number_integer_t i) { return add(i); }
  bool number_unsigned(json::number_unsigned_t i) {
    if (i > static_cast<json::number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return stop("a whole number beyond 64 bits with sign");
    return add(static_cast<std::int64_t>(i));
  }
  bool number_float(json::number_float_t d, const json::string_t& text) {
    if (text.find_first_of(".eE") == std::string::npos) return stop("a whole number beyond 64 bits with sign");
    return add(d);
  }
  bool string(json::string_t& text) { return add(std::move(text)); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(true); }
  bool key(json::string_t& name) {
    if (open_.back().members.find_name(name) != nullptr) return stop(concat("key '", name, "' occurs twice"));
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() {
    value made(std::move(open_.back().members));
    open_.pop_back();
    return add(std::move(made));
  }
  bool start_array(std::size_t) { return open(false); }
  bool end_array() {
    value made(std::move(open_.back().items));
    open_.pop_back();
    return add(std::move(made));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) {
    position_ = position;
    problem_ = problem.what();
    if (const std::size_t colon = problem_.find(": "); colon != std::string::npos) problem_.erase(0, colon + 2);
    return false;
  }

  [[nodiscard]] value& result() { return result_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] std::size_t position() const { return position_; }

 private:
  struct level {
    bool is_object;
    std::string key{};
    mapping members{};
    std::vector<value> items{};
  };
  bool open(bool is_object) {
    if (open_.size() >= static_cast<std::size_t>(max_json_depth)) return stop(concat("nested deeper than ", max_json_depth));
    open_.push_back({is_object});
    return true;
  }
  bool add(value v) {
    if (open_.empty()) result_ = std::move(v);
    else if (open_.back().is_object) open_.back().members.set(std::move(open_.back().key), std::move(v));
    else open_.back().items.push_back(std::move(v));
    return true;
  }
  bool stop(std::string why) {
    problem_ = std::move(why);
    return false;
  }

  value result_;
  std::vector<level> open_;
  std::string problem_;
  std::size_t position_ = 0;
};

}  // namespace detail::jinja

XTRAIN_INLINE jinja_value jinja_value_from_json(std::string_view text, std::string_view who, std::size_t first_line) {
  detail::jinja::value_builder builder;
  detail::parse_json_with<data_error>(builder, text, who, first_line);
  return std::move(builder.result());
}

}  // namespace xtrain
