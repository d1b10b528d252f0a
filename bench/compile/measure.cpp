// Runs a command several times and prints the median of its processor time in seconds, and the peak memory in MiB of it or any of its
// children.
//
//   measure TIMES COMMAND...
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "measure TIMES COMMAND...\n");
    return 2;
  }
  std::vector<double> seconds;
  double mebibytes = 0;
  for (int run = 0; run < std::atoi(argv[1]); ++run) {
    pid_t child = 0;
    if (::posix_spawnp(&child, argv[2], nullptr, nullptr, argv + 2, environ) != 0) {
      std::fprintf(stderr, "measure: cannot start %s\n", argv[2]);
      return 2;
    }
    int status = 0;
    rusage used{};
    ::wait4(child, &status, 0, &used);
    if (status != 0) {
      std::fprintf(stderr, "measure: %s failed\n", argv[2]);
      return 1;
    }
    const auto of = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
    seconds.push_back(of(used.ru_utime) + of(used.ru_stime));
    mebibytes = std::max(mebibytes, static_cast<double>(used.ru_maxrss) / 1024.0);
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("%.2f %.0f\n", seconds[seconds.size() / 2], mebibytes);
}
