// Each step of a tokenizer.json separately. Expected values were computed with the Python package tokenizers 0.23.3.
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/text/normalizer.hpp>
#include <xtrain/text/pre_tokenizer.hpp>
#include <xtrain/text/token_decoder.hpp>

using namespace xtrain;

namespace {

json step(const std::string& text) { return parse_json(text, "the test"); }

detail::cut_text cut(const std::string& pre_tokenizer, std::string_view text) {
  detail::cut_text result(detail::aligned_text(text, 0));
  detail::read_pre_tokenizer(step(pre_tokenizer), "the test", false)->apply(result);
  return result;
}

}  // namespace

TEST_CASE("normalizers rewrite text") {
  struct example {
    const char* normalizer;
    const char* text;
    const char* expected;
  };
  const std::vector<example> examples{
      {R"({"type": "NFC"})",
       "E\xCC\x81"
       "a\xCC\x88 \xEF\xAC\x81 \xE1\xBA\x9B\xCC\xA3 \xEA\xB0\x80\xE1\x84\x80\xE1\x85\xA1 A\xCC\x8A",
       "\xC3\x89\xC3\xA4 \xEF\xAC\x81 \xE1\xBA\x9B\xCC\xA3 \xEA\xB0\x80\xEA\xB0\x80 \xC3\x85"},
      {R"({"type": "NFD"})",
       "E\xCC\x81"
       "a\xCC\x88 \xEF\xAC\x81 \xE1\xBA\x9B\xCC\xA3 \xEA\xB0\x80\xE1\x84\x80\xE1\x85\xA1 A\xCC\x8A",
       "E\xCC\x81"
       "a\xCC\x88 \xEF\xAC\x81 \xC5\xBF\xCC\xA3\xCC\x87 \xE1\x84\x80\xE1\x85\xA1\xE1\x84\x80\xE1\x85\xA1 A\xCC\x8A"},
      {R"({"type": "NFKC"})",
       "E\xCC\x81"
       "a\xCC\x88 \xEF\xAC\x81 \xE1\xBA\x9B\xCC\xA3 \xEA\xB0\x80\xE1\x84\x80\xE1\x85\xA1 A\xCC\x8A",
       "\xC3\x89\xC3\xA4 fi \xE1\xB9\xA9 \xEA\xB0\x80\xEA\xB0\x80 \xC3\x85"},
      {R"({"type": "NFKD"})",
       "E\xCC\x81"
       "a\xCC\x88 \xEF\xAC\x81 \xE1\xBA\x9B\xCC\xA3 \xEA\xB0\x80\xE1\x84\x80\xE1\x85\xA1 A\xCC\x8A",
       "E\xCC\x81"
       "a\xCC\x88 fi s\xCC\xA3\xCC\x87 \xE1\x84\x80\xE1\x85\xA1\xE1\x84\x80\xE1\x85\xA1 A\xCC\x8A"},
      {R"({"type": "NFC"})", "q\xCC\x87\xCC\xA3\xCC\x81x\xCC\x81", "q\xCC\xA3\xCC\x87\xCC\x81x\xCC\x81"},
      {R"({"type": "NFD"})", "\xE1\xBA\xA5\xE1\xB9\xA9", "a\xCC\x82\xCC\x81s\xCC\xA3\xCC\x87"},
      {R"({"type": "NFC"})",
       "a\xCC\x95\xCC\x80\xD6\xAE\xCC\x80"
       "b",
       "\xC3\xA0\xD6\xAE\xCC\x80\xCC\x95"
       "b"},
      {R"({"type": "Lowercase"})", "\xC4\xB0STANBUL \xC3\x84\xCE\xA3\xCE\xA3 \xC7\x85",
       "i\xCC\x87stanbul \xC3\xA4\xCF\x83\xCF\x83 \xC7\x86"},
      {R"({"type": "Strip", "strip_left": true, "strip_right": true})",
       "\t \xE3\x80\x80"
       "a b\xC2\xA0\n",
       "a b"},
      {R"({"type": "Strip", "strip_left": false, "strip_right": true})", " a ", " a"},
      {R"({"type": "StripAccents"})", "e\xCC\x81\xE0\xA4\x95\xE0\xA4\xBF", "e\xE0\xA4\x95"},
      {R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true})",
       "H\xC3\xA9llo\t\xE4\xB8\x96\xE7\x95\x8C\x01\xE2\x80\x8BW\xEF\xBF\xBD\xCC\x81", "hello  \xE4\xB8\x96  \xE7\x95\x8C w"},
      {R"({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": false, "strip_accents": false, "lowercase": true})",
       "H\xC3\x89\t\xE4\xB8\x96", "h\xC3\xA9\t\xE4\xB8\x96"},
      {R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": false})",
       "H\xC3\xA9 \xE4\xB8\x96", "H\xC3\xA9  \xE4\xB8\x96 "},
      {R"({"type": "Replace", "pattern": {"String": "aa"}, "content": "b"})", "aaa aa", "ba b"},
      {R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": "_"})",
       " a \xE3\x80\x80"
       "b",
       "_a_b"},
      {R"({"type": "Replace", "pattern": {"Regex": "x*"}, "content": "-"})", "axb", "-a-b-"},
      {R"({"type": "Prepend", "prepend": "▁"})", "a",
       "\xE2\x96\x81"
       "a"},
      {R"({"type": "Prepend", "prepend": "▁"})", "", ""},
      {R"({"type": "Nmt"})",
       "a\x01\xE2\x80\x8B"
       "b\xC2\xAD\tc\xEF\xBB\xBF",
       "a b\xC2\xAD c "},
      {R"({"type": "ByteLevel"})", "a \xC3\xA9\n", "a\xC4\xA0\xC3\x83\xC2\xA9\xC4\x8A"},
      {R"({"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]})",
       "\xC3\x89\xEF\xAC\x81", "efi"},
  };
  for (const example& e : examples) {
    CAPTURE(e.normalizer);
    detail::aligned_text text(e.text, 0);
    detail::read_normalizer(step(e.normalizer), "the test")->apply(text);
    CHECK(text.view() == e.expected);
  }
}

TEST_CASE("normal forms leave bytes that are not UTF-8 alone, and put thousands of marks in order") {
  detail::aligned_text broken(
      "e\xCC\x81\xFF"
      "e\xCC",
      0);
  detail::unicode_form(true, false).apply(broken);
  CHECK(broken.view() ==
        "\xC3\xA9\xFF"
        "e\xCC");
  std::string marks = "a", ordered = "a";
  for (int i = 0; i < 50000; ++i) {
    marks += "\xCC\x81\xCC\xA3";  // acute above, dot below
    ordered += i == 0 ? "" : "\xCC\xA3";
  }
  for (int i = 0; i < 50000; ++i) ordered += "\xCC\x81";
  detail::aligned_text many(marks, 0);
  detail::unicode_form(true, false).apply(many);
  CHECK(many.view() == "\xE1\xBA\xA1" + ordered.substr(1));  // the first dot below composes with the letter
}

TEST_CASE("a rewritten text knows where it came from") {
  detail::aligned_text text("E\xCC\x81 \xEF\xAC\x81x", 10);
  detail::read_normalizer(step(R"({"type": "NFKC"})"), "the test")->apply(text);
  REQUIRE(text.view() == "\xC3\x89 fix");
  const auto place = [&](std::size_t begin, std::size_t end) {
    const detail::byte_range range = text.place(begin, end);
    return std::vector<std::uint32_t>{range.begin, range.end};
  };
  CHECK(place(0, 2) == std::vector<std::uint32_t>{10, 13});  // the letter and its accent
  CHECK(place(2, 3) == std::vector<std::uint32_t>{13, 14});
  CHECK(place(3, 4) == std::vector<std::uint32_t>{14, 17});  // half of a ligature maps to the whole ligature
  CHECK(place(5, 6) == std::vector<std::uint32_t>{17, 18});
  detail::read_normalizer(step(R"({"type": "Prepend", "prepend": "__"})"), "the test")->apply(text);
  CHECK(place(0, 2) == std::vector<std::uint32_t>{10, 13});  // a prepended string maps to the character after it
  CHECK(place(5, 6) == std::vector<std::uint32_t>{14, 17});
}

TEST_CASE("pre-tokenizers cut text") {
  struct example {
    const char* pre_tokenizer;
    const char* text;
    std::vector<std::string> expected;
  };
  const std::vector<example> examples{
      {R"~({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})~",
       "Don't  stop, 1234 x\xC2\xB2!\n\n ok ",
       {"Don", "'t", "\xC4\xA0", "\xC4\xA0stop", ",",
        "\xC4\xA0"
        "1234",
        "\xC4\xA0x", "\xC3\x82\xC2\xB2", "!", "\xC4\x8A\xC4\x8A", "\xC4\xA0ok", "\xC4\xA0"}},
      {R"~({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": false})~",
       "a b\xC3\xA9",
       {"\xC4\xA0"
        "a\xC4\xA0"
        "b\xC3\x83\xC2\xA9"}},
      {R"~({"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": false})~", "a  b c ", {"a", "b", "c"}},
      {R"~({"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "Removed", "invert": true})~", "a12 b3", {"1", "2", "3"}},
      {R"~({"type": "Split", "pattern": {"Regex": "(?=[A-Z])"}, "behavior": "Removed", "invert": false})~", "camelCaseABc", {"camel", "Case", "A", "Bc"}},
      {R"~({"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": false})~", "a  b c ", {"a", " ", " ", "b", " ", "c", " "}},
      {R"~({"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "Isolated", "invert": true})~", "a12 b3", {"a", "1", "2", " b", "3"}},
      {R"~({"type": "Split", "pattern": {"Regex": "(?=[A-Z])"}, "behavior": "Isolated", "invert": false})~", "camelCaseABc", {"camel", "Case", "A", "Bc"}},
      {R"~({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false})~", "a  b c ", {"a ", " ", "b ", "c "}},
      {R"~({"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "MergedWithPrevious", "invert": true})~", "a12 b3", {"a", "1", "2 b", "3"}},
      {R"~({"type": "Split", "pattern": {"Regex": "(?=[A-Z])"}, "behavior": "MergedWithPrevious", "invert": false})~",
       "camelCaseABc",
       {"camel", "Case", "A", "Bc"}},
      {R"~({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": false})~", "a  b c ", {"a", " ", " b", " c", " "}},
      {R"~({"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "MergedWithNext", "invert": true})~", "a12 b3", {"a1", "2", " b3"}},
      {R"~({"type": "Split", "pattern": {"Regex": "(?=[A-Z])"}, "behavior": "MergedWithNext", "invert": false})~",
       "camelCaseABc",
       {"camel", "Case", "A", "Bc"}},
      {R"~({"type": "Split", "pattern": {"String": " "}, "behavior": "Contiguous", "invert": false})~", "a  b c ", {"a", "  ", "b", " ", "c", " "}},
      {R"~({"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "Contiguous", "invert": true})~", "a12 b3", {"a", "12", " b", "3"}},
      {R"~({"type": "Split", "pattern": {"Regex": "(?=[A-Z])"}, "behavior": "Contiguous", "invert": false})~", "camelCaseABc", {"camel", "Case", "A", "Bc"}},
      {R"~({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})~",
       "Hi  you",
       {"\xE2\x96\x81Hi", "\xE2\x96\x81", "\xE2\x96\x81you"}},
      {R"~({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true})~", "Hi you", {"Hi", "\xE2\x96\x81you"}},
      {R"~({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})~", " Hi you", {"\xE2\x96\x81Hi\xE2\x96\x81you"}},
      {R"~({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true})~", "a_b c", {"_a", "_b", "_c"}},
      {R"~({"type": "Whitespace"})~",
       "it's \xC3\xA9t\xC3\xA9\xCC\x81 a_b \xE2\x91\xA0 $5.0\xE2\x80\x8D",
       {"it", "'", "s", "\xC3\xA9t\xC3\xA9\xCC\x81", "a_b", "\xE2\x91\xA0", "$", "5", ".", "0\xE2\x80\x8D"}},
      {R"~({"type": "WhitespaceSplit"})~",
       " a\xC2\xA0"
       "b\xE3\x80\x80"
       "c\td",
       {"a", "b", "c", "d"}},
      {R"~({"type": "BertPreTokenizer"})~",
       "a.b \xE3\x80\x82"
       "c$d",
       {"a", ".", "b", "\xE3\x80\x82", "c", "$", "d"}},
      {R"~({"type": "Digits", "individual_digits": false})~", "a123b45", {"a", "123", "b", "45"}},
      {R"~({"type": "Digits", "individual_digits": true})~", "a12\xD9\xA3\xC2\xBD", {"a", "1", "2", "\xD9\xA3", "\xC2\xBD"}},
      {R"~({"type": "Punctuation", "behavior": "Isolated"})~", "a,,b", {"a", ",", ",", "b"}},
      {R"~({"type": "Punctuation", "behavior": "Contiguous"})~", "a,,b", {"a", ",,", "b"}},
      {R"~({"type": "CharDelimiterSplit", "delimiter": "-"})~", "a--b-c", {"a", "b", "c"}},
      {R"~({"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}, {"type": "Digits", "individual_digits": false}, {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false}]})~",
       "It's 12345 \xC3\xA9!!",
       {"It", "'", "s", "\xC4\xA0", "123", "45", "\xC4\xA0\xC3\x83\xC2\xA9", "!!"}},
      {R"~({"type": "Split", "pattern": {"Regex": "[^\\S\\n]+|\\n"}, "behavior": "Isolated", "invert": false})~",
       "a \t\nb \xE3\x80\x80"
       "c",
       {"a", " \t", "\n", "b", " \xE3\x80\x80", "c"}},
      {R"~({"type": "Split", "pattern": {"Regex": "^\\w"}, "behavior": "Isolated", "invert": false})~", "ab\ncd", {"a", "b\n", "c", "d"}},
      {R"~({"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Removed", "invert": false})~",
       "a_1 \xE2\x85\xA0\xC2\xB2 \xE0\xA4\x95\xE0\xA4\xBF-",
       {" ", " ", "-"}},
      {R"~({"type": "UnicodeScripts"})~", "  two \xD0\xB4\xD0\xB2\xD0\xB0 \xE4\xBA\x8C\xE3\x81\xA4\xE3\x83\xBC\xE3\x82\xBF!", {"two ", "\xD0\xB4\xD0\xB2\xD0\xB0 ", "\xE4\xBA\x8C\xE3\x81\xA4\xE3\x83\xBC\xE3\x82\xBF", "!"}},
      {R"~({"type": "UnicodeScripts"})~", "a\xCD\xB8" "b\xCD\xB8\xCE\xB2 \xCC\x81x1 2", {"a\xCD\xB8" "b\xCD\xB8", "\xCE\xB2 ", "\xCC\x81", "x", "1 2"}},
      {R"~({"type": "UnicodeScripts"})~", "   ", {}},
      {R"~({"type": "FixedLength", "length": 2})~",
       "ab\xC3\xA9"
       "de",
       {"ab",
        "\xC3\xA9"
        "d",
        "e"}},
  };
  for (const example& e : examples) {
    CAPTURE(e.pre_tokenizer);
    const detail::cut_text result = cut(e.pre_tokenizer, e.text);
    std::vector<std::string> pieces;
    for (const detail::byte_range piece : result.pieces)
      pieces.emplace_back(result.text.view().substr(piece.begin, piece.end - piece.begin));
    CHECK(pieces == e.expected);
  }
}

TEST_CASE("pieces that are rewritten know where they came from") {
  const detail::cut_text result = cut(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})", "a \xC3\xA9");
  REQUIRE(result.pieces.size() == 2);
  const detail::byte_range last = result.text.place(result.pieces[1].begin, result.pieces[1].end);
  CHECK(last.begin == 1);
  CHECK(last.end == 4);
}

TEST_CASE("decoders write text") {
  struct example {
    const char* decoder;
    std::vector<std::string> tokens;
    const char* expected;
  };
  const std::vector<example> examples{
      {R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})",
       {"\xC4\xA0Hi", "\xC3\x83", "\xC2\xA9", "\xC4\x8A", " raw "},
       " Hi\xC3\xA9\n raw "},
      {R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})", {"\xC4\xA0" "a", "\xC4\xA0" "b"}, "a b"},
      {R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "WordPiece", "prefix": "##", "cleanup": false}]})", {"a", "##b"}, "a##b"},
      {R"({"type": "ByteFallback"})",
       {"<0xC3>", "<0xA9>", "a", "<0x41>", "<0x4>"},
       "\xC3\xA9"
       "aA<0x4>"},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})", {"\xE2\x96\x81Hi", "\xE2\x96\x81you\xE2\x96\x81"}, "Hi you "},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true})", {"\xE2\x96\x81Hi", "\xE2\x96\x81you"}, " Hi you"},
      {R"({"type": "WordPiece", "prefix": "##", "cleanup": true})", {"do", "##n", "'", "t", "##s", "stop", "!"}, "don ' ts stop!"},
      {R"({"type": "WordPiece", "prefix": "##", "cleanup": false})", {"a", ",", "##b"}, "a ,b"},
      {R"({"type": "BPEDecoder", "suffix": "</w>"})", {"a</w>", "b", "c</w>"}, "a bc"},
      {R"({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true})",
       {"<pad>", "h", "h", "<pad>", "i", "|", "<pad>", "i", "i"},
       "hi i"},
      {R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
       {"\xE2\x96\x81"
        "a",
        "<0xE2>", "<0x82>", "<0xAC>",
        "\xE2\x96\x81"
        "b"},
       "a\xE2\x82\xAC b"},
      {R"({"type": "Strip", "content": "_", "start": 2, "stop": 1})", {"___a__", "b_"}, "_a_b"},
      {R"({"type": "Replace", "pattern": {"Regex": "[ab]+"}, "content": "x"})", {"aab", "c"}, "xc"},
      {R"({"type": "Fuse"})", {"a", "b"}, "ab"},
  };
  for (const example& e : examples) {
    CAPTURE(e.decoder);
    std::vector<std::string> texts = e.tokens;
    detail::read_token_decoder(step(e.decoder), "the test")->apply(texts);
    std::string all;
    for (const std::string& text : texts) all += text;
    CHECK(all == e.expected);
  }
}

TEST_CASE("steps that are not understood are refused by name") {
  const auto refuses = [](const auto& read, const char* text, const char* words) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS((void)read(step(text)), doctest::Contains(words), config_error);
  };
  const auto normalizer = [](const json& s) { return detail::read_normalizer(s, "f"); };
  const auto pre_tokenizer = [](const json& s) { return detail::read_pre_tokenizer(s, "f", false); };
  const auto decoder = [](const json& s) { return detail::read_token_decoder(s, "f"); };
  refuses(normalizer, R"({"type": "NFX"})", "f: the normalizer must be one that this library knows; given 'NFX'");
  refuses(normalizer, R"({"type": "NFC", "more": 1})", "f: normalizer 'NFC': 'more' must be something this library knows; it is 1");
  refuses(normalizer, R"({"type": "Prepend"})", "f: normalizer 'Prepend': must have 'prepend'; it is missing");
  refuses(normalizer, R"({"type": "Lowercase", "x": []})", "'x' must be something");
  refuses(normalizer, R"({"type": "Sequence", "normalizers": [null]})", "every step must be an object");
  refuses(normalizer, "[]", "f: normalizer: must be an object; it is array");
  refuses(normalizer, R"({"type": "Precompiled", "precompiled_charsmap": "!"})", "must be written in base 64");
  refuses(normalizer, R"({"type": "Precompiled", "precompiled_charsmap": "////fw=="})", "must hold the trie that it promises");
  refuses(pre_tokenizer, R"({"type": "Scripts"})",
          "f: the pre-tokenizer must be one that this library knows; given 'Scripts'");
  refuses(pre_tokenizer, R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
          "must be a regular expression; '(a' is not");
  refuses(pre_tokenizer, R"({"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Isolated"})", "no intersection of sets");
  refuses(pre_tokenizer, R"({"type": "Split", "pattern": {"Regex": "[a[^b]]"}, "behavior": "Isolated"})", "no negated or empty set inside a set");
  refuses(pre_tokenizer, R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Gone"})", "it is 'Gone'");
  refuses(pre_tokenizer, R"({"type": "Metaspace", "replacement": "ab"})", "'replacement' must be one character; it is 'ab'");
  refuses(pre_tokenizer, R"({"type": "Metaspace", "prepend_scheme": "last"})",
          "'prepend_scheme' must be always, first or never; it is 'last'");
  refuses(pre_tokenizer, R"({"type": "FixedLength", "length": 0})", "'length' must be positive");
  refuses(decoder, R"({"type": "Guess"})", "f: the decoder must be one that this library knows; given 'Guess'");
  refuses(decoder, R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
          "'start' must be a whole number, not negative; it is -1");
}
