// A process that is a rank.
#include <cstdio>

#include <xtrain/mpi.hpp>
#include <xtrain/xtrain.hpp>

int main() try {
  xtrain::mpi_session session;
  session.run([](const std::shared_ptr<xtrain::transport>& network) { std::printf("rank %zu of %zu\n", network->rank(), network->size()); });
} catch (const std::exception& problem) {
  std::fprintf(stderr, "rank: %s\n", problem.what());
  return 1;
}
