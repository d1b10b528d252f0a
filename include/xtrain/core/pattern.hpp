// Regular expressions over names. Time: length of expression × text, without backtracking. [Thompson 1968, "Regular expression search algorithm"]
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// Matches an entire text. Python's `re`: . \d \w \s \b [a-z] [^a-z] (a|b) (?:a) (?P<name>a) * + ? {2,5} ^ $, greedy or lazy. Errors: lookahead, lookbehind,
/// backreferences, flags.
class pattern {
 public:
  /// `who`: for errors.
  ///   throws  config_error when the expression is malformed, has a rejected feature, or more than 4096 steps
  pattern(std::string_view expression, std::string who);

  [[nodiscard]] bool matches(std::string_view text) const;

 private:
  enum class kind : std::uint8_t { one_of, fork, jump, begin, end, boundary, no_boundary, accept };
  /// A part's steps are consecutive, forks and jumps relative: a copy repeats it.
  struct step {
    kind what = kind::accept;
    std::ptrdiff_t first = 0, second = 0;
    std::size_t set = 0;
  };
  using part = std::vector<step>;
  using byte_set = std::bitset<256>;
  static constexpr std::size_t longest = 4096;  // steps
  static constexpr std::size_t deepest = 64;    // nested groups

  [[noreturn]] void refuse(const char* why) const;
  [[nodiscard]] bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what);
  void append(part& to, const part& more) const;

  part alternatives(std::size_t depth);
  part sequence(std::size_t depth);

  part repeated(part one);
  /// {2} {2,} {,5} {2,5}; other braces are literal
  bool take_counts(std::size_t& least, std::size_t& most, bool& endless);

  part atom(std::size_t depth);
  part one_of(const byte_set& set);

  /// After a backslash.
  byte_set escaped();
  /// Between [ and ].
  byte_set bracket();
  byte_set member();
  [[nodiscard]] static std::size_t lowest(const byte_set& set);
  [[nodiscard]] static bool is_word(char c);

  /// Adds steps that consume a byte, reachable from `from` before byte `i`.
  ///   returns  whether the expression can end here
  bool reach(std::size_t from, std::string_view text, std::size_t i, std::vector<std::size_t>& steps, std::vector<std::size_t>& seen,
             std::vector<std::size_t>& pending) const;

  std::string_view text_;
  std::size_t at_ = 0;
  std::string who_;
  part program_;
  std::vector<byte_set> sets_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/core/pattern_impl.hpp>
#endif
