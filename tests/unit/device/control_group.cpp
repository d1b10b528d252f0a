// Control groups from files, and the system's limits.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include <xtrain/device/host.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

/// A file system with these files.
struct machine_files : scratch_folder {
  machine_files(const std::string& group, const std::string& mounts, const std::vector<std::pair<std::string, std::string>>& files) {
    put("/proc/self/cgroup", group);
    put("/proc/self/mountinfo", mounts);
    for (const auto& [name, text] : files) put(name, text);
  }
  void put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path() + name).parent_path());
    put_file(path() + name, text);
  }
};

constexpr auto none = ~std::size_t{0};
const std::string version_2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string version_1 =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

}  // namespace

TEST_CASE("the least of all groups around the process counts, in both versions") {
  const machine_files two("0::/user.slice/job_7/step_0\n", version_2,
                          {{"/sys/fs/cgroup/user.slice/memory.max", "max\n"},
                           {"/sys/fs/cgroup/user.slice/job_7/memory.max", "157286400\n"},
                           {"/sys/fs/cgroup/user.slice/job_7/step_0/memory.max", "1073741824\n"},
                           {"/sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n"},
                           {"/sys/fs/cgroup/user.slice/job_7/step_0/cpu.max", "max 100000\n"}});
  CHECK(detail::control_group_memory(two.path()) == 157286400);
  CHECK(detail::control_group_processors(two.path()) == 4);

  const machine_files one("4:memory:/slurm/job_7\n3:cpu,cpuacct:/slurm/job_7\n0::/elsewhere\n", version_1,
                          {{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                           {"/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "4294967296\n"},
                           {"/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "2147483648\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us", "200000\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us", "100000\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "-1\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n"}});
  CHECK(detail::control_group_memory(one.path()) == 2147483648);
  CHECK(detail::control_group_processors(one.path()) == 2);
}

TEST_CASE("a container sees its own part of the tree, and a process may be outside of what it sees") {
  const std::string mounted = "35 31 0:32 /docker/4f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  const machine_files container("4:memory:/docker/4f/inner\n", mounted,
                                {{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n"}, {"/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "5000\n"}});
  CHECK(detail::control_group_memory(container.path()) == 3000);
  const machine_files outside("0::/../../job\n", version_2, {{"/sys/fs/cgroup/memory.max", "7000\n"}});
  CHECK(detail::control_group_memory(outside.path()) == 7000);
}

TEST_CASE("files that are missing or say something else allow everything") {
  CHECK(detail::control_group_memory("/nonexistent") == none);
  CHECK(detail::control_group_processors("/nonexistent") == none);
  const machine_files strange("nonsense\n0:\n0::\n::::\n", "30 23\n- - - -\n" + version_2 + "30 23 0:26 / /sys/fs/cgroup rw - cgroup2\n",
                              {{"/sys/fs/cgroup/memory.max", "-5\n"}, {"/sys/fs/cgroup/cpu.max", "0 0\n"}});
  CHECK(detail::control_group_memory(strange.path()) == none);
  CHECK(detail::control_group_processors(strange.path()) == none);
}

TEST_CASE("what is left of ulimit -v is what may be used, and a run that needs more is refused before anything is taken") {
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned long long pages = 0;
    if (std::sscanf(detail::read_system_file("/proc/self/statm").c_str(), "%llu", &pages) != 1) ::_exit(2);
    constexpr std::size_t more = std::size_t{64} << 20;
    const std::size_t taken = static_cast<std::size_t>(pages) * static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
    const rlimit limit{taken + more, taken + more};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(3);
    const std::size_t available = detail::host_memory_available();
    ::_exit(available <= more && available > more / 2 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
