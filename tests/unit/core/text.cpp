#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>

using namespace xtrain;

TEST_CASE("concat joins texts, numbers and shapes") {
  CHECK(concat("hidden_size (", 6, ") and ", 1.5, ' ', true, " ", std::string("end")) == "hidden_size (6) and 1.5 true end");
  CHECK(concat(std::array<std::size_t, 2>{2, 3}) == "[2, 3]");
  CHECK(concat(std::span<const int>()) == "[]");
  CHECK(concat(0.1f) == "0.1");
  CHECK(concat(-7L) == "-7");
}

TEST_CASE("a terminal is shown control characters, and does not obey them") {
  CHECK(printable("a\tb \xC3\xBC") == "a\tb \xC3\xBC");
  CHECK(printable("\x1b[31mred\r\nx\x7F\xC2\x9B" "31m") == "\\x1b[31mred\\x0d\\nx\\x7f\\xc2\\x9b31m");
  CHECK(printable("a\nb\x07", true) == "a\nb\\x07");
  CHECK(printable("\xC2") == "\xC2");
}

TEST_CASE("bytes and counts are written as people read them") {
  CHECK(bytes_text(std::size_t{0}) == "0 B");
  CHECK(bytes_text(std::size_t{1023}) == "1023 B");
  CHECK(bytes_text(std::size_t{1536}) == "1.50 KiB");
  CHECK(bytes_text(std::size_t{5} << 30) == "5.00 GiB");
  CHECK(count_text(123'650'000.0) == "123.65 M");
  CHECK(count_text(12.0) == "12");
}

TEST_CASE("the nearest name is found, and nothing when all are far") {
  const std::vector<std::string> known{"--max-steps", "--save-steps", "--seed"};
  CHECK(nearest_name("--max-stpes", known) == "--max-steps");
  CHECK(nearest_name("--save_steps", known) == "--save-steps");
  CHECK(nearest_name("--colour", known).empty());
  CHECK(nearest_name("x", {}).empty());
}

TEST_CASE("require throws its error with the parts joined, and only when it must") {
  CHECK_NOTHROW(require<config_error>(true, "never"));
  CHECK_THROWS_WITH_AS(require<config_error>(false, "num_heads (", 6, ") must be divisible by num_kv_heads (", 4, ")"),
                       "num_heads (6) must be divisible by num_kv_heads (4)", config_error);
}
