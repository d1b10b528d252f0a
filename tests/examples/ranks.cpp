// An example trainer whose strategy has ranks.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"
#include "scratch.hpp"

namespace {

program_result pretrain(const scratch_folder& folder, const std::string& output, std::vector<std::string> more) {
  const std::string path = folder / "text.txt";
  std::string text;
  for (int i = 0; i < 60; ++i) text += "one two three four five\n";
  put_file(path, text);
  std::vector<std::string> flags{EXAMPLES "/pretrain_on_ranks",
                                 "--tokenizer",
                                 "byte",
                                 "--num-layers",
                                 "3",
                                 "--hidden-size",
                                 "16",
                                 "--num-attention-heads",
                                 "2",
                                 "--seq-length",
                                 "16",
                                 "--data",
                                 path,
                                 "--output-dir",
                                 folder / output,
                                 "--learning-rate",
                                 "1e-2",
                                 "--max-steps",
                                 "20",
                                 "--metrics",
                                 folder / (output + ".jsonl")};
  flags.insert(flags.end(), more.begin(), more.end());
  return run_program(std::move(flags));
}
double last_loss(const scratch_folder& folder, const std::string& output) {
  const std::string record = get_file(folder / (output + ".jsonl")), before = "\"loss\":";
  const std::size_t at = record.rfind(before);
  REQUIRE(at != std::string::npos);
  return std::strtod(record.c_str() + at + before.size(), nullptr);
}

}  // namespace

TEST_CASE("stages, tensor-parallel ranks and data-parallel ranks train what one rank trains") {
  const scratch_folder folder;
  REQUIRE(pretrain(folder, "one", {"--micro-batch-size", "2", "--gradient-accumulation-steps", "2"}).status == 0);
  const auto four = pretrain(
      folder, "four", {"--micro-batch-size", "2", "--gradient-accumulation-steps", "2", "--ranks", "4", "--tensor-parallel-size", "2", "--timeout", "120"});
  CAPTURE(four.err);
  REQUIRE(four.status == 0);
  CHECK(std::abs(last_loss(folder, "one") - last_loss(folder, "four")) < 1e-4);
  const auto uneven = pretrain(
      folder, "uneven",
      {"--micro-batch-size", "2", "--gradient-accumulation-steps", "2", "--ranks", "2", "--num-layers-per-stage", "1,2", "--micro-batch-sizes", "1,3"});
  CAPTURE(uneven.err);
  REQUIRE(uneven.status == 0);
  CHECK(std::abs(last_loss(folder, "one") - last_loss(folder, "uneven")) < 1e-4);
  const auto beside =
      pretrain(folder, "beside", {"--micro-batch-size", "1", "--gradient-accumulation-steps", "2", "--ranks", "4", "--data-parallel-size", "2"});
  CAPTURE(beside.err);
  REQUIRE(beside.status == 0);
  CHECK(std::abs(last_loss(folder, "one") - last_loss(folder, "beside")) < 1e-4);
}

TEST_CASE("four ranks tokenise once, held-out data too, and train as one does") {
  const scratch_folder folder;
  const auto tokenised = [](const std::string& err) {
    std::size_t count = 0;
    for (std::size_t at = err.find(" tokens in "); at != std::string::npos; at = err.find(" tokens in ", at + 1)) ++count;
    return count;
  };
  const std::vector<std::string> step{"--micro-batch-size", "2", "--gradient-accumulation-steps", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), step.begin(), step.end());
    return more;
  };
  const auto one = pretrain(folder, "one", with({"--eval-data", folder / "text.txt"}));
  const auto four = pretrain(folder, "four", with({"--ranks", "4", "--tensor-parallel-size", "2", "--eval-data", folder / "text.txt"}));
  CAPTURE(four.err);
  REQUIRE(four.status == 0);
  CHECK(tokenised(one.err) == 2);
  CHECK(tokenised(four.err) == 2);
  CHECK(std::abs(last_loss(folder, "one") - last_loss(folder, "four")) < 1e-4);  // of the held-out data
  CHECK(four.err.find("--eval-data " + (folder / "text.txt") + ": ") != std::string::npos);
}

TEST_CASE("a plan of a pipeline does not go through all of its micro-batches") {
  running_program planning({EXAMPLES "/pretrain_on_ranks", "--plan", "--ranks", "2", "--num-layers", "3", "--hidden-size", "16", "--num-attention-heads", "2",
                            "--seq-length", "16", "--micro-batch-size", "1", "--gradient-accumulation-steps", "2000000"});
  CHECK(planning.wait().status == 0);
}

TEST_CASE("flags of ranks that cannot be are refused") {
  const scratch_folder folder;
  const auto refused = [&](const std::vector<std::string>& flags, int status, const std::string& why) {
    const auto run = pretrain(folder, "out", flags);
    CHECK(run.status == status);
    CHECK_MESSAGE(run.err.find(why) != std::string::npos, run.err);
  };
  refused({"--timeout", "0"}, 2, "a number of seconds from 0.1 to 1e9; given '0'");
  refused({"--timeout", "soon"}, 2, "a number of seconds from 0.1 to 1e9; given 'soon'");
  refused({"--ranks", "3", "--tensor-parallel-size", "2"}, 2, "tensor");
  refused({"--ranks", "2", "--num-layers-per-stage", "1,1"}, 2, "layers of all stages must be the model's 3");
  refused({"--ranks", "2", "--num-layers-per-stage", "1,two"}, 2, "non-negative integer");
  refused({"--ranks", "2", "--micro-batch-size", "2", "--gradient-accumulation-steps", "2", "--micro-batch-sizes", "1,4"}, 2, "sequences");
  refused({"--override-config", "other.json"}, 2, "none is given");
  refused({"--ranks", "2", "--micro-batch-size", "1000000000000"}, 2, "1000000000000");
}
