// Tokens of a template. As trim_blocks and lstrip_blocks: removes the line break after a block and spaces from line begin to block; minus removes all spaces on
// its side, plus keeps them.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/jinja/characters.hpp>
#include <xtrain/jinja/value.hpp>

namespace xtrain::detail::jinja {

/// Syntax error and line.
struct misspelled {
  std::size_t line;
  std::string what;
};

enum class token_kind : std::uint8_t { data, block_begin, block_end, print_begin, print_end, name, text, whole, real, sign, end };

struct lexed {
  token_kind kind = token_kind::end;
  std::string text{};  ///< as written; a string's value
  std::size_t line = 1;
  value number{};
};

class lexer {
 public:
  explicit lexer(std::string_view source) : source_(with_plain_line_breaks(source)) {}

  [[nodiscard]] std::vector<lexed> tokens() {
    while (at_ < source_.size()) data();
    add(token_kind::end, "the end of the template");
    return std::move(tokens_);
  }

 private:
  /// Normalizes line breaks, removes the last.
  static std::string with_plain_line_breaks(std::string_view text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
      plain.push_back(text[i] == '\r' ? '\n' : text[i]);
      if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
    if (!plain.empty() && plain.back() == '\n') plain.pop_back();
    return plain;
  }

  template <class... Parts>
  [[noreturn]] void stop(const Parts&... parts) const {
    throw misspelled{line_, concat(parts...)};
  }
  void add(token_kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  [[nodiscard]] std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void advance(std::size_t to) {
    line_ += static_cast<std::size_t>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_), source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  /// Text before a tag, trimmed by the tag's sign and kind.
  [[nodiscard]] std::string_view trimmed(std::string_view text, char sign, bool is_print) const {
    if (sign == '-') return stripped(text, false, true);
    if (sign == '+' || is_print) return text;
    const std::size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
    const bool whole_line = line_begin > 0 || line_starting_;
    return whole_line && end_of_spaces(text, line_begin) == text.size() ? text.substr(0, line_begin) : text;
  }

  /// Text and the next tag.
  void data() {
    const std::size_t begin = at_;
    std::size_t open = source_.find('{', at_);
    while (open != std::string::npos && (open + 1 >= source_.size() || !is_tag(source_[open + 1]))) open = source_.find('{', open + 1);
    if (open == std::string::npos) {
      add(token_kind::data, source_.substr(begin));
      advance(source_.size());
      return;
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() && (source_[open + 2] == '-' || source_[open + 2] == '+') ? source_[open + 2] : ' ';
    const std::string_view text = trimmed(std::string_view(source_).substr(begin, open - begin), sign, kind == '{');
    if (!text.empty()) add(token_kind::data, std::string(text));
    advance(open + (sign == ' ' ? 2 : 3));
    if (kind == '#') comment();
    else if (kind == '{') tag(token_kind::print_begin, token_kind::print_end, '}');
    else if (!raw()) tag(token_kind::block_begin, token_kind::block_end, '%');
  }
  static bool is_tag(char c) { return c == '{' || c == '%' || c == '#'; }

  /// Past a tag's end at `close`; `sign`: the character before, if any.
  void leave(std::size_t close, char sign, bool trims_line) {
    std::size_t behind = close + 2;
    if (sign == '-') behind = end_of_spaces(source_, behind);
    else if (sign != '+' && trims_line && behind < source_.size() && source_[behind] == '\n') ++behind;
    advance(behind);
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string::npos) stop("a comment must end with '#}'; it does not end");
    leave(close, close > at_ ? source_[close - 1] : ' ', true);
  }

  /// Literal text up to {% endraw %}.
  bool raw() {
    const std::size_t word = end_of_spaces(source_, at_);
    if (source_.compare(word, 3, "raw") != 0) return false;
    std::size_t close = end_of_spaces(source_, word + 3);
    const char sign = close < source_.size() && source_[close] == '-' ? '-' : ' ';
    if (sign == '-') ++close;
    if (source_.compare(close, 2, "%}") != 0) return false;
    leave(close, sign, false);
    const std::size_t begin = at_;
    for (std::size_t open = source_.find("{%", at_); open != std::string::npos; open = source_.find("{%", open + 1)) {
      const char before = open + 2 < source_.size() && (source_[open + 2] == '-' || source_[open + 2] == '+') ? source_[open + 2] : ' ';
      const std::size_t end_word = end_of_spaces(source_, open + (before == ' ' ? 2 : 3));
      if (source_.compare(end_word, 6, "endraw") != 0) continue;
      close = end_of_spaces(source_, end_word + 6);
      const char behind = close < source_.size() && (source_[close] == '-' || source_[close] == '+') ? source_[close] : ' ';
      if (behind != ' ') ++close;
      if (source_.compare(close, 2, "%}") != 0) continue;
      const std::string_view text = trimmed(std::string_view(source_).substr(begin, open - begin), before, false);
      if (!text.empty()) add(token_kind::data, std::string(text));
      leave(close, behind, true);
      return true;
    }
    stop("'raw' must end with 'endraw'; it does not end");
  }

  /// Content of a tag. The end mark counts outside brackets.
  void tag(token_kind begin, token_kind end, char mark) {
    add(begin, begin == token_kind::block_begin ? "{%" : "{{");
    std::string open;
    while (true) {
      advance(end_of_spaces(source_, at_));
      if (at_ >= source_.size()) stop("a tag must end with '", mark, "}'; it does not end");
      if (open.empty()) {
        const char sign = source_[at_] == '-' || (source_[at_] == '+' && mark == '%') ? source_[at_] : ' ';
        const std::size_t close = at_ + (sign == ' ' ? 0 : 1);
        if (close + 1 < source_.size() && source_[close] == mark && source_[close + 1] == '}') {
          add(end, mark == '%' ? "%}" : "}}");
          leave(close, sign, mark == '%');
          return;
        }
      }
      const char c = source_[at_];
      if (is_digit(c)) number();
      else if (is_letter(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80U) name();
      else if (c == '\'' || c == '"') string(c);
      else sign(open);
    }
  }

  void name() {
    std::size_t end = at_;
    while (end < source_.size() && (is_letter(source_[end]) || is_digit(source_[end]) || source_[end] == '_' ||
                                    (static_cast<unsigned char>(source_[end]) >= 0x80U && !is_space(character_at(source_, end)))))
      ++end;
    add(token_kind::name, source_.substr(at_, end - at_));
    advance(end);
  }

  /// Digits; skips single underscores.
  [[nodiscard]] std::size_t digits(std::size_t at, std::string& to) const {
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && !to.empty() && is_digit(to.back()) &&
                                                             at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      if (source_[at] != '_') to.push_back(source_[at]);
      ++at;
    }
    return at;
  }

  void number() {
    std::string text;
    std::size_t end = digits(at_, text);
    bool real = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      real = true;
      text.push_back('.');
      end = digits(end + 1, text);
    }
    if (end < source_.size() && lower(source_[end]) == 'e') {
      const std::size_t signed_ = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? end + 2 : end + 1;
      if (signed_ < source_.size() && is_digit(source_[signed_])) {
        real = true;
        text.push_back('e');
        if (source_[signed_ - 1] == '-') text.push_back('-');
        end = digits(signed_, text);
      }
    }
    lexed token{real ? token_kind::real : token_kind::whole, source_.substr(at_, end - at_), line_};
    if (real) {
      double d = 0;
      std::from_chars(text.data(), text.data() + text.size(), d);
      token.number = d;
    } else {
      std::int64_t i = 0;
      const bool leading_zero = text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos;
      if (leading_zero || std::from_chars(text.data(), text.data() + text.size(), i).ec != std::errc{})
        stop("a number must be decimal and fit 64 bits; given ", text);
      token.number = i;
    }
    tokens_.push_back(std::move(token));
    advance(end);
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) stop("a string must end with ", quote, "; it does not end");
    add(token_kind::text, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  /// Unknown escapes keep the backslash.
  [[nodiscard]] std::string unescaped(std::string_view text) const {
    constexpr std::string_view letters = "abfnrtv\\'\"", meanings = "\a\b\f\n\r\t\v\\'\"";
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        result.push_back(text[i]);
        continue;
      }
      const char c = text[++i];
      const std::size_t hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (const std::size_t known = letters.find(c); known != std::string_view::npos) {
        result.push_back(meanings[known]);
      } else if (hex > 0) {
        std::uint32_t code = 0;
        const char* first = text.data() + i + 1;
        const char* last = first + std::min(hex, text.size() - i - 1);
        const auto [end, error] = std::from_chars(first, last, code, 16);
        if (error != std::errc{} || end != first + hex || code > 0x10FFFFU || (code >= 0xD800U && code < 0xE000U))
          stop("\\", c, " in a string must be followed by ", hex, " hexadecimal digits of a character");
        append_character(result, code);
        i += hex;
      } else if (c >= '0' && c <= '7') {
        std::uint32_t code = 0;
        std::size_t count = 0;
        for (; count < 3 && i + count < text.size() && text[i + count] >= '0' && text[i + count] <= '7'; ++count)
          code = code * 8 + static_cast<std::uint32_t>(text[i + count] - '0');
        append_character(result, code);
        i += count - 1;
      } else if (c == 'N') {
        stop("\\N in a string is not understood; write the character itself");
      } else if (c != '\n') {
        result += {'\\', c};
      }
    }
    return result;
  }

  void sign(std::string& open) {
    constexpr std::array<std::string_view, 6> pairs{"**", "//", "==", "!=", "<=", ">="};
    constexpr std::string_view singles = "+-*/%~[](){}<>=.:|,;";
    for (const std::string_view pair : pairs) {
      if (!rest().starts_with(pair)) continue;
      add(token_kind::sign, std::string(pair));
      advance(at_ + 2);
      return;
    }
    const char c = source_[at_];
    if (singles.find(c) == std::string_view::npos) stop("this character has no meaning here: ", characters_of(rest().substr(0, 4)).front());
    if (c == '(' || c == '[' || c == '{') {
      open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) stop("'", c, "' closes nothing");
      if (open.back() != c) stop("'", open.back(), "' must come before '", c, "'");
      open.pop_back();
    }
    add(token_kind::sign, std::string(1, c));
    advance(at_ + 1);
  }

  std::string source_;
  std::size_t at_ = 0, line_ = 1;
  bool line_starting_ = true;
  std::vector<lexed> tokens_;
};

}  // namespace xtrain::detail::jinja
