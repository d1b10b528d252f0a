// The chat template interpreter against jinja2 (see tests/golden), and its limits.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/jinja/from_json.hpp>
#include <xtrain/jinja/template.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

const jinja_value& member(const jinja_value& of, std::string_view name) {
  const jinja_value* found = of.as_mapping()->find_name(name);
  if (found == nullptr) throw data_error(concat("case: must have '", name, "'"));
  return *found;
}

std::string rendered(std::string_view text, const jinja_mapping& variables = {}) { return jinja_template(text).render(variables).text; }

/// The error of a template that must be rejected.
std::string refusal(std::string_view text, const jinja_mapping& variables = {}, const jinja_limits& limits = {}) {
  try {
    return "rendered: " + jinja_template(text).render(variables, 0, limits).text;
  } catch (const error& problem) {
    return problem.what();
  }
}

std::string fnv(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325U;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex.push_back("0123456789abcdef"[(h >> shift) & 15U]);
  return hex;
}

const jinja_value& golden_cases() {
  static const jinja_value cases =
      jinja_value_from_json(mapped_file(std::string(XTRAIN_GOLDEN) + "/templates/cases.json").text(), "cases.json");
  return cases;
}

}  // namespace

TEST_CASE("templates say what jinja2 says, and are refused where jinja2 refuses them") {
  const jinja_mapping& variables = *member(golden_cases(), "variables").as_mapping();
  std::size_t said = 0, refused = 0;
  for (const jinja_value& one : member(golden_cases(), "cases").as_sequence()->items) {
    const std::string& text = member(one, "template").text();
    CAPTURE(text);
    if (const jinja_value* expected = one.as_mapping()->find_name("text")) {
      CHECK(rendered(text, variables) == expected->text());
      ++said;
    } else {
      CHECK_THROWS_AS((void)rendered(text, variables), error);
      ++refused;
    }
  }
  CHECK(said > 110);
  CHECK(refused > 50);
}

TEST_CASE("published templates write public conversations to the byte") {
  const std::string folder = test_data("formats");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to formats/chat_template");
    return;
  }
  for (const jinja_value& one : member(golden_cases(), "shipped").as_sequence()->items) {
    const std::string path = test_data(member(one, "template").text());
    REQUIRE(!path.empty());
    CAPTURE(path);
    std::string text(mapped_file(path).text());
    if (path.ends_with(".json")) text = read_json(path)["chat_template"].get<std::string>();
    jinja_mapping variables = *jinja_value_from_json(mapped_file(test_data(member(one, "context").text())).text(), path).as_mapping();
    variables.set("date_string", "26 Jul 2024");
    variables.set("add_generation_prompt", member(one, "prompt"));
    if (one.as_mapping()->find_name("fnv") == nullptr) {
      CHECK_THROWS_AS((void)rendered(text, variables), error);
      continue;
    }
    const std::string written = rendered(text, variables);
    CHECK(static_cast<std::int64_t>(written.size()) == member(one, "bytes").whole());
    CHECK(fnv(written) == member(one, "fnv").text());
  }
}

TEST_CASE("a conversation written by thirty published templates is the text that was recorded") {
  const std::string path = test_data("formats/chat_template/llamacpp_chat_template_vectors.json");
  if (path.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to formats/chat_template");
    return;
  }
  const jinja_value all = jinja_value_from_json(mapped_file(path).text(), path);
  std::size_t checked = 0;
  for (const jinja_value& one : member(all, "cases").as_sequence()->items) {
    CAPTURE(member(one, "name").text());
    jinja_mapping variables;
    variables.set("messages", member(all, "messages"));
    variables.set("add_generation_prompt", member(all, "add_generation_prompt"));
    variables.set("bos_token", member(one, "bos_token"));
    variables.set("eos_token", member(one, "eos_token"));
    const jinja_value& expected = member(one, "jinja2");
    ++checked;
    if (const jinja_value* text = expected.as_mapping()->find_name("rendered")) {
      CHECK(rendered(member(one, "template_str").text(), variables) == text->text());
      continue;
    }
    const std::string& why = member(expected, "error").text();
    if (why.starts_with("TemplateError: ")) {
      CHECK(refusal(member(one, "template_str").text(), variables).ends_with(why.substr(15)));
    } else {
      CHECK_THROWS_AS((void)rendered(member(one, "template_str").text(), variables), config_error);
    }
  }
  CHECK(checked == 30);
}

TEST_CASE("an error says the template, the line, what must hold and what was given") {
  CHECK(refusal("a\n{{ b.c }}") == "template: line 2: 'b' must be defined; it is not");
  CHECK(refusal("{% for x in [1] %}\n\n{{ x + 'a' }}{% endfor %}") ==
        "template: line 3: '+' must be given two values that go together; given int and str");
  CHECK(refusal("{{ 1 | shout }}") == "template: line 1: a filter must be one that there is; 'shout' is none");
  CHECK(refusal("{% if x is loud %}{% endif %}") == "template: line 1: a test must be one that there is; 'loud' is none");
  CHECK(refusal("\n{% include 'x' %}").starts_with("template: line 2: a tag must be if, for, set,"));
  CHECK(refusal("{% if true %}\nx") == "template: line 2: 'endif' is expected before the template's end");
  CHECK(refusal("{{ raise_exception('Only users!') }}") == "template: line 1: the template refuses what it was given: Only users!");
  CHECK_THROWS_AS((void)rendered("{{ raise_exception('no') }}"), data_error);
  CHECK_THROWS_AS((void)rendered("{{ x.y }}"), config_error);
  CHECK(refusal("{{ [1].append(2) }}") == "template: line 1: 'append' must be an attribute of list; it is none that templates may use");
}

TEST_CASE("a hostile template ends soon: in depth, in steps, in what it makes") {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "(";
  CHECK(refusal("{{ " + deep + "1" + std::string(100'000, ')') + " }}").find("must nest at most") != std::string::npos);
  std::string chain = "{{ 1";
  for (int i = 0; i < 100'000; ++i) chain += " + 1";
  CHECK(refusal(chain + " }}").find("must nest at most") != std::string::npos);
  std::string blocks;
  for (int i = 0; i < 100'000; ++i) blocks += "{% if 1 %}";
  CHECK(refusal(blocks).find("must nest at most") != std::string::npos);
  CHECK(refusal("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}").find("must run at most") != std::string::npos);
  CHECK(
      refusal("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}").find("must be done in 10000000 steps") !=
      std::string::npos);
  CHECK(refusal("{{ range(1000000000000) }}").find("steps") != std::string::npos);
  CHECK(refusal("{{ 'a' * 1000000000000 }}").find("steps") != std::string::npos);
  CHECK(refusal("{{ 'ab' * 9223372036854775807 }}").find("steps") != std::string::npos);
  CHECK(refusal("{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}").find("steps") != std::string::npos);
  CHECK(refusal("{{ 'a\nb'|indent(1000000000000) }}").find("steps") != std::string::npos);
  CHECK(refusal("{% set ns = namespace(s='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}")
            .find("steps") != std::string::npos);
  CHECK(refusal("{% set ns = namespace(l=[1]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}").find("must nest at most") !=
        std::string::npos);
  CHECK(refusal("{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}")
            .find("steps") != std::string::npos);
  CHECK(refusal("{% set ns = namespace(l=(1,)) %}{% for i in range(100) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: 1} }}")
            .find("a key of tuples") != std::string::npos);
  CHECK(refusal("{% for i in range(100) %}0123456789{% endfor %}", {}, {.bytes = 500}).find("must be at most 500 bytes") !=
        std::string::npos);
  CHECK(refusal("{{ 9223372036854775807 + 1 }}").find("must fit 64 bits") != std::string::npos);
  CHECK(refusal("{{ 'x'|map('map', 'map', 'upper')|list }}").starts_with("rendered"));
}

TEST_CASE("else follows a loop of which no item came to the end of its body, as jinja2 has it") {
  const std::string otherwise = "{{ i }}{% else %}E{% endfor %}";
  CHECK(rendered("{% for i in [1, 2] %}" + otherwise) == "12");
  CHECK(rendered("{% for i in [] %}" + otherwise) == "E");
  CHECK(rendered("{% for i in [1, 2] %}{% break %}" + otherwise) == "E");
  CHECK(rendered("{% for i in [1, 2] %}{% continue %}" + otherwise) == "E");
  CHECK(rendered("{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}" + otherwise) == "1");
  CHECK(rendered("{% for i in [1, 2] %}{% if i == 1 %}{% continue %}{% endif %}" + otherwise) == "2");
}

TEST_CASE("lines end where Python's splitlines ends them") {
  jinja_mapping variables;
  variables.set("s", "a\r\nb\vc\x1C" "d\xC2\x85" "e\xE2\x80\xA8" "f\xE2\x80\xA9" "g\xC2\x86h");
  CHECK(rendered("{{ s.splitlines()|join('|') }}", variables) == "a|b|c|d|e|f|g\xC2\x86h");
  CHECK(rendered("{{ s.splitlines(true)|map('length')|join('|') }}", variables) == "3|2|2|2|2|2|3");
  CHECK(rendered("{{ s|indent('>') }}", variables) == "a\n>b\n>c\n>d\n>e\n>f\n>g\xC2\x86h");
}

TEST_CASE("namespaces that hold one another, macros that outlive their place") {
  CHECK(rendered("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set a.self = [a] %}{{ a.b.a.b is defined }}") ==
        "True");
  CHECK(
      rendered(
          "{% set ns = namespace() %}{% for x in [1, 2] %}{% macro m() %}{{ x }}{% endmacro %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}") ==
      "2");
  CHECK(rendered("{% set ns = namespace() %}{% for x in [1, 2] %}{% set ns.loop = loop %}{% endfor %}{{ ns.loop.index }}") == "2");
}

TEST_CASE("generation blocks are found in the text, in bytes") {
  const rendered_text r = jinja_template("ü{% for x in ['a', 'bc'] %}<{% generation %}{{ x }}é{% endgeneration %}>{% endfor %}").render({});
  CHECK(r.text == "ü<aé><bcé>");
  REQUIRE(r.generated.size() == 2);
  CHECK(r.text.substr(r.generated[0].begin, r.generated[0].end - r.generated[0].begin) == "aé");
  CHECK(r.text.substr(r.generated[1].begin, r.generated[1].end - r.generated[1].begin) == "bcé");
  CHECK(!r.lost_generation);
  CHECK(jinja_template("{% set x %}{% generation %}a{% endgeneration %}{% endset %}{{ x }}").render({}).lost_generation);
}

TEST_CASE("the date is the one given") {
  const std::time_t noon = 1'700'000'000;  // 2023-11-14, except in the outermost time zones
  CHECK(jinja_template("{{ strftime_now('%Y') }}").render({}, noon).text == "2023");
  CHECK(jinja_template("{{ strftime_now('') }}").render({}, noon).text.empty());
}

TEST_CASE("JSON becomes values in its own order; what would not stay what it is is refused") {
  const jinja_value v = jinja_value_from_json(R"({"z": 1, "a": [true, null, 1.50, -3, "\u00e9"]})", "text");
  jinja_mapping variables;
  variables.set("v", v);
  CHECK(rendered("{{ v|tojson }}", variables) == "{\"z\": 1, \"a\": [true, null, 1.5, -3, \"é\"]}");
  CHECK_THROWS_WITH_AS((void)jinja_value_from_json("[\n18446744073709551615]", "text"), doctest::Contains("64 bits"), data_error);
  CHECK_THROWS_WITH_AS((void)jinja_value_from_json("[123456789012345678901234567890]", "text"), doctest::Contains("64 bits"), data_error);
  CHECK_THROWS_WITH_AS((void)jinja_value_from_json("{\"a\": 1, \"a\": 2}", "text"), doctest::Contains("occurs twice"), data_error);
  CHECK_THROWS_WITH_AS((void)jinja_value_from_json("[\n}", "text"), doctest::Contains("text: must be JSON; line 2"), data_error);
  CHECK_THROWS_WITH_AS((void)jinja_value_from_json(std::string(200, '['), "text"), doctest::Contains("nested deeper"), data_error);
}
