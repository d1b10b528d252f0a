// Start parameters from the environment variables of every supported launcher.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include <xtrain/comm/launch.hpp>

using namespace xtrain;

namespace {

launched_process started(const std::map<std::string, std::string>& variables) {
  return launched([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("a process that nobody launched is by itself") {
  const launched_process one = started({});
  CHECK(one.launcher.empty());
  CHECK(one.alone());
  CHECK(one.rank == 0);
  CHECK(one.local_size == 1);
}

TEST_CASE("every launcher's variables are understood") {
  const auto check = [](const launched_process& one, std::string_view launcher, std::size_t local_rank, std::size_t local_size) {
    CHECK(one.launcher == launcher);
    CHECK(one.rank == 5);
    CHECK(one.size == 8);
    CHECK(one.local_rank == local_rank);
    CHECK(one.local_size == local_size);
    CHECK_FALSE(one.alone());
  };
  check(started({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
        "mpirun (Open MPI)", 1, 4);
  check(started({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}}), "mpiexec (PMI)", 1, 4);
  check(started({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "3(x2),2"}}), "srun", 2, 3);
  check(started({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}}), "a launcher (RANK, WORLD_SIZE)", 1, 2);
  CHECK(started({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}}).mpi);
  CHECK_FALSE(started({{"RANK", "5"}, {"WORLD_SIZE", "8"}}).mpi);  // such a launcher does not imply MPI
}

TEST_CASE("where only MPI knows how many there are, a process is not taken to be alone") {
  const launched_process one = started({{"PMIX_RANK", "0"}});
  CHECK(one.size == 0);
  CHECK_FALSE(one.alone());
}

TEST_CASE("mpirun inside a job of Slurm is mpirun") {
  const launched_process one = started(
      {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMIX_RANK", "3"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(one.launcher == "mpirun (Open MPI)");
  CHECK(one.rank == 3);
  CHECK(one.size == 4);
}

TEST_CASE("a batch script's own process is by itself, and so is one that found half of the variables") {
  CHECK(started({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).launcher.empty());
  CHECK(started({{"WORLD_SIZE", "8"}}).launcher.empty());
}

TEST_CASE("variables that make no sense are refused by name") {
  CHECK_THROWS_WITH_AS((void)started({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
                       "OMPI_COMM_WORLD_RANK: must be a whole number; given 'x'", config_error);
  CHECK_THROWS_WITH_AS((void)started({{"PMI_RANK", "4"}, {"PMI_SIZE", "4"}}), "PMI_RANK: must be below PMI_SIZE; given 4 and 4", config_error);
  CHECK_THROWS_WITH_AS((void)started({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2),-"}}),
                       "SLURM_STEP_TASKS_PER_NODE: must be a whole number; given '-'", config_error);
}

TEST_CASE("a process keeps its share of the processors, and leaves a choice that was made already") {
  cpu_set_t before, after;
  REQUIRE(::sched_getaffinity(0, sizeof(before), &before) == 0);
  CHECK_FALSE(keep_to_own_processors({}));
  const auto all = static_cast<std::size_t>(CPU_COUNT(&before));
  const bool changed = keep_to_own_processors({.rank = 1, .size = 2, .local_rank = 1, .local_size = 2});
  REQUIRE(::sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(static_cast<std::size_t>(CPU_COUNT(&after)) == (changed ? all / 2 : all));
  const cpu_set_t of_pool = detail::processors_of_process();  // also restricts the shared pool
  CHECK((!changed || CPU_EQUAL(&of_pool, &after)));
  CHECK_FALSE((changed && keep_to_own_processors({.rank = 1, .size = 2, .local_rank = 1, .local_size = 2})));
  CHECK(keep_to_processors(before));
}
