// Regular expressions by PCRE2; the only header with it. Component 'text'.
#pragma once

#if !__has_include(<pcre2.h>)
#error "xtrain text: PCRE2 must be found; link xtrain::text (Debian and Ubuntu: libpcre2-dev)"
#endif

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/part_visitor.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

/// Parses the braced property at `at` (after p) and advances `at`: name, and whether negated (\p{^N}).
///   returns  an empty name: no property
[[nodiscard]] inline std::pair<std::string_view, bool> property_at(std::string_view pattern, std::size_t& at) {
  if (at >= pattern.size()) return {};
  if (pattern[at] != '{') return {pattern.substr(at++, 1), false};
  const std::size_t end = pattern.find('}', at);
  if (end == std::string_view::npos) return {};
  std::string_view name = pattern.substr(at + 1, end - at - 1);
  at = end + 1;
  const bool negated = name.starts_with('^');
  if (negated) name.remove_prefix(1);
  return {name, negated};
}

/// A script in PCRE2.
[[nodiscard]] inline bool is_script(std::string_view name) {
  for (const std::string_view one : {"Arabic", "Armenian", "Bengali", "Bopomofo", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati",
                                     "Gurmukhi", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Latin", "Malayalam",
                                     "Mongolian", "Myanmar", "Oriya", "Sinhala", "Syriac", "Tamil", "Telugu", "Thaana", "Thai", "Tibetan"})
    if (name == one) return true;
  return false;
}

/// Translates Oniguruma syntax that PCRE2 reads differently.
///   throws  config_error for what PCRE2 lacks or does differently: negated sets in sets, intersections, \X
[[nodiscard]] inline std::string pattern_for_pcre2(std::string_view pattern, const std::string& who) {
  constexpr std::string_view space = R"(\t-\r\x{85}\p{Z})";
  static const std::string word_in_set = late_members("L") + late_members("M") + late_members("Nd") + late_members("Nl") + late_members("Pc") +
      R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
  static const std::string word = word_in_set + R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";  // six more, in no set
  static const std::string boundary = concat("(?:(?<=[", word, "])(?![", word, "])|(?<![", word, "])(?=[", word, "]))");
  static const std::string no_boundary = concat("(?:(?<=[", word, "])(?=[", word, "])|(?<![", word, "])(?![", word, "]))");
  constexpr std::string_view hexadecimal = "0-9a-fA-F";
  static const std::string digit = "\\p{Nd}" + late_members("Nd");
  std::string result;
  bool in_set = false, set_is_negated = false;
  std::size_t depth = 0;          // of nested sets: a union, without brackets
  enum class place { begins, behind_character, in_range, behind_range, behind_class, behind_set } here = place::begins;  // in the set
  std::size_t members_begin = 0;  // in the result, of the set
  std::vector<std::string> but;   // members: all characters but these
  std::vector<std::size_t> options{0};  // per open group and the pattern: groups opened by isolated options, as (?i)
  const auto close_set = [&] {
    in_set = false;
    // at the front these would negate the set, or be read as [.x.], [:x:], [=x=]
    if (result.size() > members_begin && std::string_view("^.:=").find(result[members_begin]) != std::string_view::npos) result.insert(members_begin, 1, '\\');
    result += ']';
    if (but.empty()) return;
    // a union with complements is no set in PCRE2: one of several alternatives, or, negated, a character of no alternative; atomic, as each takes one character
    // and retrying only costs time
    const std::string members = result.substr(members_begin, result.size() - 1 - members_begin);
    result.resize(members_begin - (set_is_negated ? 2 : 1));
    result += set_is_negated ? "(?:" : "(?>";
    if (!members.empty()) result += concat(set_is_negated ? "(?![" : "[", members, set_is_negated ? "])" : "]|");
    for (std::size_t k = 0; k < but.size(); ++k) result += concat(set_is_negated ? "(?=[" : k > 0 ? "|[^" : "[^", but[k], set_is_negated ? "])" : "]");
    result += set_is_negated ? "(?s:.))" : ")";
    but.clear();
  };
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const place was = here;
    if ((c & 0xC0) != 0x80) here = was == place::in_range ? place::behind_range : place::behind_character;  // a character of several bytes
    if (c == '\\' && i + 1 < pattern.size()) {
      const char name = pattern[++i];
      const char small = static_cast<char>(name | 0x20);
      bool negated = name != small;
      require<config_error>(std::string_view("XVGQE").find(name) == std::string_view::npos && (small != 'p' || pattern.substr(i + 1, 1) == "{"), who,
                            ": the pattern must have no \\", name, small == 'p' ? " without braces" : "", "; given '", pattern, "'");
      if (name == 'v') {
        result += "\\x0B";
        continue;
      }
      if (name == 'x' && pattern.substr(i + 1, 1) == "{") {  // braces of a number, not of an interval
        const std::size_t end = std::min(pattern.find('}', i), pattern.size() - 1);
        result += concat("\\", pattern.substr(i, end + 1 - i));
        i = end;
        continue;
      }
      if (small == 'b' && !in_set) {
        result += negated ? no_boundary : boundary;
        continue;
      }
      std::string property;
      if (small == 'p') {
        std::size_t behind = i + 1;
        const auto [called, other_way] = property_at(pattern, behind);
        // a category plus recent characters; `sc:`: without script extensions
        if (called.size() == 1 || called.size() == 2) property = concat("\\p{", called, "}") + late_members(called);
        else if (called == "Han") property = R"(\p{sc:Han}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
        else if (is_script(called)) property = concat("\\p{sc:", called, "}");
        negated = negated != other_way;
        if (!property.empty()) i = behind - 1;
      }
      const std::string_view members = small == 's'   ? space
                                       : small == 'w' ? std::string_view(in_set ? word_in_set : word)
                                       : small == 'd' ? std::string_view(digit)
                                       : small == 'h' ? hexadecimal
                                                      : std::string_view(property);
      if (!members.empty() || small == 'p') here = place::behind_class;
      if (members.empty()) result += {c, name};
      else if (in_set && negated) but.emplace_back(members);
      else if (in_set) result += members;
      else result += concat(negated ? "[^" : "[", members, "]");
      continue;
    }
    if (in_set) {
      const bool named = c == '[' && i + 1 < pattern.size() && pattern[i + 1] == ':';
      require<config_error>(pattern.substr(i, 2) != "&&", who, ": the pattern must have no intersection of sets; given '", pattern, "'");
      if (named) {
        const std::size_t end = pattern.find(":]", i);
        require<config_error>(end != std::string_view::npos, who, ": the pattern must end what it begins; given '", pattern, "'");
        const std::string_view name = pattern.substr(i + 2, end - i - 2);
        require<config_error>(name == "space" || name == "word" || name == "digit" || name == "xdigit", who, ": the pattern must have no [:", name,
                              ":]; given '", pattern, "'");
        result += name == "space" ? space : name == "word" ? std::string_view(word_in_set) : name == "digit" ? std::string_view(digit) : hexadecimal;
        i = end + 1;
        here = place::behind_class;
        continue;
      }
      const std::string_view next = pattern.substr(i + 1, 2);
      if (c == '[') {
        require<config_error>(!next.starts_with('^') && !next.starts_with(']'), who, ": the pattern must have no negated or empty set inside a set; given '",
                              pattern, "'");
        ++depth;
        here = place::begins;
        continue;
      }
      if (c == ']' && depth > 0) {
        --depth;
        here = place::behind_set;
        continue;
      }
      if (c == ']') {
        close_set();
        continue;
      }
      if (c == '-' && was != place::in_range) {
        if (was == place::begins || was == place::behind_range || was == place::behind_set || next.starts_with(']')) result += '\\';  // a member
        else {
          const bool before_class =
              next.starts_with('[') || (next.size() == 2 && next[0] == '\\' && std::string_view("sSwWdDhHpP").find(next[1]) != std::string_view::npos);
          require<config_error>(was != place::behind_class && !before_class, who,
                                ": the pattern must have no range from or to a class of characters; given '", pattern, "'");
          here = place::in_range;
        }
      }
    } else if (c == '[') {
      in_set = true;
      here = place::begins;
      result += c;
      set_is_negated = i + 1 < pattern.size() && pattern[i + 1] == '^';
      if (set_is_negated) result += pattern[++i];
      members_begin = result.size();
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') {  // the first in a set is a member
        result += pattern[++i];
        here = place::behind_character;
      }
      continue;
    } else if (c == '{') {
      const std::size_t end = pattern.find_first_not_of("0123456789,", i + 1);
      if (end != std::string_view::npos && end > i + 1 && pattern[end] == '}' && pattern.substr(i, 3) != "{,}") {
        const std::string_view interval = pattern.substr(i + 1, end - i - 1), behind = pattern.substr(end + 1, 1);
        const std::size_t comma = interval.find(',');
        const std::string least = comma == 0 ? "0" : std::string(interval.substr(0, comma));
        // + repeats the interval, where PCRE2 is possessive; ? makes {n} optional
        const bool repeats = behind == "+";
        require<config_error>((!repeats || least == "0" || least == "1" || interval.back() == ',') && (behind != "?" || comma != std::string_view::npos), who,
                              ": the pattern must have no {", interval, "}", behind, "; given '", pattern, "'");
        result += concat("{", least, repeats ? std::string_view(",") : comma == std::string_view::npos ? std::string_view() : interval.substr(comma), "}");
        i = repeats ? end + 1 : end;
        continue;
      }
    } else if (pattern.substr(i, 3) == "(?#") {  // a comment; \) does not end it
      for (i += 3; i < pattern.size() && pattern[i] != ')'; ++i)
        if (pattern[i] == '\\') ++i;
      result += i < pattern.size() ? "(?#)" : "(?#";
      continue;
    } else if (pattern.substr(i, 2) == "(?") {
      const std::size_t end = pattern.find_first_not_of("imsx-", i + 2);
      require<config_error>(pattern.substr(i + 2, end == std::string_view::npos ? end : end - i - 2).find('m') == std::string_view::npos, who,
                            ": the pattern must have no option m; given '", pattern, "'");
      if (end != std::string_view::npos && end > i + 2 && pattern[end] == ')') {  // a(?i)b|c is a(?i:b|c); PCRE2 reads (?:a(?i)b)|(?i)c
        result += concat(pattern.substr(i, end - i), ":");
        ++options.back();
        i = end;
        continue;
      }
      options.push_back(0);
    } else if (c == '(') {
      options.push_back(0);
    } else if (c == ')') {
      result.append(options.back(), ')');
      if (options.size() > 1) options.pop_back();
    }
    result += c;
  }
  result.append(options.back(), ')');
  return result;
}

/// Bytes that are not UTF-8 match nothing.
class word_pattern {
 public:
  /// throws config_error for an invalid pattern
  explicit word_pattern(const std::string& pattern, const std::string& who = "tokenizer") : who_(who) {
    const std::string translated = pattern_for_pcre2(pattern, who);
    int problem = 0;
    PCRE2_SIZE where = 0;
    const std::unique_ptr<pcre2_compile_context, deleter> context(::pcre2_compile_context_create(nullptr));
    ::pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    code_.reset(::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &problem,
                                &where, context.get()));
    require<config_error>(code_ != nullptr, who, ": the pattern that cuts words must be a regular expression; '", pattern,
                          "' is not, at position ", where);
    ::pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // on failure matching is slower
  }

  /// visit(begin, end, matches) for matches and ranges between, which cover the text. A match may be empty, but not directly after another.
  ///   throws  data_error if limits are exceeded
  void for_each_match(std::string_view text, const part_visitor& visit) const {
    const std::unique_ptr<pcre2_match_data, deleter> match(::pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const std::unique_ptr<pcre2_match_context, deleter> limits(::pcre2_match_context_create(nullptr));
    ::pcre2_set_match_limit(limits.get(), static_cast<std::uint32_t>(std::min<std::size_t>(1000000 + 64 * text.size(), 2000000000)));
    ::pcre2_set_heap_limit(limits.get(), 1U << 20);  // KiB
    const auto search = [&](std::size_t from, std::uint32_t options) {
      return ::pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, match.get(), limits.get());
    };
    std::size_t covered = 0, at = 0, last_end = std::string_view::npos;
    while (at <= text.size()) {
      int found = search(at, 0);
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = search(at, PCRE2_NO_JIT);  // slower, with room for long matches
      if (found == PCRE2_ERROR_NOMATCH) break;
      require<data_error>(found >= 0, who_, ": the pattern must match within the library's limits; it gave up at byte ", at,
                          " of a text of ", text.size(), " (PCRE2 error ", found, ")");
      const PCRE2_SIZE* place = ::pcre2_get_ovector_pointer(match.get());
      const std::size_t begin = place[0] > covered ? place[0] : covered, end = place[1] > begin ? place[1] : begin;
      if (begin == end && end == last_end) {  // one character further
        at += at < text.size() ? character_at(text, at).bytes : 1;
        continue;
      }
      if (begin > covered) visit(covered, begin, false);
      visit(begin, end, true);
      covered = at = last_end = end;
    }
    if (covered < text.size()) visit(covered, text.size(), false);
  }

 private:
  struct deleter {
    void operator()(pcre2_code* code) const { ::pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { ::pcre2_match_data_free(match); }
    void operator()(pcre2_match_context* context) const { ::pcre2_match_context_free(context); }
    void operator()(pcre2_compile_context* context) const { ::pcre2_compile_context_free(context); }
  };
  std::string who_;
  std::unique_ptr<pcre2_code, deleter> code_;
};

}  // namespace xtrain::detail
