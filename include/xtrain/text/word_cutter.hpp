// Splits text into words: known patterns by hand, others by PCRE2. Component 'text'.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <xtrain/text/part_visitor.hpp>
#include <xtrain/text/split_patterns.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/word_pattern.hpp>

namespace xtrain {

namespace detail {

/// Character classes of split patterns.
enum class word_class : std::uint8_t { letter, number, space, sign };

[[nodiscard]] inline word_class word_class_of(std::int32_t code) {
  static constexpr auto ascii = [] {
    std::array<word_class, 128> table{};
    for (int c = 0; c < 128; ++c) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      const bool white = c == ' ' || (c >= '\t' && c <= '\r');
      table[static_cast<std::size_t>(c)] = letter                 ? word_class::letter
                                           : c >= '0' && c <= '9' ? word_class::number
                                           : white                ? word_class::space
                                                                  : word_class::sign;
    }
    return table;
  }();
  if (code < 128) return ascii[static_cast<std::size_t>(code)];
  switch (group_of(code)) {
    case category_group::letter:
      return word_class::letter;
    case category_group::number:
      return word_class::number;
    case category_group::separator:
      return word_class::space;
    default:
      return code == 0x85 ? word_class::space : word_class::sign;
  }
}

/// Words of a text without partial characters.
class word_walk {
 public:
  explicit word_walk(std::string_view text) : text_(text) {}

  /// End of the word at `at`, by gpt2_pattern.
  [[nodiscard]] std::size_t gpt2_end(std::size_t at) const {
    const char first = text_[at];
    if (first == '\'')
      if (const std::size_t end = contraction_end(at, false); end > at) return end;
    const std::size_t word = first == ' ' && at + 1 < text_.size() ? at + 1 : at;
    if (const word_class kind = class_at(word); kind != word_class::space) return run_end(word, kind);
    return spaces_end(at, run_end(at, word_class::space));
  }

  /// By cl100k_pattern, with at most `digits` digits.
  [[nodiscard]] std::size_t cl100k_end(std::size_t at, std::size_t digits) const {
    const char first = text_[at];
    if (first == '\'')
      if (const std::size_t end = contraction_end(at, true); end > at) return end;
    const character c = character_at(text_, at);
    const word_class kind = word_class_of(c.code);
    if (kind == word_class::letter) return run_end(at, kind);
    if (kind == word_class::number) {
      std::size_t end = at;
      for (std::size_t i = 0; i < digits && end < text_.size() && class_at(end) == kind; ++i) end += character_at(text_, end).bytes;
      return end;
    }
    const std::size_t next = at + c.bytes;
    if (first != '\r' && first != '\n' && next < text_.size()) {  // a non-letter may begin a word
      const word_class following = class_at(next);
      if (following == word_class::letter) return run_end(next, following);
      if (first == ' ' && following == word_class::sign) return breaks_end(run_end(next, following));
    }
    if (kind == word_class::sign) return breaks_end(run_end(at, kind));
    const std::size_t end = run_end(at, word_class::space);
    const std::size_t last_break = text_.substr(at, end - at).find_last_of("\r\n");
    if (last_break != std::string_view::npos) return at + last_break + 1;
    return spaces_end(at, end);
  }

 private:
  [[nodiscard]] word_class class_at(std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    return word_class_of(byte < 0x80 ? static_cast<std::int32_t>(byte) : character_at(text_, at).code);
  }
  [[nodiscard]] std::size_t run_end(std::size_t at, word_class kind) const {
    while (at < text_.size()) {
      const auto byte = static_cast<unsigned char>(text_[at]);
      if (byte < 0x80) {
        if (word_class_of(byte) != kind) return at;
        ++at;
      } else {
        const character c = character_at(text_, at);
        if (word_class_of(c.code) != kind) return at;
        at += c.bytes;
      }
    }
    return at;
  }
  [[nodiscard]] std::size_t breaks_end(std::size_t at) const {
    while (at < text_.size() && (text_[at] == '\r' || text_[at] == '\n')) ++at;
    return at;
  }
  /// The last of the spaces [at, end) belongs to a following word.
  [[nodiscard]] std::size_t spaces_end(std::size_t at, std::size_t end) const {
    if (end == text_.size()) return end;
    const std::size_t last = end - character_before(text_, end).bytes;
    return last > at ? last : end;
  }
  /// End of 's, 'd, 'm, 't, 'll, 've, 're at `at`, or `at`.
  [[nodiscard]] std::size_t contraction_end(std::size_t at, bool any_case) const {
    const auto letter = [&](std::size_t i) {
      if (i >= text_.size()) return '\0';
      const char c = text_[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char one = letter(at + 1);
    if (one == 's' || one == 'd' || one == 'm' || one == 't') return at + 2;
    if (any_case && text_.substr(at + 1, 2) == "\xC5\xBF") return at + 3;  // the long s folds to s
    const char two = letter(at + 2);
    if ((one == 'l' && two == 'l') || (one == 'v' && two == 'e') || (one == 'r' && two == 'e')) return at + 3;
    return at;
  }

  std::string_view text_;
};

/// Splits text into matches and text between.
class word_cutter {
 public:
  /// throws config_error for an invalid pattern
  explicit word_cutter(const std::string& pattern, const std::string& who) : kind_(kind_of(pattern)) {
    if (kind_ == kind::any) pattern_ = std::make_unique<word_pattern>(pattern, who);
  }

  /// As word_pattern::for_each_match.
  void for_each_match(std::string_view text, const part_visitor& visit) const {
    switch (kind_) {
      case kind::any:
        return pattern_->for_each_match(text, visit);
      case kind::gpt2:
        return walk(text, visit, [](const word_walk& words, std::size_t at) { return words.gpt2_end(at); });
      case kind::cl100k:
        return walk(text, visit, [](const word_walk& words, std::size_t at) { return words.cl100k_end(at, 3); });
      case kind::qwen:
        return walk(text, visit, [](const word_walk& words, std::size_t at) { return words.cl100k_end(at, 1); });
    }
  }

 private:
  enum class kind : std::uint8_t { any, gpt2, cl100k, qwen };

  /// Files spell equal patterns differently.
  [[nodiscard]] static kind kind_of(std::string_view pattern) {
    constexpr std::string_view gpt2_spelled = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    if (pattern == gpt2_pattern || pattern == gpt2_spelled) return kind::gpt2;
    if (pattern == cl100k_pattern) return kind::cl100k;
    if (pattern == qwen_pattern) return kind::qwen;
    return kind::any;
  }

  template <class End>
  static void walk(std::string_view text, const part_visitor& visit, End&& end_of) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t whole = whole_characters_end(text, begin);
      const word_walk words(text.substr(begin, whole - begin));
      for (std::size_t at = begin; at < whole;) {
        const std::size_t end = begin + end_of(words, at - begin);
        visit(at, end, true);
        at = end;
      }
      begin = whole;
      while (begin < text.size() && character_at(text, begin).code < 0) ++begin;
      if (begin > whole) visit(whole, begin, false);
    }
  }

  kind kind_;
  std::unique_ptr<word_pattern> pattern_;
};

}  // namespace detail

}  // namespace xtrain
