#pragma once

#include <bitset>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/pattern.hpp>

namespace xtrain {

XTRAIN_INLINE pattern::pattern(std::string_view expression, std::string who) : text_(expression), who_(std::move(who)) {
  program_ = alternatives(0);
  if (at_ < text_.size()) refuse("a ')' has no '('");
  program_.push_back({kind::accept});
  text_ = {};
}

XTRAIN_INLINE bool pattern::matches(std::string_view text) const {
  std::vector<std::size_t> now, next, pending;
  std::vector<std::size_t> seen(program_.size(), text.size() + 1);  // text position of a step's last visit
  bool accepted = reach(0, text, 0, now, seen, pending);
  for (std::size_t i = 0; i < text.size(); ++i) {
    next.clear();
    accepted = false;
    for (const std::size_t at : now)
      if (sets_[program_[at].set].test(static_cast<unsigned char>(text[i])) && reach(at + 1, text, i + 1, next, seen, pending))
        accepted = true;
    now.swap(next);
  }
  return accepted;
}

[[noreturn]] XTRAIN_INLINE void pattern::refuse(const char* why) const {
  fail<config_error>(who_, ": must be a regular expression that is understood here; in '", text_, "' at ", at_, ": ", why);
}

XTRAIN_INLINE bool pattern::take(std::string_view what) {
  if (!next_is(what)) return false;
  at_ += what.size();
  return true;
}

XTRAIN_INLINE void pattern::append(part& to, const part& more) const {
  if (to.size() + more.size() >= longest) refuse("it becomes too long");
  to.insert(to.end(), more.begin(), more.end());
}

XTRAIN_INLINE pattern::part pattern::alternatives(std::size_t depth) {
  if (depth > deepest) refuse("groups are nested too deep");
  part all = sequence(depth);
  while (take("|")) {
    // all | other: fork to both; after all, jump over other
    const part other = sequence(depth);
    part either{{kind::fork, 1, static_cast<std::ptrdiff_t>(all.size()) + 2}};
    append(either, all);
    either.push_back({kind::jump, static_cast<std::ptrdiff_t>(other.size()) + 1});
    append(either, other);
    all = std::move(either);
  }
  return all;
}

XTRAIN_INLINE pattern::part pattern::sequence(std::size_t depth) {
  part all;
  while (at_ < text_.size() && !next_is("|") && !next_is(")")) append(all, repeated(atom(depth)));
  return all;
}

XTRAIN_INLINE pattern::part pattern::repeated(part one) {
  std::size_t least = 1, most = 1;
  bool endless = false;
  if (take("*")) least = 0, endless = true;
  else if (take("+")) endless = true;
  else if (take("?")) least = 0;
  else if (!take_counts(least, most, endless)) return one;
  take("?");  // lazy: equal matches
  std::size_t again_least = 0, again_most = 0;
  bool again_endless = false;
  if (next_is("*") || next_is("+") || next_is("?") || take_counts(again_least, again_most, again_endless))
    refuse("a repetition is repeated");
  part all;
  for (std::size_t i = 0; i < least; ++i) append(all, one);
  const auto length = static_cast<std::ptrdiff_t>(one.size());
  if (endless) {
    append(all, {{kind::fork, 1, length + 2}});
    append(all, one);
    append(all, {{kind::jump, -length - 1}});
  }
  for (std::size_t i = least; !endless && i < most; ++i) {
    append(all, {{kind::fork, 1, length + 1}});
    append(all, one);
  }
  return all;
}

XTRAIN_INLINE bool pattern::take_counts(std::size_t& least, std::size_t& most, bool& endless) {
  const std::size_t before = at_;
  if (!take("{")) return false;
  const auto number = [&](std::size_t& value) {
    const std::size_t from = at_;
    std::size_t n = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (n > longest) refuse("it repeats too often");
      n = 10 * n + static_cast<std::size_t>(text_[at_++] - '0');
    }
    if (at_ != from) value = n;
    return at_ != from;
  };
  least = 0;
  const bool has_least = number(least);
  bool has_most = has_least;
  most = least;
  if (take(",")) {
    has_most = number(most);
    endless = !has_most;
  }
  if ((!has_least && !has_most) || !take("}")) {
    at_ = before;
    least = most = 1;
    endless = false;
    return false;
  }
  if (!endless && most < least) refuse("a repetition's largest count is below its smallest");
  if (least > longest || most > longest) refuse("it repeats too often");
  return true;
}

XTRAIN_INLINE pattern::part pattern::atom(std::size_t depth) {
  if (take("(")) {
    if (take("?P<") || (next_is("?<") && !next_is("?<=") && !next_is("?<!") && take("?<"))) {
      while (at_ < text_.size() && text_[at_] != '>') ++at_;
      if (!take(">")) refuse("a group's name has no end");
    } else if (!take("?:") && next_is("?")) {
      refuse("only groups (...), (?:...) and (?P<name>...) are understood");
    }
    part inner = alternatives(depth + 1);
    if (!take(")")) refuse("a '(' has no ')'");
    return inner;
  }
  if (take("[")) return one_of(bracket());
  if (take("^")) return {{kind::begin}};
  if (take("$")) return {{kind::end}};
  if (take(".")) return one_of(byte_set{}.set().reset('\n'));
  if (next_is("*") || next_is("+") || next_is("?")) refuse("there is nothing to repeat");
  if (take("\\")) {
    if (take("b")) return {{kind::boundary}};
    if (take("B")) return {{kind::no_boundary}};
    if (take("A")) return {{kind::begin}};
    if (take("Z")) return {{kind::end}};
    return one_of(escaped());
  }
  return one_of(byte_set{}.set(static_cast<unsigned char>(text_[at_++])));
}

XTRAIN_INLINE pattern::part pattern::one_of(const byte_set& set) {
  sets_.push_back(set);
  return {{kind::one_of, 0, 0, sets_.size() - 1}};
}

XTRAIN_INLINE pattern::byte_set pattern::escaped() {
  if (at_ == text_.size()) refuse("a backslash is at the end");
  const char c = text_[at_++];
  byte_set set;
  const auto fill = [&](auto&& belongs) {
    for (unsigned i = 0; i < 256; ++i) set[i] = belongs(static_cast<char>(i));
  };
  switch (c) {
    case 'd':
    case 'D':
      fill([](char x) { return x >= '0' && x <= '9'; });
      break;
    case 'w':
    case 'W':
      fill(is_word);
      break;
    case 's':
    case 'S':
      fill([](char x) { return x == ' ' || (x >= '\t' && x <= '\r'); });
      break;
    case 'n':
      set.set('\n');
      break;
    case 't':
      set.set('\t');
      break;
    case 'r':
      set.set('\r');
      break;
    default:
      if (is_word(c) && c != '_') refuse("this escape is not understood");
      set.set(static_cast<unsigned char>(c));
  }
  return c == 'D' || c == 'W' || c == 'S' ? ~set : set;
}

XTRAIN_INLINE pattern::byte_set pattern::bracket() {
  const bool excluded = take("^");
  byte_set set;
  for (bool first = true; first || !next_is("]"); first = false) {
    if (at_ == text_.size()) refuse("a '[' has no ']'");
    const byte_set low = member();
    if (next_is("-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
      ++at_;
      const byte_set high = member();
      if (low.count() != 1 || high.count() != 1 || lowest(low) > lowest(high)) refuse("a range must go from one byte up to another");
      for (std::size_t i = lowest(low); i <= lowest(high); ++i) set.set(i);
    } else {
      set |= low;
    }
  }
  ++at_;  // the closing bracket
  return excluded ? ~set : set;
}

XTRAIN_INLINE pattern::byte_set pattern::member() {
  if (take("\\")) return escaped();
  return byte_set{}.set(static_cast<unsigned char>(text_[at_++]));
}

XTRAIN_INLINE std::size_t pattern::lowest(const byte_set& set) {
  std::size_t i = 0;
  while (!set[i]) ++i;
  return i;
}

XTRAIN_INLINE bool pattern::is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

XTRAIN_INLINE bool pattern::reach(std::size_t from, std::string_view text, std::size_t i, std::vector<std::size_t>& steps,
                                  std::vector<std::size_t>& seen, std::vector<std::size_t>& pending) const {
  bool accepted = false;
  pending.assign(1, from);
  while (!pending.empty()) {
    const std::size_t at = pending.back();
    pending.pop_back();
    if (seen[at] == i) continue;
    seen[at] = i;
    const step& s = program_[at];
    const auto to = [&](std::ptrdiff_t distance) {
      pending.push_back(static_cast<std::size_t>(static_cast<std::ptrdiff_t>(at) + distance));
    };
    switch (s.what) {
      case kind::one_of:
        steps.push_back(at);
        break;
      case kind::fork:
        to(s.first);
        to(s.second);
        break;
      case kind::jump:
        to(s.first);
        break;
      case kind::begin:
        if (i == 0) to(1);
        break;
      case kind::end:
        if (i == text.size()) to(1);
        break;
      case kind::boundary:
      case kind::no_boundary: {
        const bool here = (i > 0 && is_word(text[i - 1])) != (i < text.size() && is_word(text[i]));
        if (here == (s.what == kind::boundary)) to(1);
        break;
      }
      case kind::accept:
        accepted = true;
        break;
    }
  }
  return accepted;
}

}  // namespace xtrain
