// Pickles, Python's serialization format, read as a tree of values; named code is never executed.
//
// A pickle is a program for a machine with a stack, a memo and marks. Opcodes of protocol 2 that occur in files of tensors:
//
//   opcode                                           effect on the stack
//   PROTO, STOP                                      first and last: nothing
//   NONE, NEWTRUE, NEWFALSE                          these values
//   BININT, BININT1, BININT2, LONG1                  an integer
//   BINFLOAT                                         a float, value ignored
//   BINUNICODE, BINSTRING, SHORT_BINSTRING           a string
//   EMPTY_TUPLE, TUPLE1, TUPLE2, TUPLE3, TUPLE       a tuple of stack values (TUPLE: above the last MARK)
//   EMPTY_LIST, APPEND, APPENDS                      a list
//   EMPTY_DICT, SETITEM, SETITEMS                    a dictionary
//   GLOBAL                                           an allowed class or function name
//   REDUCE                                           a call, recorded; OrderedDict, Counter: a dictionary
//   BUILD                                            the object below its argument; ignores attributes of a dictionary
//   BINPERSID                                        an external reference
//   MARK; BINPUT, LONG_BINPUT; BINGET, LONG_BINGET   a mark; nothing; the memoized value
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// A value of a pickle.
struct pickle_value {
  enum class kind : std::uint8_t { none, truth, whole, long_whole, real, text, tuple, list, dictionary, global, call, reference };
  using index = std::uint32_t;  ///< in its pickle

  kind is = kind::none;
  std::int64_t number = 0;     ///< a boolean or integer
  std::string_view text{};     ///< a string; a global "module.name"; bytes of an integer beyond 64 bits
  std::vector<index> items{};  ///< elements; a dictionary's keys and values alternating; a call's function and arguments
};

/// Values of a pickle; runs no code.
class pickle {
 public:
  using index = pickle_value::index;
  using kind = pickle_value::kind;

  /// More indicate an attack, or a file that should be split.
  static constexpr std::size_t max_values = std::size_t{1} << 22;

  /// Parses the pickle at the front of `bytes`; `who` and `offset` (in the file) for errors.
  ///   throws  file_error for a forbidden opcode or name, or a malformed pickle
  pickle(std::string_view bytes, std::string who, std::size_t offset, std::span<const std::string_view> globals)
      : bytes_(bytes), who_(std::move(who)), offset_(offset), globals_(globals) {
    while (!stopped_) step();
  }

  [[nodiscard]] const pickle_value& operator[](index at) const { return values_[at]; }
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  /// The unpickled object.
  [[nodiscard]] index root() const { return root_; }
  [[nodiscard]] std::size_t bytes_read() const { return at_; }

 private:
  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require<file_error>(holds, who_, ": not a pickle of tensors: byte ", offset_ + operation_at_, ": ", parts...);
  }

  [[nodiscard]] std::string_view take(std::size_t count) {
    check(count <= bytes_.size() - at_, "must go on for ", count, " bytes; ", bytes_.size() - at_, " are left. Is the file cut short?");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  template <class Number>
  [[nodiscard]] Number take() {
    Number value;
    std::memcpy(&value, take(sizeof(Number)).data(), sizeof(Number));
    return value;
  }
  [[nodiscard]] std::string_view take_line() {
    constexpr std::size_t longest = 256;
    const std::size_t length = bytes_.substr(at_, longest).find('\n');
    check(length != std::string_view::npos, "a name must end within ", longest, " bytes; it does not");
    const std::string_view line = take(length);
    ++at_;
    return line;
  }

  // The stack.

  [[nodiscard]] pickle_value& top() {
    check(!stack_.empty() && stack_.size() > (marks_.empty() ? 0 : marks_.back()), "the stack must hold a value; it is empty");
    return values_[stack_.back()];
  }
  index pop() {
    (void)top();
    const index last = stack_.back();
    stack_.pop_back();
    return last;
  }
  void push(pickle_value value) {
    check(values_.size() < max_values, "a file must have at most ", max_values, " values; it has more");
    stack_.push_back(static_cast<index>(values_.size()));
    values_.push_back(std::move(value));
  }
  void push_whole(std::int64_t number) { push({.is = kind::whole, .number = number}); }
  [[nodiscard]] std::vector<index> pop_marked() {
    check(!marks_.empty(), "there must be a mark; there is none");
    const auto mark = static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<index> items(stack_.begin() + mark, stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_tuple(std::size_t count) {
    pickle_value tuple{.is = kind::tuple, .items = std::vector<index>(count)};
    for (std::size_t i = count; i-- > 0;) tuple.items[i] = pop();
    push(std::move(tuple));
  }
  void append(const std::vector<index>& items, kind to) {
    check(top().is == to, "items must be added to a ", to == kind::list ? "list" : "dictionary", "; the stack holds something else");
    check(to == kind::list || items.size() % 2 == 0, "a dictionary's keys must have values; one has none");
    top().items.insert(top().items.end(), items.begin(), items.end());
  }

  void set_item() {
    const index value = pop(), key = pop();
    append({key, value}, kind::dictionary);
  }

  // The memo.

  void put(std::size_t place) {
    check(place < max_values, "a memo must have at most ", max_values, " entries; one is ", place);
    (void)top();
    if (memo_.size() <= place) memo_.resize(place + 1, nothing);
    memo_[place] = stack_.back();
  }
  void get(std::size_t place) {
    check(place < memo_.size() && memo_[place] != nothing, "entry ", place, " of the memo must hold a value; it holds none");
    stack_.push_back(memo_[place]);
  }

  void push_long() {
    const std::string_view digits = take(take<std::uint8_t>());
    if (digits.size() > 8) return push({.is = kind::long_whole, .text = digits});
    std::uint64_t value = !digits.empty() && (digits.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;  // two's complement
    std::memcpy(&value, digits.data(), digits.size());
    push_whole(static_cast<std::int64_t>(value));
  }
  void push_global() {
    const std::string_view module = take_line(), name = take_line();
    for (const std::string_view allowed : globals_)
      if (allowed.size() == module.size() + 1 + name.size() && allowed.starts_with(module) && allowed[module.size()] == '.' &&
          allowed.ends_with(name))
        return push({.is = kind::global, .text = allowed});
    check(false, "names '", module, ".", name, "'; tensors need only what PyTorch's own tensors are made of, and nothing else is touched");
  }
  void reduce() {
    const index arguments = pop(), function = pop();
    check(values_[function].is == kind::global && values_[arguments].is == kind::tuple, "a call must be of a name, with a tuple");
    const bool counts = values_[function].text == "collections.Counter";  // made of a dictionary
    if (!counts && values_[function].text != "collections.OrderedDict") return push({.is = kind::call, .items = {function, arguments}});
    const std::vector<index>& given = values_[arguments].items;
    if (counts && given.size() == 1 && values_[given[0]].is == kind::dictionary) return stack_.push_back(given[0]);
    check(given.empty(), "a dictionary must be made empty and then filled; this one is made full");
    push({.is = kind::dictionary});
  }
  void build() {
    (void)pop();
    check(top().is == kind::dictionary, "only dictionaries may have attributes; the stack holds something else");
  }

  void step() {
    operation_at_ = at_;
    const auto operation = take<std::uint8_t>();
    check(at_ > 1 || operation == 0x80, "must begin with its protocol; it does not");
    switch (operation) {
      case 0x80: {  // PROTO
        const auto protocol = take<std::uint8_t>();
        return check(protocol == 2 && at_ == 2, "must be of protocol 2, as torch.save writes it; it is of ", unsigned{protocol});
      }
      case '.':  // STOP
        root_ = pop();
        check(stack_.empty() && marks_.empty(), "the stack must hold one value at the end; it holds more");
        stopped_ = true;
        return;
      case 'N':
        return push({.is = kind::none});  // NONE
      case 0x88:
        return push({.is = kind::truth, .number = 1});  // NEWTRUE
      case 0x89:
        return push({.is = kind::truth});  // NEWFALSE
      case 'J':
        return push_whole(take<std::int32_t>());  // BININT
      case 'K':
        return push_whole(take<std::uint8_t>());  // BININT1
      case 'M':
        return push_whole(take<std::uint16_t>());  // BININT2
      case 0x8a:
        return push_long();  // LONG1
      case 'G':
        return (void)take(8), push({.is = kind::real});  // BINFLOAT
      case 'X':
      case 'T':
        return push({.is = kind::text, .text = take(take<std::uint32_t>())});  // BINUNICODE, BINSTRING
      case 'U':
        return push({.is = kind::text, .text = take(take<std::uint8_t>())});  // SHORT_BINSTRING
      case ')':
        return push({.is = kind::tuple});  // EMPTY_TUPLE
      case 0x85:
        return push_tuple(1);  // TUPLE1
      case 0x86:
        return push_tuple(2);  // TUPLE2
      case 0x87:
        return push_tuple(3);  // TUPLE3
      case 't':
        return push({.is = kind::tuple, .items = pop_marked()});  // TUPLE
      case ']':
        return push({.is = kind::list});  // EMPTY_LIST
      case 'a':
        return append({pop()}, kind::list);  // APPEND
      case 'e':
        return append(pop_marked(), kind::list);  // APPENDS
      case '}':
        return push({.is = kind::dictionary});  // EMPTY_DICT
      case 's':
        return set_item();  // SETITEM
      case 'u':
        return append(pop_marked(), kind::dictionary);  // SETITEMS
      case 'c':
        return push_global();  // GLOBAL
      case 'R':
        return reduce();  // REDUCE
      case 'b':
        return build();  // BUILD
      case 'Q':
        return push({.is = kind::reference, .items = {pop()}});  // BINPERSID
      case '(':
        return marks_.push_back(stack_.size());  // MARK
      case 'q':
        return put(take<std::uint8_t>());  // BINPUT
      case 'r':
        return put(take<std::uint32_t>());  // LONG_BINPUT
      case 'h':
        return get(take<std::uint8_t>());  // BINGET
      case 'j':
        return get(take<std::uint32_t>());  // LONG_BINGET
      default:
        check(false, "operation ", unsigned{operation}, " must be one that tensors need; it is not");
    }
  }

  static constexpr index nothing = ~index{0};

  std::string_view bytes_;
  std::string who_;
  std::size_t offset_;
  std::span<const std::string_view> globals_;
  std::size_t at_ = 0, operation_at_ = 0;
  bool stopped_ = false;
  index root_ = 0;
  std::vector<pickle_value> values_;
  std::vector<index> stack_, memo_;
  std::vector<std::size_t> marks_;
};

}  // namespace xtrain
