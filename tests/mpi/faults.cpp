// A rank that fails, as a separate program: tests what mpirun does then.
//
//   faults <folder> reduces    reduces until it is killed; the folder gets a file with each rank's process id
//   faults <folder> cut        the same with a short timeout, for when the network is cut
//   faults <folder> throws     rank 1 throws after some steps
//   faults <folder> early      rank 1 throws before its work begins
//   faults <folder> hangs      rank 1 does nothing any more, and is waited for until the timeout
//   faults <folder> both       rank 1 does nothing any more, rank 0 throws
//   faults <folder> forgets    rank 0 sends what nobody takes, and returns without having waited for it
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/mpi.hpp>

namespace {

void work(const std::shared_ptr<xtrain::transport>& network, std::string_view mode) {
  xtrain::group all(network), others(network, 1);
  // the memory of a message that is dropped stays: MPI may still read it
  static std::vector<float> values(100'000);
  std::vector<double> loss(1);
  for (int step = 0;; ++step) {
    if (step == 100 && mode == "throws" && all.rank() == 1) xtrain::fail<xtrain::file_error>("disk: full");
    if (step == 100 && mode == "both" && all.rank() == 0) xtrain::fail<xtrain::file_error>("disk: full");
    while (step == 100 && (mode == "hangs" || mode == "both") && all.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
    if (step == 100 && mode == "forgets" && all.rank() == 0) {
      (void)network->send(1, 7, std::as_bytes(std::span(values)));
      return;
    }
    all.all_reduce(std::span<float>(values), xtrain::reduction::sum);
    others.all_reduce(std::span<double>(loss), xtrain::reduction::sum);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string_view mode = argv[2];
  try {
    const bool impatient = mode == "hangs" || mode == "cut";
    xtrain::mpi_session session({.timeout = std::chrono::milliseconds(impatient ? 1500 : 600'000), .grace = std::chrono::seconds(2)});
    const std::string path = xtrain::concat(argv[1], "/rank_", session.rank());
    if (std::FILE* file = std::fopen(path.c_str(), "w")) {
      std::fprintf(file, "%d\n", static_cast<int>(getpid()));
      std::fclose(file);
    }
    if (mode == "early" && session.rank() == 1) xtrain::fail<xtrain::file_error>("disk: missing");
    session.run([&](const auto& network) { work(network, mode); });
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
}
