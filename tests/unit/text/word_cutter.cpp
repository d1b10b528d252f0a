#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/text/word_cutter.hpp>

using namespace xtrain;

namespace {

template <class Pattern>
std::vector<std::string> matches(const Pattern& pattern, const std::string& text) {
  std::vector<std::string> all;
  pattern.for_each_match(text, [&](std::size_t begin, std::size_t end, bool) { all.push_back(text.substr(begin, end - begin)); });
  return all;
}

/// Letters, numbers, spaces and punctuation of several scripts, contractions, and bytes that are not characters.
std::string random_text(std::uint32_t seed) {
  static const std::vector<std::string> parts{"a",
                                              "B",
                                              "the",
                                              " ",
                                              " ",
                                              "  ",
                                              "\t",
                                              "\n",
                                              "\r\n",
                                              "1",
                                              "23",
                                              "4567",
                                              "'",
                                              "'s",
                                              "'LL",
                                              "'ve",
                                              "'\xC5\xBF",
                                              "!",
                                              "...",
                                              "-",
                                              "_",
                                              "\xC3\xA9",
                                              "\xC2\xA0",
                                              "\xC2\x85",
                                              "\xE3\x80\x80",
                                              "\xE4\xBD\xA0",
                                              "\xD9\xA3",
                                              "\xC2\xBD",
                                              "\xCC\x81",
                                              "\xF0\x9F\x98\x80",
                                              "\xE2\x80\x8D",
                                              "\xE1\xA0\x8E",
                                              "\xE2\x80\xA8",
                                              "\xFF",
                                              "\xC3",
                                              "\xED\xA0\x80",
                                              std::string(1, '\0')};
  std::string text;
  for (std::uint64_t i = 0; i < 40; ++i) text += parts[random_word({.seed = seed}, i) % parts.size()];
  return text;
}

}  // namespace

TEST_CASE("patterns that are matched by hand cut as the library for patterns does") {
  for (const char* pattern : {gpt2_pattern, cl100k_pattern, qwen_pattern}) {
    CAPTURE(pattern);
    const detail::word_cutter by_hand(pattern, "the test");
    const detail::word_pattern by_library(pattern);
    for (std::uint32_t seed = 0; seed < 3000; ++seed) {
      const std::string text = random_text(seed);
      CAPTURE(seed);
      REQUIRE(matches(by_hand, text) == matches(by_library, text));
    }
  }
}

TEST_CASE("words of known families") {
  const auto cut = [](const char* pattern, const std::string& text) { return matches(detail::word_cutter(pattern, "the test"), text); };
  using words = std::vector<std::string>;
  const std::string text = "We'LL pay 12345 (now)\n\n  ok ";
  CHECK(cut(gpt2_pattern, text) == words{"We", "'", "LL", " pay", " 12345", " (", "now", ")", "\n\n ", " ok", " "});
  CHECK(cut(cl100k_pattern, text) == words{"We", "'LL", " pay", " ", "123", "45", " (", "now", ")\n\n", " ", " ok", " "});
  CHECK(cut(qwen_pattern, text) == words{"We", "'LL", " pay", " ", "1", "2", "3", "4", "5", " (", "now", ")\n\n", " ", " ok", " "});
  CHECK(cut(o200k_pattern, "HTTPServer's IPv6") == words{"HTTPServer's", " IPv", "6"});
}

TEST_CASE("other patterns are read as Oniguruma reads them, as the tokenizers library does") {
  const auto cut = [](const char* pattern, const std::string& text) {
    std::vector<std::string> found = matches(detail::word_cutter(pattern, "the test"), text);
    std::erase(found, "");  // an empty match separates its neighbors and is no word
    return found;
  };
  using words = std::vector<std::string>;
  const std::string marks = "-\xC2\xB2\xC2\xBD-a\xC2\xB2" "b";  // superscripts and fractions are word characters, but not in a set
  CHECK(cut(R"([\w.]+)", marks) == words{"-\xC2\xB2\xC2\xBD-", "a", "\xC2\xB2", "b"});
  CHECK(cut(R"(\w+)", marks) == words{"-", "\xC2\xB2\xC2\xBD", "-", "a\xC2\xB2" "b"});
  CHECK(cut(R"([^\w\s]+)", marks) == words{"-\xC2\xB2\xC2\xBD-", "a", "\xC2\xB2", "b"});
  const std::string joined = "e\xCC\x81" "a b";
  CHECK(cut(R"(\b)", joined) == words{"e\xCC\x81" "a", " ", "b"});  // a combining mark is a word character
  CHECK(cut(R"(\B)", joined) == words{"e", "\xCC\x81", "a b"});
  CHECK(cut(R"([\W_]+)", "a-\xCC\x81_ b") == words{"a", "-", "\xCC\x81", "_ ", "b"});
  CHECK(cut(R"([^\W\d_]+)", "ab1_c") == words{"ab", "1_", "c"});
  CHECK(cut(R"([^\S\n]+)", "a\xE1\xA0\x8E \t\nb") == words{"a\xE1\xA0\x8E", " \t", "\nb"});  // U+180E is no space
  CHECK(cut(R"([\H]+)", "ag h1") == words{"a", "g h", "1"});
  CHECK(cut(R"([\P{L}x]+)", "axb1") == words{"a", "x", "b", "1"});
  CHECK(cut(R"([[:word:]x]+)", "a_-") == words{"a_", "-"});
  CHECK(cut(R"(\v)", "a\n\vb") == words{"a\n", "\v", "b"});
  CHECK(cut(R"(\d{1,2}+)", "a12345") == words{"a", "12345"});
  CHECK(cut("a{,2}b", "aaab") == words{"a", "aab"});
  CHECK(cut(R"(\x{61}+)", "aab") == words{"aa", "b"});
  CHECK(cut(R"([\W^]+)", "a^b. c") == words{"a", "^", "b", ". ", "c"});
  CHECK(cut(R"([\S^]+)", "a^ b") == words{"a^", " ", "b"});
  CHECK(cut(R"([\P{L}^]+)", "a^1b") == words{"a", "^1", "b"});
  CHECK(cut(R"([^\W^_]+)", "a^b_c") == words{"a", "^", "b", "_", "c"});
  CHECK(cut(R"([\W.,.]+)", "a.,b") == words{"a", ".,", "b"});
  CHECK(cut(R"([^\W.|.]+)", "a.|b") == words{"a", ".|", "b"});
  CHECK(cut(R"([.,!?.]+)", "a.,b") == words{"a", ".,", "b"});
  CHECK(cut(R"([:;:]+)", "a:;b") == words{"a", ":;", "b"});
  CHECK(cut(R"([=+=]+)", "a=+b") == words{"a", "=+", "b"});
  CHECK(cut(R"([a[b.]-c]+)", "ab-c.d") == words{"ab-c.", "d"});
  CHECK(cut(R"([[.]x.]+)", "a.xb") == words{"a", ".x", "b"});
  CHECK(cut(R"([a[-c]]+)", "a-bc") == words{"a-", "b", "c"});
  CHECK(cut(R"([^a[\W]]+)", "ab.c") == words{"a", "b", ".", "c"});
  CHECK(cut(R"([a-c-\s]+)", "ad- b") == words{"a", "d", "- b"});
  CHECK(cut(R"(a(?#{2}? \) )b)", "aab") == words{"a", "ab"});
  CHECK(cut("a(?i)b|c", "aBacC") == words{"aB", "ac", "C"});  // a(?i:b|c)
  CHECK(cut("(?:a(?i)b|c)d|C", "aBdacdCd") == words{"aBd", "acd", "C", "d"});
  CHECK(cut("(?i)b|c", "aBC") == words{"a", "B", "C"});
  CHECK(cut("x(?i)", "xX") == words{"x", "X"});
  CHECK(cut(R"([\W.]+(?=x))", std::string(40, '.')) == words{std::string(40, '.')});  // no match, and no long search
  const char* bloom = " ?[^(\\s|[.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C])]+";
  CHECK(cut(bloom, "Hi, (you)! a|b\xE2\x80\xA6 c\xE3\x80\x82" "d]e") ==
        words{"Hi", ", (", "you", ")!", " a", "|", "b", "\xE2\x80\xA6", " c", "\xE3\x80\x82", "d]e"});
  for (const char* pattern : {R"(\X)", R"(\G)", R"(\V)", R"(\Q.\E)", R"(\pL)", "[[:alpha:]]", "[[:^digit:]]", "(?m).", "(?i-m:a)", "a{2,3}+", "a{2}?",
                              "[a[^b]]", "[a&&b]", R"([a-\d])", R"([\w-z])"}) {
    CAPTURE(pattern);
    CHECK_THROWS_WITH_AS(detail::word_cutter(pattern, "the test"), doctest::Contains("the test: the pattern must have no "), config_error);
  }
}

TEST_CASE("megabytes without a space are cut in no more time than their length asks for") {
  for (const char* pattern : {gpt2_pattern, cl100k_pattern, o200k_pattern, R"((?:a|b)+)", R"(\s+(?!\S)|\s+)"}) {
    CAPTURE(pattern);
    const detail::word_cutter cutter(pattern, "the test");
    for (const char c : {'a', 'A', ' ', '1', '\n', '!'}) {
      const std::string text(std::size_t{1} << 20, c);
      std::size_t covered = 0;
      bool side_by_side = true;
      cutter.for_each_match(text, [&](std::size_t begin, std::size_t end, bool) {
        side_by_side = side_by_side && begin == covered;
        covered = end;
      });
      CHECK(side_by_side);
      CHECK(covered == text.size());
    }
  }
}

TEST_CASE("a pattern that does not come to an end gives up, and says so") {
  const detail::word_cutter cutter("(?:a+a+)+b", "the test");
  std::string text(5000, 'a');
  text[4998] = 'c';
  text[4999] = 'b';
  CHECK_THROWS_WITH_AS(
      cutter.for_each_match(text, [](std::size_t, std::size_t, bool) {}),
      doctest::Contains("the test: the pattern must match within the library's limits; it gave up at byte 0 of a text of 5000"),
      data_error);
}
