#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include "scratch.hpp"

using namespace xtrain;

TEST_CASE("JSON keeps its values; members are sorted") {
  const json value = parse_json(R"({"b": [1, 2.5, "x", null, true], "a": {"c": -3}})", "text");
  CHECK(value.dump() == R"({"a":{"c":-3},"b":[1,2.5,"x",null,true]})");
  CHECK(value["a"]["c"].get<int>() == -3);
}

TEST_CASE("malformed JSON is refused with the line") {
  CHECK_THROWS_WITH_AS((void)parse_json("{\n \"a\": 1,\n \"b\" 2\n}", "x.json"), doctest::Contains("x.json: must be JSON; line 3"),
                       file_error);
  CHECK_THROWS_WITH_AS((void)parse_json("[1, 2", "x.json", 10), doctest::Contains("line 10"), file_error);
  CHECK_THROWS_AS((void)parse_json("", "x"), file_error);
  CHECK_THROWS_AS((void)parse_json("{} trailing", "x"), file_error);
  CHECK_THROWS_AS((void)parse_json("\"\xff\"", "x"), file_error);  // not UTF-8
  CHECK_THROWS_AS((void)parse_json<data_error>("nope", "x"), data_error);
}

TEST_CASE("a key that occurs twice, and nesting without end, are refused") {
  CHECK_THROWS_WITH_AS((void)parse_json(R"({"a": 1, "a": 2})", "x"), doctest::Contains("key 'a' occurs twice"), file_error);
  CHECK_THROWS_WITH_AS((void)parse_json(std::string(100000, '['), "x"), doctest::Contains("nested deeper"), file_error);
}

TEST_CASE("as Python reads a text, the last value of a key counts; nesting without end is refused") {
  std::vector<std::string> twice;
  CHECK(parse_python_json(R"({"a": 1, "b": {"a": 2, "a": [3]}, "a": {"c": 4}})", "x", twice) == json::parse(R"({"a": {"c": 4}, "b": {"a": [3]}})"));
  CHECK(twice == std::vector<std::string>{"a", "a"});
  CHECK_THROWS_WITH_AS((void)parse_python_json(std::string(1000000, '['), "x", twice), doctest::Contains("nested deeper than 128"), file_error);
  CHECK_THROWS_WITH_AS((void)parse_python_json("{\n\"a\" 1}", "x", twice), doctest::Contains("x: must be JSON; line 2: "), file_error);
}

TEST_CASE("the public parsing test suite is accepted and refused as it should be") {
  const std::string folder = test_data("formats/json/test_parsing");
  if (folder.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  std::size_t accepted = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const std::string text = get_file(entry.path().string());
    bool good = true;
    try {
      (void)parse_json(text, name);
    } catch (const file_error&) {
      good = false;
    }
    CAPTURE(name);
    // xtrain rejects duplicate keys, which JSON itself allows
    if (name.starts_with("y_") && name.find("duplicated_key") == std::string::npos) CHECK(good);
    if (name.starts_with("n_")) CHECK_FALSE(good);
    (good ? accepted : refused) += 1;
  }
  CHECK(accepted > 50);
  CHECK(refused > 50);
}
