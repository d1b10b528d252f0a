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
