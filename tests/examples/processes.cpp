// A trainer whose ranks are processes, started by mpirun.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/io.hpp>

#include "program.hpp"
#include "scratch.hpp"

namespace {

using words = std::vector<std::string>;

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}
double last_loss(const std::string& record) {
  const std::string text = get_file(record), before = "\"loss\":";
  const std::size_t at = text.rfind(before);
  REQUIRE(at != std::string::npos);
  return std::strtod(text.c_str() + at + before.size(), nullptr);
}

/// Ranks of one run. Each writes process id, standard error and exit status into pid.<rank>, err.<rank> and status.<rank>.
struct started_ranks {
  scratch_folder folder{};
  running_program launcher;

  started_ranks(std::size_t ranks, const words& flags, const std::string& program = "pretrain_by_mpi")
      : launcher(command(folder, ranks, flags, program)) {}

  static words command(const scratch_folder& folder, std::size_t ranks, const words& flags, const std::string& program) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "one two three four five\n";
    put_file(folder / "text.txt", text);
    words all{
        MPIEXEC,
        "-n",
        std::to_string(ranks),
        "/bin/sh",
        "-c",
        "cd \"$0\"; r=$OMPI_COMM_WORLD_RANK; \"$@\" 2> err.$r & echo $! > pid.$r.part; mv pid.$r.part pid.$r; wait $!; echo $? > status.$r.part; mv status.$r.part status.$r",
        folder.path(),
        EXAMPLES "/" + program,
        "--tokenizer",
        "byte",
        "--num-layers",
        "1",
        "--hidden-size",
        "16",
        "--num-attention-heads",
        "2",
        "--seq-length",
        "16",
        "--data",
        folder / "text.txt",
        "--output-dir",
        folder / "out",
        "--metrics",
        folder / "record.jsonl",
        "--learning-rate",
        "1e-2"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  [[nodiscard]] bool has(const std::string& name) const { return xtrain::file_exists(folder / name); }
  [[nodiscard]] std::string err(std::size_t rank) const { return get_file(folder / ("err." + std::to_string(rank))); }
  [[nodiscard]] pid_t process(std::size_t rank) const { return static_cast<pid_t>(std::stol(get_file(folder / ("pid." + std::to_string(rank))))); }
  [[nodiscard]] int status(std::size_t rank) const { return std::stoi(get_file(folder / ("status." + std::to_string(rank)))); }
  /// Waits until a condition holds or the launcher has ended.
  template <class Holds>
  void wait_until(Holds&& holds) const {
    while (!launcher.ended() && !holds()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
};

}  // namespace

TEST_CASE("four processes tokenise once, and train as one does") {
  started_ranks one(1, {"--max-steps", "20", "--micro-batch-size", "4", "--eval-data", "text.txt"}),
      four(4, {"--max-steps", "20", "--micro-batch-size", "1", "--eval-data", "text.txt"});
  CHECK(one.launcher.wait().status == 0);
  CHECK_MESSAGE(one.status(0) == 0, one.err(0));
  const auto result = four.launcher.wait();
  CAPTURE(result.err);
  REQUIRE(result.status == 0);
  std::string said;
  for (std::size_t r = 0; r < 4; ++r) said += four.err(r);
  CAPTURE(said);
  CHECK(count(said, " tokens in ") == 2);  // the data, and the held-out data
  CHECK(std::abs(last_loss(one.folder / "record.jsonl") - last_loss(four.folder / "record.jsonl")) < 1e-4);  // of the held-out data
}

TEST_CASE("when one process gets a signal, all end with its status, and a checkpoint is there") {
  for (const std::size_t asked : {0U, 1U}) {
    started_ranks ranks(2, {"--max-steps", "100000000"});
    ranks.wait_until([&] { return holds(ranks.err(0), "step 1/"); });
    REQUIRE(holds(ranks.err(0), "step 1/"));
    ::kill(ranks.process(asked), SIGTERM);
    (void)ranks.launcher.wait();
    CAPTURE(ranks.err(0));
    CAPTURE(ranks.err(1));
    CHECK(ranks.status(0) == 128 + SIGTERM);
    CHECK(ranks.status(1) == 128 + SIGTERM);
    CHECK(xtrain::checkpoints_in(ranks.folder / "out").size() == 1);
  }
}

namespace {

void hangs(const std::string& program) {
  CAPTURE(program);
  started_ranks ranks(3, {"--max-steps", "100000000", "--timeout", "2"}, program);
  ranks.wait_until([&] { return holds(ranks.err(0), "step 1/"); });
  REQUIRE(holds(ranks.err(0), "step 1/"));
  ::kill(ranks.process(2), SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  ranks.wait_until([&] { return ranks.has("status.0") && ranks.has("status.1"); });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - stopped).count();
  ::kill(ranks.process(2), SIGKILL);
  (void)ranks.launcher.wait();
  CAPTURE(ranks.err(0));
  CAPTURE(ranks.err(1));
  REQUIRE(ranks.has("status.0"));
  REQUIRE(ranks.has("status.1"));
  CHECK(ranks.status(0) == 1);
  CHECK(ranks.status(1) == 1);
  const std::string named = " has waited 2 s for rank 2";
  CHECK((holds(ranks.err(0), named) || holds(ranks.err(1), named)));
  CHECK(seconds < 60.0);  // well below the default of ten minutes
}

}  // namespace

TEST_CASE("a process that hangs is named by those that wait for it, after --timeout") {
  hangs("pretrain_by_mpi");
  hangs("pretrain_rehearsed");
}

TEST_CASE("a wrong command line ends every process with 2") {
  started_ranks ranks(2, {"--max-steps", "1", "--max-memory", "1K"});
  (void)ranks.launcher.wait();
  CHECK(ranks.status(0) == 2);
  CHECK(ranks.status(1) == 2);
}

namespace {

/// Ranks that are threads of one process.
program_result threads(const scratch_folder& folder, const std::string& program, const std::string& output, const words& flags) {
  words all = started_ranks::command(folder, 1, {}, program);
  all.erase(all.begin(), all.begin() + 7);  // mpirun and its shell
  for (std::string& one : all)
    if (one == folder / "out") one = folder / output;
    else if (one == folder / "record.jsonl") one = folder / (output + ".jsonl");
  all.insert(all.end(), flags.begin(), flags.end());
  if (std::find(flags.begin(), flags.end(), "--ranks") == flags.end()) all.insert(all.end(), {"--ranks", "2"});
  return run_program(std::move(all));
}
std::string weights(const std::string& folder) { return get_file(folder + "/model.safetensors"); }

}  // namespace

TEST_CASE("two ranks with a GPU each train as on the cpu, as threads over NCCL or by way of the host, and as processes") {
  const scratch_folder folder;
  started_ranks processes(2, {"--max-steps", "4"}, "pretrain_rehearsed");
  const program_result nccl = threads(folder, "pretrain_rehearsed", "nccl", {"--max-steps", "4", "--collectives", "nccl"}),
                       host = threads(folder, "pretrain_rehearsed", "host", {"--max-steps", "4", "--collectives", "host"}),
                       cpu = threads(folder, "pretrain_by_mpi", "cpu", {"--max-steps", "4"});
  (void)processes.launcher.wait();
  CAPTURE(nccl.err);
  CAPTURE(host.err);
  CAPTURE(processes.err(0));
  CAPTURE(processes.err(1));
  REQUIRE(nccl.status == 0);
  REQUIRE(host.status == 0);
  REQUIRE(cpu.status == 0);
  REQUIRE(processes.status(0) == 0);
  REQUIRE(processes.status(1) == 0);
  CHECK(count(processes.err(0), "messages between GPUs go by way of the host") == 1);
  CHECK(count(nccl.err + host.err + processes.err(1), "by way of the host") == 0);
  // a sum over two ranks has one order
  CHECK(weights(folder / "nccl") == weights(folder / "host"));
  CHECK(weights(folder / "nccl") == weights(processes.folder / "out"));
  CHECK(weights(folder / "nccl").size() == weights(folder / "cpu").size());
  CHECK(std::abs(last_loss(folder / "nccl.jsonl") - last_loss(folder / "cpu.jsonl")) < 1e-5);  // near 5 after 4 steps: fp32 rounds to 2^-22
}

TEST_CASE("a trainer for a GPU takes the GPU that is named, plans for its memory, and refuses a device that it is not compiled for") {
  const scratch_folder folder;
  const program_result named = threads(folder, "pretrain_rehearsed", "named", {"--max-steps", "2", "--ranks", "1", "--device", "cuda:1"}),
                       plan = threads(folder, "pretrain_rehearsed", "plan", {"--ranks", "1", "--plan"}),
                       cpu = threads(folder, "pretrain_rehearsed", "cpu", {"--ranks", "1", "--device", "cpu"});
  CAPTURE(named.err);
  CAPTURE(plan.err);
  CAPTURE(cpu.err);
  CHECK(named.status == 0);
  CHECK(holds(named.out + named.err, "device     cuda\n"));
  CHECK(holds(named.out + named.err, "step 2/2  loss "));
  CHECK(holds(plan.out + plan.err, "GPU        cuda, fake GPU, device 0, sm_90, 4 multiprocessors, 2.00 GiB free"));
  CHECK(cpu.status == 2);
  CHECK(holds(cpu.err, "--device cpu: must be cuda or cuda:N, which this program is compiled for"));
}

TEST_CASE("a GPU's step is captured and launched as a whole, with the results of kernels launched one by one") {
  const scratch_folder folder;
  ::setenv("XTRAIN_REHEARSAL_COUNTS", "1", 1);
  const program_result captured = threads(folder, "pretrain_rehearsed", "captured", {"--max-steps", "4", "--ranks", "1"}),
                       launched = threads(folder, "pretrain_rehearsed", "launched", {"--max-steps", "4", "--ranks", "1", "--no-capture-steps"});
  ::unsetenv("XTRAIN_REHEARSAL_COUNTS");
  CAPTURE(captured.err);
  CAPTURE(launched.err);
  REQUIRE(captured.status == 0);
  REQUIRE(launched.status == 0);
  CHECK(holds(captured.err, "captured steps launched: 4\n"));
  CHECK(holds(launched.err, "captured steps launched: 0\n"));
  CHECK(weights(folder / "captured") == weights(folder / "launched"));
}

TEST_CASE("a GPU that fails ends the run of both ranks, with the GPU's error, whatever moves the data") {
  const scratch_folder folder;
  for (const auto& [by, work] : {std::pair{"nccl", "300"}, {"host", "500"}}) {  // in the first steps
    CAPTURE(by);
    ::setenv("XTRAIN_REHEARSAL_FAILURE", work, 1);
    const program_result run = threads(folder, "pretrain_rehearsed", "failed", {"--max-steps", "1000", "--collectives", by});
    ::unsetenv("XTRAIN_REHEARSAL_FAILURE");
    CAPTURE(run.err);
    CHECK(run.status == 1);
    CHECK(holds(run.err, "an illegal memory access was encountered"));
    CHECK(!holds(run.err, "rehearsal: "));
  }
}
