#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/text/byte_level_files.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include <xtrain/text/unigram.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

std::string random_bytes(std::size_t n, std::uint32_t seed) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text.push_back(static_cast<char>(random_word({.seed = seed}, i)));
  return text;
}

void write_small_bpe(const scratch_folder& folder) {
  json vocabulary = json::object();
  for (unsigned byte = 0; byte < 256; ++byte) vocabulary[detail::printable_byte(byte)] = byte;
  vocabulary["th"] = 256;
  vocabulary["the"] = 257;
  vocabulary["\xC4\xA0the"] = 258;  // with the printable character for a space
  vocabulary["<|endoftext|>"] = 259;
  put_file(folder / "vocab.json", vocabulary.dump());
  put_file(folder / "merges.txt", "#version: 0.2\nt h\nth e\n\xC4\xA0 the\n");
}

}  // namespace

TEST_CASE("bytes are their own tokens, whatever they are") {
  const tokenizer bytes = byte_tokenizer();
  const std::string text = random_bytes(1000, 1);
  CHECK(bytes.decode(bytes.encode(text)) == text);
  CHECK(bytes.vocab_size() == 257);
  CHECK(bytes.encode_prompt("") == std::vector<token>{256});
  CHECK(bytes.encode("a") == std::vector<token>{97});
  const auto placed = bytes.encode_placed("\xC3\xBC");
  REQUIRE(placed.size() == 2);
  CHECK(placed[1].begin == 1);
}

TEST_CASE("the byte tokenizer's files make the same tokenizer again") {
  const scratch_folder folder;
  byte_tokenizer().save(folder.path());
  const tokenizer again = load_tokenizer(folder.path());
  const std::string text = "plain, \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80\n\t" + random_bytes(300, 2);
  CHECK(again.encode(text) == byte_tokenizer().encode(text));
  CHECK(again.decode(again.encode(text)) == text);
  CHECK(again.vocab_size() == 257);
  CHECK(again.special().eos == 256);
}

TEST_CASE("merges join the pair that was learned first, and places are those of the text") {
  const scratch_folder folder;
  write_small_bpe(folder);
  const tokenizer t = load_tokenizer(folder.path());
  CHECK(t.encode("the then th") == std::vector<token>{257, 258, 'n', ' ', 256});
  const auto placed = t.encode_placed("a the");
  REQUIRE(placed.size() == 2);
  CHECK(placed[1].begin == 1);
  CHECK(placed[1].end == 5);
  CHECK(t.encode("x<|endoftext|>y") == std::vector<token>{'x', 259, 'y'});
  CHECK(t.decode(std::vector<token>{'x', 259, 258}) == "x<|endoftext|> the");
  CHECK(t.special().eos == 259);
  const std::string text = random_bytes(2000, 3);
  CHECK(t.decode(t.encode(text)) == text);
}

TEST_CASE("a long word without spaces costs no more than n log n") {
  const scratch_folder folder;
  write_small_bpe(folder);
  const tokenizer t = load_tokenizer(folder.path());
  const std::string word(std::size_t{1} << 20, 't');
  CHECK(t.decode(t.encode(word)) == word);
}

TEST_CASE("tokenizer files that contradict themselves are refused, and say where") {
  const scratch_folder folder;
  write_small_bpe(folder);
  const auto refuses = [&](const std::string& words) {
    CHECK_THROWS_WITH_AS((void)load_tokenizer(folder.path()), doctest::Contains(words.c_str()), error);
  };
  put_file(folder / "merges.txt", "t h\nthe\n");
  refuses("line 2 must be two tokens");
  put_file(folder / "merges.txt", "t z\n");
  refuses("merge 1 ('t' 'z') must join two tokens into a third");
  put_file(folder / "merges.txt", "");
  put_file(folder / "vocab.json", R"({"a": -1})");
  refuses("every token must be a whole number below 2^24; 'a' is -1");
  put_file(folder / "vocab.json", R"({"a": 99999999999})");
  refuses("every token must be a whole number");
  put_file(folder / "vocab.json", "[]");
  refuses("the vocabulary must be an object");
  put_file(folder / "vocab.json", "{\"a\": 1\n");
  refuses("must be JSON; line");
  put_file(folder / "vocab.json", R"({"a": 0, "b": 0})");
  refuses("token 0 must have one text; it is 'a' and 'b'");
  put_file(folder / "vocab.json", R"({"a": 0, "b": 9999999})");
  refuses("tokens of a vocabulary of 2 must be below 65568; 'b' is 9999999");
  put_file(folder / "vocab.json", R"({"a": 0})");
  put_file(folder / "tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  refuses("tokenizer_class must be one whose pre-tokenization is known; tokenizer_config.json says 'CLIPTokenizer'");
  put_file(folder / "tokenizer_config.json", "{}");
  put_file(folder / "added_tokens.json", R"({"<x>": "1"})");
  refuses("every added token must have a text and an id below 2^24");
  put_file(folder / "added_tokens.json", R"({"<x>": 0})");
  refuses("added token '<x>' must have the id that the vocabulary gives it; it is 0, where the vocabulary has 'a'");
  put_file(folder / "added_tokens.json", "{}");
  const auto refuses_json = [&](const std::string& text, const std::string& words) {
    put_file(folder / "tokenizer.json", text);
    refuses(words);
  };
  refuses_json(R"({"model": {"type": "Unigram", "vocab": [["a"]]}})", "every piece must be a text and a score");
  refuses_json(R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}})",
               "'unk_id' must be a token id in the vocabulary of 1; it is 1");
  refuses_json(R"({"model": {"type": "Markov", "vocab": {"a": 0}}})",
               "the model must be BPE, Unigram, WordPiece or WordLevel; given 'Markov'");
  refuses_json(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}})", "'dropout' must be null or 0");
  refuses_json(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "b"}})",
               "the unknown token must be in the vocabulary");
  refuses_json(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "NFX"}})", "given 'NFX'");
  refuses_json(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "prelude": {}})",
               "'prelude' must be something this library knows");
  refuses_json(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"id": 1, "content": ""}]})",
               "'content' must not be empty");
  refuses_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "post_processor": {"type": "BertProcessing", "sep": ["a", 7], "cls": ["a", 0]}})",
      "special tokens must be of the vocabulary of 1; the post-processor names 7");
  for (const auto& [single, times] : {std::pair{"[]", 0}, {R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])", 2}})
    refuses_json(concat(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "post_processor": {"type": "TemplateProcessing", "single": )", single,
                        R"(, "special_tokens": {}}})"),
                 concat("'single' must have the text A once; it has it ", times, " times"));
  refuses_json(R"({"added_tokens": []})", "must have a 'model' with a 'vocab'; it has none");
  put_file(folder / "words.txt", "no tokenizer at all");
  CHECK_THROWS_WITH_AS((void)load_tokenizer(folder / "words.txt"), doctest::Contains("it is none of them"), file_error);
  CHECK_THROWS_WITH_AS((void)load_tokenizer(folder / "nothing"), doctest::Contains("no such file or folder"), file_error);
  const scratch_folder empty;
  CHECK_THROWS_WITH_AS((void)load_tokenizer(empty.path()), doctest::Contains("it holds none of them"), file_error);
  put_file(empty / "tokenizer.model", "not a model");
  CHECK_THROWS_AS((void)load_tokenizer(empty.path()), file_error);
  put_file(empty / "tokenizer.model", "");
  CHECK_THROWS_AS((void)load_tokenizer(empty.path()), file_error);
}

TEST_CASE("a streaming decoder never gives out half a character, and together gives everything") {
  const std::string text = "a\xC3\xBC\xE4\xBD\xA0\xF0\x9F\x98\x80z\xC3";  // the last character is incomplete
  const tokenizer bytes = byte_tokenizer();
  streaming_decoder decoder(bytes, {});
  std::string all;
  std::vector<std::string> pieces;
  for (const token t : bytes.encode(text)) {
    const std::string piece = decoder.push(t);
    if (!piece.empty()) pieces.push_back(piece);
    all += piece;
  }
  CHECK(pieces == std::vector<std::string>{"a", "\xC3\xBC", "\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "z"});
  CHECK(all + decoder.finish() == text);
  streaming_decoder long_run(bytes, bytes.encode("prompt"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += long_run.push('0' + i % 10);
  CHECK(many.size() == 1000);
  CHECK(many.substr(990) == "0123456789");
}

TEST_CASE("an added token is found as its flags say") {
  const scratch_folder folder;
  put_file(folder / "tokenizer.json",
           R"({"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"}, "added_tokens": [
               {"id": 5, "content": "[M]", "lstrip": true, "special": true}, {"id": 6, "content": "in", "single_word": true, "normalized": true},
               {"id": 7, "content": "Q", "normalized": true}, {"id": 8, "content": "[Me]", "rstrip": true, "normalized": false}],
               "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "in": 6, "[m]": 3}}})");
  const tokenizer t = load_tokenizer(folder.path());
  CHECK(t.encode("a  [M] b") == std::vector<token>{1, 5, 2});
  const auto placed = t.encode_placed("a  [M] b");
  CHECK(placed[1].begin == 1);  // including the spaces before it
  CHECK(placed[1].end == 6);
  CHECK(t.encode("[m]") == std::vector<token>{3});
  CHECK(t.encode_as_text("[M]") == std::vector<token>{3});
  CHECK(t.encode("IN ain") == std::vector<token>{6, 0});
  CHECK(t.encode("aqb") == std::vector<token>{1, 7, 2});
  CHECK(t.encode("[Me]  a") == std::vector<token>{8, 1});  // the longer of two matches at the same offset
  CHECK(t.decode(std::vector<token>{1, 5, 2}, special_text::left_out) == "a b");
  CHECK(t.token_text(5) == "[M]");
  CHECK(t.find_token("[M]") == 5);
  CHECK(t.find_token("nothing") == -1);
}

TEST_CASE("characters without a token become bytes, the unknown token, or nothing") {
  const auto ids = [](const std::string& more, const std::string& text) {
    const scratch_folder folder;
    put_file(folder / "tokenizer.json",
             R"({"model": {"type": "BPE", "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "<0xC3>": 4, "<0xA9>": 5}, "merges": ["a b"])" + more +
                 "}}");
    return load_tokenizer(folder.path()).encode(text);
  };
  using tokens = std::vector<token>;
  CHECK(ids("",
            "ab\xC3\xA9"
            "a") == tokens{3, 1});
  CHECK(ids("",
            "a\xC3\xA9"
            "b") == tokens{3});  // a dropped character does not separate its neighbors
  CHECK(ids(R"(, "unk_token": "?")", "a\xC3\xA9xb") == tokens{1, 0, 0, 2});
  CHECK(ids(R"(, "unk_token": "?", "fuse_unk": true)", "a\xC3\xA9xb") == tokens{1, 0, 2});
  CHECK(ids(R"(, "unk_token": "?", "byte_fallback": true)", "a\xC3\xA9xb") == tokens{1, 4, 5, 0, 2});
  // the tokenizers library keeps an unknown token back until the next character that is a token
  CHECK(ids(R"(, "unk_token": "?", "byte_fallback": true)", "x\xC3\xA9xa") == tokens{4, 5, 0, 0, 1});
  CHECK(ids(R"(, "unk_token": "?", "byte_fallback": true, "fuse_unk": true)", "x\xC3\xA9xa") == tokens{4, 5, 0, 1});
  CHECK(ids(R"(, "unk_token": "?", "byte_fallback": true)", "\xC3\xA9x\xC3\xA9") == tokens{4, 5, 4, 5, 0});
  CHECK(ids(R"(, "ignore_merges": true)", "ab") == tokens{3});
}

TEST_CASE("a BPE of bytes marks the first and the last of a word, and has bytes of printable characters, as the tokenizers library does") {
  const auto ids = [](const std::string& model, const std::string& text) {
    const scratch_folder folder;
    put_file(folder / "tokenizer.json", R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", )" + model + "}}");
    return load_tokenizer(folder.path()).encode(text);
  };
  using tokens = std::vector<token>;
  const std::string suffix = R"("end_of_word_suffix": "</w>", "merges": ["a b</w>", "\u0120 a"], "vocab": {"a": 0, "b": 1, "a</w>": 2, "b</w>": 3,
      "ab</w>": 4, "\u0120": 5, "\u0120</w>": 6, "\u0120a": 7, "\u00c3": 8, "\u00a9</w>": 9})";
  CHECK(ids(suffix, "ab ab") == tokens{4, 5, 4});
  CHECK(ids(suffix, "a b") == tokens{2, 5, 3});
  CHECK(ids(suffix, "aab") == tokens{0, 4});
  CHECK(ids(suffix, "\xC3\xA9") == tokens{8, 9});
  const std::string prefix = R"("continuing_subword_prefix": "##", "merges": ["a ##b", "\u0120 ##a"], "vocab": {"a": 0, "##b": 1, "ab": 2, "##a": 3,
      "\u0120": 4, "\u0120a": 5})";
  CHECK(ids(prefix, "ab ab") == tokens{2, 5, 1});
  CHECK(ids(prefix, "aab") == tokens{0, 3, 1});
  CHECK(ids(prefix, "ba") == tokens{3});
  const std::string fallback = R"("byte_fallback": true, "merges": [], "vocab": {"a": 0, "<0xC4>": 1, "<0xA0>": 2})";
  CHECK(ids(fallback, "a a") == tokens{0, 1, 2, 0});
  CHECK(ids(fallback, "b").empty());
}

TEST_CASE("a unigram model takes the likeliest way") {
  const scratch_folder folder;
  put_file(folder / "tokenizer.json",
           R"({"pre_tokenizer": {"type": "Metaspace"}, "decoder": {"type": "Metaspace"}, "model": {"type": "Unigram", "unk_id": 0,
      "vocab": [["<unk>", 0], ["\u2581", -2], ["\u2581ab", -4], ["a", -1], ["b", -1.5], ["abc", -9], ["c", -1]]}})");
  const tokenizer t = load_tokenizer(folder.path());
  CHECK(t.encode("ab") == std::vector<token>{2});         // -4 beats -4.5
  CHECK(t.encode("abc") == std::vector<token>{2, 6});     // -5 beats -11
  CHECK(t.encode("xya") == std::vector<token>{1, 0, 3});  // adjacent unknown characters become one token
  CHECK(t.decode(t.encode("ab abc")) == "ab abc");
}

TEST_CASE("WordPiece takes the longest beginning, or nothing of a word") {
  const scratch_folder folder;
  put_file(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\nunaf\n");
  const tokenizer t = load_tokenizer(folder.path());
  CHECK(t.encode("UNaffable") == std::vector<token>{1});  // unaf is longer than un, and ##fable is not a token
  CHECK(t.encode("un") == std::vector<token>{4});
  CHECK(t.encode_whole("un", "un").ids() == std::vector<token>{2, 4, 3, 4, 3});
  CHECK(t.encode_prompt("un") == std::vector<token>{2, 4});
  CHECK(t.special().eos == 3);
}

TEST_CASE("ranks join whatever makes a third token, and a word that is a token is that token") {
  const scratch_folder folder;
  std::string ranks;
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (unsigned byte = 0; byte < 256; ++byte) ranks += concat(std::string{digits[byte >> 2], digits[(byte & 3U) << 4]}, "== ", byte, "\n");
  put_file(folder / "cl100k_small.tiktoken", ranks + "dGg= 256\naGU= 257\ndGhl 258\n");  // th, he, the
  const tokenizer t = load_tiktoken(folder / "cl100k_small.tiktoken", "cl100k_base");
  CHECK(t.encode("the") == std::vector<token>{258});
  CHECK(t.encode("xthe") == std::vector<token>{'x', 258});
  CHECK(t.encode("xhe") == std::vector<token>{'x', 257});
  const std::string text = "any bytes \xFF\xC3 the" + random_bytes(500, 4);
  CHECK(t.decode(t.encode(text)) == text);
  CHECK_THROWS_WITH_AS((void)load_tokenizer(folder / "cl100k_small.tiktoken"), doctest::Contains("ranks must belong to a known family"),
                       config_error);
  CHECK_THROWS_WITH_AS((void)load_tiktoken(folder / "cl100k_small.tiktoken", "gpt9"), doctest::Contains("given 'gpt9'"), config_error);
}

TEST_CASE("what tokenizer_config.json and special_tokens_map.json say of special tokens is heard") {
  const scratch_folder folder;
  write_small_bpe(folder);
  put_file(folder / "special_tokens_map.json",
           R"({"bos_token": {"content": "<s>"}, "eos_token": "<|endoftext|>", "additional_special_tokens": ["th"]})");
  put_file(folder / "added_tokens.json", R"({"<s>": 260})");
  put_file(folder / "tokenizer_config.json", R"({"add_bos_token": true})");
  const tokenizer t = load_tokenizer(folder.path());
  CHECK(t.special().bos == 260);
  CHECK(t.special().eos == 259);
  CHECK(t.encode_prompt("the") == std::vector<token>{260, 256, 'e'});  // a special token is found before merging
  CHECK(t.decode(std::vector<token>{260, 257}, special_text::left_out) == "the");
  const scratch_folder other;
  t.save(other.path());
  CHECK(load_tokenizer(other.path()).encode_prompt("the <s>") == t.encode_prompt("the <s>"));
}

TEST_CASE("a begin token that is null is none; eos then begins what must have a beginning, as the usual begin token does an empty prompt") {
  const scratch_folder folder;
  write_small_bpe(folder);
  const std::string end = R"("eos_token": "<|im_end|>", "added_tokens_decoder": {"260": {"content": "<|im_end|>", "special": true}})";
  for (const std::string& config : {R"({"bos_token": null, )" + end + "}", R"({"tokenizer_class": "Qwen2Tokenizer", )" + end + "}"}) {
    CAPTURE(config);
    put_file(folder / "tokenizer_config.json", config);
    const tokenizer t = load_tokenizer(folder.path());
    CHECK(t.special().bos == -1);
    CHECK(t.special().eos == 260);
    CHECK(t.special().first() == 259);
    CHECK(t.beginning().empty());
    CHECK(t.encode_prompt("") == std::vector<token>{259});
  }
  put_file(folder / "tokenizer_config.json", "{" + end + "}");  // GPT-2's class has its own <|endoftext|>
  CHECK(load_tokenizer(folder.path()).special().bos == 259);
  for (const std::string config : {R"({"add_bos_token": true})", R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true})"}) {
    put_file(folder / "tokenizer_config.json", config);
    const tokenizer t = load_tokenizer(folder.path());
    CHECK(t.encode_whole("a").ids() == std::vector<token>{259, t.encode("a").front()});
    CHECK(t.encode_prompt("a") == t.encode_whole("a").ids());
  }
  put_file(folder / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": null})");
  CHECK(load_tokenizer(folder.path()).encode_whole("a").ids().size() == 1);
  put_file(folder / "tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<nobody>"})");
  CHECK_THROWS_WITH_AS((void)load_tokenizer(folder.path()), doctest::Contains("add_bos_token of tokenizer_config.json: the begin token '<nobody>' must be in"),
                       config_error);
}

TEST_CASE("add_prefix_space of tokenizer_config.json is heard where there is no tokenizer.json, as in transformers") {
  const scratch_folder folder;
  write_small_bpe(folder);
  const auto text_of = [&](const std::string& config) {
    put_file(folder / "tokenizer_config.json", config);
    const tokenizer t = load_tokenizer(folder.path());
    return t.decode(t.encode("a\nb"));
  };
  CHECK(text_of(R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": false})") == "a\nb");
  CHECK(text_of(R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})") == " a\nb");
  CHECK(text_of(R"({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": true})") == " a \n b");  // inserted before every word
}

TEST_CASE("the post-processor of a tokenizer.json says whether texts begin with bos, whatever add_bos_token, as in transformers 5") {
  const std::string model = R"("model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1, "</s>": 2}, "unk_token": "a"})";
  const std::string adds = R"(, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}})";
  for (const bool flag : {false, true})
    for (const bool post_processor : {false, true}) {
      const scratch_folder folder;
      put_file(folder / "tokenizer.json", "{" + model + (post_processor ? adds : "") + "}");
      put_file(folder / "tokenizer_config.json", json{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_bos_token", flag}}.dump());
      const tokenizer t = load_tokenizer(folder.path());
      CHECK(t.encode_prompt("a") == (post_processor ? std::vector<token>{0, 1} : std::vector<token>{1}));
      CHECK(t.encode_whole("a").ids() == t.encode_prompt("a"));
    }
}

TEST_CASE("texts begin with what the post-processor of a tokenizer.json adds, also where bos is another token or they are several, as in transformers") {
  const scratch_folder folder;
  const auto loaded = [&](const std::string& before, const std::string& bos) {
    put_file(folder / "tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1, "</s>": 2, "<t>": 3}, "unk_token": "a"},
      "post_processor": {"type": "TemplateProcessing", "single": [)" + before + R"({"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, "<t>": {"id": "<t>", "ids": [3], "tokens": ["<t>"]}}}})");
    put_file(folder / "tokenizer_config.json", json{{"bos_token", bos}, {"eos_token", "</s>"}}.dump());
    return load_tokenizer(folder.path());
  };
  const std::string s = R"({"SpecialToken": {"id": "<s>", "type_id": 0}}, )", t = R"({"SpecialToken": {"id": "<t>", "type_id": 0}}, )";
  for (const auto& [before, bos, expected] : {std::tuple{s, "<s>", std::vector<token>{0, 1}}, {s, "<t>", {0, 1}}, {s + t, "<t>", {0, 3, 1}}}) {
    const tokenizer with = loaded(before, bos);
    CHECK(with.encode_prompt("a") == expected);
    CHECK(with.encode_whole("a").ids() == expected);
    CHECK(with.special().bos == with.find_token(bos));
  }
}

TEST_CASE("special tokens of tokenizer_config.json and special_tokens_map.json that are no tokens are refused") {
  const scratch_folder folder;
  put_file(folder / "tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"<s>": 0, "a": 1, "</s>": 2}, "unk_token": "a"}})");
  const auto refuses = [&](const char* file, const json& settings, const std::string& words) {
    put_file(folder / file, settings.dump());
    CHECK_THROWS_WITH_AS((void)load_tokenizer(folder.path()), doctest::Contains(words.c_str()), config_error);
    put_file(folder / file, "{}");
  };
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string of = "of tokenizer_config.json or special_tokens_map.json must be a token of the vocabulary; given";
    refuses(file, {{"eos_token", "<|im_end|>"}}, "'eos_token' " + of + " '<|im_end|>'");
    refuses(file, {{"bos_token", {{"content", "<x>"}}}}, "'bos_token' " + of + " '<x>'");
    refuses(file, {{"bos_token", 1}}, "'bos_token' must be a token's text, an object with its 'content', or null; given 1");
    refuses(file, {{"eos_token", {{"id", 2}}}}, "'eos_token' must be a token's text, an object with its 'content', or null; given {\"id\":2}");
    refuses(file, {{"split_special_tokens", true}}, "'split_special_tokens' must be false; given true");
    refuses(file, {{"pad_token", json::array({"a"})}}, "'pad_token' must be a token's text, an object with its 'content', or null; given [\"a\"]");
  }
  put_file(folder / "tokenizer_config.json", R"({"eos_token": null, "pad_token": "", "unk_token": "<none>"})");
  CHECK(load_tokenizer(folder.path()).special().eos == -1);
}

namespace {

/// Loads a tokenizer.json of these parts.
tokenizer described(const std::string& model, const std::string& more = {}) {
  const scratch_folder folder;
  put_file(folder / "tokenizer.json", R"({"version": "1.0", )" + more + (more.empty() ? "" : ", ") + R"("model": )" + model + "}");
  return load_tokenizer(folder.path());
}
std::string added(int id, const std::string& content, const std::string& flags) {
  json one = {{"id", id}, {"content", content}};
  for (const char* name : {"single_word", "lstrip", "rstrip", "normalized", "special"}) one[name] = flags.find(name) != std::string::npos;
  return one.dump();
}
const std::string three_words = R"({"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"})";

std::size_t pieces_of(const std::string& pre_tokenizer, const std::string& text) {
  return described(three_words, R"("pre_tokenizer": )" + pre_tokenizer).encode(text).size();
}

}  // namespace

TEST_CASE("tokens that the files beside a tokenizer.json name are added to it, as in transformers") {
  const std::string model = R"("model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "</s>": 2, "<m>": 3, "<x>": 4}})";
  const auto loaded = [&](const std::string& added, const json& config, const json& map) {
    const scratch_folder folder;
    put_file(folder / "tokenizer.json", R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "added_tokens": [)" + added + "], " + model + "}");
    if (!config.is_null()) put_file(folder / "tokenizer_config.json", config.dump());
    if (!map.is_null()) put_file(folder / "special_tokens_map.json", map.dump());
    return load_tokenizer(folder.path());
  };
  using tokens = std::vector<token>;
  CHECK(loaded("", {}, {}).encode("a</s>a") == tokens{0});
  const tokenizer named = loaded("", {{"eos_token", "</s>"}}, {});  // a token of the vocabulary that is named as special
  CHECK(named.encode("a</s>a") == tokens{1, 2, 1});
  CHECK(named.decode(tokens{1, 2}, special_text::left_out) == "a");
  CHECK(loaded("", {{"extra_special_tokens", {"<m>"}}}, {{"additional_special_tokens", {"<x>"}}}).encode("a<m><x>") == tokens{1, 3, 4});
  CHECK(loaded("", {{"extra_special_tokens", {{"image_token", "<m>"}}}}, {}).encode("a<m>") == tokens{1, 3});
  CHECK(loaded("", {{"mask_token", {{"content", "<m>"}, {"lstrip", true}, {"normalized", false}}}}, {}).encode_placed("a <m>")[1].begin == 1);
  const tokenizer listed = loaded(added(2, "</s>", ""), {{"eos_token", "</s>"}}, {});  // it is listed, but not as special
  CHECK(listed.decode(tokens{1, 2}, special_text::left_out) == "a");
  const json decoder = {{"2", {{"content", "</s>"}, {"rstrip", true}, {"special", true}}}, {"5", {{"content", "<n>"}, {"special", true}}}};
  const tokenizer described = loaded(added(2, "</s>", "special"), {{"added_tokens_decoder", decoder}}, {});
  CHECK(described.encode("</s> <n>a") == tokens{2, 5, 1});
  CHECK(described.encode_placed("</s> a")[0].end == 5);
  CHECK(described.vocab_size() == 6);
  const json renamed = {{"3", {{"content", "<other>"}, {"special", true}}}};  // the number of another token
  CHECK(loaded("", {{"added_tokens_decoder", renamed}}, {}).encode("a <m> <other>") == tokens{1, 3, 0});
  // special_tokens_map.json counts, unless tokenizer_config.json lists the added tokens
  CHECK(loaded("", {{"eos_token", "</s>"}}, {{"eos_token", "<m>"}}).special().eos == 3);
  CHECK(loaded("", {{"eos_token", "</s>"}, {"added_tokens_decoder", json::object()}}, {{"eos_token", "<m>"}}).special().eos == 2);
  const tokenizer unread = loaded("", {{"added_tokens_decoder", json::object()}}, {{"bos_token", "<m>"}});
  CHECK(unread.special().bos == -1);
  REQUIRE(unread.notes().size() == 1);
  CHECK(unread.notes()[0].find("bos_token of special_tokens_map.json: not read") != std::string::npos);
}

// Expected values: transformers 5.24.0 and 4.57.6, with tokenizers 0.23.3; where they differ, see the README of text.

namespace {

/// tokenizer.json of write_small_bpe's vocabulary.
json small_bpe_steps(const json& pre_tokenizer, const json& post_processor = nullptr) {
  const scratch_folder folder;
  write_small_bpe(folder);
  load_tokenizer(folder.path()).save(folder.path());
  json all = read_json(folder / "tokenizer.json");
  all["pre_tokenizer"] = pre_tokenizer;
  all["post_processor"] = post_processor;
  return all;
}
/// Loads a folder of these files; null: no file.
tokenizer folder_of(const json& tokenizer_json, const json& config, const json& model_config = nullptr) {
  const scratch_folder folder;
  put_file(folder / "tokenizer.json", tokenizer_json.dump());
  if (!config.is_null()) put_file(folder / "tokenizer_config.json", config.dump());
  if (!model_config.is_null()) put_file(folder / "config.json", model_config.dump());
  return load_tokenizer(folder.path());
}
json config_of(const std::string& name, const json& keys = json::object()) {
  json config = {{"tokenizer_class", name}, {"eos_token", "<|endoftext|>"}};
  config.update(keys);
  return config;
}
bool notes_name(const tokenizer& t, const std::string& words) {
  for (const std::string& note : t.notes())
    if (note.find(words) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("the class decides whether a space is put before a text, not the tokenizer.json") {
  using tokens = std::vector<token>;
  const json with_space = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  const json steps = small_bpe_steps(with_space);
  const json sequence = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, with_space}}};
  const json key = {{"add_prefix_space", true}};
  for (const char* name : {"GPT2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizerFast", "CodeGenTokenizer", "Qwen2TokenizerFast", "RobertaTokenizer",
                           "BartTokenizer"}) {
    CAPTURE(name);
    CHECK(folder_of(steps, config_of(name)).encode("the") == tokens{257});
    CHECK(folder_of(steps, config_of(name, key)).encode("the") == tokens{258});
  }
  for (const char* name : {"PreTrainedTokenizerFast", "TokenizersBackend", "TheirTokenizer"}) {
    CAPTURE(name);
    CHECK(folder_of(steps, config_of(name)).encode("the") == tokens{258});
  }
  CHECK(folder_of(steps, nullptr, {{"model_type", "gpt2"}}).encode("the") == tokens{257});  // class from the model's config.json
  CHECK(folder_of(steps, nullptr, {{"tokenizer_class", "GPT2Tokenizer"}}).encode("the") == tokens{257});
  const scratch_folder saved;  // where config.json is not
  folder_of(steps, nullptr, {{"model_type", "gpt2"}}).save(saved.path());
  CHECK(load_tokenizer(saved.path()).encode("the") == tokens{257});
  CHECK(folder_of(steps, nullptr).encode("the") == tokens{258});
  // the releases differ
  const tokenizer generic = folder_of(steps, config_of("PreTrainedTokenizerFast"));
  CHECK(notes_name(generic, "transformers 4 takes add_prefix_space of tokenizer_config.json"));
  const tokenizer inside = folder_of(small_bpe_steps(sequence), config_of("GPT2Tokenizer"));
  CHECK(inside.encode("the") == tokens{258});
  CHECK(notes_name(inside, "transformers 5 has its own normalizer and pre-tokenizer"));
  CHECK(folder_of(small_bpe_steps(sequence), config_of("Qwen2Tokenizer")).encode("the") == tokens{257});
  CHECK(folder_of(steps, config_of("GPT2Tokenizer")).notes().empty());
}

TEST_CASE("a class has its own special tokens, also where only config.json tells it") {
  using tokens = std::vector<token>;
  json steps = small_bpe_steps({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}});
  steps["added_tokens"] = json::array();
  CHECK(folder_of(steps, nullptr).encode("<|endoftext|>the").size() > 2);
  const tokenizer told = folder_of(steps, nullptr, {{"model_type", "gpt2"}});
  CHECK(told.encode("<|endoftext|>the") == tokens{259, 257});
  const scratch_folder saved;  // where config.json is not
  told.save(saved.path());
  CHECK(load_tokenizer(saved.path()).encode("<|endoftext|>the") == tokens{259, 257});
  CHECK(folder_of(steps, nullptr, {{"model_type", "olmoe"}}).encode("<|endoftext|>the") == tokens{259, 257});
  // classes that do not read vocab.json ignore its tokens
  const scratch_folder folder;
  write_small_bpe(folder);
  json vocabulary = read_json(folder / "vocab.json");
  vocabulary["</s>"] = vocabulary.size();
  put_file(folder / "vocab.json", vocabulary.dump());
  put_file(folder / "tokenizer_config.json", "{}");
  put_file(folder / "config.json", R"({"model_type": "llama"})");
  CHECK(load_tokenizer(folder.path()).encode("</s>") == tokens{'<', '/', 's', '>'});
  // null is a missing flag
  steps["pre_tokenizer"]["add_prefix_space"] = nullptr;
  CHECK(folder_of(steps, config_of("PreTrainedTokenizerFast")).encode("the") == tokens{258});
}

TEST_CASE("GPT-NeoX's class decides what is around a text, GPT-2's does not") {
  using tokens = std::vector<token>;
  const json cut = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const json post = parse_json(R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A",
      "type_id": 0}}], "pair": [], "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [259], "tokens": ["<|endoftext|>"]}}})", "the test");
  const auto whole = [&](const json& config) { return folder_of(small_bpe_steps(cut, post), config).encode_whole("the").ids(); };
  CHECK(whole(config_of("GPT2Tokenizer")) == tokens{259, 257});
  CHECK(whole(config_of("GPTNeoXTokenizer")) == tokens{257});
  CHECK(whole(config_of("GPTNeoXTokenizer", {{"add_eos_token", true}})) == tokens{257, 259});  // as in 4.57.6
  CHECK(notes_name(folder_of(small_bpe_steps(cut, post), config_of("GPTNeoXTokenizer", {{"add_eos_token", true}})), "transformers 5 ignores add_bos_token"));
}

TEST_CASE("vocab.json has the tokens around a text that its class has") {
  using tokens = std::vector<token>;
  const scratch_folder folder;
  write_small_bpe(folder);
  const auto whole = [&](const json& config, const std::string& text = "the") {
    put_file(folder / "tokenizer_config.json", config.dump());
    return load_tokenizer(folder.path()).encode_whole(text).ids();
  };
  for (const char* name : {"GPT2Tokenizer", "Qwen2Tokenizer"}) {
    CAPTURE(name);
    CHECK(whole({{"tokenizer_class", name}, {"add_eos_token", true}}) == tokens{257, 259});
    CHECK(whole({{"tokenizer_class", name}}) == tokens{257});
  }
  CHECK(whole({{"tokenizer_class", "GPT2Tokenizer"}, {"add_bos_token", true}, {"add_eos_token", true}}) == tokens{259, 257, 259});
  CHECK(whole({{"tokenizer_class", "Qwen2Tokenizer"}, {"add_bos_token", true}, {"bos_token", "<|endoftext|>"}}) == tokens{259, 257});
  CHECK(notes_name(load_tokenizer(folder.path()), "transformers 4 ignores add_bos_token"));
  CHECK(whole({{"tokenizer_class", "Qwen2Tokenizer"}, {"add_bos_token", true}}) == tokens{257});
  CHECK(load_tokenizer(folder.path()).notes().empty());
  put_file(folder / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "add_eos_token": true})");
  CHECK(load_tokenizer(folder.path()).encode_prompt("the") == tokens{259, 257});
  json vocabulary = read_json(folder / "vocab.json");
  vocabulary.erase("<|endoftext|>");
  for (const char* text : {"<s>", "</s>", "<pad>", "<mask>", "<unk>"}) vocabulary[text] = vocabulary.size();
  put_file(folder / "vocab.json", vocabulary.dump());
  for (const char* name : {"RobertaTokenizer", "BartTokenizerFast"}) {
    CAPTURE(name);
    CHECK(whole({{"tokenizer_class", name}}) == tokens{259, 257, 260});
    CHECK(whole({{"tokenizer_class", name}}, "<mask> the <mask>") == tokens{259, 262, 258, 262, 260});  // the mask takes the space before it
    CHECK(load_tokenizer(folder.path()).encode_whole("the", "the").ids() == tokens{259, 257, 260, 260, 257, 260});
    const tokenizer t = load_tokenizer(folder.path());
    CHECK(t.special().bos == 259);
    CHECK(t.special().eos == 260);
    const scratch_folder again;
    t.save(again.path());
    CHECK(load_tokenizer(again.path()).encode_whole("the").ids() == tokens{259, 257, 260});
  }
  vocabulary.erase("</s>");
  put_file(folder / "vocab.json", vocabulary.dump());
  CHECK_THROWS_WITH_AS((void)load_tokenizer(folder.path()), doctest::Contains("puts '<s>' and '</s>' around a text; the vocabulary must have '</s>'"),
                       config_error);
}

TEST_CASE("BERT's classes take lower case, accents and ideographs from their keys, missing ones too") {
  using tokens = std::vector<token>;
  const std::vector<std::string> words = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "Hello",
                                          "cafe", "caf\xC3\xA9", "\xE4\xB8\xAD", "\xE4\xB8\xAD\xE6\x96\x87"};
  json vocabulary = json::object();
  std::string lines;
  for (std::size_t i = 0; i < words.size(); ++i) vocabulary[words[i]] = i, lines += words[i] + "\n";
  const auto steps = [&](bool lower, const json& accents, bool ideographs) {
    return json{{"normalizer",
                 {{"type", "BertNormalizer"}, {"clean_text", true}, {"handle_chinese_chars", ideographs}, {"strip_accents", accents}, {"lowercase", lower}}},
                {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                {"post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}}},
                {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}}};
  };
  struct example {
    json config, steps;
    tokens ids;
  };
  const auto bert = [](const json& keys = json::object()) {
    json config = {{"tokenizer_class", "BertTokenizer"}};
    config.update(keys);
    return config;
  };
  const std::string text = "Hello caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87";
  for (const example& one : std::vector<example>{{bert(), steps(false, nullptr, true), {2, 5, 7, 9, 1, 3}},
                                                 {bert({{"do_lower_case", false}}), steps(true, nullptr, true), {2, 6, 8, 9, 1, 3}},
                                                 {bert({{"do_lower_case", false}, {"strip_accents", true}}), steps(true, nullptr, true), {2, 6, 7, 9, 1, 3}},
                                                 {bert({{"strip_accents", false}}), steps(false, true, true), {2, 5, 8, 9, 1, 3}},
                                                 {bert({{"tokenize_chinese_chars", false}}), steps(false, nullptr, true), {2, 5, 7, 10, 3}},
                                                 {bert(), steps(true, true, false), {2, 5, 7, 9, 1, 3}}}) {
    CAPTURE(one.config);
    const tokenizer whole = folder_of(one.steps, one.config);
    CHECK(whole.encode_whole(text).ids() == one.ids);
    CHECK(whole.notes().empty());
    const scratch_folder lists;  // the same with vocab.txt
    put_file(lists / "vocab.txt", lines);
    put_file(lists / "tokenizer_config.json", one.config.dump());
    CHECK(load_tokenizer(lists.path()).encode_whole(text).ids() == one.ids);
  }
  const json cased = steps(false, nullptr, false);
  CHECK(folder_of(cased, {{"tokenizer_class", "DistilBertTokenizerFast"}}).encode_whole(text).ids() == tokens{2, 5, 7, 9, 1, 3});
  CHECK(folder_of(cased, {{"tokenizer_class", "PreTrainedTokenizerFast"}}).encode_whole(text).ids() == tokens{2, 6, 8, 10, 3});
  CHECK(folder_of(cased, nullptr, {{"model_type", "bert"}}).encode_whole(text).ids() == tokens{2, 5, 7, 9, 1, 3});
  const tokenizer apart = folder_of(cased, {{"tokenizer_class", "MPNetTokenizer"}});  // 4.57.6 leaves ideographs to the file
  CHECK(apart.encode_whole(text).ids() == tokens{2, 5, 7, 10, 3});
  CHECK(notes_name(apart, "transformers 5 separates ideographs"));
  const scratch_folder lists;
  put_file(lists / "vocab.txt", lines);
  CHECK(load_tokenizer(lists.path()).encode("Hello") == tokens{6});  // no class: capitals in the vocabulary
  put_file(lists / "config.json", R"({"model_type": "llama"})");  // whose class does not read vocab.txt
  CHECK(load_tokenizer(lists.path()).encode("Hello") == tokens{6});
  put_file(lists / "tokenizer_config.json", R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  CHECK_THROWS_WITH_AS((void)load_tokenizer(lists.path()), doctest::Contains("must be one that reads vocab.txt as BERT's; it is 'BertJapaneseTokenizer'"),
                       config_error);
}

TEST_CASE("fix_mistral_regex replaces the pattern of a large vocabulary beside a model of Mistral's that transformers before 5 has saved") {
  json steps = small_bpe_steps(parse_json(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated",
      "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})", "the test"));
  steps["model"]["vocab"]["Th"] = 260;
  steps["model"]["vocab"]["xT"] = 261;
  steps["model"]["merges"] = json::array({json::array({"x", "T"}), json::array({"T", "h"})});
  for (int id = 262; id < 100010; ++id) steps["model"]["vocab"][concat("<", id, ">")] = id;
  using tokens = std::vector<token>;
  const json fixes = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"fix_mistral_regex", true}};
  const json early = {{"model_type", "mistral"}, {"transformers_version", "4.50.0"}}, late = {{"model_type", "mistral"}, {"transformers_version", "5.1.0"}};
  CHECK(folder_of(steps, fixes, early).encode("xTh") == tokens{'x', 260});  // a capital begins a word
  CHECK(folder_of(steps, fixes, late).encode("xTh") == tokens{261, 'h'});
  CHECK(folder_of(steps, fixes, {{"model_type", "llama"}}).encode("xTh") == tokens{261, 'h'});
  CHECK(folder_of(steps, nullptr, early).encode("xTh") == tokens{261, 'h'});
}

TEST_CASE("LLaMA's add_prefix_space takes the space before a text away if it is false") {
  const json steps = parse_json(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern":
      {"String": " "}, "content": "_"}]}, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"}, "content": " "},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}, "model": {"type": "BPE", "vocab": {"_": 0, "a": 1, "_a": 2, "<unk>": 3},
      "merges": ["_ a"], "unk_token": "<unk>"}})", "the test");
  using tokens = std::vector<token>;
  const tokenizer with = folder_of(steps, {{"tokenizer_class", "LlamaTokenizer"}});
  const tokenizer without = folder_of(steps, {{"tokenizer_class", "LlamaTokenizer"}, {"add_prefix_space", false}});
  CHECK(with.encode("a a") == tokens{2, 2});
  CHECK(without.encode("a a") == tokens{1, 2});
  CHECK(without.decode(tokens{2, 1}) == " aa");
  CHECK(notes_name(with, "transformers 5 has its own normalizer and pre-tokenizer"));
}

TEST_CASE("of ways that score the same, a unigram takes the one that the tokenizers library takes") {
  const tokenizer exact =
      described(R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["-", -2], ["--", -4], ["---", -6], ["a", -0.1], ["aa", -0.2]]})");
  CHECK(exact.encode("-------") == std::vector<token>{1, 3, 3});
  CHECK(exact.encode("--") == std::vector<token>{2});
  CHECK(exact.encode("----") == std::vector<token>{1, 3});
  CHECK(exact.encode("aaaa") == std::vector<token>{5, 5});
  CHECK(exact.encode("aaa") == std::vector<token>{4, 5});
  const tokenizer rounded =  // sums differ only by rounding
      described(R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["-", -3.3], ["--", -6.6], ["---", -9.9]]})");
  CHECK(rounded.encode("-------") == std::vector<token>{1, 2, 3, 1});
  CHECK(rounded.encode("-----") == std::vector<token>{2, 3});
  CHECK(rounded.encode("----------") == std::vector<token>{1, 2, 3, 3, 1});
}

TEST_CASE("recent characters are what the tokenizers library takes them for, step by step") {
  const std::string bert = R"({"type": "BertPreTokenizer"})", punctuation = R"({"type": "Punctuation", "behavior": "Isolated"})";
  const std::string pattern = R"({"type": "Split", "pattern": {"Regex": "\\p{L}+|\\p{N}+"}, "behavior": "Isolated", "invert": false})";
  for (const std::string& step : {bert, punctuation}) {
    CHECK(pieces_of(step, "a\xD8\x9D" "b") == 1);  // U+061D, punctuation since Unicode 14
    CHECK(pieces_of(step, "a\xD8\x8C" "b") == 3);  // U+060C always was
  }
  CHECK(pieces_of(pattern, "a\xD8\x9D" "b") == 3);
  CHECK(pieces_of(pattern, "a\xE1\xB2\x89" "b") == 1);      // U+1C89, a letter since Unicode 16
  CHECK(pieces_of(pattern, "a\xF0\x90\xB5\x80" "b") == 3);  // U+10D40, a digit since Unicode 16
  std::string bytes = R"({"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "merges": [], "vocab": {"<unk>": 256)";
  for (unsigned byte = 0; byte < 256; ++byte) bytes += concat(", \"", detail::byte_token_text(byte), "\": ", byte);
  const tokenizer composed = described(bytes + "}}", R"("normalizer": {"type": "NFC"})");
  CHECK(composed.encode("a\xE1\xAB\x8E\xCC\xA3") == std::vector<token>{97, 225, 171, 142, 204, 163});  // U+1ACE stays before U+0323
  CHECK(composed.encode("a\xCC\x81\xCC\xA3") == std::vector<token>{225, 186, 161, 204, 129});          // U+0301 is reordered
}

TEST_CASE("a special token whose normalized text is another is left out like any other") {
  const tokenizer loaded = described(three_words, R"("normalizer": {"type": "Lowercase"}, "added_tokens": [)" +
                                                      added(3, "[FOO]", "normalized special") + ", " + added(4, "[bar]", "normalized special") + "]");
  CHECK(loaded.encode("[foo]") == std::vector<token>{3});
  CHECK(loaded.decode(std::vector<token>{1, 3, 4}, special_text::left_out) == "a");
  CHECK(loaded.decode(std::vector<token>{1, 3, 4}) == "a [foo] [bar]");
}

TEST_CASE("an added token of which the normalizer leaves nothing is refused") {
  const std::string strip = R"("normalizer": {"type": "Strip", "strip_left": true, "strip_right": true}, "added_tokens": [)";
  const auto load = [&](const std::string& flags) { return described(three_words, strip + added(3, "\n", flags) + "]"); };
  CHECK_THROWS_WITH_AS((void)load("normalized"), doctest::Contains("an added token must not be empty when it is normalized"), config_error);
  CHECK(load("").encode("a\nb") == std::vector<token>{1, 3, 2});
}

TEST_CASE("an added token beside a mark that joins its last character") {
  const std::string nfc = R"("normalizer": {"type": "NFC"}, "added_tokens": [)";
  const tokenizer after = described(three_words, nfc + added(3, "<|x|>", "normalized special") + "]");
  const tokenizer before = described(three_words, nfc + added(3, "<|x|>", "special") + "]");
  CHECK(after.encode("<|x|>") == std::vector<token>{3});
  CHECK(after.encode("<|x|>\xCC\xB8") == std::vector<token>{0});
  CHECK(before.encode("<|x|>\xCC\xB8") == std::vector<token>{3, 0});
}

TEST_CASE("a token that spaces behind it belong to does not hide tokens made of these spaces") {
  const tokenizer loaded = described(three_words, R"("added_tokens": [)" + added(3, "\n\n", "rstrip special") + "]");
  CHECK(loaded.encode("a\n\n\n\nb") == std::vector<token>{1, 3, 3, 2});
  CHECK(loaded.encode("a\n\n\nb") == std::vector<token>{1, 3, 2});
}
