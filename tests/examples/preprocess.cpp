// The example `preprocess`, run as on a command line.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/data/indexed_dataset.hpp>

#include "program.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

std::vector<std::string> with_program(std::vector<std::string> flags) {
  flags.insert(flags.begin(), EXAMPLES "/preprocess_data");
  return flags;
}
program_result preprocess(std::vector<std::string> flags) { return run_program(with_program(std::move(flags))); }
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void refuses(std::vector<std::string> flags, const std::string& words, int status) {
  const auto result = preprocess(std::move(flags));
  CAPTURE(result.err);
  CHECK(result.status == status);
  CHECK(holds(result.err, words));
}

}  // namespace

TEST_CASE("data is tokenized by Megatron's flags, and what is not supported is refused") {
  const scratch_folder f;
  put_file(f / "a.jsonl", "{\"content\": \"one\"}\n{\"content\": \"\"}\n{\"content\": \"two\"}\n");
  const std::vector<std::string> flags{"--input",        f / "*.jsonl", "--output-prefix", f / "out", "--tokenizer", "byte",
                                       "--dataset-impl", "mmap",        "--json-keys",     "content", "--workers",   "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  const auto result = preprocess(with({"--append-eod", "--streaming", "--tokenizer-not-use-fast"}));
  CAPTURE(result.err);
  CHECK(result.status == 0);
  CHECK(holds(result.out, "wrote       3 documents, 8 tokens"));
  CHECK(holds(result.out, "empty       1 texts, each a document without a sequence"));
  const indexed_file data(f / "out_content_document");
  CHECK(data.dtype() == indexed_dtype::u16);
  CHECK(data.documents() == 3);
  CHECK(data.sequences() == 2);
  CHECK(data.tokens() == 8);
  refuses(with({"--split-sentences"}), "--split-sentences: is not supported", 2);
  refuses(with({"--dataset-impl", "lazy"}), "preprocess_data: --dataset-impl", 2);
  refuses(with({"--is-instruction-dataset", "--handler-name", "GeneralPretrainHandler"}),
          "--is-instruction-dataset: needs a handler of instructions", 2);
  refuses(with({"--seq-length", "7"}), "--seq-length: needs a handler of instructions", 2);
  refuses({"--input", f / "none.jsonl", "--output-prefix", f / "x", "--tokenizer", "byte"},
          "none.jsonl: must be a file, a folder or a pattern", 1);
  refuses({"--input", f / "a.jsonl", "--output-prefix", f / "x", "--tokenizer", "byte"},
          "a.jsonl: line 1: a record must have 'text'; it is missing", 1);
  put_file(f / "tokenizer.json", R"({"model": {"type": "WordLevel", "vocab": {"one": 0, "two": 1, "</s>": 2}, "unk_token": "one"},
      "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}})");
  std::vector<std::string> ended{"--input", f / "a.jsonl", "--output-prefix", f / "e", "--tokenizer", f / "tokenizer.json", "--json-keys", "content"};
  CHECK(holds(preprocess(ended).err, "note: the tokenizer ends a text with </s>; documents end without it, because --append-eod is not given\n"));
  ended.emplace_back("--append-eod");
  CHECK(preprocess(ended).err.empty());
  refuses({"--input", f / "no\x1b[31m\nfile", "--output-prefix", f / "x", "--tokenizer", "byte"}, "no\\x1b[31m\\nfile: must be a pattern", 1);
  refuses({"--input", f / "a.jsonl", "--output-prefix", f / "x", "--tokenizer", "byte", "--handler-name", "NoHandler"}, "a handler must be one of", 2);
}

TEST_CASE("a program that is killed goes on, and ends with the same bytes") {
  const scratch_folder f;
  std::string lines;
  for (int i = 0; i < 4000; ++i)
    lines += json{{"text", std::string(static_cast<std::size_t>(i * 37 % 5003) + 1, static_cast<char>('a' + i % 26))}}.dump() + "\n";
  put_file(f / "a.jsonl", lines);
  const auto flags = [&](const std::string& name) {
    return with_program({"--input", f / "a.jsonl", "--output-prefix", f / name, "--tokenizer", "byte", "--append-eod", "--workers", "2",
                         "--sync-interval", "0"});
  };
  REQUIRE(run_program(flags("whole")).status == 0);
  std::size_t kills = 0, seed = 3;
  for (bool ended = false; !ended && kills < 50;) {
    seed = seed * 1103515245 % 2147483648U;
    running_program one(flags("cut"));
    for (std::size_t waited = seed % 60000; waited > 0 && !one.ended(); waited -= std::min<std::size_t>(waited, 500)) ::usleep(500);
    if (one.ended()) {
      const auto result = one.wait();
      CAPTURE(result.err);
      REQUIRE(result.status == 0);
      ended = true;
      continue;
    }
    one.send(SIGKILL);
    (void)one.wait();
    ++kills;
    // both files exist if it was killed after writing; otherwise there is no index of a partial file
    if (std::filesystem::exists(f / "cut_text_document.idx"))
      CHECK(get_file(f / "cut_text_document.bin") == get_file(f / "whole_text_document.bin"));
  }
  if (kills == 50) REQUIRE(run_program(flags("cut")).status == 0);
  for (const char* end : {".bin", ".idx"})
    CHECK(get_file(f / (std::string("cut_text_document") + end)) == get_file(f / (std::string("whole_text_document") + end)));
  CHECK(!std::filesystem::exists(f / "cut_preprocess.json"));
  CHECK(!std::filesystem::exists(f / "cut_text_document.bin.part"));
}

TEST_CASE("FlagAI's example dataset is written byte for byte") {
  const std::string folder = test_data("formats/megatron/flagai"), gpt2 = test_data("tokenizers/gpt2");
  if (folder.empty() || gpt2.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA names no folder with formats/megatron/flagai and tokenizers/gpt2");
    return;
  }
  const scratch_folder f;
  const auto result =
      preprocess({"--input", folder + "/demo.jsonl", "--output-prefix", f / "demo", "--vocab-file", gpt2 + "/vocab.json", "--merge-file",
                  gpt2 + "/merges.txt", "--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--prepend-bos", "--workers", "2"});
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  for (const char* end : {".bin", ".idx"})
    CHECK(get_file(f / (std::string("demo_text_document") + end)) == get_file(folder + "/demo_text_document" + end));
}

TEST_CASE("Parquet and JSON Lines of the same records are the same tokens") {
  const std::string parquet = test_data("formats/parquet/gsm8k_test.parquet"), lines = test_data("bench/gsm8k/test.jsonl");
  if (parquet.empty() || lines.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA names no folder with formats/parquet and bench/gsm8k");
    return;
  }
  const scratch_folder f;
  const auto run = [&](const std::string& input, const std::string& name) {
    return preprocess(
        {"--input", input, "--output-prefix", f / name, "--tokenizer", "byte", "--json-keys", "question", "answer", "--append-eod"});
  };
  REQUIRE(run(lines, "lines").status == 0);
  const auto result = run(parquet, "rows");
  if (holds(result.err, "needs Apache Arrow")) {
    MESSAGE("skipped: built without Apache Arrow");
    return;
  }
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  for (const char* end : {"question_document.bin", "question_document.idx", "answer_document.bin", "answer_document.idx"})
    CHECK(get_file(f / (std::string("rows_") + end)) == get_file(f / (std::string("lines_") + end)));
  put_file(f / "cut.parquet", get_file(parquet).substr(0, 100000));
  CHECK(holds(run(f / "cut.parquet", "cut").err, "cut.parquet: must be readable"));
  put_file(f / "cut.arrow", "no Arrow file, and long enough");
  CHECK(holds(run(f / "cut.arrow", "cut").err, "cut.arrow: must be readable"));
}
