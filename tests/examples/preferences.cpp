// The trainer of preferences, run as on a command line.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>

#include "program.hpp"
#include "scratch.hpp"

namespace {

using words = std::vector<std::string>;

words operator+(words left, const words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}
program_result run(const std::string& name, const words& flags) { return run_program(words{EXAMPLES "/" + name} + flags); }
bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void make_model(const scratch_folder& folder) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one two three four five\n";
  put_file(folder / "text.txt", text);
  const auto result = run("pretrain", {"--tokenizer", "byte", "--num-layers", "1", "--hidden-size", "32", "--num-attention-heads", "2", "--seq-length", "512",
                                       "--micro-batch-size", "2", "--max-steps", "1", "--data", folder / "text.txt", "--output-dir", folder / "model"});
  REQUIRE_MESSAGE(result.status == 0, result.err);
}
void make_pairs(const std::string& path, int count = 16) {
  std::string records;
  for (int i = 0; i < count; ++i) {
    const std::string prompt = xtrain::concat("Answer ", i, ":");
    records += i % 2 == 0 ? R"({"prompt": ")" + prompt + R"(", "chosen": " yes", "rejected": " never"})"
                          : R"({"chosen": ")" + prompt + R"( yes", "rejected": ")" + prompt + R"( no"})";
    records += "\n";
  }
  put_file(path, records);
}
/// A number of every step in a record of metrics.
std::vector<double> numbers(const std::string& path, const std::string& name) {
  std::vector<double> all;
  const std::string text = get_file(path);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const auto line = xtrain::json::parse(text.substr(begin, end - begin));
    if (line.contains(name) && line.contains("rewards/margins")) all.push_back(line[name].get<double>());
    begin = end + 1;
  }
  REQUIRE(!all.empty());
  return all;
}
/// The run reports memory use as planned.
bool is_as_planned(const std::string& err) {
  const std::size_t taken = err.find("peak memory: "), planned = err.find(" (planned: ", taken), end = err.find(')', planned);
  if (end == std::string::npos) return false;
  return err.substr(taken + 13, planned - taken - 13) == err.substr(planned + 11, end - planned - 11);
}
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("preferences are learned: the margin of rewards rises, whatever the reference model comes from") {
  const scratch_folder folder;
  make_model(folder);
  make_pairs(folder / "pairs.jsonl");
  const words flags = {"--model", folder / "model", "--data", folder / "pairs.jsonl", "--micro-batch-size",
                       "4",       "--max-steps",    "12",     "--learning-rate",      "1e-2"};
  const auto tuned = run("finetune_dpo", flags + words{"--output-dir", folder / "tuned", "--metrics", folder / "tuned.jsonl", "--late-metrics"});
  CAPTURE(tuned.err);
  REQUIRE(tuned.status == 0);
  CHECK(holds(tuned.err, "reference model: " + folder / "model"));
  CHECK(holds(tuned.err, "rewards/margins"));
  CHECK(is_as_planned(tuned.err));
  const auto plan = run("finetune_dpo", flags + words{"--output-dir", folder / "tuned", "--plan"});
  CHECK(holds(plan.out, "\n  reference model\n    weights      "));
  const std::vector<double> losses = numbers(folder / "tuned.jsonl", "loss"), margins = numbers(folder / "tuned.jsonl", "rewards/margins");
  CHECK(losses.size() == 12);
  CHECK(std::abs(losses.front() - std::log(2.0)) < 1e-5);
  CHECK(std::abs(margins.front()) < 1e-5);
  CHECK(margins.back() > 0.5);
  CHECK(losses.back() < 0.5);

  // a file of log-probabilities: written by the first run, read by the second
  const words with_file = flags + words{"--reference-log-probs", folder / "reference.safetensors"};
  const auto made = run("finetune_dpo", with_file + words{"--output-dir", folder / "made", "--metrics", folder / "made.jsonl"});
  CAPTURE(made.err);
  REQUIRE(made.status == 0);
  CHECK(holds(made.err, "--reference-log-probs " + folder / "reference.safetensors" + ": computed"));
  CHECK(difference(losses, numbers(folder / "made.jsonl", "loss")) < 1e-5);
  const auto read = run("finetune_dpo", with_file + words{"--output-dir", folder / "read", "--metrics", folder / "read.jsonl"});
  CAPTURE(read.err);
  REQUIRE(read.status == 0);
  CHECK_FALSE(holds(read.err, "reference model"));
  CHECK(holds(read.err, "--reference-log-probs " + folder / "reference.safetensors" + ": computed by " + folder / "model"));
  CHECK(numbers(folder / "made.jsonl", "loss") == numbers(folder / "read.jsonl", "loss"));

  // an adapter: reference by disabling it, and by a second model
  const words adapter = flags + words{"--lora-rank", "4"};
  const auto off = run("finetune_dpo", adapter + words{"--output-dir", folder / "off", "--metrics", folder / "off.jsonl"});
  CAPTURE(off.err);
  REQUIRE(off.status == 0);
  CHECK_FALSE(holds(off.err, "reference model"));
  CHECK(std::filesystem::exists(folder / "off" + "/adapter_model.safetensors"));
  CHECK(numbers(folder / "off.jsonl", "rewards/margins").back() > 0.02);
  const auto second =
      run("finetune_dpo", adapter + words{"--reference-model", folder / "model", "--output-dir", folder / "second", "--metrics", folder / "second.jsonl"});
  REQUIRE(second.status == 0);
  CHECK(is_as_planned(off.err));
  CHECK(is_as_planned(second.err));
  CHECK(difference(numbers(folder / "off.jsonl", "loss"), numbers(folder / "second.jsonl", "loss")) < 1e-5);
}

TEST_CASE("settings of the objective are flags, and a resumed run says what has changed") {
  const scratch_folder folder;
  make_model(folder);
  make_pairs(folder / "pairs.jsonl");
  put_file(folder / "other.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                                   "\n");
  const words flags = {"--model", folder / "model", "--data", folder / "pairs.jsonl", "--micro-batch-size", "4", "--output-dir", folder / "out"};
  const auto first = run("finetune_dpo", flags + words{"--max-steps", "2", "--save-steps", "2", "--loss-type", "robust", "--label-smoothing", "0.1", "--beta",
                                                       "0.3", "--reference-log-probs", folder / "reference.safetensors"});
  CAPTURE(first.err);
  REQUIRE(first.status == 0);
  const auto resumed = run("finetune_dpo", flags + words{"--max-steps", "3", "--resume", "--loss-type", "hinge", "--beta", "0.2", "--eval-data",
                                                         folder / "other.jsonl", "--reference-log-probs", folder / "reference.safetensors",
                                                         "--eval-reference-log-probs", folder / "held-out.safetensors"});
  CAPTURE(resumed.err);
  CHECK(resumed.status == 0);
  for (const char* change : {"beta is 0.2, it was 0.3", "loss_type is \"hinge\", it was \"robust\"", "label_smoothing is 0.0, it was 0.1"})
    CHECK(holds(resumed.err, std::string("settings differ from those of the checkpoint: ") + change));
  CHECK(holds(resumed.err, "held-out loss"));
  CHECK_FALSE(holds(resumed.err, "data is "));
  make_pairs(folder / "pairs.jsonl", 18);  // as many steps in an epoch
  const auto other_data = run("finetune_dpo", flags + words{"--max-steps", "3", "--resume"});
  CAPTURE(other_data.err);
  CHECK(holds(other_data.err, "settings differ from those of the checkpoint: data is \"" + folder / "pairs.jsonl" + ": 36 samples"));
  make_pairs(folder / "pairs.jsonl");

  struct bad_line {
    words flags, says;
    int status = 2;
  };
  const words wrong = {"--model", folder / "model", "--data", folder / "pairs.jsonl", "--output-dir", folder / "wrong"};
  const std::vector<bad_line> lines = {
      {wrong + words{"--format", "text"}, {"--format", "must be one of preference"}},
      {wrong + words{"--packing"}, {"unknown flag '--packing'"}},
      {wrong + words{"--loss-type", "sigmod"}, {"--loss-type", "did you mean 'sigmoid'?"}},
      {wrong + words{"--beta", "0"}, {"--beta", "positive"}},
      {wrong + words{"--loss-type", "ipo", "--label-smoothing", "0.1"}, {"label_smoothing is for the kinds sigmoid and robust only"}},
      {wrong + words{"--micro-batch-size", "3"}, {"must be even"}},
      {wrong + words{"--reference-free", "--reference-model", folder / "model"}, {"--reference-free: there is no reference model"}},
      {wrong + words{"--reference-free", "--eval-data", folder / "other.jsonl", "--eval-reference-log-probs", folder / "x"},
       {"--reference-free: there is no reference model; leave --eval-reference-log-probs out"}},
      {wrong + words{"--lora-rank", "2", "--loraplus-lr-embedding", "1e-3"}, {"--loraplus-lr-embedding", "--loraplus-lr-ratio"}},
      {wrong + words{"--reference-log-probs", folder / "none/x"}, {"--reference-log-probs", "none/x"}, 1},
      {wrong + words{"--reference-model", folder / "out", "--reference-log-probs", folder / "reference.safetensors"},
       {"--reference-log-probs", "must be of the model in " + folder / "out", "it was computed by " + folder / "model"},
       1},
      {wrong + words{"--reference-log-probs", folder / "x", "--eval-data", folder / "other.jsonl"}, {"--eval-reference-log-probs: must be given, too"}},
      {wrong + words{"--reference-model", folder / "none"}, {"--reference-model", "none"}, 1},
      {words{"--model", folder / "model", "--data", folder / "other.jsonl", "--output-dir", folder / "wrong", "--reference-log-probs",
             folder / "reference.safetensors"},
       {"--reference-log-probs", "must be of the same data as"},
       1}};
  for (const bad_line& line : lines) {
    const auto result = run("finetune_dpo", line.flags);
    CAPTURE(result.err);
    CHECK(result.status == line.status);
    for (const std::string& part : line.says) CHECK(holds(result.err, part));
  }
}

TEST_CASE("LLaMA-Factory's demo of preferences") {
  const std::string demo = test_data("instruct/llamafactory/dpo_en_demo.json");
  if (demo.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to instruct/llamafactory");
    return;
  }
  const scratch_folder folder;
  make_model(folder);
  const auto tuned =
      run("finetune_dpo", {"--model", folder / "model", "--data", demo, "--chat-template", "chatml", "--overlong", "truncate", "--micro-batch-size", "4",
                           "--max-steps", "6", "--learning-rate", "1e-2", "--output-dir", folder / "tuned", "--metrics", folder / "tuned.jsonl"});
  CAPTURE(tuned.err);
  REQUIRE(tuned.status == 0);
  CHECK(holds(tuned.err, "600 samples"));
  CHECK(std::abs(numbers(folder / "tuned.jsonl", "loss").front() - std::log(2.0)) < 1e-4);
  CHECK(numbers(folder / "tuned.jsonl", "rewards/margins").size() == 6);
}
