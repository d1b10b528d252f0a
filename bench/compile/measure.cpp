// Runs a command several times and prints the median of its processor time and the peak memory of it or any of its children.
//
//   measure NAME BUDGET_SECONDS BUDGET_MEBIBYTES TIMES COMMAND...
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "measure NAME BUDGET_SECONDS BUDGET_MEBIBYTES TIMES COMMAND...\n");
    return 2;
  }
  const double budget_seconds = std::atof(argv[2]), budget_mebibytes = std::atof(argv[3]);
  std::vector<double> seconds;
  double mebibytes = 0;
  for (int run = 0; run < std::atoi(argv[4]); ++run) {
    pid_t child = 0;
    if (::posix_spawnp(&child, argv[5], nullptr, nullptr, argv + 5, environ) != 0) {
      std::fprintf(stderr, "measure: cannot start %s\n", argv[5]);
      return 2;
    }
    int status = 0;
    rusage used{};
    ::wait4(child, &status, 0, &used);
    if (status != 0) {
      std::fprintf(stderr, "measure: %s failed\n", argv[1]);
      return 1;
    }
    const auto of = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
    seconds.push_back(of(used.ru_utime) + of(used.ru_stime));
    mebibytes = std::max(mebibytes, static_cast<double>(used.ru_maxrss) / 1024.0);
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const bool within = median <= budget_seconds && mebibytes <= budget_mebibytes;
  std::printf("%-12s %6.2f s of %4.0f s   %6.0f MiB of %4.0f MiB   %s\n", argv[1], median, budget_seconds, mebibytes, budget_mebibytes,
              within ? "within budget" : "OVER BUDGET");
}
