// SentencePiece models against sentencepiece 0.2.3, and tokens that published tokenizers add.
#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/text/bpe.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

using tokens = std::vector<token>;

// a model file: protocol buffer
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes.push_back(static_cast<char>((value & 127U) | 128U));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string field(unsigned number, const std::string& contents) { return varint(number << 3 | 2U) + varint(contents.size()) + contents; }
std::string flag(unsigned number, std::uint64_t value) { return varint(number << 3) + varint(value); }
std::string piece(const std::string& text, float score, unsigned kind = 1) {
  std::array<char, 4> bits{};
  std::memcpy(bits.data(), &score, bits.size());
  return field(1, field(1, text) + "\x15" + std::string(bits.data(), bits.size()) + flag(3, kind));
}

const std::string space = "\xE2\x96\x81";
const std::string first_pieces = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3);

/// kind: 1 unigram, 2 BPE, 3 words, 4 characters
std::string model_of(const std::string& pieces, unsigned kind, const std::string& training = {}, const std::string& normalization = {}) {
  return first_pieces + pieces + field(2, flag(3, kind) + training) + field(3, normalization);
}

struct model_folder : scratch_folder {
  explicit model_folder(const std::string& model, const std::string& settings = {}) {
    put_file(*this / "tokenizer.model", model);
    if (!settings.empty()) put_file(*this / "tokenizer_config.json", settings);
  }
};

struct example {
  std::string text;
  tokens ids;
  std::string decoded;
};
void check_examples(const std::string& model, const std::vector<example>& examples) {
  const model_folder folder(model);
  const tokenizer loaded = load_tokenizer(folder.path());
  for (const example& one : examples) {
    CAPTURE(one.text);
    CHECK(loaded.encode(one.text) == one.ids);
    CHECK(loaded.decode(one.ids) == one.decoded);
  }
}

std::string unigram_pieces() {
  std::string all;
  for (const auto& [text, score] : std::vector<std::pair<std::string, float>>{{space, -3.0F}, {"t", -3.0F}, {"h", -3.0F}, {"e", -3.0F},
           {"th", -2.0F}, {space + "the", -1.0F}, {"a", -2.0F}, {"aa", -4.0F}, {"-", -2.0F}, {"--", -4.0F}, {"---", -6.0F}})
    all += piece(text, score);
  return all + piece("<tool>", 0, 4) + piece("--!", 0, 4) + piece("!x", -5) + piece("gone", -1, 5);
}
std::string byte_pieces() {
  std::string all;
  for (unsigned byte = 0; byte < 256; ++byte) all += piece(detail::byte_token_text(byte), 0, 6);
  return all + piece(space, -1) + piece("a", -2);
}

std::string tokenizers() {
  std::string folder = test_data("tokenizers");
  if (folder.empty()) MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to tokenizers");
  return folder;
}
/// Published files in one folder, as their tokenizers expect.
void copy(const std::string& from, const std::vector<std::string>& names, const scratch_folder& to) {
  for (const std::string& name : names) put_file(to / name, get_file(from + "/" + name));
}

}  // namespace

TEST_CASE("a unigram model takes the ways that sentencepiece takes, of equal ones too, and user-defined pieces before all") {
  const std::string gap = " \xE2\x81\x87 ";  // decoded unknown token
  check_examples(model_of(unigram_pieces(), 1), {
      {"the then  th", {8, 8, 0, 3, 7}, "the the" + gap + " th"},
      {"  aaaa -------", {3, 10, 10, 3, 11, 13, 13}, "aaaa -------"},
      {"x--!x<tool>the gone", {3, 0, 12, 16, 14, 7, 6, 3, 0, 6}, gap + "--!x<tool>the " + gap + "e"},
      {"\xC3\xBC\xE4\xBD\xA0\xE5\xA5\xBDthe", {3, 0, 7, 6}, gap + "the"},
      {"<s>the</s>", {3, 0, 7, 6, 0}, gap + "the" + gap},
      {"", {}, ""},
      {"   ", {}, ""}});
  check_examples(model_of(unigram_pieces(), 1, flag(24, 1)), {
      {"the then  th", {7, 6, 8, 0, 3, 7, 3}, "the the" + gap + " th "},
      {"  aaaa -------", {10, 10, 3, 11, 13, 13, 3}, "aaaa ------- "}});
  check_examples(model_of(unigram_pieces(), 1, {}, flag(4, 0) + flag(3, 0)), {
      {"the then  th", {7, 6, 8, 0, 3, 3, 7}, "the the" + gap + "  th"},
      {"  aaaa -------", {3, 3, 10, 10, 3, 11, 13, 13}, "  aaaa -------"},
      {"x--!x<tool>the gone", {0, 12, 16, 14, 7, 6, 3, 0, 6}, gap + "--!x<tool>the " + gap + "e"}});
}

TEST_CASE("a text whose scores add up to more than a float can tell apart is cut to its end") {
  const model_folder folder(model_of(unigram_pieces(), 1));
  const tokenizer loaded = load_tokenizer(folder.path());
  const tokens ids = loaded.encode(std::string(300001, '-'));  // -2 for each character: -600,002
  REQUIRE(ids.size() == 100002);
  CHECK(ids[0] == 3);
  for (std::size_t i = 2; i < ids.size(); ++i) REQUIRE(ids[i] == 13);
}

TEST_CASE("BPE joins by score, and takes apart again what ends as an unused piece") {
  std::string pieces;
  const std::vector<std::string> joined = {"th", "he", "the", space + "t", space + "the", "ab", "bc", "abc"};
  for (std::size_t i = 0; i < joined.size(); ++i) pieces += piece(joined[i], -static_cast<float>(i));
  pieces += piece("bcd", -0.5F, 5) + piece("<tool>", 0, 4);
  const std::vector<std::string> single = {space, "t", "h", "e", "a", "b", "c", "d"};
  for (std::size_t i = 0; i < single.size(); ++i) pieces += piece(single[i], -100.0F - static_cast<float>(i));
  const std::string gap = " \xE2\x81\x87 ";
  check_examples(model_of(pieces, 2), {
      {"the then  th", {7, 7, 0, 13, 3}, "the the" + gap + " th"},
      {"  aaaa -------", {13, 17, 17, 17, 17, 13, 0}, "aaaa " + gap},
      {"x--!x<tool>the gone", {13, 0, 12, 5, 13, 0, 16}, gap + "<tool>the " + gap + "e"},
      {"<s>the</s>", {13, 0, 5, 0}, gap + "the" + gap},
      {"abcd bcd abc", {13, 10, 20, 13, 9, 20, 13, 10}, "abcd bcd abc"},
      {"bcdbcd", {13, 9, 20, 9, 20}, "bcdbcd"}});
}

TEST_CASE("bytes that are no pieces, and bytes that are no text") {
  check_examples(model_of(byte_pieces(), 2, flag(35, 1)), {
      {std::string("a\xC3\xBC\0a", 5), {259, 260, 198, 191, 3, 260}, std::string("a\xC3\xBC\0a", 5)},
      {"\xE4\xBD\xA0 a", {259, 231, 192, 163, 259, 260}, "\xE4\xBD\xA0 a"},
      {"a\xFF\xC3" "a", {259, 260, 242, 194, 192, 242, 194, 192, 260}, "a\xEF\xBF\xBD\xEF\xBF\xBD" "a"}});
  const model_folder folder(model_of(byte_pieces(), 2, flag(35, 1)));
  const tokenizer loaded = load_tokenizer(folder.path());
  CHECK(loaded.decode(tokens{3 + 0xE4, 3 + 0xBD, 259, 260, 3 + 0xFF}) == "\xEF\xBF\xBD\xEF\xBF\xBD a\xEF\xBF\xBD");
  CHECK(loaded.decode(tokens{260, 1, 259, 260, 2, 0}) == "a a \xE2\x81\x87 ");
  CHECK(loaded.decode(tokens{-1, 260, 1000000}) == "a");
}

TEST_CASE("models of characters and of words") {
  check_examples(model_of(piece(space, -1) + piece("a", -1) + piece("b", -1) + piece("ab!", 0, 4), 4),
                 {{"ab!ab c", {3, 6, 4, 5, 3, 0}, "ab!ab  \xE2\x81\x87 "}, {"a  b", {3, 4, 3, 5}, "a b"}});
  check_examples(model_of(piece(space + "ab", -1) + piece(space + "c", -1), 3), {{"ab c  ab d", {3, 4, 3, 0}, "ab c ab \xE2\x81\x87 "}});
}

TEST_CASE("a whole text begins as its model wants it, and ends so") {
  const std::string model = model_of(unigram_pieces(), 1);
  const auto whole = [&](const std::string& settings) {
    const model_folder folder(model, settings);
    return load_tokenizer(folder.path()).encode_whole("the").ids();
  };
  CHECK(whole("") == tokens{1, 8});
  CHECK(whole(R"({"tokenizer_class": "InternLMTokenizer"})") == tokens{1, 8});
  CHECK(whole(R"({"add_bos_token": false})") == tokens{8});
  CHECK(whole(R"({"add_eos_token": true})") == tokens{1, 8, 2});
  CHECK(whole(R"({"tokenizer_class": "T5Tokenizer", "add_bos_token": false})") == tokens{8, 2});
  CHECK(whole(R"({"tokenizer_class": "T5Tokenizer", "add_bos_token": false, "add_eos_token": false})") == tokens{8, 2});
  const auto two = [&](const std::string& settings) {
    const model_folder folder(model, settings);
    return load_tokenizer(folder.path()).encode_whole("the", "the").ids();
  };
  CHECK(two("") == tokens{1, 8, 1, 8});
  CHECK(two(R"({"tokenizer_class": "InternLM2Tokenizer"})") == tokens{1, 8, 8});
}

TEST_CASE("special tokens written in a text are tokens if tokenizer_config.json lies beside a model, and legacy says whether a space follows them") {
  std::string pieces;  // values: transformers 5.24.0 and 4.57.6
  const std::vector<std::string> joined = {space + "a", space + "b"};
  for (std::size_t i = 0; i < joined.size(); ++i) pieces += piece(joined[i], -static_cast<float>(i));
  pieces += piece(space, -10) + piece("a", -11) + piece("b", -12) + piece("<tool>", 0, 4);
  const std::string model = model_of(pieces, 2);
  const auto loaded = [&](const std::string& settings) {
    const model_folder folder(model, settings);
    return load_tokenizer(folder.path());
  };
  const std::string llama = R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false)";
  const tokenizer bare = loaded(""), old = loaded(llama + R"(, "legacy": true})"), now = loaded(llama + R"(, "legacy": false})");
  const tokenizer none = loaded(llama + R"(, "add_prefix_space": false, "legacy": true})");
  CHECK(bare.encode("a</s>b") == tokens{3, 0, 7});  // without added tokens
  CHECK(old.encode("a</s>b") == tokens{3, 2, 4});
  CHECK(now.encode("a</s>b") == tokens{3, 2, 7});
  CHECK(none.encode("a</s>b") == tokens{6, 2, 7});
  CHECK(old.encode("a</s> b") == tokens{3, 2, 5, 4});
  CHECK(now.encode("a</s> b") == tokens{3, 2, 4});
  CHECK(old.encode(" a") == tokens{5, 3});
  CHECK(now.encode(" a") == tokens{3});
  CHECK(now.encode("</s>a") == tokens{2, 6});
  CHECK(old.encode("</s>a") == tokens{2, 3});
  CHECK(now.encode("a<tool>b") == tokens{3, 8, 7});
  CHECK(old.encode("a<tool>b") == tokens{3, 8, 4});
  CHECK(now.encode_as_text("</s>") == bare.encode("</s>"));
  for (const tokenizer* t : {&old, &now, &none})
    for (const char* text : {"a</s>b a", "</s>a", "a b<s>"}) CHECK(t->decode(t->encode(text)) == text);
  CHECK(old.notes().size() == 1);  // transformers 5 has no space in front of a space
  CHECK(now.notes().empty());
  const tokenizer unsaid = loaded(R"({"tokenizer_class": "LlamaTokenizer"})");
  CHECK(unsaid.encode_whole("</s>a").ids() == tokens{1, 2, 3});  // as in 4.57.6
  CHECK(unsaid.notes().size() == 2);  // add_bos_token and legacy
}

TEST_CASE("tokens that are added beside a model have no space behind them without legacy") {
  const std::string model = model_of(piece(space + "a", -1) + piece(space, -10) + piece("a", -11), 2);
  const model_folder folder(model, R"({"tokenizer_class": "LlamaTokenizer", "legacy": false, "add_bos_token": false,
      "added_tokens_decoder": {"0": {"content": "<unk>", "special": true}, "1": {"content": "<s>", "special": true}, "2": {"content": "</s>", "special": true}, "6": {"content": "<|im_start|>", "special": true}}})");
  const tokenizer t = load_tokenizer(folder.path());
  CHECK(t.encode("<|im_start|>a a") == tokens{6, 5, 3});
  CHECK(t.encode("a<|im_start|> a") == tokens{3, 6, 3});
}

TEST_CASE("ChatGLM2's and 3's folders have tokens behind the pieces, and no begin token but [gMASK] sop") {
  const std::string model = model_of(unigram_pieces(), 1);
  const std::string settings = R"({"tokenizer_class": "ChatGLMTokenizer")";
  const model_folder second(model, settings + "}"), third(model, settings + R"(, "name_or_path": "THUDM/chatglm3-6b"})");
  const tokenizer two = load_tokenizer(second.path()), three = load_tokenizer(third.path());
  constexpr token pieces = 18;
  CHECK(two.vocab_size() == pieces + 5);
  CHECK(three.vocab_size() == pieces + 9);
  CHECK(two.find_token("[gMASK]") == pieces + 1);
  CHECK(two.find_token("<|user|>") == -1);
  CHECK(three.find_token("<|user|>") == pieces + 6);
  CHECK_FALSE(two.special().adds_bos);
  CHECK(two.special().eos == 2);
  CHECK(two.encode_prompt("the") == tokens{pieces + 1, pieces + 3, 8});
  CHECK(two.encode_whole("the").ids() == tokens{pieces + 1, pieces + 3, 8});
  CHECK(two.encode_whole("the", "the").ids() == tokens{pieces + 1, pieces + 3, 8, 8, 2});
  CHECK(three.encode("[gMASK]sop<|user|>the") == tokens{pieces + 1, pieces + 3, pieces + 6, 8});
  CHECK(three.encode("[gMASK]sopthe") == tokens{pieces + 1, pieces + 3, 8});
  CHECK(three.encode("sopthe") == tokens{3, 0, 7, 6});  // a word character follows
  CHECK(three.decode(tokens{pieces + 6, 8}, special_text::left_out) == "the");
}

TEST_CASE("ChatGLM's tokens keep their numbers beside tokens that were added") {
  const model_folder folder(model_of(unigram_pieces(), 1), R"({"tokenizer_class": "ChatGLMTokenizer"})");
  put_file(folder / "added_tokens.json", R"({"zebra": 23})");
  const tokenizer loaded = load_tokenizer(folder.path());
  CHECK(loaded.find_token("[gMASK]") == 19);
  CHECK(loaded.find_token("zebra") == 23);
  CHECK(loaded.vocab_size() == 24);
}

TEST_CASE("ChatGLM-6B writes line breaks, tabs and runs of spaces as pieces") {
  std::string pieces = unigram_pieces();
  std::size_t count = 18;
  const auto add = [&](const std::string& text, unsigned kind) {
    pieces += piece(text, 0, kind);
    return static_cast<token>(count++);
  };
  const token line = add("<n>", 4), tab = add("<|tab|>", 4), two = add("<|blank_2|>", 4), most = add("<|blank_80|>", 4);
  const token mask = add("[gMASK]", 3), sop = add("<sop>", 3), eop = add("<eop>", 3);
  const std::string model = model_of(pieces, 1), settings = R"({"tokenizer_class": "ChatGLMTokenizer", "num_image_tokens": 0})";
  const model_folder folder(model, settings);
  const tokenizer loaded = load_tokenizer(folder.path());
  const std::string text = "the\n\tthe  th";
  const tokens ids = {8, line, tab, 7, 6, two, 7};
  CHECK(loaded.encode(text) == ids);
  CHECK(loaded.decode(ids) == text);
  const std::vector<placed_token> placed = loaded.encode_placed(text);
  REQUIRE(placed.size() == 7);
  CHECK(placed[1].begin == 3);
  CHECK(placed[1].end == 4);
  CHECK(placed[5].begin == 8);
  CHECK(placed[5].end == 10);
  CHECK(loaded.encode("t" + std::string(82, ' ') + "t") == tokens{3, 4, most, two, 4});
  CHECK(loaded.encode_whole("the").ids() == tokens{8, mask, sop});
  CHECK(loaded.encode_prompt("the") == tokens{8, mask, sop});
  CHECK(loaded.special().bos == sop);
  CHECK(loaded.special().eos == eop);
  const model_folder shifted(model, R"({"tokenizer_class": "ChatGLMTokenizer", "num_image_tokens": 20000})");
  CHECK_THROWS_WITH_AS((void)load_tokenizer(shifted.path()), doctest::Contains("num_image_tokens must be 0"), config_error);
}

TEST_CASE("published ChatGLM and InternLM folders give the published numbers") {
  const std::string from = tokenizers();
  if (from.empty()) return;
  const scratch_folder one, two, three, intern;
  copy(from + "/chatglm", {"ice_text.model", "tokenizer_config.json", "special_tokens_map.json"}, one);
  copy(from + "/chatglm2", {"tokenizer.model", "tokenizer_config.json"}, two);
  copy(from + "/chatglm2", {"tokenizer.model"}, three);
  copy(from + "/chatglm3", {"tokenizer_config.json"}, three);
  put_file(intern / "tokenizer.model", get_file(from + "/internlm/tokenizer_internlm.model"));
  const tokenizer glm = load_tokenizer(one.path()), glm2 = load_tokenizer(two.path()), glm3 = load_tokenizer(three.path());
  CHECK(glm.encode("hello\n\tworld   x") == tokens{14833, 4, 130008, 4664, 130010, 149});
  CHECK(glm.decode(tokens{14833, 4, 130008, 4664, 130010, 149}) == "hello\n\tworld   x");
  CHECK(glm.encode_whole("hello").ids() == tokens{14833, 130001, 130004});
  CHECK(glm2.encode_whole("hello").ids() == tokens{64790, 64792, 24954});
  CHECK_FALSE(glm2.special().adds_bos);
  CHECK(glm3.encode("[gMASK]sop<|user|>\n hello<|assistant|>") == tokens{64790, 64792, 64795, 30910, 13, 24954, 64796});
  CHECK(load_tokenizer(intern.path()).encode_whole("hello").ids() == tokens{1, 15115});
}
