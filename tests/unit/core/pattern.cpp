// Regular expressions over names: matches, refusals, bounded time.
#include <doctest/doctest.h>

#include <string>

#include <xtrain/core/pattern.hpp>

using namespace xtrain;

namespace {

bool matches(const std::string& expression, const std::string& text) { return pattern(expression, "test").matches(text); }

void refused(const std::string& expression, const std::string& words) {
  CAPTURE(expression);
  CHECK_THROWS_WITH_AS(pattern(expression, "test"), doctest::Contains(words.c_str()), config_error);
}

}  // namespace

TEST_CASE("a text matches as a whole or not at all") {
  CHECK(matches("", ""));
  CHECK(!matches("", "a"));
  CHECK(matches("q_proj", "q_proj"));
  CHECK(!matches("q_proj", "self_attn.q_proj"));
  CHECK(!matches("q_proj", "q_proj.weight"));
  CHECK(matches("a|bc|", "bc"));
  CHECK(matches("a|bc|", ""));
  CHECK(!matches("a|bc|", "abc"));
  CHECK(matches("a.c", "abc"));
  CHECK(!matches("a.c", "a\nc"));
  CHECK(matches(R"(a\.c)", "a.c"));
  CHECK(!matches(R"(a\.c)", "abc"));
}

TEST_CASE("repetitions, lazy or not, match the counts they name") {
  for (const char* lazy : {"", "?"}) {
    const std::string l = lazy;
    for (std::size_t n = 0; n < 8; ++n) {
      const std::string as(n, 'a');
      CAPTURE(n);
      CHECK(matches("a*" + l, as));
      CHECK(matches("a+" + l, as) == (n >= 1));
      CHECK(matches("a?" + l, as) == (n <= 1));
      CHECK(matches("a{3}" + l, as) == (n == 3));
      CHECK(matches("a{3,}" + l, as) == (n >= 3));
      CHECK(matches("a{,3}" + l, as) == (n <= 3));
      CHECK(matches("a{2,5}" + l, as) == (n >= 2 && n <= 5));
      CHECK(matches("(?:aa){1,2}" + l, as) == (n == 2 || n == 4));
    }
  }
  CHECK(matches("(a*)*", "aaa"));
  CHECK(matches("(a|b)*c", "abbac"));
  CHECK(matches("a{b}", "a{b}"));  // no count: the brace is literal
  CHECK(matches("a{,}", "a{,}"));
}

TEST_CASE("sets, escapes and places") {
  CHECK(matches(R"(\d+)", "0123456789"));
  CHECK(!matches(R"(\d+)", "12a"));
  CHECK(matches(R"(\D\w\W\s\S)", "a_. x"));
  CHECK(matches("[a-c_]+", "abc_"));
  CHECK(!matches("[a-c_]+", "abd"));
  CHECK(matches("[^a-c]+", "xyz."));
  CHECK(!matches("[^a-c]+", "xaz"));
  CHECK(matches("[]a-]+", "]a-"));
  CHECK(matches(R"([\d.\]]+)", "1.5]"));
  CHECK(matches("^abc$", "abc"));
  CHECK(!matches("a^bc", "abc"));
  CHECK(matches(R"(.*?\bq_proj)", "self_attn.q_proj"));
  CHECK(!matches(R"(.*?\bproj)", "self_attn.q_proj"));
  CHECK(matches(R"(a\Bb)", "ab"));
}

TEST_CASE("expressions that adapters are published with") {
  const std::string layers = R"(model\.layers\.(?:1|[4-9])\.self_attn\.(?P<which>q|v)_proj)";
  CHECK(matches(layers, "model.layers.1.self_attn.q_proj"));
  CHECK(matches(layers, "model.layers.7.self_attn.v_proj"));
  CHECK(!matches(layers, "model.layers.2.self_attn.v_proj"));
  CHECK(!matches(layers, "model.layers.1.self_attn.k_proj"));
  const std::string wide =
      R"((?:.*?(?:language|text).*?(?:attn|mlp).*?(?:q_proj|up_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|up_proj))))";
  CHECK(matches(wide, "model.layers.11.mlp.up_proj"));
  CHECK(matches(wide, "language_model.model.layers.0.self_attn.q_proj"));
  CHECK(!matches(wide, "model.layers.11.mlp.down_proj"));
}

TEST_CASE("what would take forever elsewhere takes as long as it is") {
  CHECK(!matches("(a*)*b", std::string(3000, 'a')));
  CHECK(!matches("(a|a)*b", std::string(3000, 'a')));
  CHECK(matches("(a?){300}a{300}", std::string(300, 'a')));
}

TEST_CASE("expressions that are malformed or not understood are refused, with the place") {
  refused("(a", "a '(' has no ')'");
  refused("a)", "a ')' has no '('");
  refused("[a", "a '[' has no ']'");
  refused("[z-a]", "a range must go from one byte up to another");
  refused(R"([\d-z])", "a range must go from one byte up to another");
  refused("*a", "there is nothing to repeat");
  refused("a**", "a repetition is repeated");
  refused("a{2}{3}", "a repetition is repeated");
  refused("a{3,2}", "largest count is below its smallest");
  refused("a{99999}", "it repeats too often");
  refused("((a{60}){60}){60}", "it becomes too long");
  refused(std::string(200, '(') + std::string(200, ')'), "groups are nested too deep");
  refused("a\\", "a backslash is at the end");
  refused(R"(\1)", "this escape is not understood");
  refused(R"(\p{L})", "this escape is not understood");
  refused("(?!vision).*", "only groups");
  refused("(?=a)a", "only groups");
  refused("(?<=a)a", "only groups");
  refused("(?i)a", "only groups");
  refused("(?P<name", "a group's name has no end");
  refused("x(a", "test: must be a regular expression that is understood here; in 'x(a' at 3: a '(' has no ')'");
}
