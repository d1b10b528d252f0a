// The example `evaluate`, run as on a command line.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>

#include "golden.hpp"
#include "program.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

const std::string folder = XTRAIN_GOLDEN "/benchmarks";

program_result evaluate(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {EXAMPLES "/evaluate", "--model", folder + "/model", "--data-dir", folder + "/data"});
  return run_program(std::move(flags));
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("results are a table, a file, and samples") {
  const scratch_folder f;
  const auto result = evaluate({"--tasks", "boolq,gsm8k", "--num-fewshot", "3", "--batch-size", "2", "--limit", "2", "--max-gen-toks", "12", "--output-path",
                                f / "results.json", "--log-samples"});
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  CHECK(holds(result.out, "|boolq"));
  CHECK(holds(result.out, "|flexible-extract|"));
  CHECK(holds(result.err, "boolq: 2 of 3 documents of " + folder + "/data/boolq/dev.jsonl"));
  CHECK(f.files() == std::vector<std::string>{"results.json", "samples_boolq.jsonl", "samples_gsm8k.jsonl"});
  const json all = read_json(f / "results.json");
  CHECK(all["results"]["boolq"].contains("acc,none"));
  CHECK(all["results"]["gsm8k"].contains("exact_match_stderr,strict-match"));
  CHECK(all["n-samples"]["boolq"]["effective"] == 2);
  CHECK(all["n-shot"]["gsm8k"] == 3);
}

TEST_CASE("TruthfulQA, whose six questions and answers are no examples") {
  const scratch_folder f;
  const auto result = evaluate({"--tasks", "truthfulqa_mc1,truthfulqa_mc2", "--output-path", f / "results.json"});
  REQUIRE_MESSAGE(result.status == 0, result.err);
  const json all = read_json(f / "results.json"), wanted = read_json(folder + "/expected.json")["tasks"];
  for (const char* name : {"truthfulqa_mc1", "truthfulqa_mc2"}) {
    CHECK(all["results"][name]["acc,none"].get<double>() == doctest::Approx(wanted[name]["metrics"]["acc,none"].get<double>()).epsilon(1e-4));
    CHECK(all["n-shot"][name] == 0);
  }
  CHECK_FALSE(all.contains("groups"));
}

TEST_CASE("WIKITEXT103 in place of tasks") {
  const scratch_folder f;
  put_file(f / "wiki.txt", "the sea , the river and the box of eggs . \n the sea\n");
  const std::vector<std::string> line{EXAMPLES "/evaluate", "--model", folder + "/model", "--max-length", "16", "--wikitext103", f / "wiki.txt"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), line.begin(), line.end());
    return run_program(std::move(more));
  };
  const auto result = with({"--overlapping-eval", "3", "--output-path", f / "results.json"});
  REQUIRE_MESSAGE(result.status == 0, result.err);
  CHECK(result.out.starts_with(" > number of original tokens: 14, number of detokenized tokens: "));
  CHECK(holds(result.out, "\n validation results on WIKITEXT103 | avg loss: "));
  const json found = read_json(f / "results.json")["results"]["wikitext103"];
  CHECK(found["perplexity,none"].get<double>() == doctest::Approx(std::exp(found["loss,none"].get<double>())));
  for (const auto& [flags, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "--overlapping-eval: must be from 1 to 16, the length of a window, so that no token is left out; given 32"},
           {{"--tasks", "boolq"}, "--tasks excludes --wikitext103"},
           {{"--limit", "1"}, "--limit excludes --wikitext103"},
           {{"--data-dir", "."}, "--data-dir excludes --wikitext103"}}) {
    const auto refused = with(flags);
    CAPTURE(refused.err);
    CHECK(refused.status == 2);
    CHECK(holds(refused.err, words));
  }
  CHECK(holds(evaluate({"--tasks", "boolq", "--no-bos"}).err, "--no-bos requires --wikitext103"));
  CHECK(holds(run_program({EXAMPLES "/evaluate", "--model", folder + "/model", "--wikitext103", f / "wiki.no"}).err, f / "wiki.no"));
}

TEST_CASE("wrong command lines of evaluate end with status 2 and say why") {
  CHECK(holds(evaluate({"--list-tasks"}).out, "\nmmlu_abstract_algebra\n"));
  for (const auto& [flags, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--tasks", "mmlux"}, "--tasks mmlux: there is no task or group 'mmlux'; did you mean 'mmlu'?"},
           {{}, "--model, and --tasks or --wikitext103, must be given"},
           {{"--tasks", "humaneval"}, "--output-path must be given"},
           {{"--tasks", "agieval_aqua_rat", "--num-fewshot", "2"}, "must be 0, because the task has no few-shot examples"},
           {{"--tasks", "boolq", "--max-length", "1000"}, "must not be longer than its 256 tokens"}}) {
    const auto result = evaluate(flags);
    CAPTURE(result.err);
    CHECK(result.status == 2);
    CHECK(holds(result.err, words));
  }
  // before loading the model: there is none
  const auto unwritable = run_program({EXAMPLES "/evaluate", "--model", folder + "/model", "--data-dir", folder + "/data", "--tokenizer", "no such folder",
                                       "--tasks", "boolq", "--output-path", folder + "/no such folder/results.json"});
  CHECK(unwritable.status == 1);
  CHECK(holds(unwritable.err, "--output-path " + folder + "/no such folder/results.json: "));
  CHECK(holds(evaluate({"--tasks", "boolq", "--output-path", folder}).err, "must be a file; it is a folder"));
  const auto full_disk = run_program({"/bin/sh", "-c", EXAMPLES "/evaluate --model " + folder + "/model --data-dir " + folder +
                                                           "/data --tasks boolq --limit 1 > /dev/full"});
  CHECK(full_disk.status == 1);
  CHECK(holds(full_disk.err, "standard output: must be writable; No space left on device"));
  const auto missing = evaluate({"--tasks", "mmlu_anatomy"});
  CHECK(missing.status == 1);
  CHECK(holds(missing.err, "mmlu_anatomy: must have its documents; looked for"));
}
