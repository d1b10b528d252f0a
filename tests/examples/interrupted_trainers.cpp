// Example trainers that are stopped, killed, restarted, or run out of resources. NO_LOCKS: a library to preload, or empty.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include <xtrain/io.hpp>

#include "program.hpp"
#include "scratch.hpp"
#include "trainer_runs.hpp"

TEST_CASE("a run that was stopped by Ctrl-C goes on with --resume to the same weights, bit for bit") {
  const scratch_folder folder;
  const words flags = words{"--max-steps", "1500", "--save-steps", "400", "--seed", "3"};
  REQUIRE(run("pretrain", pretrain_flags(folder, "whole") + flags).status == 0);

  running_program stopped(words{EXAMPLES "/pretrain"} + pretrain_flags(folder, "halves") + flags);
  while (!stopped.ended() && !holds(stopped.err(), "step 150/1500")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stopped.send(SIGINT);
  const auto first = stopped.wait();
  CAPTURE(first.err);
  REQUIRE(first.status == 128 + SIGINT);
  REQUIRE(holds(first.err, "; no model is saved yet: resume it with --resume\n"));
  REQUIRE(holds(first.err, "stopped after step "));  // or it was too fast to be stopped
  CHECK_FALSE(std::filesystem::exists(folder / "halves" + "/model.safetensors"));

  const auto again = run("pretrain", pretrain_flags(folder, "halves") + flags);
  CHECK(again.status == 2);  // an earlier run is not overwritten by accident
  CHECK(holds(again.err, "--resume"));
  const auto rest = run("pretrain", pretrain_flags(folder, "halves") + flags + words{"--resume"});
  CAPTURE(rest.err);
  REQUIRE(rest.status == 0);
  CHECK(holds(rest.err, "resuming after step "));
  CHECK(bytes_of_weights(folder / "halves") == bytes_of_weights(folder / "whole"));
  const auto longer = run("pretrain", pretrain_flags(folder, "halves") + flags + words{"--max-grad-norm", "2", "--resume"});
  CHECK(longer.status == 0);
  CHECK(holds(longer.err, "warning: settings differ from those of the checkpoint: max_grad_norm is 2.0, it was 1.0\n"));
  CHECK_FALSE(holds(longer.err, "no step is left"));
  const auto complete = run("pretrain", pretrain_flags(folder, "halves") + words{"--max-steps", "1200", "--seed", "3", "--resume"});
  CHECK(complete.status == 0);
  CHECK(holds(complete.err, "no step is left after the checkpoint's step 1200: nothing was trained\n"));
  const auto other = run("pretrain", pretrain_flags(folder, "halves") + words{"--max-steps", "1600", "--seed", "4", "--resume"});
  CHECK(other.status == 2);
  CHECK(holds(other.err, "seed"));
}

namespace {

/// A child process of another process; 0: none.
pid_t child_of(pid_t parent) {
  const std::string children = get_file(xtrain::concat("/proc/", parent, "/task/", parent, "/children"));
  return children.empty() ? 0 : static_cast<pid_t>(std::stol(children));
}

}  // namespace

TEST_CASE("a run that is killed is restarted, as often as it was said, and comes to the same weights") {
  const scratch_folder folder;
  const words flags = words{"--max-steps", "3000", "--save-steps", "100", "--save-total-limit", "2"};
  REQUIRE(run("pretrain", pretrain_flags(folder, "whole") + flags).status == 0);

  running_program watched(words{EXAMPLES "/pretrain"} + pretrain_flags(folder, "killed") + flags + words{"--max-restarts", "3"});
  pid_t killed = 0;
  const auto kill_after = [&](std::size_t step) {
    while (!watched.ended()) {
      const auto found = xtrain::checkpoints_in(folder / "killed");
      const pid_t child = child_of(watched.id());
      if (!found.empty() && found.back().first >= step && child != 0 && child != killed) {
        ::kill(child, SIGKILL);
        killed = child;
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  kill_after(200);
  kill_after(600);
  const auto result = watched.wait();
  CAPTURE(result.err);
  CHECK(result.status == 0);
  CHECK(holds(result.err, "pretrain: the run was killed by signal 9 (Killed); restarted, 1 of 3, from step "));
  CHECK(holds(result.err, "restarted, 2 of 3, from step "));
  CHECK(bytes_of_weights(folder / "killed") == bytes_of_weights(folder / "whole"));
}

TEST_CASE("what would fail again is not restarted, and who asks a run to end asks its child") {
  const scratch_folder folder;
  const words flags = words{"--max-steps", "100000", "--save-steps", "50", "--save-total-limit", "1", "--max-restarts", "2"};
  const auto nothing = run("pretrain", tiny + words{"--data", folder / "missing.txt", "--output-dir", folder / "out"} + flags);
  CHECK(nothing.status == 1);
  CHECK(holds(nothing.err, "pretrain: the run failed with status 1; it saved no checkpoint before that, and would fail again: not restarted\n"));
  const auto unsaved = run("pretrain", pretrain_flags(folder, "out") + words{"--max-steps", "1", "--max-restarts", "1"});
  CHECK(unsaved.status == 2);
  CHECK(unsaved.err == "pretrain: --max-restarts: needs --output-dir and --save-steps: a run resumes from its last checkpoint\n");

  running_program watched(words{EXAMPLES "/pretrain"} + pretrain_flags(folder, "out") + flags);
  while (!watched.ended() && xtrain::checkpoints_in(folder / "out").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto beside = run("pretrain", pretrain_flags(folder, "out") + words{"--max-steps", "5", "--resume"});
  CHECK(beside.status == 1);
  CHECK(holds(beside.err, ": another run writes there; it must end first, or another folder be chosen\n"));
  watched.send(SIGTERM);
  const auto result = watched.wait();
  CHECK(result.status == 128 + SIGTERM);
  CHECK(holds(result.err, "stopped after step "));
  CHECK_FALSE(holds(result.err, "restarted"));
}

TEST_CASE("until a run trains, a signal ends it at once") {
  const scratch_folder folder;
  put_file(folder / "large.txt", "");
  std::filesystem::resize_file(folder / "large.txt", std::uintmax_t{2} << 30);  // takes seconds to tokenize
  xtrain::make_folder(folder / "temporary");
  running_program tokenising(words{"/usr/bin/env", "TMPDIR=" + (folder / "temporary"), EXAMPLES "/pretrain"} + tiny +
                             words{"--data", folder / "large.txt", "--output-dir", folder / "out", "--max-steps", "1"});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto sent = std::chrono::steady_clock::now();
  tokenising.send(SIGTERM);
  const auto ended = tokenising.wait();
  CHECK(ended.status == 128 + SIGTERM);
  CHECK(std::chrono::steady_clock::now() - sent < std::chrono::seconds(5));
  CHECK_FALSE(holds(ended.err, "stopped after step"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  CHECK(std::filesystem::is_empty(folder / "temporary"));  // no partial dataset is left that could be taken for a whole one
}

TEST_CASE("where a file system has no locks, a run says so and goes on; a locked folder gets no tokenizer either") {
  const scratch_folder folder;
  const words flags = pretrain_flags(folder, "model") + words{"--max-steps", "1"};
  if (const std::string no_locks = NO_LOCKS; !no_locks.empty()) {
    const auto unlocked = run_program(words{"/usr/bin/env", "LD_PRELOAD=" + no_locks, EXAMPLES "/pretrain"} + flags);
    CHECK(unlocked.status == 0);
    CHECK(holds(unlocked.err, "warning: --output-dir " + folder / "model" + ": its file system has no locks; nothing keeps a second run from writing there\n"));
  }
  const auto locked = run("pretrain", flags);
  CHECK(locked.status == 0);
  CHECK_FALSE(holds(locked.err, "has no locks"));
  xtrain::make_folder(folder / "taken");
  const xtrain::folder_lock other(folder / "taken", "another run writes there");
  const auto refused = run(
      "finetune", {"--model", folder / "model", "--data", text_file(folder), "--max-steps", "1", "--add-tokens", "<tool>", "--output-dir", folder / "taken"});
  CHECK(refused.status == 1);
  CHECK(holds(refused.err, "another run writes there"));
  CHECK_FALSE(std::filesystem::exists(folder / "taken/tokenizer.json"));
}

TEST_CASE("what a launcher has started as several processes does not train as often") {
  const scratch_folder folder;
  const auto launched = [&](const words& variables, const words& flags) {
    return run_program(words{"/usr/bin/env"} + variables + words{EXAMPLES "/pretrain"} + flags);
  };
  const words flags = pretrain_flags(folder, "out") + words{"--max-steps", "2"};
  const auto by_mpirun = launched({"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4"}, flags);
  CHECK(by_mpirun.status == 2);
  CHECK(holds(by_mpirun.err, "pretrain: launch: mpirun (Open MPI) has started this process as one of 4, but this trainer's strategy has one rank"));
  CHECK(launched({"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"}, flags).status == 2);
  CHECK(launched({"RANK=0", "WORLD_SIZE=2"}, flags).status == 2);
  CHECK(holds(launched({"PMI_RANK=0", "PMI_SIZE=2"}, flags + words{"--save-steps", "1", "--max-restarts", "1"}).err, "restart the launcher"));
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  CHECK(launched({"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"}, flags).status == 0);  // one process is one run
}

TEST_CASE("a full disk ends a run with an error and leaves the last checkpoint whole") {
  const scratch_folder folder;
  REQUIRE(run("pretrain", pretrain_flags(folder, "out") + words{"--max-steps", "4", "--save-steps", "2"}).status == 0);
  const auto before = bytes_of_weights(folder / "out");
  {
    const limited_file_size disk(4096);  // inherited by the program
    const auto result = run("pretrain", pretrain_flags(folder, "out") + words{"--max-steps", "8", "--save-steps", "2", "--resume"});
    CAPTURE(result.err);
    CHECK(result.status == 1);
  }
  CHECK(bytes_of_weights(folder / "out") == before);
  const auto checkpoints = xtrain::checkpoints_in(folder / "out");
  REQUIRE(!checkpoints.empty());
  CHECK(checkpoints.back().first == 4);
  CHECK(run("pretrain", pretrain_flags(folder, "out") + words{"--max-steps", "8", "--save-steps", "2", "--resume"}).status == 0);
}

TEST_CASE("a log that a full disk does not take is reported once, and the run goes on") {
  const scratch_folder folder;
  const auto result = run("pretrain", pretrain_flags(folder, "model") + words{"--max-steps", "3", "--metrics", "/dev/full"});
  CAPTURE(result.err);
  CHECK(result.status == 0);
  const std::string warning = "warning: /dev/full: the record must be written; the disk may be full; training goes on without it\n";
  CHECK(holds(result.err, warning));
  CHECK(result.err.find(warning) == result.err.rfind(warning));
  CHECK(std::filesystem::exists(folder / "model/model.safetensors"));
}

TEST_CASE("a limit of files, a reader that has gone and closed streams are told or harmless; a terminal that is closed is a stop") {
  const scratch_folder folder;
  const auto shell = [](const std::string& line) { return run_program({"/bin/bash", "-c", line}); };
  std::string pretrain = EXAMPLES "/pretrain";
  for (const std::string& word : pretrain_flags(folder, "out")) pretrain += " '" + word + "'";
  const auto limited = shell("ulimit -f 8; exec " + pretrain + " --max-steps 2");
  CAPTURE(limited.err);
  CHECK(limited.status == 1);
  CHECK(holds(limited.err, "File too large"));

  const auto unread = shell("set -o pipefail; " EXAMPLES "/pretrain --help | true");
  CAPTURE(unread.err);
  CHECK((unread.status == 0 || (unread.status == 1 && holds(unread.err, "standard output: must be writable"))));

  std::filesystem::remove_all(folder / "out");
  REQUIRE(shell(pretrain + " --max-steps 20 --metrics " + folder / "log" + " <&- >&- 2>&-").status == 0);
  const std::string log = get_file(folder / "log");
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < log.size(); begin = log.find('\n', begin) + 1, ++lines) CHECK(log[begin] == '{');
  CHECK(lines > 20);

  const words flags = {"--max-steps", "1000000", "--save-steps", "1000000"};
  running_program hung(words{EXAMPLES "/pretrain"} + pretrain_flags(folder, "hung") + flags);
  while (!hung.ended() && !holds(hung.err(), "step 1/")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  hung.send(SIGHUP);
  hung.send(SIGHUP);
  const auto stopped = hung.wait();
  CAPTURE(stopped.err);
  CHECK(stopped.status == 128 + SIGHUP);
  CHECK_FALSE(xtrain::checkpoints_in(folder / "hung").empty());
}
