// A run killed at random moments of saving: the last checkpoint is complete, and the resumed run gives the same result.
#include <doctest/doctest.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/core/json.hpp>

#include "scratch.hpp"
#include "small_run.hpp"

using namespace xtrain;

namespace {

pid_t start(const std::string& folder, std::size_t steps) {
  std::string program = SAVE_FOREVER, where = folder, count = concat(steps);
  char* arguments[] = {program.data(), where.data(), count.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  return child;
}
int finish(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

std::vector<float> weights_of(const std::string& checkpoint) {
  const auto model = small_run::model::from_pretrained(checkpoint);
  const auto values = model.parameters().trained_values().host();
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("killed a hundred times while saving, a run never loses a checkpoint and ends as if nothing had happened") {
  constexpr std::size_t steps = 3000, kills = 100;
  const scratch_folder folder;
  std::size_t killed = 0, last_step = 0, unfinished_seen = 0;
  std::size_t slowness = 1;  // of this machine and build: doubled while runs are killed before their first checkpoint
  for (std::size_t attempt = 0; killed < kills; ++attempt) {
    REQUIRE(attempt < 3 * kills);
    const pid_t child = start(folder.path(), steps);
    std::this_thread::sleep_for(std::chrono::microseconds(slowness * (20'000 + random_word({.seed = 8}, attempt) % 30'000)));
    ::kill(child, SIGKILL);
    if (!WIFSIGNALED(finish(child))) break;  // it had already finished
    ++killed;
    for (const std::string& name : folder.files()) unfinished_seen += name.ends_with(".part") ? 1 : 0;
    const auto found = checkpoints_in(folder.path());
    if (found.empty() && killed % 8 == 0) slowness *= 2;
    for (const auto& checkpoint : found) {
      const auto& step = checkpoint.first;
      const auto& path = checkpoint.second;
      CAPTURE(path);
      REQUIRE_NOTHROW((void)weights_of(path));
      REQUIRE_NOTHROW(safetensors_file(path + "/optimizer.safetensors"));
      REQUIRE(read_json(path + "/trainer_state.json")["step"].get<std::size_t>() == step);
    }
    if (!found.empty()) {
      REQUIRE(found.back().first >= last_step);  // never an earlier step
      last_step = found.back().first;
    }
  }
  MESSAGE("killed ", killed, " times, at step ", last_step, " of ", steps, "; ", unfinished_seen,
          " unfinished saves were left behind and ignored");
  CHECK(killed == kills);
  CHECK(last_step > 0);
  CHECK(unfinished_seen > 0);  // otherwise no kill hit a save: nothing was tested
  const std::size_t end = last_step + 20;
  REQUIRE(finish(start(folder.path(), end)) == 0);
  const scratch_folder undisturbed;
  REQUIRE(finish(start(undisturbed.path(), end)) == 0);
  const auto disturbed_end = checkpoints_in(folder.path()).back(), undisturbed_end = checkpoints_in(undisturbed.path()).back();
  CHECK(disturbed_end.first == end);
  CHECK(undisturbed_end.first == end);
  CHECK(weights_of(disturbed_end.second) == weights_of(undisturbed_end.second));  // bit for bit
}
