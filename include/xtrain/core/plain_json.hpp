// JSON records: faster than nlohmann's parser, which reads long texts by character. Component 'io'.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <xtrain/core/json.hpp>
#include <xtrain/core/utf8.hpp>

namespace xtrain {

namespace detail {

/// Equal to parse_json, without errors: parse_json gives them.
class plain_json_parser {
 public:
  explicit plain_json_parser(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  /// returns false if the text is not JSON, repeats a key, nests too deep, or in rare cases left to parse_json
  [[nodiscard]] bool parse(json& to) {
    if (!value(to, 0)) return false;
    skip_space();
    return at_ == end_;
  }

 private:
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  [[nodiscard]] bool take(char c) {
    skip_space();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] bool take_word(std::string_view word) {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  [[nodiscard]] bool value(json& to, int depth) {
    skip_space();
    if (at_ == end_) return false;
    switch (*at_) {
      case '{':
        return depth < max_json_depth && object(to, depth + 1);
      case '[':
        return depth < max_json_depth && array(to, depth + 1);
      case '"': {
        ++at_;
        to = std::string();
        return string(to.get_ref<std::string&>());
      }
      case 't':
        to = true;
        return take_word("true");
      case 'f':
        to = false;
        return take_word("false");
      case 'n':
        to = nullptr;
        return take_word("null");
      default:
        return number(to);
    }
  }
  [[nodiscard]] bool object(json& to, int depth) {
    ++at_;
    to = json::object();
    if (take('}')) return true;
    auto& fields = to.get_ref<json::object_t&>();
    do {
      std::string name;
      if (!take('"') || !string(name) || !take(':')) return false;
      const auto [field, is_new] = fields.try_emplace(std::move(name));
      if (!is_new || !value(field->second, depth)) return false;
    } while (take(','));
    return take('}');
  }
  [[nodiscard]] bool array(json& to, int depth) {
    ++at_;
    to = json::array();
    if (take(']')) return true;
    auto& items = to.get_ref<json::array_t&>();
    do {
      if (!value(items.emplace_back(), depth)) return false;
    } while (take(','));
    return take(']');
  }
  /// Integers; others by nlohmann's parser.
  [[nodiscard]] bool number(json& to) {
    const char* const begin = at_;
    while (at_ < end_ && ((*at_ >= '0' && *at_ <= '9') || *at_ == '-' || *at_ == '+' || *at_ == '.' || *at_ == 'e' || *at_ == 'E')) ++at_;
    const std::string_view text(begin, static_cast<std::size_t>(at_ - begin));
    const bool is_negative = text.starts_with('-');
    const std::string_view digits = text.substr(is_negative ? 1 : 0);
    if (!digits.empty() && digits.size() <= 18 && digits.find_first_not_of("0123456789") == std::string_view::npos && digits.front() != '0') {
      std::uint64_t whole = 0;
      (void)std::from_chars(digits.data(), digits.data() + digits.size(), whole);
      if (is_negative) to = -static_cast<std::int64_t>(whole);
      else to = whole;
      return true;
    }
    to = lenient_json(text);
    return !to.is_discarded();
  }

  /// After the first quote.
  [[nodiscard]] bool string(std::string& to) {
    const char* run = at_;  // of unescaped text
    while (true) {
      skip_plain();
      if (at_ == end_) return false;
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte == '"') {
        to.append(run, at_);
        ++at_;
        return true;
      }
      if (byte == '\\') {
        to.append(run, at_);
        ++at_;
        if (!escape(to)) return false;
        run = at_;
      } else {  // a control character, or of several bytes
        const character several = character_at({at_, end_}, 0);
        if (several.bytes == 1) return false;
        at_ += several.bytes;
      }
    }
  }
  /// To the next quote, backslash, control character or non-ASCII byte.
  void skip_plain() {
    constexpr std::uint64_t ones = 0x0101010101010101U, tops = 0x8080808080808080U;
    for (; end_ - at_ >= 8; at_ += 8) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, at_, sizeof(eight));
      const std::uint64_t quotes = eight ^ (ones * '"'), backslashes = eight ^ (ones * '\\');
      const std::uint64_t found = ((eight - ones * 0x20U) & ~eight) | ((quotes - ones) & ~quotes) | ((backslashes - ones) & ~backslashes) | eight;
      if ((found & tops) != 0) break;
    }
    for (; at_ < end_; ++at_) {
      const auto byte = static_cast<unsigned char>(*at_);
      if (byte == '"' || byte == '\\' || byte < 0x20 || byte >= 0x80) return;
    }
  }
  /// After a backslash.
  [[nodiscard]] bool escape(std::string& to) {
    if (at_ == end_) return false;
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const char letter = *at_++;
    if (const std::size_t known = letters.find(letter); known != std::string_view::npos) {
      to += meanings[known];
      return true;
    }
    std::uint32_t code = 0;
    if (letter != 'u' || !hexadecimal(code)) return false;
    if (code >= 0xdc00U && code <= 0xdfffU) return false;
    if (code >= 0xd800U && code <= 0xdbffU) {
      std::uint32_t second = 0;
      if (!take_word("\\u") || !hexadecimal(second) || second < 0xdc00U || second > 0xdfffU) return false;
      code = 0x10000U + ((code - 0xd800U) << 10U) + (second - 0xdc00U);
    }
    append_character(to, static_cast<std::int32_t>(code));
    return true;
  }
  [[nodiscard]] bool hexadecimal(std::uint32_t& code) {
    if (end_ - at_ < 4) return false;
    const auto [end, problem] = std::from_chars(at_, at_ + 4, code, 16);
    if (problem != std::errc{} || end != at_ + 4) return false;
    at_ += 4;
    return true;
  }

  const char* at_;
  const char* end_;
};

/// parse_json for a record: equal values and errors.
template <class Error>
[[nodiscard]] json parse_record(std::string_view text, std::string_view who, std::size_t line) {
  json record;
  if (plain_json_parser(text).parse(record)) return record;
  return parse_json<Error>(text, who, line);
}

}  // namespace detail

}  // namespace xtrain
