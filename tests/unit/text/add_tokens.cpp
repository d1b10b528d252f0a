#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/text/add_tokens.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include <xtrain/text/token_numbers.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

const std::vector<std::string> texts = {"<tool>", "zebrafish", "<tool>"};

/// Added tokens are matched literally; other text is tokenized as before; adding again changes nothing.
void check_added(const std::string& folder) {
  const tokenizer before = load_tokenizer(folder);
  const auto first = static_cast<token>(before.vocab_size());
  CHECK(add_tokens(folder, texts) == 2);
  const tokenizer after = load_tokenizer(folder);
  CHECK(after.vocab_size() == before.vocab_size() + 2);
  CHECK(after.find_token("<tool>") == first);
  CHECK(after.find_token("zebrafish") == first + 1);
  const std::vector<token> ids = after.encode("a <tool> b");
  CHECK(std::count(ids.begin(), ids.end(), first) == 1);
  CHECK(after.encode("a tool b") == before.encode("a tool b"));
  CHECK(after.decode(std::vector<token>{first + 1}) == "zebrafish");
  CHECK(add_tokens(folder, texts) == 0);
  CHECK(load_tokenizer(folder).vocab_size() == after.vocab_size());
}

}  // namespace

TEST_CASE("a tokenizer.json gets tokens") {
  const scratch_folder folder;
  byte_tokenizer().save(folder.path());
  check_added(folder.path());
}

TEST_CASE("a vocab.txt gets tokens through a tokenizer.json beside it") {
  const scratch_folder folder;
  put_file(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\ntool\n##fish\n");
  check_added(folder.path());
}

TEST_CASE("SentencePiece's tokens are added beside its model") {
  const std::string model = test_data("models/stories260K/tok512.model");
  if (model.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to stories260K");
    return;
  }
  const scratch_folder folder;
  put_file(folder / "tokenizer.model", get_file(model));
  check_added(folder.path());
  CHECK(folder.files() == std::vector<std::string>{"added_tokens.json", "tokenizer.model"});
}

TEST_CASE("an added token is named as a special one in every file that names them") {
  const scratch_folder folder;
  byte_tokenizer().save(folder.path());
  put_file(folder / "tokenizer_config.json",
           R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "pad_token": null, "added_tokens_decoder": {}})");
  put_file(folder / "special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})");
  (void)add_tokens(folder.path(), std::vector<std::string>{"[PAD]", "<s>"});
  const token pad = load_tokenizer(folder.path()).find_token("[PAD]");
  name_special_tokens(folder.path(), json::parse(R"({"pad_token": "[PAD]"})"));
  const json settings = read_json(folder / "tokenizer_config.json");
  CHECK(settings.at("pad_token") == "[PAD]");
  CHECK(settings.at("eos_token") == "<|endoftext|>");
  CHECK(settings.at("added_tokens_decoder").at(std::to_string(pad)).at("special") == true);
  CHECK(settings.at("added_tokens_decoder").at(std::to_string(pad + 1)).at("special") == false);
  CHECK(read_json(folder / "special_tokens_map.json") == json::parse(R"({"eos_token": "<|endoftext|>", "pad_token": "[PAD]"})"));
  const json whole = read_json(folder / "tokenizer.json");
  for (const json& one : whole.at("added_tokens"))
    if (one.at("content") == "[PAD]" || one.at("content") == "<s>") CHECK(one.at("special") == (one.at("content") == "[PAD]"));
  const tokenizer after = load_tokenizer(folder.path());
  CHECK(after.find_token("[PAD]") == pad);
  CHECK(after.decode(std::vector<token>{pad, 97}, special_text::left_out) == "a");
  CHECK_THROWS_WITH_AS(name_special_tokens(folder.path(), json::parse(R"({"unk_token": "<none>"})")),
                       doctest::Contains("must hold a tokenizer with the token '<none>', its unk_token"), config_error);
}

TEST_CASE("an end token that tokenizer_config.json names already may be among the tokens that are added") {
  const scratch_folder folder;
  byte_tokenizer().save(folder.path());
  put_file(folder / "tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  CHECK_THROWS_AS((void)load_tokenizer(folder.path()), config_error);
  CHECK_THROWS_WITH_AS((void)add_tokens(folder.path(), std::vector<std::string>{"<tool>"}), doctest::Contains("given '<|im_end|>'"), config_error);
  CHECK(add_tokens(folder.path(), std::vector<std::string>{"<|im_end|>"}) == 1);
  const tokenizer with = load_tokenizer(folder.path());
  CHECK(with.special().eos == with.find_token("<|im_end|>"));
}

TEST_CASE("what cannot be a token is refused, and nothing is written") {
  const scratch_folder folder;
  byte_tokenizer().save(folder.path());
  const std::string before = get_file(folder / "tokenizer.json");
  CHECK_THROWS_WITH_AS((void)add_tokens(folder.path(), std::vector<std::string>{"x", ""}), doctest::Contains("must have a text"),
                       config_error);
  CHECK(get_file(folder / "tokenizer.json") == before);
}

TEST_CASE("added tokens are in the vocabulary where another library would count on from it to other numbers") {
  const std::string added = R"("added_tokens": [{"id": 1, "content": "b"}, {"id": 5, "content": "x"}, {"id": 6, "content": "y"}])";
  json gap = json::parse(R"({"model": {"vocab": {"a": 0, "b": 1}}, )" + added + "}");
  detail::keep_numbers(gap);
  CHECK(gap["model"]["vocab"] == json{{"a", 0}, {"b", 1}, {"x", 5}, {"y", 6}});
  json none = json::parse(R"({"model": {"vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}}, )" + added + "}");
  const json before = none;
  detail::keep_numbers(none);
  CHECK(none == before);
}

TEST_CASE("ranks get tokens through a tokenizer.json beside them, whatever their file is called") {
  const std::string from = test_data("tokenizers");
  if (from.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to tokenizers");
    return;
  }
  const scratch_folder qwen, llama;
  put_file(qwen / "qwen.tiktoken", get_file(from + "/qwen/qwen.tiktoken"));
  put_file(llama / "tokenizer.model", get_file(from + "/llama3/tokenizer.model"));
  for (const scratch_folder* folder : {&qwen, &llama}) {
    const auto first = load_tokenizer(folder->path()).vocab_size();
    check_added(folder->path());
    const json whole = read_json(*folder / "tokenizer.json");
    auto next = static_cast<token>(whole["model"]["vocab"].size());  // next id that another library would assign
    for (const json& one : whole["added_tokens"])
      if (!whole["model"]["vocab"].contains(one["content"].get<std::string>())) CHECK(one["id"] == next++);
    CHECK(load_tokenizer(*folder / "tokenizer.json").find_token("zebrafish") == static_cast<token>(first + 1));
  }
  CHECK(llama.files() == std::vector<std::string>{"tokenizer.json", "tokenizer.model"});
}
