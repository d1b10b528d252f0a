#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include <xtrain/front_ends/yaml.hpp>

using namespace xtrain;

namespace {

yaml_value yaml_of(const std::string& text) { return parse_yaml(text, "a.yaml"); }

}  // namespace

TEST_CASE("plain scalars have the types that OmegaConf gives them") {
  const yaml_value all = yaml_of(
      "rate: 2e-5\nlarge: 1_000\nhex: 0x1F\nminus: -3\nfloat: 1.5\nnothing: null\ntilde: ~\nempty:\nyes: Yes\noff: off\nupper: TRUE\nmixed: tRue\nnumber: 00030\n"
      "quoted: '3'\nversion: 1.2.3\ndotted: .5\ninfinite: -.inf\nword: inf\nlist: [1, a, 2.5]\ntag: !!str 7\n");
  using kind = yaml_value::kind;
  CHECK(all.find("rate")->type == kind::number);
  CHECK(all.find("rate")->real == 2e-5);
  CHECK(all.find("large")->whole == 1000);
  CHECK(all.find("hex")->whole == 31);
  CHECK(all.find("minus")->whole == -3);
  CHECK(all.find("minus")->real == -3.0);
  CHECK(all.find("float")->real == 1.5);
  for (const char* key : {"nothing", "tilde", "empty"}) CHECK(all.find(key)->is_null());
  CHECK(all.find("yes")->truth);
  CHECK(all.find("off")->type == kind::boolean);
  CHECK_FALSE(all.find("off")->truth);
  CHECK(all.find("upper")->truth);
  for (const char* key : {"mixed", "number", "quoted", "version", "word", "tag"}) CHECK(all.find(key)->is_text());
  CHECK(all.find("number")->text == "00030");
  CHECK(all.find("dotted")->real == 0.5);
  CHECK(std::isinf(all.find("infinite")->real));
  CHECK(all.find("list")->to_json() == json::parse(R"([1, "a", 2.5])"));
  CHECK(all.find("list")->line == 19);
  CHECK(all.find("missing") == nullptr);
}

TEST_CASE("a document is written as it is read") {
  const std::string text =
      "b: 1\na:\n  list:\n  - x: 1\n    y: [2, {z: 3}]\n  - - 1\n    - 'two: 2'\n  empty: []\n  none: {}\nquoted: ['', 'true', '3', \"a\\nb\", ' c', 'd:', 'e #f', '-', '00030']\n";
  const yaml_value once = yaml_of(text);
  CHECK(yaml_of(yaml_text(once)).to_json() == once.to_json());
  CHECK(yaml_text(once).starts_with("b: 1\na:\n"));
  CHECK(yaml_text(once, true).starts_with("a:\n  empty: []\n"));
  CHECK(yaml_of(yaml_text(once, true)).to_json() == once.to_json());
  CHECK(yaml_text(yaml_of("a: True\nb: off\nc: 'True'\nd: 2e-5\n")) == "a: true\nb: false\nc: \"True\"\nd: 2e-5\n");  // PyYAML writes booleans so
}

TEST_CASE("a message shows the beginning of a long value") {
  CHECK(yaml_of("a: [1, b]\n").shown() == R"({"a":[1,"b"]})");
  CHECK(yaml_value::of_text(std::string(200, 'x')).shown() == "'" + std::string(200, 'x') + "'");
  CHECK(yaml_value::of_text(std::string(199, 'x') + "\xc3\xa9y").shown() == "'" + std::string(199, 'x') + "...'");
}

TEST_CASE("an alias repeats what its anchor names") {
  CHECK(yaml_of("a: &x {b: 1}\nc: *x\n").to_json() == json::parse(R"({"a": {"b": 1}, "c": {"b": 1}})"));
  CHECK_THROWS_AS(yaml_of("a: &x [*x]\n"), config_error);
}

TEST_CASE("merge keys are those of PyYAML") {  // expected values: yaml.safe_load
  const auto read = [](const char* text) { return yaml_of(text).to_json().at("z"); };
  CHECK(read("x: &x {a: 1, b: {c: 2}}\nz: {b: 3, <<: *x, d: 4}\n") == json::parse(R"({"a": 1, "b": 3, "d": 4})"));
  CHECK(read("x: &x {a: 1}\ny: &y {a: 2, b: 2}\nz:\n  <<: [*x, *y]\n") == json::parse(R"({"a": 1, "b": 2})"));
  CHECK(read("x: &x {a: 1}\ny: &y {<<: *x, b: 2}\nz:\n  <<: *y\n  c: 3\n") == json::parse(R"({"a": 1, "b": 2, "c": 3})"));
  CHECK(read("z:\n  <<: {a: 1}\n") == json::parse(R"({"a": 1})"));
}

TEST_CASE("documents that are no plain YAML are refused with their line") {
  CHECK_THROWS_WITH_AS(yaml_of("a: 1\nb: [1, 2\n"), doctest::Contains("a.yaml:"), config_error);
  CHECK_THROWS_WITH_AS(yaml_of("a: 1\nb: 2\na: 3\n"), "a.yaml:3: a: occurs twice in its map", config_error);
  CHECK_THROWS_WITH_AS(yaml_of("a: 1\n---\nb: 2\n"), doctest::Contains("one document"), config_error);
  CHECK_THROWS_WITH_AS(yaml_of("a: !custom 1\n"), doctest::Contains("a.yaml:1: must be a plain value"), config_error);
  CHECK_THROWS_WITH_AS(yaml_of("y:\n  <<: {a: 1}\n  <<: {b: 1}\n"), "a.yaml:3: <<: occurs twice in its map", config_error);
  CHECK_THROWS_WITH_AS(yaml_of("y:\n  a: 1\n  <<: 2\n"), "a.yaml:3: <<: must be a map, or a list of maps", config_error);
  CHECK_THROWS_WITH_AS(yaml_of("y:\n  a: 1\n  <<: [{b: 1}, 2]\n"), "a.yaml:3: <<: must be a map, or a list of maps", config_error);
  CHECK_THROWS_WITH_AS(yaml_of("? [a, b]\n: 1\n"), doctest::Contains("a key must be a scalar"), config_error);
  CHECK_THROWS_AS(yaml_of(std::string("a: 1\0b", 6)), config_error);
  CHECK_THROWS_WITH_AS(yaml_of("a: 1\nb: \"c\n"), doctest::Contains("must be YAML"), config_error);  // no quotation mark at its end
  CHECK_THROWS_WITH_AS(yaml_of("a: \"\\x00\"\n"), doctest::Contains("a.yaml:1: a text must be UTF-8 without zero bytes"), config_error);
  CHECK_THROWS_WITH_AS(yaml_of("a: 1\nb: '\xff'\n"), "a.yaml:2: must be UTF-8; byte 10 of the file is not", config_error);
}

TEST_CASE("hostile documents reach a limit") {
  CHECK_THROWS_WITH_AS(yaml_of(std::string(100, '[') + std::string(100, ']')), doctest::Contains("must not be nested deeper than 64"), config_error);
  CHECK_THROWS_AS(yaml_of(std::string(100000, '[')), config_error);
  std::string laughs = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string of = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + of;
    for (int j = 0; j < 9; ++j) laughs += ", " + of;
    laughs += "]\n";
  }
  CHECK_THROWS_WITH_AS(yaml_of(laughs), doctest::Contains("must not have more than 65536 values"), config_error);
  // anchored values count, and so do bytes repeated by aliases
  std::string named, repeats = "a: &a " + std::string(70000, 'x') + "\nb: [*a";
  for (int i = 0; i < 33000; ++i) named += "- &a" + std::to_string(i) + " 1\n- 2\n";
  CHECK_THROWS_WITH_AS(yaml_of(named), doctest::Contains("must not have more than 65536 values"), config_error);
  CHECK(yaml_of(repeats + "]\n").find("b")->items.at(0).text.size() == 70000);
  for (int i = 0; i < 14; ++i) repeats += ", *a";
  CHECK_THROWS_WITH_AS(yaml_of(repeats + "]\n"), "a.yaml:2: aliases must not repeat more than 1048576 bytes", config_error);
  CHECK_THROWS_WITH_AS((void)parse_yaml(std::string(100, 'a'), "a.yaml", {.bytes = 99}), "a.yaml: must not have more than 99 bytes; it has 100", config_error);
}
