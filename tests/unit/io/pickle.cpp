#include <doctest/doctest.h>

#include <array>
#include <string>

#include <xtrain/io/pickle.hpp>
#include "pickled.hpp"

using namespace xtrain;
using namespace pickled;

namespace {

constexpr std::array<std::string_view, 3> allowed{"collections.OrderedDict", "collections.Counter", "torch.Size"};

/// A value as text, for comparison.
std::string shown(const pickle& values, pickle::index at) {
  using kind = pickle_value::kind;
  const pickle_value& value = values[at];
  std::string items;
  for (const pickle::index item : value.items) items += (items.empty() ? "" : " ") + shown(values, item);
  switch (value.is) {
    case kind::none:
      return "none";
    case kind::truth:
      return value.number == 1 ? "true" : "false";
    case kind::whole:
      return std::to_string(value.number);
    case kind::long_whole:
      return "long of " + std::to_string(value.text.size());
    case kind::real:
      return "real";
    case kind::text:
      return "'" + std::string(value.text) + "'";
    case kind::tuple:
      return "(" + items + ")";
    case kind::list:
      return "[" + items + "]";
    case kind::dictionary:
      return "{" + items + "}";
    case kind::global:
      return std::string(value.text);
    case kind::call:
      return "call " + items;
    case kind::reference:
      return "reference " + items;
  }
  return "";
}
std::string read(const std::string& operations) {
  const std::string bytes = program(operations);
  const pickle values(bytes, "p", 0, allowed);
  CHECK(values.bytes_read() == bytes.size());
  return shown(values, values.root());
}
void refuses(const std::string& bytes, const std::string& words) {
  CAPTURE(words);
  CHECK_THROWS_WITH_AS(pickle(bytes, "p", 100, allowed), doctest::Contains(words.c_str()), file_error);
}

}  // namespace

TEST_CASE("every operation that tensors need leaves its value") {
  CHECK(read("N") == "none");
  CHECK(read("\x88") == "true");
  CHECK(read("\x89") == "false");
  CHECK(read("J\xfe\xff\xff\xff") == "-2");
  CHECK(read("K\xff") == "255");
  CHECK(read("M\xff\xff") == "65535");
  CHECK(read("\x8a\1\xff") == "-1");
  CHECK(read("\x8a\2\0\1"s) == "256");
  CHECK(read("\x8a\0"s) == "0");
  CHECK(read("\x8a\x0a"s + std::string(10, '\1')) == "long of 10");
  CHECK(read("G" + std::string(8, '\0')) == "real");
  CHECK(read(text("abc")) == "'abc'");
  CHECK(read("U\3abc") == "'abc'");
  CHECK(read("T\3\0\0\0abc"s) == "'abc'");
  CHECK(read(")") == "()");
  CHECK(read("K\1\x85") == "(1)");
  CHECK(read("K\1K\2\x86") == "(1 2)");
  CHECK(read("K\1K\2K\3\x87") == "(1 2 3)");
  CHECK(read("(K\1K\2K\3K\4t") == "(1 2 3 4)");
  CHECK(read("]") == "[]");
  CHECK(read("]K\1a") == "[1]");
  CHECK(read("](K\1K\2e") == "[1 2]");
  CHECK(read("}") == "{}");
  CHECK(read("}U\1aK\1s") == "{'a' 1}");
  CHECK(read("}(U\1aK\1U\1bK\2u") == "{'a' 1 'b' 2}");
  CHECK(read("ccollections\nOrderedDict\n)R") == "{}");
  CHECK(read("ccollections\nCounter\n}U\1aK\1s\x85R") == "{'a' 1}");
  CHECK(read("ccollections\nCounter\n)R") == "{}");
  CHECK(read("ctorch\nSize\nK\1\x85\x85R") == "call torch.Size ((1))");
  CHECK(read("ccollections\nOrderedDict\n)RU\1aK\1s}b") == "{'a' 1}");  // its attributes are left out
  CHECK(read("U\1k\x85Q") == "reference ('k')");
  CHECK(read("(K\1q\0h\0t"s) == "(1 1)");
  CHECK(read("(K\1r\0\2\0\0j\0\2\0\0t"s) == "(1 1)");
}

TEST_CASE("what tensors do not need is refused with its place and its name") {
  refuses(program("cos\nsystem\nU\2ls\x85R"), "p: not a pickle of tensors: byte 102: names 'os.system'");
  refuses(program("c__builtin__\neval\n"), "names '__builtin__.eval'");
  refuses(program("ccollections\nOrderedDictX\n"), "names 'collections.OrderedDictX'");
  refuses(program("ccollections.Ordered\nDict\n"), "names 'collections.Ordered.Dict'");
  refuses(program("ios\nsystem\n"), "byte 102: operation 105 must be one that tensors need");
  refuses(program("ccollections\nOrderedDict\n)\x81"), "operation 129 must be one that tensors need");
  refuses(program("V1\n"), "operation 86");
  refuses("\x80\x04N.", "must be of protocol 2, as torch.save writes it; it is of 4");
  refuses("N.", "must begin with its protocol");
  refuses(program("\x80\x02N"), "must be of protocol 2");
}

TEST_CASE("a program that is none is refused") {
  refuses("", "byte 100: must go on for 1 bytes; 0 are left. Is the file cut short?");
  refuses("\x80\x02", "byte 102: must go on for 1 bytes");
  refuses("\x80\x02.", "the stack must hold a value; it is empty");
  refuses(program("NN"), "the stack must hold one value at the end; it holds more");
  refuses(program("N("), "the stack must hold a value; it is empty");
  refuses(
      "\x80\x02X\xff\xff\xff\xff"
      "a.",
      "must go on for 4294967295 bytes");
  refuses(program("t"), "there must be a mark; there is none");
  refuses(program("K\1\x86"), "the stack must hold a value");
  refuses(program("N(K\1\x86"), "the stack must hold a value");  // not below a mark
  refuses(program("K\1K\2a"), "items must be added to a list");
  refuses(program("]K\1K\2s"), "items must be added to a dictionary");
  refuses(program("}(K\1u"), "a dictionary's keys must have values");
  refuses(program("h\7"), "entry 7 of the memo must hold a value; it holds none");
  refuses(program("Nr\xff\xff\xff\xff"), "a memo must have at most 4194304 entries; one is 4294967295");
  refuses(program("K\1)R"), "a call must be of a name, with a tuple");
  refuses(program("ctorch\nSize\nK\1R"), "a call must be of a name, with a tuple");
  refuses(program("ccollections\nOrderedDict\n]\x85R"), "a dictionary must be made empty");
  refuses(program("]}b"), "only dictionaries may have attributes");
  refuses(program("c" + std::string(300, 'a')), "a name must end within 256 bytes");
  refuses("\x80\x02" + std::string(std::size_t{5} << 20, 'N'), "a file must have at most 4194304 values; it has more");
}
