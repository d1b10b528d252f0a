#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/data/load_tokenizer.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

std::string random_bytes(std::size_t n, std::uint32_t seed) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text.push_back(static_cast<char>(random_word({.seed = seed}, i)));
  return text;
}

/// Every line of a vector file: text, ids, decoded.
void check_vectors(const tokenizer& with, const std::string& path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const json expected = parse_json(line, path, lines + 1);
    const auto text = expected["text"].get<std::string>();
    CAPTURE(text);
    CHECK(with.encode(text) == expected["ids"].get<std::vector<token>>());
    if (expected.contains("decoded"))
      CHECK(with.decode(expected["ids"].get<std::vector<token>>()) == expected["decoded"].get<std::string>());
  }
  CHECK(lines > 100);
}

/// llama.cpp's vectors: inputs separated by a marker, ids one line each.
void check_llamacpp(const tokenizer& with, const std::string& stem) {
  const std::string inputs = get_file(stem + ".inp"), marker = "\n__ggml_vocab_test__\n";
  std::ifstream outputs(stem + ".out");
  std::size_t begin = 0, cases = 0;
  for (std::string line; std::getline(outputs, line); ++cases) {
    const std::size_t end = std::min(inputs.find(marker, begin), inputs.size());
    std::vector<token> expected;
    for (std::size_t at = 0; at < line.size();) {
      std::size_t used = 0;
      while (at < line.size() && line[at] == ' ') ++at;
      if (at == line.size()) break;
      expected.push_back(static_cast<token>(std::stol(line.substr(at), &used)));
      at += used;
    }
    CAPTURE(cases);
    CHECK(with.encode(inputs.substr(begin, end - begin)) == expected);
    begin = end + marker.size();
  }
  CHECK(cases == 46);
}

/// A byte-level BPE with a few merges, as its two files.
void write_small_bpe(const scratch_folder& folder) {
  json vocabulary = json::object();
  for (unsigned byte = 0; byte < 256; ++byte) vocabulary[detail::printable_byte(byte)] = byte;
  vocabulary["th"] = 256;
  vocabulary["the"] = 257;
  vocabulary["\xC4\xA0the"] = 258;  // with the stand-in for a space
  vocabulary["<|endoftext|>"] = 259;
  put_file(folder / "vocab.json", vocabulary.dump());
  put_file(folder / "merges.txt", "#version: 0.2\nt h\nth e\n\xC4\xA0 the\n");
}

}  // namespace

TEST_CASE("bytes are their own tokens, whatever they are") {
  const tokenizer bytes = byte_tokenizer();
  const std::string text = random_bytes(1000, 1);
  CHECK(bytes.decode(bytes.encode(text)) == text);
  CHECK(bytes.vocabulary() == 257);
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
  CHECK(again.vocabulary() == 257);
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
  put_file(folder / "vocab.json", R"({"a": 1})");
  put_file(folder / "merges.txt", "");
  refuses("every byte must have a token");
  put_file(folder / "vocab.json", R"({"a": -1})");
  refuses("every token must be a whole number below 2^24; 'a' is -1");
  put_file(folder / "vocab.json", R"({"a": 99999999999})");
  refuses("every token must be a whole number");
  put_file(folder / "vocab.json", "[]");
  refuses("the vocabulary must be an object");
  put_file(folder / "vocab.json", "{\"a\": 1\n");
  refuses("must be JSON; line");
  put_file(folder / "tokenizer.json", R"({"model": {"type": "Unigram", "vocab": [], "merges": []}})");
  refuses("must be a byte-level BPE; its model is 'Unigram'");
  put_file(folder / "tokenizer.json", R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "normalizer": {"type": "NFC"}})");
  refuses("it normalises text ('NFC')");
  CHECK_THROWS_WITH_AS((void)load_tokenizer(folder / "nothing"), doctest::Contains("there is nothing of that name"), file_error);
  const scratch_folder empty;
  CHECK_THROWS_WITH_AS((void)load_tokenizer(empty.path()), doctest::Contains("it holds none of them"), file_error);
  put_file(empty / "tokenizer.model", "not a model");
  CHECK_THROWS_AS((void)load_tokenizer(empty.path()), file_error);
  put_file(empty / "tokenizer.model", "");
  CHECK_THROWS_AS((void)load_tokenizer(empty.path()), file_error);
}

TEST_CASE("a streaming decoder never gives out half a character, and together gives everything") {
  const std::string text = "a\xC3\xBC\xE4\xBD\xA0\xF0\x9F\x98\x80z\xC3";  // the last character is broken
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

TEST_CASE("GPT-2's tokenizer gives the reference ids, from either of its forms") {
  const std::string folder = test_data("tokenizers/gpt2");
  if (folder.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  const tokenizer from_json = load_tokenizer(folder + "/tokenizer.json"), from_vocabulary = load_tokenizer(folder + "/vocab.json");
  CHECK(from_json.vocabulary() == 50257);
  CHECK(from_json.special().eos == 50256);
  for (const tokenizer* t : {&from_json, &from_vocabulary}) {
    check_vectors(*t, test_data("tokenizers/vectors_reference/hf/gpt2.jsonl"));
    check_llamacpp(*t, test_data("tokenizers/llamacpp_vocab") + "/ggml-vocab-gpt-2.gguf");
    const std::string noise = random_bytes(5000, 9);
    CHECK(t->decode(t->encode(noise)) == noise);
  }
}

TEST_CASE("SentencePiece models give the reference ids, and their places lie in the text") {
  const std::string path = test_data("tokenizers/llama2/tokenizer.model");
  if (path.empty()) {
    MESSAGE("skipped: no test data");
    return;
  }
  const tokenizer llama = load_tokenizer(path);
  CHECK(llama.vocabulary() == 32000);
  CHECK(llama.special().bos == 1);
  CHECK(llama.special().adds_bos);
  CHECK(llama.encode_prompt("") == std::vector<token>{1});
  check_vectors(llama, test_data("tokenizers/vectors_reference/spm/llama2.jsonl"));
  check_llamacpp(llama, test_data("tokenizers/llamacpp_vocab") + "/ggml-vocab-llama-spm.gguf");
  // the folder holds a tokenizer.json of a kind that is not read yet, and the model it was made from
  CHECK(load_tokenizer(test_data("tokenizers/llama2")).encode("Hello world") == llama.encode("Hello world"));
  const std::string text = "Two words, \xC3\xBC and \xF0\x9F\x98\x80.";
  std::size_t last = 0;
  for (const placed_token& t : llama.encode_placed(text)) {
    CHECK(t.begin <= t.end);
    CHECK(t.end <= text.size());
    CHECK(t.end >= last);
    last = t.end;
  }
  CHECK(last == text.size());
}
