// External test vectors: llama.cpp's 46 inputs, and reference texts encoded with the tokenizers, tiktoken and SentencePiece libraries.
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/text/encode_batch.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include "no_new_threads.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

/// Every line of a vector file: text, ids, decoded text. Texts that contain special tokens are skipped if the file's library
/// encodes them as plain text and the tokenizer's format does not.
void check_vectors(const tokenizer& with, const std::string& name, bool special_is_text = false) {
  const std::string path = test_data("tokenizers/vectors_reference/" + name);
  CAPTURE(name);
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const json expected = parse_json(line, path, lines + 1);
    const auto text = expected["text"].get<std::string>();
    CAPTURE(text);
    const auto ids = expected["ids"].get<std::vector<token>>();
    CHECK((special_is_text ? with.encode_as_text(text) : with.encode(text)) == ids);
    if (expected.contains("decoded")) CHECK(with.decode(ids) == expected["decoded"].get<std::string>());
  }
  CHECK(lines == 133);
}

/// llama.cpp's vectors: inputs separated by a marker, ids on one line each.
void check_llamacpp(const tokenizer& with, const std::string& name) {
  const std::string stem = test_data("tokenizers/llamacpp_vocab") + "/ggml-vocab-" + name + ".gguf";
  CAPTURE(name);
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

std::string random_bytes(std::size_t n, std::uint32_t seed) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text.push_back(static_cast<char>(random_word({.seed = seed}, i)));
  return text;
}

/// A saved and reloaded tokenizer is the same: from all files, and from tokenizer.json alone if written.
void check_saved(const tokenizer& with) {
  const scratch_folder folder;
  with.save(folder.path());
  const std::string text = "It's  saved: \xC3\xBC\xE4\xBD\xA0 12345\n\n\tok <|endoftext|></s>[SEP]";
  std::vector<std::string> again{folder.path()};
  if (file_exists(folder / "tokenizer.json")) again.push_back(folder / "tokenizer.json");
  for (const std::string& path : again) {
    CAPTURE(path);
    const tokenizer loaded = load_tokenizer(path);
    CHECK(loaded.encode(text) == with.encode(text));
    CHECK(loaded.encode_whole(text).ids() == with.encode_whole(text).ids());
    CHECK(loaded.vocab_size() == with.vocab_size());
    CHECK(loaded.special().bos == with.special().bos);
    CHECK(loaded.special().eos == with.special().eos);
    CHECK(loaded.special().adds_bos == with.special().adds_bos);
  }
}

std::string tokenizers() {
  std::string folder = test_data("tokenizers");
  if (folder.empty()) MESSAGE("skipped: no test data");
  return folder;
}

}  // namespace

TEST_CASE("GPT-2's tokenizer gives the reference ids, from either of its forms") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  for (const char* form : {"/gpt2/tokenizer.json", "/gpt2/vocab.json", "/gpt2/merges.txt"}) {
    CAPTURE(form);
    const tokenizer gpt2 = load_tokenizer(folder + form);
    CHECK(gpt2.vocab_size() == 50257);
    CHECK(gpt2.special().eos == 50256);
    check_vectors(gpt2, "hf/gpt2.jsonl");
    check_llamacpp(gpt2, "gpt-2");
    const std::string noise = random_bytes(5000, 9);
    CHECK(gpt2.decode(gpt2.encode(noise)) == noise);
    std::size_t last = 0;
    for (const placed_token& t : gpt2.encode_placed(noise)) {
      CHECK(t.begin == last);
      last = t.end;
    }
    CHECK(last == noise.size());
    check_saved(gpt2);
  }
}

TEST_CASE("GPT-NeoX's tokenizer gives llama.cpp's ids for MPT, and texts in normal form C come back") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  const tokenizer neox = load_tokenizer(folder + "/gpt_neox");
  check_llamacpp(neox, "mpt");
  const std::string text = "  caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80\n\n\t x";
  CHECK(neox.decode(neox.encode(text)) == text);
  CHECK(neox.decode(neox.encode("cafe\xCC\x81")) == "caf\xC3\xA9");
  check_saved(neox);
}

TEST_CASE("SentencePiece models give the reference ids, and their places lie in the text") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  const tokenizer llama = load_tokenizer(folder + "/llama2/tokenizer.model");
  CHECK(llama.vocab_size() == 32000);
  CHECK(llama.special().bos == 1);
  CHECK(llama.special().adds_bos);
  CHECK(llama.encode_prompt("") == std::vector<token>{1});
  check_vectors(llama, "spm/llama2.jsonl", true);
  check_llamacpp(llama, "llama-spm");
  check_vectors(load_tokenizer(folder + "/chatglm2"), "spm/chatglm2.jsonl");
  check_vectors(load_tokenizer(folder + "/spm_fixtures/test_sentencepiece.model"), "spm/fx_test_sentencepiece.jsonl");
  const std::string text = "Two words, \xC3\xBC and \xF0\x9F\x98\x80.";
  std::size_t last = 0;
  for (const placed_token& t : llama.encode_placed(text)) {
    CHECK(t.begin <= t.end);
    CHECK(t.end <= text.size());
    CHECK(t.end >= last);
    last = t.end;
  }
  CHECK(last == text.size());
  check_saved(llama);
}

TEST_CASE("LLaMA-2's tokenizer.json gives the ids of the model that it was made from") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  const tokenizer llama = load_tokenizer(folder + "/llama2/tokenizer.json");
  check_vectors(llama, "spm/llama2.jsonl", true);
  check_llamacpp(llama, "llama-spm");
  CHECK(llama.special().bos == 1);
  CHECK(llama.special().eos == 2);
  CHECK(llama.special().adds_bos);
  const std::string text = "  byte fallback: \xF0\x9F\xA6\x99 \xE1\x9A\xA0";
  CHECK(llama.decode(llama.encode(text)) == text);
  check_saved(llama);
}

TEST_CASE("tiktoken's files give the reference ids") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  const tokenizer cl100k = load_tokenizer(folder + "/tiktoken");
  check_vectors(cl100k, "tiktoken/cl100k_base.jsonl", true);
  CHECK(cl100k.encode("<|endoftext|>") == std::vector<token>{100257});
  CHECK(cl100k.encode_as_text("<|endoftext|>").size() > 1);
  const std::string noise = random_bytes(5000, 11);
  CHECK(cl100k.decode(cl100k.encode(noise)) == noise);
  check_saved(cl100k);
  const tokenizer llama3 = load_tokenizer(folder + "/llama3");
  CHECK(llama3.vocab_size() == 128256);
  CHECK(llama3.special().bos == 128000);
  CHECK(llama3.special().eos == 128009);
  CHECK(llama3.encode_prompt("Hello world") == std::vector<token>{128000, 9906, 1917});
  check_saved(llama3);
  const tokenizer qwen = load_tokenizer(folder + "/qwen"), qwen2 = load_tokenizer(folder + "/qwen2");
  CHECK(qwen2.special().eos == 151645);
  CHECK(qwen2.special().bos == -1);
  const std::string inputs = get_file(folder + "/llamacpp_vocab/ggml-vocab-gpt-2.gguf.inp");
  CHECK(qwen.encode(inputs) == qwen2.encode(inputs));
  CHECK(load_tokenizer(folder + "/qwen2/vocab.json").encode(inputs) == qwen2.encode(inputs));
  check_saved(qwen);
  check_saved(qwen2);
}

TEST_CASE("BERT's vocabulary gives the reference ids") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  const tokenizer bert = load_tokenizer(folder + "/bert/bert_base_uncased_vocab.txt");
  check_vectors(bert, "hf/bert_uncased.jsonl");
  check_llamacpp(bert, "bert-bge");
  CHECK(bert.encode_whole("hello").ids() == std::vector<token>{101, 7592, 102});
  const encoding pair = bert.encode_whole("hello", "world");
  CHECK(pair.ids() == std::vector<token>{101, 7592, 102, 2088, 102});
  CHECK(pair.types == std::vector<std::int32_t>{0, 0, 0, 1, 1});
  CHECK(pair.parts == std::vector<std::int8_t>{-1, 0, -1, 1, -1});
  CHECK(bert.decode(pair.ids(), special_text::left_out) == "hello world");
  check_saved(bert);
  const tokenizer cased = load_tokenizer(folder + "/bert/bert_base_cased_vocab.txt");
  CHECK(cased.encode("Hello") != cased.encode("hello"));
  check_saved(cased);
}

TEST_CASE("T5's unigram tokenizer.json gives the ids of the model that it was made from") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  const tokenizer from_json = load_tokenizer(folder + "/t5/tokenizer.json"),
                  from_model = load_tokenizer(folder + "/t5/t5_tokenizer_base.model");
  for (const char* text :
       {"The quick brown fox", "na\xC3\xAFve caf\xC3\xA9 \xEF\xAC\x81sh \xC2\xBD", "translate English to German: That is good."})
    CHECK(from_json.encode(text) == from_model.encode(text));
  CHECK(from_json.encode_whole("Hi").ids().back() == 1);
  CHECK(from_json.special().eos == 1);
  check_saved(from_json);
}

TEST_CASE("a batch has the same tokens on any number of threads") {
  const std::string folder = tokenizers(), text = test_data("text/tinyshakespeare.txt");
  if (folder.empty() || text.empty()) return;
  const std::string all = get_file(text);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < 300000; i += 777) parts.push_back(all.substr(i, 777));
  for (const char* name : {"/gpt2", "/llama2/tokenizer.json", "/llama2/tokenizer.model", "/t5/tokenizer.json"}) {
    CAPTURE(name);
    const tokenizer with = load_tokenizer(folder + name);
    const auto alone = encode_batch(with, parts, 1);
    CHECK(alone == encode_batch(with, parts, 2));
    CHECK(alone == encode_batch(with, parts, 5));
    const no_new_threads none;
    CHECK(alone == encode_batch(with, parts, 5));
    CHECK(alone[3] == with.encode(parts[3]));
  }
}

TEST_CASE("ten megabytes without a space are encoded in seconds") {
  const std::string folder = tokenizers();
  if (folder.empty()) return;
  const std::string word(10000000, 'a');
  for (const char* name : {"/gpt2", "/tiktoken", "/llama2/tokenizer.json", "/t5/tokenizer.json", "/bert/bert_base_uncased_vocab.txt"}) {
    CAPTURE(name);
    CHECK(load_tokenizer(folder + name).encode(word).size() <= word.size() + 1);
  }
}
